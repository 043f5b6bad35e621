"""The format of recordings, reading them from files, and their redaction.

A recording is a file of JSON objects, one per line. `line` is the type of the line, and `at` its time in
seconds since the start of the turn. The names in the file are part of the format and do not change. Some of
them differ from the names of the classes and attributes here.

Keys and other secrets are always redacted, message content on request. Redacted bytes have the same length as
the original, so that a stream can still be split into the same reads. Keys are also recognized where JSON
escapes some of their characters. A key of fewer than `SHORT_KEY` characters is redacted only as a whole word:
some servers accept any text as a key, and a recording in which every "a" is an asterisk is useless. Within a
longer word, nobody can tell such a key from other text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.protocols import all_protocols
from tollbridge.types.errors import SHORT_KEY, RequestError
from tollbridge.types.events import Usage
from tollbridge.types.messages import Part
from tollbridge.types.text import read_json, write_json

FORMAT = 1

# --- Lines ---


class Line(msgspec.Struct, frozen=True, tag_field="line", omit_defaults=True):
    """Base class of all lines."""

    at: float


class RecordingStart(Line, frozen=True, tag="begun"):
    """The first line.

    Values that were too large to record are `None`.

    Attributes:
        tollbridge: The version of Tollbridge.
        started: Seconds since 1970.
        request: The `ChatRequest` of the turn.
        editor_request: The request of the editor, if it has another form.
        redacted: Whether message content was removed.
        learned: The `LearnedQuirks` of the server at that time, which determine the form of the request.
        capabilities: The `Capabilities` of the model, likewise.
    """

    format: int
    tollbridge: str
    started: float
    request: Any
    editor_request: Any = msgspec.field(default=None, name="said")
    redacted: bool = False
    learned: Any = None
    capabilities: Any = msgspec.field(default=None, name="abilities")


class RequestLine(Line, frozen=True, tag="sent"):
    """An HTTP request. A turn with retries has several, each followed by its response.

    `omitted_bytes` is the size of a body that was too large to record; `body` is then empty.
    """

    protocol: str
    url: str
    headers: Mapping[str, str]
    body: str
    omitted_bytes: int = msgspec.field(default=0, name="left_out")


class ResponseLine(Line, frozen=True, tag="answered"):
    """The status and headers of a response."""

    status: int
    headers: Mapping[str, str]


class DataLine(Line, frozen=True, tag="received"):
    """Bytes of a response body, as one read returned them. In the file they are base64."""

    data: bytes


class PartsLine(Line, frozen=True, tag="parts"):
    """Parts that were sent to the editor."""

    parts: tuple[Part, ...]


class TruncationLine(Line, frozen=True, tag="cut"):
    """Marks where the recording reached its size limit. Later response bytes are not recorded."""

    recorded_bytes: int = msgspec.field(name="kept")


class EndLine(Line, frozen=True, tag="ended"):
    """The last line: the outcome of the turn (`completed`, `failed` or `cancelled`)."""

    outcome: str
    error: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


AnyLine = RecordingStart | RequestLine | ResponseLine | DataLine | PartsLine | TruncationLine | EndLine


def write_line(line: Line) -> str:
    return write_json(line) + "\n"


def read_line(text: bytes) -> AnyLine:
    """Parse a line.

    Raises:
        ValueError: If it is not a line of a recording.
    """
    try:
        line: AnyLine = msgspec.convert(read_json(text), AnyLine)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return line


# --- Recordings ---

_FIRST_BYTES = b'{"line":"begun"'


class Attempt(msgspec.Struct, frozen=True):
    """An HTTP request and its response; `response` is `None` if there was none."""

    request: RequestLine
    response: ResponseLine | None
    data: tuple[DataLine, ...]


class Recording(msgspec.Struct, frozen=True):
    """A recording in memory. `lines` are all lines, including the start."""

    start: RecordingStart
    lines: tuple[AnyLine, ...]

    @property
    def attempts(self) -> list[Attempt]:
        return group_attempts(self.lines)

    @property
    def parts(self) -> list[Part]:
        """The parts that were sent to the editor."""
        return [part for line in self.lines if isinstance(line, PartsLine) for part in line.parts]

    @property
    def end(self) -> EndLine | None:
        """The last line, or `None` if the process was killed during the turn."""
        return next((line for line in self.lines if isinstance(line, EndLine)), None)


def is_recording(path: Path) -> bool:
    """Return whether a file starts like a recording. Recorded response bodies may have the same suffix.

    Raises:
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES


