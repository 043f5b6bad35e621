"""Which of the AI SDK's protocols some bytes are, by their headers and by how they begin."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tollbridge.core.json import read_json
from tollbridge.gateways.aisdk.chunks import is_known

HEADERS: dict[str, str] = {
    "x-vercel-ai-data-stream": "ai-sdk-data",
    "x-vercel-ai-ui-message-stream": "ai-sdk-ui",
}

# Only a model itself begins like this, never the SDK around it.
_MODEL_STARTS = frozenset({"response-metadata", "stream-start"})

_CODE = re.compile(rb'[0-9a-z]:[\["{\dtfn-]')
_SKIPPED = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]+|:[^\r\n]*[\r\n]|(?:id|retry):[^\r\n]*[\r\n])*")
_LINE = re.compile(rb"([^\r\n]*)([\r\n]?)")


def by_headers(headers: Mapping[str, str]) -> str | None:
    names = {name.lower() for name in headers}
    return next((protocol for name, protocol in HEADERS.items() if name in names), None)


def by_start(start: bytes, *, complete: bool) -> str | None:
    """The protocol of a stream that begins so: `""` if it is none of these, `None` if that needs more bytes.

    `complete`: there are no more.
    """
    skipped = _SKIPPED.match(start)
    rest = start[skipped.end() if skipped else 0 :]
    line, end = _LINE.match(rest).groups()  # type: ignore[union-attr]  # it matches anything
    if not end and not complete:
        return None
    if _CODE.match(line):
        return "ai-sdk-data"
    if line.startswith(b"data:"):
        return _by_chunk(line[5:], "ai-sdk-ui")
    return _by_chunk(line, "ai-sdk-full") if line.startswith((b"{", b"[{")) else ""


def _by_chunk(text: bytes, protocol: str) -> str:
    try:
        chunk = read_json(text.strip())
    except ValueError:
        return ""
    chunk = chunk[0] if isinstance(chunk, list) else chunk
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if not isinstance(kind, str) or not is_known(kind):
        return ""
    if (
        protocol == "ai-sdk-ui"
        and kind == "error"
        and "errorText" not in chunk
        and "sequence_number" in chunk
    ):
        return ""  # other protocols have an event of that name
    return "ai-sdk-model" if protocol == "ai-sdk-ui" and kind in _MODEL_STARTS else protocol
