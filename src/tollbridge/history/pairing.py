"""Pair tool calls with their results, and convert both to text for servers that do not accept them.

Providers require one result per call, after the calls of the same answer and in their order. Editors put
results into user messages, lose some, and keep some whose call they have lost. Servers reuse call ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from tollbridge.history.contents import Changes
from tollbridge.history.names import CallIds
from tollbridge.types.messages import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    match_results,
)
from tollbridge.types.text import write_json

MISSING_RESULT = "The tool did not return a result."
ORPHAN_RESULT = "[The result of a tool call that is not part of this conversation:]"
# Precedes images and files of other roles: the protocol allows them only in user messages.
SOURCE_NOTES = {Role.ASSISTANT: "[From the assistant's answer:]", Role.SYSTEM: "[From the system prompt:]"}


def pair_results(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Put each result after its call. No content is lost.

    A call without a result gets a placeholder, and a result without a call becomes text. Duplicate calls are
    removed, and duplicate ids replaced.
    """
    distinct = [_remove_duplicate_calls(message, changes) for message in messages]
    matches = match_results(distinct)
    matched_results = set(matches.values())
    parts = (part for message in distinct for part in message.parts)
    ids = CallIds(part.call_id for part in parts if isinstance(part, ToolCallPart))
    builder = _ConversationBuilder(changes)
    for message_index, message in enumerate(distinct):
        builder.start_message()
        for part_index, part in enumerate(message.parts):
            position = message_index, part_index
            match part:
                case ToolCallPart():
                    matched = matches.get(position)
                    result = distinct[matched[0]].parts[matched[1]] if matched is not None else None
                    builder.add_call(part, ids.assign(part.call_id), result)
                    if matched is not None and matched < position:
                        changes.add("order", f"Moved the result of {part.name} after its call.")
                case ToolResultPart():
                    builder.flush_results()
                    if position not in matched_results:
                        builder.add_orphan(part)
                case ThinkingPart():
                    builder.add_content(Role.ASSISTANT, part)
                case DataPart() if message.role is not Role.USER:
                    changes.count("moved")
                    builder.add_content(Role.USER, TextPart(SOURCE_NOTES[message.role]), part)
                case _:
                    builder.add_content(message.role, part)
    builder.flush_results()
    return builder.messages


def _remove_duplicate_calls(message: Message, changes: Changes) -> Message:
    """Remove calls that are equal to an earlier call of the same message, including the id."""
    parts: list[Part] = []
    calls: dict[tuple[str, str], list[ToolCallPart]] = {}  # calls cannot be hashed, ids and names can
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            earlier = calls.setdefault((part.call_id, part.name), [])
            if part in earlier:
                changes.add("twice", f"Removed a duplicate call to {part.name}.")
                continue
            earlier.append(part)
        parts.append(part)
    return message if len(parts) == len(message.parts) else Message(message.role, tuple(parts))


class _ConversationBuilder:
    """Builds a conversation in which the results of adjacent calls follow these calls."""

    def __init__(self, changes: Changes) -> None:
        self._messages: list[tuple[Role, list[Part]]] = []
        self._changes = changes
        self._results: list[ToolResultPart] = []
        self._is_new_message = False

    @property
    def messages(self) -> list[Message]:
        return [Message(role, tuple(parts)) for role, parts in self._messages]

    def start_message(self) -> None:
        """Start a new message with the next part."""
        self._is_new_message = True

    def add_content(self, role: Role, *parts: Part) -> None:
        """Add parts other than calls and results, after the results of the calls before them."""
        self.flush_results()
        self._append(role, *parts)

    def add_call(self, call: ToolCallPart, sent_id: str, result: Part | None) -> None:
        self._append(Role.ASSISTANT, ToolCallPart(sent_id, call.name, call.input, call.metadata))
        if sent_id != call.call_id:
            self._changes.add("id", f"Replaced an invalid or duplicate call ID ({call.name}).")
        if not isinstance(result, ToolResultPart):
            self._changes.add("missing", f"Added a placeholder result for a call to {call.name}.")
            result = ToolResultPart(sent_id, (TextPart(MISSING_RESULT),), is_error=True)
        self._results.append(ToolResultPart(sent_id, result.parts, result.is_error))

    def add_orphan(self, result: ToolResultPart) -> None:
        """Add a result without a call as text."""
        self._changes.add("orphan", "Converted a tool result without a call to text.")
        self._append(Role.USER, TextPart(ORPHAN_RESULT), *result.parts)

    def flush_results(self) -> None:
        """Add the results of the calls so far."""
        if self._results:
            self._append(Role.USER, *self._results)
            self._results = []

    def _append(self, role: Role, *parts: Part) -> None:
        if not self._messages or self._messages[-1][0] is not role or self._is_new_message:
            self._messages.append((role, []))
        self._messages[-1][1].extend(parts)
        self._is_new_message = False