def read_recording(path: Path) -> Recording:
    """Read a recording. An incomplete last line, of a process that was killed, is ignored.

    Raises:
        OSError: If the file cannot be read.
        RequestError: If the file is not a recording, or has a newer format.
    """
    lines: list[AnyLine] = []
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                lines.append(read_line(text))
            except ValueError as error:
                if lines and not text.endswith(b"\n"):
                    break
                raise RequestError(
                    f"{path}, line {number} is not a valid recording line: {error}. "
                    "The file is damaged; record the request again with --record."
                ) from None
    if not lines or not isinstance(lines[0], RecordingStart):
        raise RequestError(f"{path} is not a recording: missing start record.")
    start = lines[0]
    if start.format > FORMAT:
        raise RequestError(
            f"{path} was recorded by a newer version of Tollbridge ({start.tollbridge}). Update Tollbridge."
        )
    return Recording(start, tuple(lines))


def group_attempts(lines: Iterable[Line]) -> list[Attempt]:
    """Group the lines by HTTP request."""
    groups: list[tuple[RequestLine, list[ResponseLine], list[DataLine]]] = []
    for line in lines:
        match line:
            case RequestLine():
                groups.append((line, [], []))
            case ResponseLine() if groups:
                groups[-1][1].append(line)
            case DataLine() if groups:
                groups[-1][2].append(line)
            case _:
                pass
    return [
        Attempt(request, responses[0] if responses else None, tuple(data))
        for request, responses, data in groups
    ]


# --- Redaction ---

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
_JSON_LITERALS = (b"true", b"false", b"null")
_LINES = re.compile(rb"([^\r\n]*)([\r\n]*)")
# The text before the JSON on a line of a stream, and lines without content.
_LINE_PREFIX = re.compile(rb'(data:\s*|[0-9a-z]:)(?=[\[{"])')
_LINE_WITHOUT_CONTENT = re.compile(rb"event:.*|id:.*|retry:.*|data:\s*\[DONE\]\s*|data:\s*|:?\s*")
_SAFE_HEADERS = frozenset(
    "accept content-type content-encoding content-length user-agent date retry-after x-request-id server "
    "request-id transfer-encoding".split()
)
# The escapes of JSON that can stand for a character of a key, other than a quote or a backslash.
_ESCAPES = (b"\\u00", b"\\/")
# The most bytes of one escaped character: up to 16 backslashes, in JSON that is nested, and `u002d`.
_ESCAPED_SIZE = 21
# A word starts after a character that is no letter or digit, or after an escape.
_WORD_START = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
_CONTEXT = 16  # enough for these, and for the backslashes of an escape

# The start and the end of a key.
Span = tuple[int, int]


# --- Lines of a recording ---


def redact_lines(lines: Sequence[Line], keys: Collection[str], *, redacted: bool) -> list[Line]:
    """Redact all lines of a recording: the keys, and with `redacted` also the content."""
    results = [redact_line(line, keys, redacted=redacted) for line in lines]
    for indexes in _find_responses(lines):
        # A response is redacted as a whole, because a key may be split between reads.
        body = hide_keys(b"".join(_data(lines[index]) for index in indexes), keys)
        if redacted:
            body = hide_content(body)
        offset = 0
        for index in indexes:
            size = len(_data(lines[index]))
            results[index] = DataLine(lines[index].at, body[offset : offset + size])
            offset += size
    return results


def redact_line(line: Line, keys: Collection[str], *, redacted: bool) -> Line:
    """Redact a line. Data lines are returned unchanged: they are redacted together, see `redact_lines`."""
    if isinstance(line, DataLine):
        return line
    plain: dict[str, Any] = read_json(hide_keys(write_json(line).encode(), keys))
    return msgspec.convert(_remove_content(line, plain) if redacted else plain, type(line))


def _find_responses(lines: Sequence[Line]) -> list[list[int]]:
    """Return the indexes of the data lines of each response."""
    responses: list[list[int]] = [[]]
    for index, line in enumerate(lines):
        if isinstance(line, RequestLine):
            responses.append([])
        elif isinstance(line, DataLine):
            responses[-1].append(index)
    return [indexes for indexes in responses if indexes]


def _data(line: Line) -> bytes:
    return line.data if isinstance(line, DataLine) else b""


def _remove_content(line: Line, plain: dict[str, Any]) -> dict[str, Any]:
    """Mask the content in a line, given as the JSON object of the file."""
    match line:
        case RecordingStart():
            requests = {name: _mask_json(plain.get(name)) for name in ("request", "said")}
            return plain | requests | {"redacted": True}
        case RequestLine():
            return plain | {"body": hide_content(plain["body"].encode()).decode()}
        case EndLine(error=error) if error and "message" in error:
            message = hide_content(str(error["message"]).encode()).decode()
            return plain | {"error": plain["error"] | {"message": message}}
        case _:
            return plain


