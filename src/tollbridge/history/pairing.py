"""Calls and results: each call answered once, right after the calls made with it, in their order.

An editor puts results where the user speaks, forgets some, and keeps some whose call it has forgotten;
servers use the same id for a call in every turn. Nothing of it may reach a provider, and nothing of it is
lost: a call without a result gets a stand-in, a result without a call becomes text.
"""

from __future__ import annotations

from collections.abc import Sequence

from tollbridge.core.answers import Place, match_results
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
from tollbridge.history.names import CallIds

MISSING = "The tool did not give a result."
ORPHAN = "[The result of a tool call that is not part of this conversation:]"
# Images and files stand in a user's message: the wire has no other place for them.
MADE = {Role.ASSISTANT: "[From the assistant's answer:]", Role.SYSTEM: "[From the system prompt:]"}


def paired(given: Sequence[Message], changes: Changes) -> list[Message]:
    messages = [_once(message, changes) for message in given]
    answers = match_results(messages)
    matched = set(answers.values())
    parts = (part for message in messages for part in message.parts)
    ids = CallIds(part.call_id for part in parts if isinstance(part, ToolCallPart))
    writing = _Writing(changes)
    for at, message in enumerate(messages):
        writing.begin()
        for number, part in enumerate(message.parts):
            match part:
                case ToolCallPart():
                    answer = answers.get((at, number))
                    result = _result_at(messages, answer)
                    writing.call(part, ids.give(part.call_id), result)
                    if result is not None and answer is not None and answer < (at, number):
                        changes.say("order", f"A result of {part.name} stood before its call.")
                case ToolResultPart():
                    writing.close()
                    if (at, number) not in matched:
                        writing.orphan(part)
                case ThinkingPart():
                    writing.say(Role.ASSISTANT, part)
                case DataPart() if message.role is not Role.USER:
                    changes.count("moved")
                    writing.say(Role.USER, TextPart(MADE[message.role]), part)
                case _:
                    writing.say(message.role, part)
    writing.close()
    return writing.messages


def _once(message: Message, changes: Changes) -> Message:
    """A call that is told twice, word for word, is one."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCallPart) and part in parts:
            changes.say("twice", f"A call of {part.name} that stood there twice was sent once.")
        else:
            parts.append(part)
    return Message(message.role, tuple(parts))


def _result_at(messages: Sequence[Message], place: Place | None) -> ToolResultPart | None:
    part = messages[place[0]].parts[place[1]] if place is not None else None
    return part if isinstance(part, ToolResultPart) else None


class _Writing:
    """The conversation as it is written anew: calls gather until something else is said."""

    def __init__(self, changes: Changes) -> None:
        self.messages: list[Message] = []
        self._changes = changes
        self._results: list[ToolResultPart] = []
        self._begun = False

    def begin(self) -> None:
        """Another message begins: what is said now is not a part of the one before."""
        self._begun = True

    def say(self, role: Role, *parts: Part) -> None:
        self.close()
        self._append(role, *parts)

    def call(self, call: ToolCallPart, sent_id: str, result: ToolResultPart | None) -> None:
        self._append(Role.ASSISTANT, ToolCallPart(sent_id, call.name, call.input, call.metadata))
        if sent_id != call.call_id:
            self._changes.say(
                "id", f"The id of a call of {call.name} was replaced: it was used, or not legal."
            )
        if result is None:
            self._changes.say("missing", f"A call of {call.name} had no result; a stand-in says so.")
            result = ToolResultPart(sent_id, (TextPart(MISSING),), is_error=True)
        self._results.append(ToolResultPart(sent_id, result.parts, result.is_error))

    def orphan(self, result: ToolResultPart) -> None:
        self._changes.say("orphan", "A tool result without its call was kept as text.")
        self._append(Role.USER, TextPart(ORPHAN), *result.parts)

    def close(self) -> None:
        """The calls are made: their results come now."""
        if self._results:
            self._append(Role.USER, *self._results)
            self._results = []

    def _append(self, role: Role, *parts: Part) -> None:
        last = self.messages[-1] if self.messages else None
        if last is None or last.role is not role or self._begun:
            self.messages.append(Message(role, parts))
        else:
            self.messages[-1] = Message(role, (*last.parts, *parts))
        self._begun = False
