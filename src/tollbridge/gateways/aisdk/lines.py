"""Lines of JSON: bytes in, whole lines out. They end at LF alone: models write every other line end."""

from __future__ import annotations

from tollbridge.core.errors import StreamError
from tollbridge.gateways.sse import FRAME_LIMIT, too_large

_BOM = b"\xef\xbb\xbf"


class LineDecoder:
    """Belongs to one stream. A line over the limit ends it: `error` says so, and nothing more comes out."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._partial: list[bytes] = []
        self._size = 0
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if self.error is not None:
            return []
        *lines, rest = chunk.split(b"\n")
        if lines and (self._partial or not self._started):
            lines[0] = self._whole(lines[0])
        if rest:
            self._partial.append(rest)
            self._size += len(rest)
        if self._size > self._limit or (len(chunk) > self._limit and len(max(lines, key=len)) > self._limit):
            self.error = too_large(self._limit)
            return []
        return lines

    def close(self) -> list[bytes]:
        """The last line, where nothing ended it."""
        return [] if self.error is not None else [self._whole(b"")]

    def _whole(self, end: bytes) -> bytes:
        line = b"".join([*self._partial, end])
        self._partial.clear()
        self._size = 0
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        return line
