"""The token accounting of turns: estimate a request, ask the gateway for its count, learn from its usage."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tollbridge.estimator import NEAR, HybridTokenEstimator, Preflight, prompt_warning
from tollbridge.storage.worker import WRITE_TIMEOUT, Pending, WorkerThread, wait_for_write
from tollbridge.types.errors import BridgeError, ContextTooLong
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, DataPart, Part
from tollbridge.types.text import write_json

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

# Statuses of a gateway without a token-count endpoint. Any other error concerns that one request.
NO_COUNT_ENDPOINT = frozenset({404, 405, 501})
# Seconds that the first request of an unknown model waits for the gateway's token count.
COUNT_WAIT = 0.3
# How many limits of context-length errors are kept.
_REFUSED_LIMIT = 100
# How much of the time the background thread may spend on forwarded requests, and how many seconds at once. It
# competes with the event loop: while many requests are forwarded, it learns from some of them.
LEARNING_SHARE, LEARNING_BUDGET = 0.05, 0.25
# Forwarded requests that may wait for that thread, in memory.
WAITING_LIMIT = 8
# A short-lived program does not load a vocabulary to learn from its only turn if this many requests of the
# model were learned from before: one more changes little, and the user waits until the program exits.
LEARNED_ENOUGH = 10


class CountClient(Protocol):
    """A client whose gateway counts the tokens of a request."""

    async def input_tokens(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> int: ...


class TokenAccounting:
    """Estimate the tokens of requests and learn from the reported usage.

    Only the first request of a model whose tokenizer is unknown waits for the gateway's count, and only
    `COUNT_WAIT` seconds. Only a prompt that is known to be too long is rejected. Learning is done by a
    background thread, in order, because another process may hold the database.

    Args:
        counter: A client that can count at the gateway. It is asked for the first request of each new
            conversation, in the background if the tokenizer is known. A gateway without that endpoint is not
            asked again.
        short_lived: For programs that run a few turns and exit: prompts that certainly fit are not
            estimated, because loading a vocabulary takes time, no turn waits for learning, and the first
            turn is learned from when there is a second one, or if the model is still new.
        worker: The background thread.
    """

    def __init__(
        self,
        estimator: HybridTokenEstimator,
        worker: WorkerThread,
        counter: CountClient | None = None,
        *,
        short_lived: bool = False,
    ) -> None:
        self.estimator = estimator
        self._counter = counter
        self._short_lived = short_lived
        self._count_requests: set[asyncio.Task[int | None]] = set()
        # The limits in context-length errors, by model and the options that can change its window.
        self._refused_limits: dict[tuple[str, str], int] = {}
        self._worker = worker
        self._waiting: deque[Pending[float]] = deque()  # with the seconds that each took
        self._budget, self._budget_time = LEARNING_BUDGET, time.monotonic()
        # Whether an estimate, or a count of the gateway, was requested.
        self._is_asked = False
        # Whether learning from the next turn may be postponed. It is true only before the first turn.
        self._may_skip = short_lived
        # Learns from the first turn, if that was postponed. It is called when a second turn ends.
        self._first_turn: Callable[[], object] | None = None

    async def measure(
        self, request: ChatRequest, window: int | None, api_key: str | None = None, *, count: bool = True
    ) -> Preflight | None:
        """Estimate the prompt, and log a warning if it is close to or over the context window.

        If the tokenizer is unknown, this waits a moment for the gateway's count.

        Args:
            request: The request as it will be sent.
            window: The most input tokens the model accepts, if known.

        Returns:
            The estimate, or `None` if no estimate was needed.

        Raises:
            ContextTooLong: The gateway has counted this prompt, and rejects prompts of this length.
        """
        if self._short_lived and (window is None or _certainly_fits(request, window)):
            return None
        self._is_asked = True
        preflight = self.estimator.preflight(request, window)
        counting = self._start_count(request, api_key, preflight, count=count)
        if counting is not None and not self.estimator.is_calibrated(request.model):
            import asyncio  # not at the top: programs without an event loop use the estimator

            await asyncio.wait({counting}, timeout=COUNT_WAIT)  # a slower count is used by the next request
            if counting.done():
                preflight = self.estimator.preflight(request, window)
        if preflight.warning is not None:
            log.warning("%s", preflight.warning)
        self._check_length(request, preflight)
        return preflight

    def _start_count(
        self, request: ChatRequest, api_key: str | None, preflight: Preflight, *, count: bool
    ) -> asyncio.Task[int | None] | None:
        """Let the gateway count the first request of a conversation, in a task of its own."""
        if not count or self._counter is None or preflight.estimate.method != "estimated":
            return None
        import asyncio

        task = asyncio.create_task(self.count(request, api_key))
        self._count_requests.add(task)
        task.add_done_callback(self._count_requests.discard)
        return task

    def _check_length(self, request: ChatRequest, preflight: Preflight) -> None:
        """Reject a prompt only if the gateway has counted it, and has named the limit that it exceeds."""
        if not self._refused_limits or preflight.estimate.method != "actual":
            return
        tokens, limit = preflight.estimate.tokens, self._refused_limits.get(_window_key(request))
        if limit is not None and tokens > limit:
            message = f"The prompt has {tokens:,} tokens; {request.model} accepts at most {limit:,}."
            raise ContextTooLong(message, tokens=tokens, limit=limit)

    async def count(
        self, request: ChatRequest, api_key: str | None = None, body: Mapping[str, Any] | None = None
    ) -> int | None:
        """Let the gateway count the input tokens of a request, and learn from the count.

        Args:
            body: The request as the caller wrote it, if the caller speaks the gateway's protocol.

        Returns:
            The count, or `None` if the gateway does not count or the count request failed.
        """
        self._is_asked = True
        if self._counter is None:
            return None
        try:
            tokens = await self._counter.input_tokens(request if body is None else body, api_key=api_key)
        except BridgeError as error:
            if error.status in NO_COUNT_ENDPOINT:
                log.info("The gateway does not count tokens (status %s); not asking again.", error.status)
                self._counter = None
            return None
        await self._submit(lambda: self.estimator.counted(request, tokens))
        return tokens

    def warning(self, usage: Usage | None, window: int | None, preflight: Preflight | None) -> str | None:
        """Return a warning for a finished turn, from the reported usage or else from the estimate."""
        if usage is not None and usage.input_tokens:
            return prompt_warning(usage.input_tokens, window)
        return preflight.warning if preflight is not None else None

    async def learn(
        self,
        request: ChatRequest,
        usage: Usage | None,
        answer: Iterable[Part],
        preflight: Preflight | None = None,
        provider: str | None = None,
    ) -> None:
        """Learn from a finished turn. `usage` is that of the last step, whose input was this request."""
        if usage is not None:
            parts, estimate = tuple(answer), preflight.estimate if preflight else None

            def learn() -> bool:
                return self.estimator.calibrate_request(request, usage, parts, estimate, provider)

            may_skip, self._may_skip = self._may_skip, False
            if may_skip and not self._is_asked and self.estimator.seen(request.model) >= LEARNED_ENOUGH:
                self._first_turn = learn
                return
            if self._first_turn is not None:
                await self._submit(self._first_turn)
                self._first_turn = None
            await self._submit(learn)

    async def learn_from_rejection(self, request: ChatRequest, error: BridgeError) -> None:
        """Learn from a "too long" error: the numbers in it are exact for this prompt."""
        if isinstance(error, ContextTooLong):
            if error.tokens and error.limit and error.tokens > error.limit:
                if len(self._refused_limits) == _REFUSED_LIMIT:
                    self._refused_limits.clear()
                self._refused_limits[_window_key(request)] = error.limit
            await self._submit(lambda: self.estimator.refused(request, error))

    def learn_later(self, learn: Callable[[HybridTokenEstimator], None]) -> None:
        """Run a function, which must not raise, on the background thread. Skip it if that is too busy.

        Also skip it until somebody has asked for an estimate: learning loads a vocabulary of 33 MB.
        """
        if not self._is_asked:
            return
        while self._waiting and self._waiting[0].done():
            # The first function loads a vocabulary, and each can wait for the database. However long that
            # takes, no more than the whole budget is subtracted for one function.
            self._budget -= min(LEARNING_BUDGET, self._waiting.popleft().result())
        now = time.monotonic()
        self._budget = min(LEARNING_BUDGET, self._budget + LEARNING_SHARE * (now - self._budget_time))
        self._budget_time = now
        if self._budget > 0 and len(self._waiting) < WAITING_LIMIT:
            self._waiting.append(self._worker.submit(lambda: _measure(learn, self.estimator)))

    async def aclose(self, within: float = WRITE_TIMEOUT) -> None:
        """Cancel count requests and wait until everything learned is stored, at most `within` seconds."""
        import asyncio

        for task in self._count_requests:
            task.cancel()
        await asyncio.gather(*self._count_requests, return_exceptions=True)
        await wait_for_write(self._worker.submit(lambda: None), within)  # the last task in the queue

    async def _submit(self, learn: Callable[[], object]) -> None:
        """Run on the background thread. A database held by another process delays the turn only briefly."""
        learning = self._worker.submit(learn)
        if not self._short_lived:
            await wait_for_write(learning)


def _measure(learn: Callable[[HybridTokenEstimator], None], estimator: HybridTokenEstimator) -> float:
    """Call a function, and return the seconds that it took."""
    started = time.monotonic()
    learn(estimator)
    return time.monotonic() - started


def _window_key(request: ChatRequest) -> tuple[str, str]:
    """Return what a context window depends on: some gateways have options that enlarge it."""
    return request.model, write_json(request.extra)


def _certainly_fits(request: ChatRequest, window: int) -> bool:
    """Return whether the request fits whatever the tokenizer: a token of text has at least one byte."""
    parts = (part for message in request.messages for part in message.parts)
    if any(isinstance(part, DataPart) for part in parts):
        return False
    return len(write_json((request.messages, request.tools)).encode()) < NEAR * window