def _mask_json(value: object) -> Any:
    return None if value is None else read_json(hide_content(write_json(value).encode()))


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in lower case. Only values of headers that are known to be safe are included."""
    safe = set(_SAFE_HEADERS)
    for protocol in all_protocols():
        safe.update(protocol.headers, protocol.response_headers)
    return {
        name: value if name in safe or name.startswith(("ai-", "x-ratelimit-")) else "[not recorded]"
        for name, value in ((name.lower(), value) for name, value in headers.items())
    }


# --- Keys and secrets ---


def hide_keys(data: bytes, keys: Iterable[str]) -> bytes:
    """Replace every key by asterisks."""
    return _replace(data, _find_keys(data, frozenset(keys)))


def contains_key(data: bytes, keys: Iterable[str]) -> bool:
    """Return whether `hide_keys` would change the data."""
    return bool(_find_keys(data, frozenset(keys)))


def _find_keys(data: bytes, keys: frozenset[str], start: int = 0) -> list[Span]:
    """Return the places of the keys in the data from `start` on."""
    if not keys or not (_needs_pattern(data, keys) or any(key.encode() in data for key in keys)):
        return []
    return [match.span() for match in _key_pattern(keys).finditer(data, start)]


def _needs_pattern(data: bytes, keys: frozenset[str]) -> bool:
    """Return whether the keys can occur in another form than their own."""
    return any(escape in data for escape in _ESCAPES) or any('"' in key or "\\" in key for key in keys)


def _replace(data: bytes, spans: Iterable[Span]) -> bytes:
    redacted = bytearray(data)
    for start, end in spans:
        redacted[start:end] = b"*" * (end - start)
    return bytes(redacted)


@lru_cache(maxsize=64)
def _key_pattern(keys: frozenset[str]) -> re.Pattern[bytes]:
    """Return a pattern for keys in plain text and in JSON, which can be nested in strings of JSON."""
    patterns = []
    for key in sorted(keys, key=len, reverse=True):  # a key can be a part of another one
        # All backslashes before the first character belong to its escape.
        pattern = rb"(?:(?<!\\)|(?!\\))" + b"".join(map(_character_pattern, key))
        if len(key) < SHORT_KEY:
            pattern = _WORD_START + pattern + rb"(?![A-Za-z0-9])"
        patterns.append(pattern)
    return re.compile(b"|".join(patterns))


def _character_pattern(character: str) -> bytes:
    literal = re.escape(character.encode())
    forms = [rb"\\{1,16}u00(?i:%02x)" % ord(character), literal]
    if character in '/"\\':
        forms.insert(0, rb"\\{1,16}" + literal)
    return b"(?:" + b"|".join(forms) + b")"


class KeyRedactor:
    """Hides keys in a stream of bytes. Belongs to one response.

    Bytes that may be the start of a key are held back until the next call.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        self._longest = max((len(key.encode()) for key in self._keys), default=0)
        self._before = b""  # the last bytes that were returned: they decide whether a word starts after them
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        if not self._keys:
            return data
        data, start = self._before + self._rest + data, len(self._before)
        spans = _find_keys(data, self._keys, start)
        end = len(data)
        if not last:
            end = max(start, end - self._held_back(data))
            spans = [span for span in spans if span[0] < end]
            end = max([end, *(span[1] for span in spans)])
        self._before, self._rest = data[max(0, end - _CONTEXT) : end], data[end:]
        return _replace(data, spans)[start:end]

    def _held_back(self, data: bytes) -> int:
        """Return how many bytes at the end can be the start of a key."""
        longest = self._longest * _ESCAPED_SIZE
        has_escapes = _needs_pattern(data[-longest:], self._keys) or b"\\" in data[-_ESCAPED_SIZE:]
        return longest if has_escapes else self._longest


def hide_secrets(data: bytes) -> bytes:
    """Mask the strings in a JSON text whose names match `SECRET_NAMES`."""
    return _StringMask(lambda name: bool(SECRET_NAMES.search(name))).mask_line(data)


def hide_secret_values(value: object, name: str = "") -> Any:
    """Return a value as plain JSON with its secrets masked; `name` is the name of the value itself."""
    return read_json(hide_secrets(write_json({name: value}).encode()))[name]


# --- Content ---


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
    if word.startswith(b"\\") or word in _JSON_LITERALS:
        return word
    return (b"1" if word.isdigit() else b"x") * len(word)
