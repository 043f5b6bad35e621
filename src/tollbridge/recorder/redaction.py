"""The lines of a recording made fit to be shown: no keys, and no content where that was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.recorder.recording import Begun, Ended, Line, Received, Sent
from tollbridge.types.text import read_json, write_json

# SECTION What must not be in a recording, blotted out: keys always, content where that is asked for.
#
# Blots are as long as what they cover, so that a stream can still be cut where it was cut when it came.

Replacement = Callable[[bytes], bool]

# Strings under such names are secrets whatever they look like: a provider's own key may be in a request.
SECRET = re.compile(
    rb"(api|access|account|auth|private|signing|subscription)[-_]?key|byok|secret|token$|passw|passphrase"
    rb"|credential|authorization|(^|[-_.])auth$|bearer|cookie",
    re.I,
)
# Strings under these names say how a turn went, and not what was said in it.
STRUCTURE = frozenset(
    b"type id item_id call_id response_id previous_response_id role status object model name mime kind code "
    b"event toolCallId toolName finishReason finish_reason reason outcome tool_choice mediaType "
    b"mimeType".split()
)
# A string of JSON, and whether it is the name of what follows. Or a quote that opens none.
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|".*')
# What is covered, and escapes, also those of JSON within a string, which stand behind two strokes.
_WORDS = re.compile(
    rb"\\?\\u[0-9a-fA-F]{4}|\\\\[nrtbf/]|\\.|true|false|null|[A-Za-z\x80-\xff]+|[0-9]+", re.DOTALL
)
_KEPT = (b"true", b"false", b"null")
_LINES = re.compile(rb"([^\r\n]*)([\r\n]*)")
# What may stand before the JSON on a line of a stream, and lines that say nothing.
_FRAME = re.compile(rb'(data:\s*|[0-9a-z]:)(?=[\[{"])')
_NOTHING_SAID = re.compile(rb"event:.*|id:.*|retry:.*|data:\s*\[DONE\]\s*|data:\s*|:?\s*")
_HEADERS = frozenset(
    "accept content-type content-encoding content-length user-agent date retry-after x-request-id server "
    "transfer-encoding x-vercel-ai-ui-message-stream x-vercel-ai-data-stream".split()
)


def hide_keys(data: bytes, keys: Iterable[str]) -> bytes:
    for key in keys:
        data = data.replace(key.encode(), b"*" * len(key.encode()))
    return data


def hide_secrets(data: bytes) -> bytes:
    """JSON with the strings under secret names blotted out."""
    return _Mask(lambda name: bool(SECRET.search(name))).line(data)


def without_secrets(value: object, name: str = "") -> Any:
    """A value as plain JSON, likewise; `name` is what it stands under."""
    return read_json(hide_secrets(write_json({name: value}).encode()))[name]


def hide_content(data: bytes) -> bytes:
    """JSON, or a stream of it, with all that was said blotted out. It stays JSON, and as long as it was.

    What is neither is blotted out whole.
    """
    return ContentCover().feed(data, last=True)


class ContentCover:
    """The same for what comes in pieces: lines are covered when they are whole. Belongs to one answer."""

    def __init__(self) -> None:
        self._mask = _Mask(lambda name: name not in STRUCTURE)
        self._is_json: bool | None = None  # or a stream of it; not known yet
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        data = self._rest + data
        if self._is_json is None and data.strip():
            self._is_json = data.lstrip()[:1] in (b"{", b"[")
        end = len(data) if last else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[end:]
        return b"".join(self._line(line) + stop for line, stop in _LINES.findall(data[:end]))

    def _line(self, line: bytes) -> bytes:
        return self._mask.line(line) if self._is_json else _framed(line, self._mask)


class KeyCover:
    """Keys hidden in what comes in pieces: as much as may be the beginning of one is held back."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(keys)
        self._held = max((len(key.encode()) for key in self._keys), default=1) - 1
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        data = hide_keys(self._rest + data, self._keys)
        end = len(data) if last else max(0, len(data) - self._held)
        self._rest = data[end:]
        return data[:end]


