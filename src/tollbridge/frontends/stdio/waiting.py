"""Report to the editor why a turn has no output yet."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Mapping
from typing import Self

from tollbridge.clients.observer import Observer
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError, Kind

RETRIES = RetryPolicy(longest=LIMITS.longest_retry)

# Why an attempt failed, by the kind of the error.
WAIT_REASONS: dict[Kind, str] = {
    "rate_limited": "The gateway limits the rate of requests.",
    "overloaded": "The gateway is overloaded.",
    "server": "The gateway failed.",
    "network": "The gateway cannot be reached.",
    "timeout": "The gateway did not answer in time.",
    "disconnected": "The connection was lost.",
}


class WaitObserver(Observer):
    """Reports why a turn has no output yet: retries, and an answer that does not begin.

    Use it in a `with` statement around the turn, and call `stop` when output arrives. `report` is called once
    a second while there is something to report.
    """

    def __init__(self, report: Callable[[wire.Wait], object]) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()  # when the last attempt was sent
        self._retry_at: float | None = None
        self._failures = 0
        self._reason = ""
        self._notes = iter(LIMITS.note_seconds)
        self._next_note = next(self._notes)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._next_note, self._tick)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:  # noqa: ARG002
        if self._retry_at is None:
            return  # the first attempt: preparing it counts as waiting
        self._sent, self._retry_at = self._loop.time(), None
        self._notes = iter(LIMITS.note_seconds)
        self._next_note = next(self._notes)

    def retry(self, error: BridgeError, seconds: float) -> None:
        self._failures += 1
        self._reason = WAIT_REASONS.get(error.kind, "The request failed.")
        self._retry_at = self._loop.time() + seconds
        self._report_retry(seconds, update=seconds < LIMITS.short_retry)

    def _tick(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(1.0, self._tick)
        if self._retry_at is not None:
            self._report_retry(max(0.0, self._retry_at - now), update=True)
            return
        waited = now - self._sent
        if waited < LIMITS.note_seconds[0] - 0.5:
            return  # the next attempt was sent just now
        is_note = waited >= self._next_note - 0.5
        if is_note:
            self._next_note = next(self._notes, sys.maxsize)
        text = f"{self._reason} No answer yet after {waited:.0f} s."
        self._report(wire.Wait("answer", round(waited), text.strip(), update=not is_note))

    def _report_retry(self, seconds: float, *, update: bool) -> None:
        left = math.ceil(seconds)
        attempt = f"attempt {self._failures + 1} of {RETRIES.attempts}"
        text = f"{self._reason} Trying again in {left} s ({attempt})."
        self._report(wire.Wait("retry", left, text, update=update))
