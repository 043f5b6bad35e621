"""Token estimates: counts of text, predictions of prompts, and what is learned from reported usage.

`HybridTokenEstimator` is the estimator of the public API. `TokenAccounting` uses it for the turns of one
gateway: it estimates a request, asks the gateway for its count, and learns from the reported usage.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from tollbridge.storage.database import (
    WRITE_TIMEOUT,
    Database,
    StoreBusy,
    StoreUnusable,
    WorkerThread,
    wait_for_write,
)
from tollbridge.storage.tables import LedgerTables
from tollbridge.tokens.features import Prices
from tollbridge.tokens.ledger import EstimationResult, Ledger
from tollbridge.tokens.records import Accuracy
from tollbridge.tokens.tokenizers import BASE, LruCache, TextKey, family_of, text_key, warm
from tollbridge.types.errors import BridgeError, ContextTooLong
from tollbridge.types.events import Usage
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Tool,
)
from tollbridge.types.models import ID_LIMIT
from tollbridge.types.text import replace_surrogates, write_json

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

T = TypeVar("T")

# --- The estimator ---

# A prompt that fills this share of the context window is `near` the limit.
NEAR = 0.9
# The most bytes in one generation of a model's cache of text counts; `LruCache` has two generations.
_CACHE_LIMIT = 2_000_000
# About how many bytes a cached count takes in addition to its key.
_COUNT_BYTES = 300
# How many models have a cache. One more model removes the caches of all others.
_CACHED_MODELS = 8
# Seconds after which a database that has failed is used again.
_RETRY_SECONDS = 30.0


Verdict = Literal["fits", "near", "over", "unknown"]


def judge_prompt(tokens: int, window: int | None) -> Verdict:
    """Compare a prompt with the maximum number of input tokens its model accepts (`None` if unknown)."""
    if not window:
        return "unknown"
    return "over" if tokens > window else "near" if tokens / window >= NEAR else "fits"


def prompt_warning(tokens: int | None, window: int | None, verb: str = "used") -> str | None:
    """Return a warning for the log and the status bar if the prompt is near or over the limit."""
    if tokens is None or not window or (verdict := judge_prompt(tokens, window)) not in ("near", "over"):
        return None
    if verdict == "over":
        return f"The prompt {verb} {tokens:,} tokens, more than the limit of {window:,}."
    return f"The prompt {verb} {tokens:,} of {window:,} tokens ({100 * tokens / window:.0f} %)."


class Preflight(msgspec.Struct, frozen=True):
    """The estimate of a prompt and the limit it must not exceed.

    It only warns: the gateway decides whether a prompt is too long.
    """

    estimate: EstimationResult
    window: int | None

    @property
    def verdict(self) -> Verdict:
        return judge_prompt(self.estimate.tokens, self.window)

    @property
    def warning(self) -> str | None:
        return prompt_warning(self.estimate.tokens, self.window, "uses about")


class _TextCounts:
    """The weights of a model's text features, and a cache of the counts that they give.

    These `Prices` are not money: each is a number of tokens per feature (see `Weights.text_prices`).
    """

    def __init__(self, prices: tuple[float, ...]) -> None:
        self.prices = Prices(prices)
        self.cache: LruCache[TextKey, int] = LruCache(_CACHE_LIMIT, _weigh_count)


def _weigh_count(key: TextKey, _count: int) -> int:
    return len(key) + _COUNT_BYTES


class HybridTokenEstimator:
    """Counts tokens and predicts the input tokens of requests. Every `calibrate` improves the estimates.

    Threads can share an estimator. Learning waits while another process writes to the file; estimating never
    waits.

    Args:
        path: A database file. What is learned is saved there and shared with every process that uses the same
            file. Without a path it is kept in memory.
        timeout: How many seconds learning waits for another process that writes (default: 10).
        patience: The old name of `timeout`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        patience: float | None = None,
    ) -> None:
        self._database: Database | None = None
        self._ledger = (
            Ledger() if path is None else self._open(Path(path), patience if timeout is None else timeout)
        )
        self._revision = self._ledger.revision
        self._retry_at: float | None = None  # when to use the database again, after it has failed
        self._is_failing = False
        self._text_counts: dict[str, _TextCounts] = {}  # by model, for the current weights
        self._counted_models: set[str] = set()  # by their gateways, since the start
        self._lock = RLock()

    def _open(self, path: Path, timeout: float | None) -> Ledger:
        try:
            self._database = Database(path, timeout)
            return Ledger(LedgerTables(self._database))
        except StoreUnusable as error:
            log.warning("%s; calibration will not be saved", error.message)
            return Ledger()

    def warm(self, *models: str) -> Thread:
        """Load the vocabularies of these models on a background thread, and return the thread."""
        names = {family_of(model).vocabulary or BASE for model in models} or {BASE}
        return warm(*sorted(names))

    def close(self) -> None:
        """Close the database, if there is one."""
        if self._database is not None:
            self._database.close()

    # --- Counting and estimating ---

    @property
    def revision(self) -> int:
        """A number that changes when the count of a text may have changed: cached counts are then stale."""
        with self._lock:
            return self._ledger.revision

    @property
    def lesson(self) -> int:
        """Deprecated: the old name of `revision`."""
        return self.revision

    def estimate_text(self, model: str, text: str) -> int:
        """Count the tokens of a text.

        The count is exact if the model's vocabulary is bundled, unless reported usage has shown that the
        model counts differently. Then, and without a vocabulary, it is the rounded sum of the weights of all
        text features.
        """
        counts = self._text_counts.get(model)
        if counts is not None and (count := counts.cache.recent.get(text)) is not None:
            return count
        return self._count_text(model, text)

    def _count_text(self, model: str, text: str) -> int:
        counts = self._text_counts.get(model)
        if counts is None:
            counts = self._read(lambda ledger: self._load_prices(ledger, model))
        key = text_key(text)
        count = counts.cache.get(key)
        if count is None:
            features = self._ledger.prepare_text(model, text)  # can be slow, so it runs without the lock
            count = round(counts.prices.total(features))
            counts.cache.put(key, count)
        return count

    def _load_prices(self, ledger: Ledger, model: str) -> _TextCounts:
        counts = _TextCounts(ledger.text_prices(model))
        if ledger is self._ledger:  # and not the empty one that replaces it while the database is locked
            if len(self._text_counts) >= _CACHED_MODELS:
                self._text_counts = {}
            self._text_counts[model] = counts
        return counts

    def estimate_message(self, model: str, message: Message) -> int:
        """Count the tokens of a message's content, without the overhead per message, which hosts add."""
        self._ledger.prepare_message(model, message)
        return self._read(lambda ledger: ledger.message_tokens(model, message))

    def estimate_conversation(
        self, model: str, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> EstimationResult:
        """Predict the input tokens a gateway will report for these messages and tools."""
        return self.estimate_request(ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools)))

    def estimate_request(self, request: ChatRequest) -> EstimationResult:
        """Predict the input tokens a gateway will report for this request."""
        for message in request.messages:
            self._ledger.prepare_message(request.model, message)
        return self._read(lambda ledger: ledger.estimate(request))

    def preflight(self, request: ChatRequest, window: int | None) -> Preflight:
        """Compare the request with the maximum input tokens the model accepts (`None` if unknown)."""
        return Preflight(self.estimate_request(request), window or None)

    # --- Learning ---

    def calibrate(
        self,
        model: str,
        messages: Sequence[Message],
        usage: Usage,
        tools: Sequence[Tool] = (),
        answer: Iterable[Part] = (),
    ) -> bool:
        """Learn from a completed request. See `calibrate_request`."""
        request = ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools))
        return self.calibrate_request(request, usage, answer)

    def calibrate_request(
        self,
        request: ChatRequest,
        usage: Usage,
        answer: Iterable[Part] = (),
        estimate: EstimationResult | None = None,
        provider: str | None = None,
    ) -> bool:
        """Learn from a completed request.

        Args:
            request: The request as it was sent.
            usage: The reported usage of the last step, the one whose input was this request.
            answer: The streamed answer. Its output tokens are used when it comes back as history.
            estimate: What was estimated before the request was sent, if more may have been learned since.
            provider: Who served the model behind the gateway, if the answer says so. Providers of the same
                model can count differently.

        Returns:
            Whether the reported usage was plausible and is used.
        """
        parts = tuple(answer)
        name = replace_surrogates(provider[:ID_LIMIT]).replace("\n", " ") if provider else None

        def learn(ledger: Ledger) -> bool:
            accepted = ledger.record(request, usage, estimate=estimate, provider=name)
            if accepted:
                ledger.record_answer(request.model, parts, usage, name)
            return accepted

        return self._write(learn)

    def counted(self, request: ChatRequest, tokens: int) -> bool:
        """Learn from a token-count response (`/v1/responses/input_tokens`).

        Returns:
            Whether the count was plausible and is used.
        """
        accepted = self._write(lambda ledger: ledger.record_count(request, tokens))
        if accepted:
            self._counted_models.add(request.model)
        return accepted

    def refused(self, request: ChatRequest, error: ContextTooLong) -> bool:
        """Learn from a context-length error, if it says how long the prompt is or what the limit is.

        Returns:
            Whether anything was learned.
        """
        if error.tokens:
            usage = Usage(input_tokens=error.tokens)
            return self._write(lambda ledger: ledger.record(request, usage, trusted=True))
        if error.limit and not error.shared and self.estimate_request(request).tokens <= error.limit:
            # The length is unknown, but it exceeds the limit.
            minimum = error.limit + 1
            self._read(lambda ledger: ledger.record_lower_bound(request, minimum))
            return True
        return False

    def is_calibrated(self, model: str) -> bool:
        """Return whether the tokenizer of a model is known: bundled, or learned from reports or counts."""
        if family_of(model).vocabulary is not None or model in self._counted_models:
            return True
        return self.seen(model) > 0

    def seen(self, model: str) -> int:
        """Return how many requests of a model were learned from."""
        return self._read(lambda ledger: ledger.hit_rates.count(model))

    def accuracy(self) -> list[Accuracy]:
        """Return how accurate the estimates were, by model."""
        return self._read(lambda ledger: ledger.accuracy())

    def reset(self) -> None:
        """Forget everything that was learned and recorded."""
        self._write(lambda ledger: ledger.clear())
        self._counted_models.clear()

    # --- Access to the ledger ---

    def _write(self, operation: Callable[[Ledger], T]) -> T:
        """Run an operation that writes, waiting while another process writes; skip saving on a timeout."""
        try:
            if self._database is None:
                return self._run(operation)
            result = self._database.retry_while_busy(lambda: self._run(operation))
            self._is_failing = self._retry_at is not None
            return result
        except StoreBusy as error:
            log.warning("%s; calibration from this request was not saved", error.message)
            return operation(Ledger())

    def _read(self, operation: Callable[[Ledger], T]) -> T:
        """Run an operation without waiting; use an empty ledger if the database is locked."""
        try:
            return self._run(operation)
        except StoreBusy as error:
            log.warning("%s; this estimate uses no calibration", error.message)
            return operation(Ledger())

    def _run(self, operation: Callable[[Ledger], T]) -> T:
        """Run an operation under the lock.

        If the database has failed, continue with an empty ledger, and try the database again later.
        """
        with self._lock:
            if self._retry_at is not None and time.monotonic() >= self._retry_at and self._database:
                self._replace_ledger(Ledger(LedgerTables(self._database)), None)
            try:
                result = operation(self._ledger)
            except StoreBusy:
                raise
            except StoreUnusable as error:
                if not self._is_failing:
                    log.warning("%s; continuing without saved calibration", error.message)
                self._is_failing = True
                self._replace_ledger(Ledger(), time.monotonic() + _RETRY_SECONDS)
                result = operation(self._ledger)
            if self._revision != self._ledger.revision:
                self._revision = self._ledger.revision
                self._text_counts = {}
            return result

    def _replace_ledger(self, ledger: Ledger, retry_at: float | None) -> None:
        self._ledger, self._retry_at = ledger, retry_at
        self._revision = ledger.revision
        self._text_counts = {}


