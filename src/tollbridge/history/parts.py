"""Make the parts of a history valid: text, images and files, tool calls and their results.

Content that cannot be sent is replaced by a note at its position, so that the model knows that it existed.
Names, call ids and arguments are made valid, each call is paired with its result, and calls and results
become text for servers that do not accept them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2s
from itertools import count
from typing import Any

from tollbridge.types.media import UNKNOWN, detect_mime, fingerprint, is_text
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
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import (
    MAX_FILE_DATA,
    MAX_IMAGE_URL,
    read_json,
    replace_surrogates,
    replace_surrogates_deep,
    split_text,
    write_json,
)

# --- Text, images and files ---

# The sentences stored for one history. The counts include all changes.
SENTENCE_LIMIT = 50
_MIME = re.compile(r"[a-z0-9][a-z0-9.+_-]*/[a-z0-9][a-z0-9.+_-]*\Z")


class Changes:
    """The changes made to one history: sentences for people, counts by kind for programs.

    The sentences contain tool names and sizes, never the text of messages.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._sentences: dict[str, None] = {}

    def add(self, kind: str, sentence: str) -> None:
        """Count a change and store its description."""
        self.counts[kind] += 1
        if len(self._sentences) < SENTENCE_LIMIT:
            self._sentences.setdefault(sentence)

    def count(self, kind: str) -> None:
        """Count a change of form only, which needs no description."""
        self.counts[kind] += 1

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)


def valid_content(
    part: TextPart | DataPart, learned: LearnedQuirks, changes: Changes
) -> list[TextPart | DataPart]:
    """Convert a part to content that the server accepts.

    Returns:
        The part itself, its pieces if it is too long, a note if it cannot be sent, or nothing if it is empty.
    """
    if isinstance(part, TextPart):
        return _valid_text(part.text, changes)
    mime = detect_mime(part.data, part.mime)
    if not _MIME.match(mime):
        mime = UNKNOWN
    if is_text(mime):
        try:
            return _valid_text(part.data.decode(), changes)
        except UnicodeDecodeError:
            mime = UNKNOWN
    problem = _find_problem(part, mime, learned)
    if problem is None:
        return [DataPart(part.data, mime, part.name and replace_surrogates(part.name))]
    kind, article = ("image", "an") if mime.startswith("image/") else ("file", "a")
    size = f"{mime}, {len(part.data):,} bytes"
    changes.add(kind, f"Removed {article} {kind} ({size}): {problem}.")
    return [TextPart(f"[{kind}, {size}, removed: {problem}]")]


def _valid_text(text: str, changes: Changes) -> list[TextPart | DataPart]:
    valid = replace_surrogates(text)
    if valid != text:
        changes.add("characters", "Replaced invalid characters in a text.")
    if not valid:
        return []
    pieces = split_text(valid)
    if len(pieces) > 1:
        changes.add("oversized", f"Split a text of {len(valid):,} characters into {len(pieces)} parts.")
    return [TextPart(piece) for piece in pieces]


def _find_problem(part: DataPart, mime: str, learned: LearnedQuirks) -> str | None:
    """Return why an image or a file cannot be sent, or `None`."""
    is_image = mime.startswith("image/")
    limit = MAX_IMAGE_URL if is_image else MAX_FILE_DATA
    if not part.data:
        return "it is empty"
    if is_image and not learned.quirks.images:
        return "the model does not accept images"
    if not is_image and not learned.quirks.files:
        return "the model does not accept files"
    if learned.refused and fingerprint(part.data) in learned.refused:
        return "the gateway refused it before"
    if len(f"data:{mime};base64,") + (len(part.data) + 2) // 3 * 4 > limit:
        return f"it is larger than the limit of {limit // (1024 * 1024)} MiB"
    return None


# --- Names and ids that every provider accepts ---

MAX_NAME = 64
VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST_LENGTH = 8


def is_valid_name(name: str) -> bool:
    """Return whether every provider accepts a tool name or a call id."""
    return VALID_NAME.match(name) is not None


class Names:
    """A one-to-one mapping of the tool names of one request to valid names. Valid names do not change."""

    def __init__(self, names: Iterable[str]) -> None:
        distinct = dict.fromkeys(names)
        self._sent = {name: name for name in distinct if is_valid_name(name)}
        used = set(self._sent)
        for name in distinct:
            if name not in self._sent:
                self._sent[name], _ = _unused_name(name, used)
                used.add(self._sent[name])
        self._original = {sent: name for name, sent in self._sent.items()}

    def out(self, name: str) -> str:
        """Return the name to send for a name of the caller."""
        return self._sent[name]

    def back(self, name: str) -> str:
        """Return the caller's name for a sent name. A name that the model made up is returned unchanged."""
        return self._original.get(name, name)

    @property
    def changed(self) -> dict[str, str]:
        """The sent names by the caller's names, for those that differ."""
        return {name: sent for name, sent in self._sent.items() if name != sent}


