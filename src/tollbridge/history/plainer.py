"""Histories for servers that take less than the protocol has: the same words, in plainer forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from tollbridge.core.json import write_json
from tollbridge.core.messages import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.history.changes import Changes

FROM_TOOL = "[From the result of a tool:]"


def text_results(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Results of text alone; their images and files stand after them, in the same message."""
    return [_with_text_results(message, changes) for message in messages]


def spoken_calls(
    messages: Sequence[Message], changes: Changes, only: frozenset[str] | None = None
) -> list[Message]:
    """Calls and results told as text, for servers that take none back; `only` those ids, where they are
    given, and those that were made with them."""
    ids = {part.call_id for message in messages for part in _calls(message)}
    if only is not None:
        ids = {call.call_id for message in messages if _holds(message, only) for call in _calls(message)}
    if ids:
        changes.say("spoken", "Tool calls and their results were sent as text.")
    return [_with_spoken(message, ids) if _holds(message, ids) else message for message in messages]


def _calls(message: Message) -> list[ToolCallPart | ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolCallPart | ToolResultPart)]


def _holds(message: Message, ids: AbstractSet[str]) -> bool:
    return any(call.call_id in ids for call in _calls(message))


def _with_spoken(message: Message, ids: AbstractSet[str]) -> Message:
    parts = [said for part in message.parts for said in _spoken(part, ids)]
    # A result that stays one must stand first, right after its call.
    return Message(message.role, tuple(sorted(parts, key=lambda part: not isinstance(part, ToolResultPart))))


def _with_text_results(message: Message, changes: Changes) -> Message:
    files = [
        each
        for part in message.parts
        if isinstance(part, ToolResultPart)
        for each in part.parts
        if isinstance(each, DataPart)
    ]
    if not files:
        return message
    changes.say("results", "Images and files of tool results were sent in a message after them.")
    results: list[Part] = [_text_alone(part) for part in message.parts if isinstance(part, ToolResultPart)]
    others = [part for part in message.parts if not isinstance(part, ToolResultPart)]
    return Message(message.role, (*results, TextPart(FROM_TOOL), *files, *others))


def _text_alone(result: ToolResultPart) -> ToolResultPart:
    parts = [
        part if isinstance(part, TextPart) else TextPart(f"[{part.mime}, {len(part.data):,} bytes: below]")
        for part in result.parts
    ]
    return ToolResultPart(result.call_id, parts, result.is_error)


def _spoken(part: Part, ids: AbstractSet[str]) -> list[Part]:
    match part:
        case ToolCallPart(call_id) | ToolResultPart(call_id) if call_id not in ids:
            return [part]
        case ToolCallPart(call_id, name, given):
            return [TextPart(f"[Called the tool {name} ({call_id}) with {write_json(given)}]\n")]
        case ToolResultPart(call_id, parts, is_error):
            what = "The error" if is_error else "The result"
            return [TextPart(f"[{what} of the tool call {call_id}:]"), *parts]
        case ThinkingPart():
            return []  # a proof holds for calls that are calls
        case _:
            return [part]


def system_as_user(messages: Iterable[Message]) -> list[Message]:
    """The system prompt as the first words of the user, for servers that know no other role."""
    found = list(messages)
    system = [part for message in found if message.role is Role.SYSTEM for part in message.parts]
    rest = [message for message in found if message.role is not Role.SYSTEM]
    return [Message(Role.USER, tuple(system)), *rest] if system else rest