FROM_TOOL = "[From a tool result:]"


def calls_as_text(
    messages: Sequence[Message], changes: Changes, only: frozenset[str] | None = None
) -> list[Message]:
    """Convert calls and results to text.

    Args:
        messages: The messages, with paired calls and results.
        only: The ids of the calls to convert, together with the other calls of the same messages. By default
            all calls are converted.
    """
    chosen = messages if only is None else [message for message in messages if _contains(message, only)]
    ids = {part.call_id for message in chosen for part in _calls_and_results(message)}
    if ids:
        changes.add("spoken", "Sent tool calls and their results as text.")
    converted: list[Message] = []
    for message in messages:
        if _contains(message, ids):
            parts = [new for part in message.parts for new in _to_text(part, ids)]
            # Results that are not converted come first, directly after their calls.
            parts.sort(key=lambda part: not isinstance(part, ToolResultPart))
            message = Message(message.role, tuple(parts))
        converted.append(message)
    return converted


def _calls_and_results(message: Message) -> list[ToolCallPart | ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolCallPart | ToolResultPart)]


def _contains(message: Message, ids: AbstractSet[str]) -> bool:
    return any(part.call_id in ids for part in _calls_and_results(message))


def results_as_text(message: Message, changes: Changes) -> Message:
    """Reduce results to text, and put their images and files after them in the same message."""
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    files = [item for result in results for item in result.parts if isinstance(item, DataPart)]
    if not files:
        return message
    changes.add("results", "Sent the images and files of tool results in a message after them.")
    others = [part for part in message.parts if not isinstance(part, ToolResultPart)]
    return Message(message.role, (*map(_text_result, results), TextPart(FROM_TOOL), *files, *others))


def _text_result(result: ToolResultPart) -> ToolResultPart:
    """Replace the files of a result by notes."""
    parts = [
        part if isinstance(part, TextPart) else TextPart(f"[{part.mime}, {len(part.data):,} bytes: below]")
        for part in result.parts
    ]
    return ToolResultPart(result.call_id, parts, result.is_error)


def _to_text(part: Part, ids: AbstractSet[str]) -> list[Part]:
    """Convert a call or a result with one of these ids to text."""
    match part:
        case ToolCallPart(call_id) | ToolResultPart(call_id) if call_id not in ids:
            return [part]
        case ToolCallPart(call_id, name, arguments):
            return [TextPart(f"[Called the tool {name} ({call_id}) with {write_json(arguments)}]\n")]
        case ToolResultPart(call_id, parts, is_error):
            kind = "The error" if is_error else "The result"
            return [TextPart(f"[{kind} of the tool call {call_id}:]"), *parts]
        case ThinkingPart():
            return []  # the proof of reasoning is valid only before an actual call
        case _:
            return [part]


def system_as_user(messages: Iterable[Message]) -> list[Message]:
    """Move the system prompt into a first user message."""
    all_messages = list(messages)
    system = [part for message in all_messages if message.role is Role.SYSTEM for part in message.parts]
    rest = [message for message in all_messages if message.role is not Role.SYSTEM]
    return [Message(Role.USER, tuple(system)), *rest] if system else rest