class CallIds:
    """Assigns unique, valid call ids. Some servers count from `call_0` in every answer."""

    def __init__(self, ids: Iterable[str]) -> None:
        # Reserved for their first call, so that a longer history does not change earlier ids.
        self._reserved = {id_ for id_ in ids if is_valid_name(id_)}
        self._used: set[str] = set()
        self._attempts: Counter[str] = Counter()  # by id, to find the next unused name at once

    def assign(self, id_: str) -> str:
        """Return the id itself if it is valid and unused, else a new one."""
        new_id = id_
        if not is_valid_name(id_) or id_ in self._used:
            new_id, self._attempts[id_] = _unused_name(
                id_, self._used, self._reserved, first=self._attempts[id_]
            )
        self._used.add(new_id)
        return new_id


def _unused_name(
    name: str, used: AbstractSet[str], reserved: AbstractSet[str] = frozenset(), *, first: int = 0
) -> tuple[str, int]:
    """Return an unused valid name: the valid characters of the name, and a digest of all of it.

    The second value is the number of the attempt to continue with, as `first`, for another name.
    """
    stem = _INVALID_CHARACTERS.sub("_", name).strip("_")[: MAX_NAME - _DIGEST_LENGTH - 1] or "unnamed"
    for attempt in count(first):
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        candidate = f"{stem}_{blake2s(seed).hexdigest()[:_DIGEST_LENGTH]}"
        if candidate not in used and candidate not in reserved:
            return candidate, attempt + 1
    raise AssertionError("the attempts are unlimited")


# --- Arguments that are not JSON ---
#
# They are repaired if there is only one way to read them, and kept as text otherwise. A new call of a model
# is repaired only if nothing can be lost, because a tool runs with the result: truncated arguments are not
# completed. In a history, where arguments are only read, truncated arguments are completed.

# The key of an object that holds invalid arguments as text (docs/decisions/invalid-tool-arguments.md).
INVALID = "_invalid_arguments"
# Longer texts are not repaired, because that parses them several times.
REPAIR_LIMIT = 1024 * 1024

# A Markdown code fence of three backticks, with the language on the first line.
_FENCE = "```"
_FENCE_LANGUAGES = ("", "json")
_SPACE = re.compile(r"\s*")
# A JSON string, which may be open at the end. Possessive: a long string needs no memory for backtracking.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}


def wrap_arguments(text: str) -> dict[str, Any]:
    """Return invalid arguments as an object, which the tool's validation will reject."""
    return {INVALID: text}


def repair_arguments(text: str, *, complete: bool = False) -> dict[str, Any] | None:
    """Parse arguments that may not be valid JSON.

    Args:
        text: The arguments.
        complete: Whether to complete truncated arguments by closing their strings and brackets.

    Returns:
        The object, or `None` if the text cannot be read as one object.
    """
    if not text.strip():
        return {}
    if len(text) > REPAIR_LIMIT:
        return _parse_object(text)
    candidates = [text, _remove_fence(text), _remove_trailing_commas(text)]
    if complete:
        candidates.append(_remove_trailing_commas(_complete(text)))
    for candidate in candidates:
        arguments = _parse_object(candidate)
        if arguments is not None:
            return arguments
    return None


def valid_input(value: Any) -> tuple[dict[str, Any], bool]:
    """Convert the input of a call in a history to a JSON object.

    Returns:
        The object, and whether it differs from the input.
    """
    if value is None:
        return {}, False
    if isinstance(value, str):
        text = replace_surrogates(value)
        arguments = repair_arguments(text, complete=True)
        return (wrap_arguments(text) if arguments is None else replace_surrogates_deep(arguments)), True
    try:
        text = write_json(value)
        arguments = read_json(text) if isinstance(value, Mapping) else None
    except (ValueError, OverflowError):  # not JSON serializable
        try:
            text, arguments = repr(value), None
        except RecursionError:
            text, arguments = "[nested too deeply to be shown]", None
    if arguments is None:
        return replace_surrogates_deep(wrap_arguments(text)), True
    # Only texts with lone surrogates are written with escapes.
    return (replace_surrogates_deep(arguments), True) if "\\ud" in text else (arguments, False)


