"""Timeouts, and the retry policy: which errors are retried, how often, and after which delay."""

from __future__ import annotations

import random

import msgspec

from tollbridge.types.errors import BridgeError


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts in seconds.

    Attributes:
        connect: The limit for establishing a connection.
        idle: The limit for a pause before the first byte or between two reads; `None` is no limit. Reasoning
            models can pause for minutes.
        total: The limit for the complete response including all attempts; `None` is no limit.
    """

    connect: float = 15.0
    idle: float | None = 300.0
    total: float | None = None


class RetryPolicy(msgspec.Struct, frozen=True):
    """When and how often to retry a failed request.

    Attributes:
        attempts: The number of attempts, including the first one.
        first: The delay before the first retry, in seconds. It doubles with every retry.
        longest: The longest delay, in seconds. If the gateway requires a longer one (`Retry-After`), the
            error is raised at once.
    """

    attempts: int = 3
    first: float = 0.5
    longest: float = 60.0

    def wait(self, error: BridgeError, attempt: int, generator: random.Random) -> float | None:
        """Return the delay in seconds after this many failed attempts, or `None` to give up."""
        if attempt >= self.attempts or not error.transient or error.code == "insufficient_quota":
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest else None
        # Exponential backoff with jitter, so that many clients do not retry at the same time.
        delay: float = min(self.longest, self.first * 2 ** (attempt - 1))
        return delay * generator.uniform(0.5, 1.0)
