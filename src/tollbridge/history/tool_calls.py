"""Histories for servers that take less than the protocol has: the same words, in plainer forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tollbridge.history.content import CallIds, Changes
from tollbridge.types.messages import (
    DataPart,
    Message,
    Part,
    PartIndex,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    match_results,
)
from tollbridge.types.text import read_json, replace_surrogates, replace_surrogates_deep, write_json

# SECTION Arguments of tool calls that are not JSON: mended where there is one way to read them, else kept as text.
#
# Two strengths. What a model has just said is mended only where nothing can be lost by it, because a tool will
# run with the result: arguments that break off are not completed. What stands in a history is only read again,
# so there a text that breaks off is closed.

# The one key of an object that carries arguments which make no sense (docs/decisions/invalid-tool-arguments.md).
INVALID = "_invalid_arguments"
# Longer texts are carried as they are: mending reads them several times.
REPAIR_LIMIT = 1024 * 1024

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}


def wrap_arguments(text: str) -> dict[str, Any]:
    """Arguments that no tool can run with, as an object that says so to whoever validates it."""
    return {INVALID: text}


def repair_arguments(text: str, *, complete: bool = False) -> dict[str, Any] | None:
    """The object a text means, or `None`. With `complete`, one that breaks off is closed where it ends."""
    if not text.strip():
        return {}
    if len(text) > REPAIR_LIMIT:
        return _object(text)
    readings = [text, _unfenced(text), _without_trailing_commas(text)]
    if complete:
        readings.append(_without_trailing_commas(_closed(text)))
    for reading in readings:
        found = _object(reading)
        if found is not None:
            return found
    return None


def valid_input(given: Any) -> tuple[dict[str, Any], bool]:
    """What a call in a history was made with, as an object JSON can say; and whether it had to be changed."""
    if given is None:
        return {}, False
    if isinstance(given, Mapping):
        return _plain(given)
    if isinstance(given, str):
        text = replace_surrogates(given)
        found = repair_arguments(text, complete=True)
        return (wrap_arguments(text) if found is None else replace_surrogates_deep(found)), True
    try:
        return replace_surrogates_deep(wrap_arguments(write_json(given))), True
    except (ValueError, OverflowError):
        return replace_surrogates_deep(wrap_arguments(_shown(given))), True


def _plain(given: Mapping[Any, Any]) -> tuple[dict[str, Any], bool]:
    """JSON's own idea of the object: what it cannot say is shown in Python's words for it."""
    try:
        text = write_json(given)
        found = read_json(text)
    except (ValueError, OverflowError):
        return replace_surrogates_deep(wrap_arguments(_shown(given))), True
    if "\\ud" in text:  # only what holds half a character is written with escapes
        return replace_surrogates_deep(found), True
    return found, False


def _shown(given: object) -> str:
    try:
        return repr(given)
    except RecursionError:
        return "[nested too deeply to be shown]"


def _object(text: str) -> dict[str, Any] | None:
    """The object, also where it is JSON inside a JSON string, holds raw line breaks, or is said twice."""
    value: Any = text
    for _ in range(3):  # a string in a string in a string: deeper than any server nests
        if not isinstance(value, str):
            break
        value = _one_value(value)
    return value if isinstance(value, dict) else None


def _one_value(text: str) -> Any:
    """The one value in a text. An empty object before the real one is how some adapters begin."""
    decoder = json.JSONDecoder(strict=False)
    found: Any = None
    rest = text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        if found is not None and found not in ({}, value):
            return None
        found, rest = value, rest[end:].strip()
    return found


def _unfenced(text: str) -> str:
    fenced = _FENCE.match(text)
    return fenced[1] if fenced else text


def _without_trailing_commas(text: str) -> str:
    """Commas outside strings that stand before a closing bracket."""
    kept: list[str] = []
    for piece, is_string in _pieces(text):
        kept.append(piece if is_string else re.sub(r",(\s*[}\]])", r"\1", piece))
    return "".join(kept)


def _closed(text: str) -> str:
    """The text with its string and brackets closed in the order they were opened."""
    pieces = list(_pieces(text))
    open_: list[str] = []
    for piece, is_string in pieces:
        for mark in "" if is_string else piece:
            if mark in _CLOSERS:
                open_.append(_CLOSERS[mark])
            elif open_ and mark == open_[-1]:
                open_.pop()
    last, is_string = pieces[-1] if pieces else ("", False)
    if is_string and not _ends(last):
        text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", text) + '"'
    text = text.rstrip().removesuffix(",")
    if text.endswith(":"):
        text += " null"
    return text + "".join(reversed(open_))


def _pieces(text: str) -> list[tuple[str, bool]]:
    """The text cut into strings, quotes included, and what is between them. The last string may be open."""
    found: list[tuple[str, bool]] = []
    at = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', text, re.DOTALL):
        found += [(text[at : match.start()], False), (match[0], True)]
        at = match.end()
    return [*found, (text[at:], False)] if text[at:] else found


def _ends(string: str) -> bool:
    """Whether the last quote of a string closes it."""
    if len(string) < 2 or not string.endswith('"'):
        return False
    slashes = len(string[:-1]) - len(string[:-1].rstrip("\\"))
    return slashes % 2 == 0


# SECTION Calls and results: each call answered once, right after the calls made with it, in their order.
#
# An editor puts results where the user speaks, forgets some, and keeps some whose call it has forgotten;
# servers use the same id for a call in every turn. Nothing of it may reach a provider, and nothing of it is
# lost: a call without a result gets a stand-in, a result without a call becomes text.

MISSING_RESULT = "The tool did not give a result."
ORPHAN_RESULT = "[The result of a tool call that is not part of this conversation:]"
# Images and files stand in a user's message: the wire has no other place for them.
MADE = {Role.ASSISTANT: "[From the assistant's answer:]", Role.SYSTEM: "[From the system prompt:]"}


def pair_results(given: Sequence[Message], changes: Changes) -> list[Message]:
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


def _result_at(messages: Sequence[Message], place: PartIndex | None) -> ToolResultPart | None:
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
            result = ToolResultPart(sent_id, (TextPart(MISSING_RESULT),), is_error=True)
        self._results.append(ToolResultPart(sent_id, result.parts, result.is_error))

    def orphan(self, result: ToolResultPart) -> None:
        self._changes.say("orphan", "A tool result without its call was kept as text.")
        self._append(Role.USER, TextPart(ORPHAN_RESULT), *result.parts)

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


# SECTION Histories for servers that take less than the protocol has: the same words, in plainer forms.

FROM_TOOL = "[From the result of a tool:]"


def results_as_text(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Results of text alone; their images and files stand after them, in the same message."""
    return [_with_text_results(message, changes) for message in messages]


def calls_as_text(
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
