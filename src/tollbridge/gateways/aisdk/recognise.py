"""Which of the AI SDK's protocols some bytes are, by their headers and by how they begin."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tollbridge.core.json import read_json
from tollbridge.gateways.aisdk.chunks import is_known
from tollbridge.gateways.sse import Frame, SseDecoder

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


def by_headers(headers: Mapping[str, str]) -> str | None:
    names = {name.lower() for name in headers}
    return next((protocol for name, protocol in HEADERS.items() if name in names), None)


def by_framing(start: bytes, *, complete: bool) -> str | None:
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


def by_start(start: bytes, *, complete: bool) -> str | None:
    """The protocol of a stream that begins so, in the same words. The first chunk of a known type decides:
    any version may begin with something new."""
    framing = by_framing(start, complete=complete)
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