# --- The token accounting of turns ---

# Statuses of a gateway without a token-count endpoint. Any other error concerns that one request.
NO_COUNT_ENDPOINT = frozenset({404, 405, 501})
# Seconds that the first request of an unknown model waits for the gateway's token count.
COUNT_WAIT = 0.3
# How many limits of context-length errors are kept.
_REFUSED_LIMIT = 100
# How much of the time the learner thread may spend on forwarded requests, and how many seconds at once. It
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
    `COUNT_WAIT` seconds. Only a prompt that is known to be too long is rejected. Learning is done by a thread
    of its own, in order, because another process may hold the database.

    Args:
        estimator: The estimator that is asked and calibrated.
        counter: A client that can count at the gateway. It is asked for the first request of each new
            conversation, in the background if the tokenizer is known. A gateway without that endpoint is not
            asked again.
        short_lived: For programs that run a few turns and exit: prompts that certainly fit are not
            estimated, because loading a vocabulary takes time, no turn waits for learning, and the first
            turn is learned from when there is a second one, or if the model is still new.
    """

    def __init__(
        self,
        estimator: HybridTokenEstimator,
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
        self._learner = WorkerThread("token-accounting")
        self._waiting: deque[Future[float]] = deque()  # with the seconds that each took
        self._budget, self._budget_time = LEARNING_BUDGET, time.monotonic()
        # Whether an estimate, or a count of the gateway, was requested.
        self._is_asked = False
        # Whether learning from the next turn may be postponed. It is true only before the first turn.
        self._may_skip = short_lived
        # Learns from the first turn, if that was postponed. It is called when a second turn ends.
        self._first_turn: Callable[[], object] | None = None

    def estimate(
        self, request: ChatRequest, window: int | None, api_key: str | None = None, *, count: bool = True
    ) -> Preflight | None:
        """Estimate the prompt, and log a warning if it is close to or over the context window.

        Args:
            request: The request as it will be sent.
            window: The most input tokens the model accepts, if known.
            api_key: The key for a count request to the gateway.
            count: Whether the gateway may be asked to count.

        Returns:
            The estimate, or `None` if no estimate was needed.
        """
        preflight = self._preflight(request, window)
        if preflight is not None:
            _log_warning(preflight)
            self._start_count(request, api_key, preflight, count=count)
        return preflight

    async def measure(
        self, request: ChatRequest, window: int | None, api_key: str | None = None, *, count: bool = True
    ) -> Preflight | None:
        """Estimate the prompt like `estimate`; wait for the gateway's count if the tokenizer is unknown.

        Raises:
            ContextTooLong: The gateway has counted this prompt, and rejects prompts of this length.
        """
        preflight = self._preflight(request, window)
        if preflight is None:
            return None
        counting = self._start_count(request, api_key, preflight, count=count)
        if counting is not None and not self.estimator.is_calibrated(request.model):
            import asyncio  # not at the top: programs without an event loop use the estimator

            await asyncio.wait({counting}, timeout=COUNT_WAIT)  # a slower count is used by the next request
            if counting.done():
                preflight = self.estimator.preflight(request, window)
        _log_warning(preflight)
        self._check_length(request, preflight)
        return preflight

    def _preflight(self, request: ChatRequest, window: int | None) -> Preflight | None:
        if self._short_lived and (window is None or _certainly_fits(request, window)):
            return None
        self._is_asked = True
        return self.estimator.preflight(request, window)

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
            request: The request.
            api_key: The key for the count request.
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
        """Run a function, which must not raise, on the learner thread. Skip it if that thread is too busy.

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
            self._waiting.append(self._learner.submit(lambda: _measure(learn, self.estimator)))

    async def aclose(self, within: float = WRITE_TIMEOUT) -> None:
        """Cancel count requests and wait until everything learned is stored, at most `within` seconds."""
        import asyncio

        for task in self._count_requests:
            task.cancel()
        await asyncio.gather(*self._count_requests, return_exceptions=True)
        await wait_for_write(self._learner.submit(lambda: None), within)  # the last task in the queue
        self._learner.close(0)

    async def _submit(self, learn: Callable[[], object]) -> None:
        """Run in the learner thread. A database held by another process delays the turn only briefly."""
        learning = self._learner.submit(learn)
        if not self._short_lived:
            await wait_for_write(learning)


def _measure(learn: Callable[[HybridTokenEstimator], None], estimator: HybridTokenEstimator) -> float:
    """Call a function, and return the seconds that it took."""
    started = time.monotonic()
    learn(estimator)
    return time.monotonic() - started


def _log_warning(preflight: Preflight) -> None:
    if preflight.warning is not None:
        log.warning("%s", preflight.warning)


def _window_key(request: ChatRequest) -> tuple[str, str]:
    """Return what a context window depends on: some gateways have options that enlarge it."""
    return request.model, write_json(request.extra)


def _certainly_fits(request: ChatRequest, window: int) -> bool:
    """Return whether the request fits whatever the tokenizer: a token of text has at least one byte."""
    parts = (part for message in request.messages for part in message.parts)
    if any(isinstance(part, DataPart) for part in parts):
        return False
    return len(write_json((request.messages, request.tools)).encode()) < NEAR * window