def _parse_object(text: str) -> dict[str, Any] | None:
    """Parse an object, also if it is JSON within a JSON string, contains raw line breaks, or is repeated."""
    value: Any = text
    for _ in range(3):  # no known server nests strings deeper
        if not isinstance(value, str):
            break
        value = _parse_single_value(value)
    return value if isinstance(value, dict) else None


def _parse_single_value(text: str) -> Any:
    """Parse the only value of a text. Some adapters send an empty object before the real one."""
    decoder = json.JSONDecoder(strict=False)
    result: Any = None
    text = text.strip()
    end = 0
    while end < len(text):
        try:
            value, end = decoder.raw_decode(text, end)
        except (ValueError, RecursionError):
            return None
        if result is not None and result not in ({}, value):
            return None
        result = value
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # always matches
    return result


def _remove_fence(text: str) -> str:
    """Remove the Markdown code fence around a text."""
    first, line_end, rest = text.strip().partition("\n")
    is_fenced = first.startswith(_FENCE) and first[len(_FENCE) :].strip() in _FENCE_LANGUAGES
    content, last_line_end, last = rest.rpartition("\n")
    return content if line_end and is_fenced and last_line_end and last.strip() == _FENCE else text


def _remove_trailing_commas(text: str) -> str:
    """Remove commas before a closing bracket, except in strings."""
    return "".join(
        piece if is_string else re.sub(r",(\s*[}\]])", r"\1", piece) for piece, is_string in _tokenize(text)
    )


def _complete(text: str) -> str:
    """Close the open string and the open brackets of a truncated text."""
    pieces = _tokenize(text)
    closers: list[str] = []
    for piece, is_string in pieces:
        for character in "" if is_string else piece:
            if character in _CLOSERS:
                closers.append(_CLOSERS[character])
            elif closers and character == closers[-1]:
                closers.pop()
    last, is_string = pieces[-1] if pieces else ("", False)
    # The last quote closes the string unless an odd number of backslashes precedes it.
    backslashes = len(last[:-1]) - len(last[:-1].rstrip("\\"))
    is_closed = len(last) > 1 and last.endswith('"') and backslashes % 2 == 0
    if is_string and not is_closed:
        text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", text) + '"'
    text = text.rstrip().removesuffix(",")
    if text.endswith(":"):
        text += " null"
    return text + "".join(reversed(closers))


def _tokenize(text: str) -> list[tuple[str, bool]]:
    """Split a text into strings (with their quotes; `True`) and the pieces between them (`False`).

    The last string may be open.
    """
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in _STRING.finditer(text):
        pieces += [(text[end : match.start()], False), (match[0], True)]
        end = match.end()
    return [*pieces, (text[end:], False)] if text[end:] else pieces


# --- Pairing calls and results ---
#
# Providers require one result per call, after the calls of the same answer and in their order. Editors put
# results into user messages, lose some, and keep some whose call they have lost. Servers reuse call ids.

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
    return Message(message.role, tuple(parts))


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


# --- Servers that do not accept calls, rich results or a system prompt ---

FROM_TOOL = "[From a tool result:]"


def results_as_text(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Reduce results to text, and put their images and files after them in the same message."""
    return [_move_result_files(message, changes) for message in messages]


def calls_as_text(
    messages: Sequence[Message], changes: Changes, only: frozenset[str] | None = None
) -> list[Message]:
    """Convert calls and results to text.

    Args:
        messages: The messages, with paired calls and results.
        changes: Where the changes are recorded.
        only: The ids of the calls to convert, together with the other calls of the same messages. By default
            all calls are converted.
    """
    ids = {part.call_id for message in messages for part in _calls_and_results(message)}
    if only is not None:
        ids = {
            part.call_id
            for message in messages
            if _contains(message, only)
            for part in _calls_and_results(message)
        }
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


def _move_result_files(message: Message, changes: Changes) -> Message:
    files = [
        item
        for part in message.parts
        if isinstance(part, ToolResultPart)
        for item in part.parts
        if isinstance(item, DataPart)
    ]
    if not files:
        return message
    changes.add("results", "Sent the images and files of tool results in a message after them.")
    results: list[Part] = [_text_result(part) for part in message.parts if isinstance(part, ToolResultPart)]
    others = [part for part in message.parts if not isinstance(part, ToolResultPart)]
    return Message(message.role, (*results, TextPart(FROM_TOOL), *files, *others))


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
