"""Redact recordings: keys and other secrets always, message content on request.

Redacted bytes have the same length as the original, so that a stream can still be split into the same reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols import all_protocols
from tollbridge.recorder.keys import hide_keys
from tollbridge.recorder.recording import AnyLine, DataLine, EndLine, RecordingStart, RequestLine
from tollbridge.types.text import read_json, write_json

# Strings under these names are secrets: a request may contain a provider's own key.
SECRET_NAMES = re.compile(
    rb"(api|access|account|auth|private|signing|subscription)[-_]?key|byok|secret|token$|passw|passphrase"
    rb"|credential|authorization|(^|[-_.])auth$|bearer|cookie",
    re.I,
)
# Strings under these names describe the structure of a turn and have no content.
STRUCTURE_NAMES = frozenset(
    b"type id item_id call_id response_id previous_response_id role status object model name mime kind code "
    b"event toolCallId toolName tool_use_id finishReason finish_reason stop_reason reason outcome "
    b"tool_choice mediaType mimeType".split()
)
# A JSON string (1), and the colon after it if it is a name (2). Or a string that is not closed.
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(\s*:)?|".*')
# The words and numbers that are masked, and escape sequences, including those of JSON inside a string, which
# start with two backslashes.
_WORDS = re.compile(
    rb"\\?\\u[0-9a-fA-F]{4}|\\\\[nrtbf/]|\\.|true|false|null|[A-Za-z\x80-\xff]+|[0-9]+", re.DOTALL
)
_LINES = re.compile(rb"([^\r\n]*)([\r\n]*)")
# The text before the JSON on a line of a stream, and lines without content.
_LINE_PREFIX = re.compile(rb'(data:\s*|[0-9a-z]:)(?=[\[{"])')
_LINE_WITHOUT_CONTENT = re.compile(rb"event:.*|id:.*|retry:.*|data:\s*\[DONE\]\s*|data:\s*|:?\s*")
_SAFE_HEADERS = frozenset(
    "accept content-type content-encoding content-length user-agent date retry-after x-request-id server "
    "request-id transfer-encoding".split()
)
_SAFE_PREFIXES = ("ai-", "x-ratelimit-")


def redact_lines(lines: Sequence[AnyLine], keys: Collection[str], *, redacted: bool) -> list[AnyLine]:
    """Redact all lines of a recording: the keys, and with `redacted` also the content."""
    results = [redact_line(line, keys, redacted=redacted) for line in lines]
    for response in _find_responses(lines):
        # A response is redacted as a whole, because a key may be split between reads.
        body = hide_keys(b"".join(line.data for _, line in response), keys)
        if redacted:
            body = hide_content(body)
        offset = 0
        for index, line in response:
            results[index] = DataLine(line.at, body[offset : offset + len(line.data)])
            offset += len(line.data)
    return results


def redact_line(line: AnyLine, keys: Collection[str], *, redacted: bool) -> AnyLine:
    """Redact a line. Data lines are returned unchanged: they are redacted together, see `redact_lines`."""
    if isinstance(line, DataLine):
        return line
    plain: dict[str, Any] = read_json(hide_keys(write_json(line).encode(), keys))
    return msgspec.convert(_remove_content(line, plain) if redacted else plain, type(line))


def _find_responses(lines: Sequence[AnyLine]) -> list[list[tuple[int, DataLine]]]:
    """Return the data lines of each response, with their indexes."""
    responses: list[list[tuple[int, DataLine]]] = [[]]
    for index, line in enumerate(lines):
        if isinstance(line, RequestLine):
            responses.append([])
        elif isinstance(line, DataLine):
            responses[-1].append((index, line))
    return responses


def _remove_content(line: AnyLine, plain: dict[str, Any]) -> dict[str, Any]:
    """Mask the content in a line, given as the JSON object of the file."""
    match line:
        case RecordingStart():
            requests = {name: plain[name] for name in ("request", "said") if plain.get(name) is not None}
            masked: dict[str, Any] = read_json(hide_content(write_json(requests).encode()))
            return plain | masked | {"redacted": True}
        case RequestLine():
            return plain | {"body": hide_content(plain["body"].encode()).decode()}
        case EndLine(error=error) if error and "message" in error:
            message = hide_content(str(error["message"]).encode()).decode()
            return plain | {"error": plain["error"] | {"message": message}}
        case _:
            return plain


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in lower case. Only values of headers that are known to be safe are included."""
    safe = set(_SAFE_HEADERS)
    for protocol in all_protocols():
        safe.update(protocol.headers, protocol.response_headers)
    return {
        name: value if name in safe or name.startswith(_SAFE_PREFIXES) else "[not recorded]"
        for name, value in ((name.lower(), value) for name, value in headers.items())
    }


def hide_secrets(data: bytes) -> bytes:
    """Mask the strings in a JSON text whose names match `SECRET_NAMES`."""
    return _StringMask(lambda name: bool(SECRET_NAMES.search(name))).mask_line(data)


def hide_secret_values(value: object, name: str = "") -> Any:
    """Return a value as plain JSON with its secrets masked; `name` is the name of the value itself."""
    return read_json(hide_secrets(write_json({name: value}).encode()))[name]


def hide_content(data: bytes) -> bytes:
    """Mask the content of a JSON text, or of a stream of JSON. The structure and the length stay the same.

    All words of other texts are masked.
    """
    return ContentRedactor().feed(data, last=True)


class ContentRedactor:
    """Masks content in a stream of bytes, one line at a time. Belongs to one response."""

    def __init__(self) -> None:
        self._mask = _StringMask(lambda name: name not in STRUCTURE_NAMES)
        self._is_json: bool | None = None  # False: a stream; None: not known yet
        self._rest: list[bytes] = []  # an incomplete line, in pieces, which are joined only at its end

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        self._rest.append(data)
        if not last and b"\n" not in data and b"\r" not in data:
            return b""
        data = b"".join(self._rest)
        if self._is_json is None and data.strip():
            self._is_json = data.lstrip()[:1] in (b"{", b"[")
        end = len(data) if last else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = [data[end:]]
        return b"".join(self._mask_line(line) + ending for line, ending in _LINES.findall(data[:end]))

    def _mask_line(self, line: bytes) -> bytes:
        if self._is_json:
            return self._mask.mask_line(line)
        if _LINE_WITHOUT_CONTENT.fullmatch(line):
            return line
        prefix = _LINE_PREFIX.match(line)
        return prefix[0] + self._mask.mask_line(line[prefix.end() :]) if prefix else _mask_words(line)


class _StringMask:
    """Masks the JSON strings whose names satisfy a condition. Remembers the last name from line to line."""

    def __init__(self, is_hidden: Callable[[bytes], bool]) -> None:
        self._is_hidden = is_hidden
        self._name = b""

    def mask_line(self, text: bytes) -> bytes:
        return _STRING.sub(self._mask_string, text)

    def _mask_string(self, match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return _mask_words(match[0])  # not closed, so its name is unknown
        if match[2] is not None:
            self._name = match[1]
            return match[0]
        return b'"' + _mask_words(match[1]) + b'"' if self._is_hidden(self._name) else match[0]


def _mask_words(text: bytes) -> bytes:
    """Mask letters and digits. Other characters stay, so that JSON inside a string stays JSON."""
    return _WORDS.sub(_mask_word, text)


def _mask_word(match: re.Match[bytes]) -> bytes:
    word = match[0]
    if word.startswith((b"\\u", b"\\\\u")):
        return word[:-4] + b"0078"
    if word.startswith(b"\\") or word in (b"true", b"false", b"null"):
        return word
    return (b"1" if word.isdigit() else b"x") * len(word)
