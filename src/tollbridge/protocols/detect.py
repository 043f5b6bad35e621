"""Which decoder reads an answer: chosen by name, or by its headers and first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from tollbridge.protocols.ai_sdk.chunks import is_known
from tollbridge.protocols.ai_sdk.stream import DataDecoder, FullDecoder, ModelDecoder, UiDecoder
from tollbridge.protocols.errors import ErrorResponseDecoder
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.protocols.sse import Frame, SseDecoder
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Event
from tollbridge.types.text import read_json

# SECTION Which of the AI SDK's protocols some bytes are, by their headers and by how they begin.

HEADERS: dict[str, str] = {
    "x-vercel-ai-data-stream": "ai-sdk-data",
    "x-vercel-ai-ui-message-stream": "ai-sdk-ui",
}

# Only a model itself begins like this, never the SDK around it.
_MODEL_STARTS = frozenset({"response-metadata", "stream-start"})

# So begin the names of another protocol's events.
_FOREIGN = "response."
_ANYBODYS = frozenset({"ping"})

_CODE = re.compile(rb'[0-9a-z]:[\["{\dtfn-]')
_SKIPPED = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]+|:[^\r\n]*[\r\n]|(?:event|id|retry):[^\r\n]*[\r\n])*")
_LINE = re.compile(rb"([^\r\n]*)([\r\n]?)")


def detect_by_headers(headers: Mapping[str, str]) -> str | None:
    names = {name.lower() for name in headers}
    return next((protocol for name, protocol in HEADERS.items() if name in names), None)


def detect_by_framing(start: bytes, *, complete: bool) -> str | None:
    """The protocol that frames its chunks so: `""` if none does, `None` if that needs more bytes.

    `complete`: there are no more. A model's own parts are framed as the UI message stream is.
    """
    line, end = _first_line(start)
    if not end and not complete:
        return None
    if _CODE.match(line):
        return "ai-sdk-data"
    if line.startswith(b"data:"):
        return "ai-sdk-ui"
    return "ai-sdk-full" if line.startswith((b"{", b"[{")) else ""


def detect_by_start(start: bytes, *, complete: bool) -> str | None:
    """The protocol of a stream that begins so, in the same words. The first chunk of a known type decides:
    any version may begin with something new."""
    framing = detect_by_framing(start, complete=complete)
    if framing not in ("ai-sdk-full", "ai-sdk-ui"):
        return framing
    frames = _frames(start, complete) if framing == "ai-sdk-ui" else _lines(start, complete)
    for name, text in frames:
        if not text.strip():
            continue
        try:
            value = read_json(text)
        except ValueError:
            return ""
        for chunk in value if isinstance(value, list) else [value]:
            found = _by_chunk(chunk, framing, name)
            if found is not None:
                return found
    return "" if complete else None


def _first_line(start: bytes) -> tuple[bytes, bytes]:
    line = _LINE.match(_begun(start))
    return (line[1], line[2]) if line else (b"", b"")  # it matches anything


def _begun(start: bytes) -> bytes:
    """From the first line on that says anything."""
    skipped = _SKIPPED.match(start)
    return start[skipped.end() if skipped else 0 :]


def _frames(start: bytes, complete: bool) -> list[Frame]:
    sse = SseDecoder()
    return sse.feed(start) + (sse.close() if complete else [])


def _lines(start: bytes, complete: bool) -> list[Frame]:
    *lines, last = _begun(start).split(b"\n")
    return [(b"", line) for line in ([*lines, last] if complete else lines)]


def _by_chunk(chunk: object, protocol: str, name: bytes) -> str | None:
    """What a chunk in a frame of this name shows; `None` where it shows nothing."""
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if not isinstance(chunk, dict) or not isinstance(kind, str) or kind.startswith(_FOREIGN):
        return ""
    if kind in _ANYBODYS or not is_known(kind):
        return None
    if protocol == "ai-sdk-full":
        return protocol
    if kind == "error" and "errorText" not in chunk and (name or "sequence_number" in chunk):
        return ""  # other protocols have an event of that name
    return "ai-sdk-model" if kind in _MODEL_STARTS else protocol


# SECTION Which decoder reads an answer: chosen by name, or by its headers and first bytes.

# A stream that has not shown by then what it is, is taken for the first of the dialects.
START_LIMIT = 64 * 1024


class Decoder(Protocol):
    """Belongs to one answer: bytes in, events out, however the bytes are cut. Never raises."""

    @property
    def over(self) -> bool: ...

    @property
    def unknown(self) -> Mapping[str, int]:
        """How often there came what we do not know, by its name."""

    def feed(self, chunk: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


DECODERS: dict[str, Callable[[], Decoder]] = {
    "openresponses": StreamDecoder,
    "ai-sdk-full": FullDecoder,
    "ai-sdk-ui": UiDecoder,
    "ai-sdk-data": DataDecoder,
    "ai-sdk-model": ModelDecoder,
}

# A recording may be of another question than a chat's.
_RECORDED: dict[str, Callable[[], Decoder]] = {
    **DECODERS,
    "openresponses": partial(StreamDecoder, siblings=True),
}


def decoder_for(
    protocol: str = "auto", status: int | None = None, headers: Mapping[str, str] | None = None
) -> Decoder:
    """A decoder for an answer with this status and these headers, as far as they are known."""
    if protocol != "auto" and protocol not in DECODERS:
        raise RequestError(f"There is no protocol “{protocol}”. Known are: auto, {', '.join(DECODERS)}.")
    if status is not None and status >= 400:
        return ErrorResponseDecoder(status, headers or {})
    if protocol == "auto":
        named = detect_by_headers(headers or {})
        return _RECORDED[named]() if named else DetectingDecoder()
    return DECODERS[protocol]()


class DetectingDecoder:
    """Holds the first bytes until they show what they are, and then hands all to the decoder for it."""

    def __init__(self) -> None:
        self._start = b""
        self._decoder: Decoder | None = None

    @property
    def over(self) -> bool:
        return self._decoder is not None and self._decoder.over

    @property
    def unknown(self) -> Mapping[str, int]:
        return {} if self._decoder is None else self._decoder.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        return self._recognised(complete=len(self._start) > START_LIMIT)

    def close(self) -> list[Event]:
        found = self._recognised(complete=True) if self._decoder is None else []
        return found + self._decoder.close() if self._decoder is not None else found

    def _recognised(self, *, complete: bool) -> list[Event]:
        protocol = detect_by_start(self._start, complete=complete)
        if protocol is None:
            return []
        self._decoder = _RECORDED[protocol or "openresponses"]()
        start, self._start = self._start, b""
        return self._decoder.feed(start)
