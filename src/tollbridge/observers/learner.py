"""Learn from the reported usage of a request how its model counts tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.observers.usage import UsageObserver
from tollbridge.protocols.stream import log_defect
from tollbridge.token_accounting import TokenAccounting
from tollbridge.types.errors import ContextTooLong, RequestError
from tollbridge.types.messages import ChatRequest, without_markers

log = logging.getLogger(__name__)


class LearnerObserver(Observer):
    """Calibrates the token estimator at the end of a request.

    Args:
        window: The most input tokens the model accepts, if known: a prompt close to it causes a warning.
        in_background: Whether nobody waits for it. Then the request is read on the background
            thread, and skipped if that is too busy.
    """

    def __init__(
        self,
        tokens: TokenAccounting,
        usage: UsageObserver,
        read_request: Callable[[], ChatRequest],
        *,
        window: int | None = None,
        in_background: bool = False,
    ) -> None:
        self._tokens = tokens
        self._usage = usage
        self._read_request = read_request
        self._window = window
        self._in_background = in_background

    async def end(self, answer: Answer) -> None:
        if not self._usage.is_started:
            return
        if self._in_background:
            is_too_long = isinstance(answer.error, ContextTooLong)
            if is_too_long or (answer.outcome == "completed" and answer.context is not None):
                self._tokens.learn_later(partial(self._learn, answer))
        elif answer.outcome == "completed":
            if warning := self._tokens.warning(answer.context, self._window, answer.preflight):
                answer.warnings.append(warning)
            parts = without_markers(answer.pieces)
            request = self._read_request()
            await self._tokens.learn(request, answer.context, parts, answer.preflight, self._provider)
        elif answer.error is not None:
            await self._tokens.learn_from_rejection(self._read_request(), answer.error)

    @property
    def _provider(self) -> str | None:
        row = self._usage.last_row
        return None if row is None else row.provider

    def _learn(self, answer: Answer, estimator: HybridTokenEstimator) -> None:
        """Learn on the background thread, as a turn does."""
        try:
            request = self._read_request()
            if isinstance(answer.error, ContextTooLong):
                estimator.refused(request, answer.error)
            elif answer.context is not None:
                parts = without_markers(answer.pieces)
                estimator.calibrate_request(request, answer.context, parts, provider=self._provider)
        except RequestError:
            log.debug("A forwarded request could not be decoded; the token estimator does not learn from it.")
        except Exception as defect:  # noqa: BLE001 - nobody waits for the result; see `EventGuard`
            log_defect("A forwarded request", defect)
