"""The retry loop of the clients: every request is sent in it, streamed or not."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tollbridge.clients.observer import Observers
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError

if TYPE_CHECKING:
    from tollbridge.transport.http import HttpClient

log = logging.getLogger(__name__)

_random = random.Random()  # noqa: S311 - only for the jitter of retries


class Attempts:
    """The attempts of one call.

        async for attempt in attempts:
            with attempt:
                …               # send the request; a `BridgeError` ends this attempt
                attempt.commit()  # from here on, an error ends the call
                return …

    An error that the policy retries ends the `with` block silently, and the loop continues after the delay.
    Any other error leaves the loop. All attempts together have one deadline; `redact` removes secrets from
    their errors.
    """

    def __init__(
        self,
        http: HttpClient,
        policy: RetryPolicy,
        observers: Observers,
        redact: Callable[[BridgeError], None],
    ) -> None:
        self.deadline = http.deadline()
        self._http = http
        self._policy = policy
        self._observers = observers
        self._redact = redact
        self._failed_attempts = 0
        self._delay: float | None = None
        self._is_committed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Self:
        # It yields itself, without an end: the loop is left by a `return` or an error.
        if self._delay is not None:
            await self._http.sleep(self._delay)
            for resend in self._observers.resend:
                await resend()
            self._delay = None
        return self

    def commit(self) -> None:
        """Note that something was passed on to the caller: the request cannot be sent again."""
        self._is_committed = True

    def schedule_retry(self, error: BridgeError) -> bool:
        """Note that an attempt has failed. Return whether the request is sent again, after a delay.

        If not, the caller raises the error, from which secrets are removed.
        """
        self._redact(error)
        if self._is_committed:
            return False
        self._failed_attempts += 1
        delay = self._policy.wait(error, self._failed_attempts, _random)
        if delay is None or (self.deadline is not None and time.monotonic() + delay >= self.deadline):
            return False
        log.info(
            "Attempt %d failed (%s, status %s); retrying in %.1f s.",
            *(self._failed_attempts, error.kind, error.status, delay),
        )
        for retry in self._observers.retry:
            retry(error, delay)
        self._delay = delay
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, BridgeError):
            return False
        return self._delay is not None or self.schedule_retry(error)
