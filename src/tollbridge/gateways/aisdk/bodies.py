"""An answer that is no stream: one JSON body, which says why there is none."""

from __future__ import annotations

from tollbridge.core.errors import BridgeError, StreamError
from tollbridge.core.json import read_json
from tollbridge.gateways.aisdk.failures import failure_from
from tollbridge.gateways.sse import FRAME_LIMIT, too_large

# What may stand before the first byte that means anything: white space, and a byte order mark.
BLANK = b" \t\r\n\xef\xbb\xbf"
# The fields by which a body is the report of a failure.
_TELLING = ("error", "errorText", "message")


class Body:
    """Belongs to one answer. Over the limit, `error` says so, and nothing more is kept."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._limit:
            self.error = too_large(self._limit)
            self._pieces.clear()
        else:
            self._pieces.append(chunk)

    def failure(self) -> BridgeError | None:
        """What went wrong, or `None` where the body says nothing of it."""
        if self.error is not None:
            return self.error
        try:
            value = read_json(b"".join(self._pieces).lstrip(BLANK))
        except ValueError:
            return StreamError("The gateway's answer is JSON that breaks off or makes no sense.")
        told = isinstance(value, dict) and any(value.get(name) is not None for name in _TELLING)
        return failure_from(value) if told else None
