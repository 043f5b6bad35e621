"""When to try again, and how long to wait first."""

from __future__ import annotations

import random

import msgspec

from tollbridge.types.errors import BridgeError


class RetryPolicy(msgspec.Struct, frozen=True):
    """`attempts` counts the first one. A wait the gateway asks for is honoured up to `longest`; beyond that
    the error is told at once, with the wait in it."""

    attempts: int = 3
    first: float = 0.5
    longest: float = 60.0

    def wait(self, error: BridgeError, attempt: int, chance: random.Random) -> float | None:
        """Seconds until the next attempt, or `None` to give up. `attempt` is how many have failed."""
        if attempt >= self.attempts or not error.transient or error.code == "insufficient_quota":
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest else None
        # Between half and the whole of a wait that doubles: many clients must not come back together.
        full: float = min(self.longest, self.first * 2 ** (attempt - 1))
        return full * chance.uniform(0.5, 1.0)
