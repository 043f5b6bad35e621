"""What reached the gateway, for tests to look at: requests, and the moments clients hung up."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

_KEPT = 1_000


class Arrival:
    """One request. The key stays in memory: `bearer` holds it, `headers` and `repr` do not."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], port: int | None = None) -> None:
        self.id = f"req_{secrets.token_hex(8)}"
        self.method = method
        self.path = path
        self.port = port
        self.bearer = _bearer(headers)
        # By lower-case name; a header given twice keeps its last value.
        self.headers = {name.lower(): value for name, value in headers.items()}
        if "authorization" in self.headers:
            self.headers["authorization"] = "[redacted]"
        self.body: Any = None
        self.status: int | None = None
        self.scenario: str | None = None
        self.arrived_at = time.monotonic()
        # When the server noticed that the client had gone before the end, by `time.monotonic()`.
        self.hung_up_at: float | None = None
        # Whether it was us who closed the connection.
        self.dropped = False

    def __repr__(self) -> str:
        return f"<Arrival {self.method} {self.path} {self.status}>"


class Arrivals:
    """The newest requests, oldest first."""

    def __init__(self) -> None:
        self.requests: deque[Arrival] = deque(maxlen=_KEPT)
        self._news: asyncio.Queue[Arrival] = asyncio.Queue()
        self._hang_ups: asyncio.Queue[float] = asyncio.Queue()
        self._seen: set[bytes] = set()
        # Set when the server closes: from then on nobody leaves by himself.
        self.closed = False

    def add(self, arrival: Arrival) -> None:
        self.requests.append(arrival)
        if self._news.qsize() < _KEPT:
            self._news.put_nowait(arrival)

    async def arrived(self, timeout: float) -> Arrival:  # noqa: ASYNC109 (a bound is the point)
        """The next request, first come first told; raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            return await self._news.get()

    def note_hang_up(self, arrival: Arrival) -> None:
        if self.closed or arrival.dropped or arrival.hung_up_at is not None:
            return
        arrival.hung_up_at = time.monotonic()
        if self._hang_ups.qsize() < _KEPT:
            self._hang_ups.put_nowait(arrival.hung_up_at)

    async def hung_up(self, timeout: float) -> float:  # noqa: ASYNC109 (a bound is the point)
        """The moment the next client went away, first seen first told; raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            return await self._hang_ups.get()

    def is_first(self, mark: bytes) -> bool:
        """Whether this very request has not come before."""
        if mark in self._seen:
            return False
        self._seen.add(mark)
        return True


def _bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
