"""Histories for servers that take less than the protocol has: the same words, in plainer forms."""

from __future__ import annotations

from collections.abc import Iterable

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


def spoken_calls(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Calls and results told as text, for servers that take none back."""
    found: list[Message] = []
    for message in messages:
        if any(isinstance(part, ToolCallPart | ToolResultPart) for part in message.parts):
            changes.say("spoken", "Tool calls and their results were sent as text.")
        parts = [said for part in message.parts for said in _spoken(part)]
        found.append(Message(message.role, tuple(parts)))
    return found


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


def _spoken(part: Part) -> list[Part]:
    match part:
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