def safe_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that are known to be harmless as they are, all others by name alone."""
    return {
        name.lower(): value if _is_harmless(name.lower()) else "[not recorded]"
        for name, value in headers.items()
    }


def _is_harmless(name: str) -> bool:
    return name in _HEADERS or name.startswith(("ai-", "x-ratelimit-"))


def _framed(line: bytes, mask: _Mask) -> bytes:
    if _NOTHING_SAID.fullmatch(line):
        return line
    frame = _FRAME.match(line)
    return frame[0] + mask.line(line[frame.end() :]) if frame else _blot(line)


class _Mask:
    """Covers the strings whose names it is told to hide. Names are remembered from line to line."""

    def __init__(self, hides: Replacement) -> None:
        self._hides = hides
        self._name = b""

    def line(self, text: bytes) -> bytes:
        return _STRING.sub(self._covered, text)

    def _covered(self, found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return _blot(found[0])  # torn: nobody knows what it is part of
        if found[2] is not None:
            self._name = found[1]
            return found[0]
        return b'"' + _blot(found[1]) + b'"' if self._hides(self._name) else found[0]


def _blot(text: bytes) -> bytes:
    """Letters and digits are covered; what is between them stays, so that JSON within a string stays JSON."""
    return _WORDS.sub(_cover, text)


def _cover(found: re.Match[bytes]) -> bytes:
    word = found[0]
    if word.startswith((b"\\u", b"\\\\u")):
        return word[:-4] + b"0078"
    if word.startswith(b"\\") or word in _KEPT:
        return word
    return (b"1" if word.isdigit() else b"x") * len(word)


# SECTION The lines of a recording made fit to be shown: no keys, and no content where that was asked for.


def cleaned(lines: Sequence[Line], keys: Collection[str], *, redacted: bool) -> list[Line]:
    """The same lines, as many, clean."""
    found = [clean_line(line, keys, redacted=redacted) for line in lines]
    for places in _answers(lines):
        body = b"".join(_data(lines[place]) for place in places)
        # An answer is cleaned whole: what must go may have come in pieces.
        body = hide_keys(body, keys)
        if redacted:
            body = hide_content(body)
        start = 0
        for place in places:
            size = len(_data(lines[place]))
            found[place] = Received(lines[place].at, body[start : start + size])
            start += size
    return found


def _answers(lines: Sequence[Line]) -> list[list[int]]:
    """Where the bytes of each answer stand."""
    found: list[list[int]] = [[]]
    for place, line in enumerate(lines):
        if isinstance(line, Sent):
            found.append([])
        elif isinstance(line, Received):
            found[-1].append(place)
    return [places for places in found if places]


def _data(line: Line) -> bytes:
    return line.data if isinstance(line, Received) else b""


def clean_line(line: Line, keys: Collection[str], *, redacted: bool) -> Line:
    """A line that is not of the answer's bytes."""
    if isinstance(line, Received):
        return line
    plain: dict[str, Any] = read_json(hide_keys(write_json(line).encode(), keys))
    return msgspec.convert(_without_content(line, plain) if redacted else plain, type(line))


def _without_content(line: Line, plain: dict[str, Any]) -> dict[str, Any]:
    match line:
        case Begun():
            hidden = {name: _hidden(plain.get(name)) for name in ("request", "said")}
            return plain | hidden | {"redacted": True}
        case Sent():
            return plain | {"body": hide_content(plain["body"].encode()).decode()}
        case Ended(error=error) if error and "message" in error:
            told = hide_content(str(error["message"]).encode()).decode()
            return plain | {"error": plain["error"] | {"message": told}}
        case _:
            return plain


def _hidden(value: object) -> Any:
    return None if value is None else read_json(hide_content(write_json(value).encode()))
