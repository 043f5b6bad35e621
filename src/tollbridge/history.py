"""Histories made legal: what a gateway would refuse is mended before it is sent, and said."""

from __future__ import annotations

from collections.abc import Iterable

from tollbridge.core.messages import Message, Part, Role, TextPart, ToolCallPart, ToolResultPart

MISSING = "The tool did not give a result."


def legal(messages: Iterable[Message]) -> tuple[list[Message], list[str]]:
    """The history as a gateway takes it, and a sentence for each change.

    Every call is answered, right after the message that makes it; a result without a call becomes text, so
    that nothing is lost; messages with nothing in them are left out.
    """
    changes: list[str] = []
    found = [message for message in messages if not _empty(message)]
    results = _results(found)
    calls = {part.call_id for message in found for part in message.parts if isinstance(part, ToolCallPart)}
    mended: list[Message] = []
    called: set[str] = set()
    for message in found:
        parts: list[Part] = []
        made: list[ToolCallPart] = []
        for part in message.parts:
            match part:
                case ToolCallPart() if part.call_id in called:
                    changes.append(f"A second call with the id of an earlier one ({part.name}) was left out.")
                case ToolCallPart():
                    called.add(part.call_id)
                    made.append(part)
                    parts.append(part)
                case ToolResultPart() if part.call_id not in calls:
                    changes.append("A tool result without its call was kept as text.")
                    parts += _as_text(part)
                case ToolResultPart() if part is not results[part.call_id]:
                    changes.append("A second result of one call was kept as text.")
                    parts += _as_text(part)
                case ToolResultPart():
                    if part.call_id not in called:
                        changes.append("A tool result that came before its call was put after it.")
                case _:
                    parts.append(part)
        left = Message(message.role, tuple(parts), message.name)
        if not _empty(left):
            mended.append(left)
        if made:
            answers = [results.get(call.call_id) or _missing(call, changes) for call in made]
            mended.append(Message(Role.USER, tuple(answers)))
    return mended, changes


def _results(messages: Iterable[Message]) -> dict[str, ToolResultPart]:
    """The result of each call: the first that was given."""
    results: dict[str, ToolResultPart] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                results.setdefault(part.call_id, part)
    return results


def _empty(message: Message) -> bool:
    return not any(not isinstance(part, TextPart) or part.text for part in message.parts)


def _as_text(result: ToolResultPart) -> list[Part]:
    return [TextPart("[Result of a tool]"), *result.parts]


def _missing(call: ToolCallPart, changes: list[str]) -> ToolResultPart:
    changes.append(f"A call of {call.name} had no result; a stand-in says so.")
    return ToolResultPart(call.call_id, (TextPart(MISSING),), is_error=True)
