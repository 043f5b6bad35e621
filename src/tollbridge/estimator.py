"""Token estimates: counts of text, predictions of prompts, and what is learned from reported usage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import RLock, Thread
from typing import Literal, TypeVar

import msgspec

from tollbridge.storage.store import StoreBusy, StoreUnusable
from tollbridge.tokens.features import ClusterWeights
from tollbridge.tokens.ledger import EstimationResult, Ledger
from tollbridge.tokens.records import Accuracy, LedgerStore
from tollbridge.tokens.tokenizers import BASE, LruCache, TextKey, family_of, text_key, warm
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Part, Tool
from tollbridge.types.models import ID_LIMIT
from tollbridge.types.text import replace_surrogates

log = logging.getLogger(__name__)

T = TypeVar("T")

# A prompt that fills this share of the context window is `near` the limit.
NEAR = 0.9
# The most bytes in one generation of a model's cache of text counts; `LruCache` has two generations.
_CACHE_LIMIT = 2_000_000
# About how many bytes a cached count takes in addition to its key.
_COUNT_BYTES = 300
# How many models have a cache. One more model removes the caches of all others.
_CACHED_MODELS = 8
# Seconds after which a store that has failed is used again.
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
    """The weights of a model's text features, and a cache of the counts that they give."""

    def __init__(self, weights: tuple[float, ...]) -> None:
        self.weights = ClusterWeights(weights)
        self.cache: LruCache[TextKey, int] = LruCache(
            _CACHE_LIMIT, lambda key, _count: len(key) + _COUNT_BYTES
        )


class HybridTokenEstimator:
    """Counts tokens and predicts the input tokens of requests. Every `calibrate` improves the estimates.

    Threads can share an estimator. Learning waits while another process writes to the store; estimating never
    waits.

    Args:
        store: Where what is learned is saved, and shared with every process that uses the same store: the
            topic `tokens` of a `Store`. By default it is kept in memory.
        timeout: How many seconds learning waits for another process that writes; by default as long as the
            store does.
    """

    def __init__(self, store: LedgerStore | None = None, *, timeout: float | None = None) -> None:
        self._lock = RLock()
        self._store = store
        self._timeout = timeout
        self._ledger = self._open_ledger(store)
        self._revision = self._ledger.revision
        self._retry_at: float | None = None  # when to use the store again, after it has failed
        self._is_failing = False
        self._text_counts: dict[str, _TextCounts] = {}  # by model, for the current weights
        self._counted_models: set[str] = set()  # by their gateways, since the start

    def _open_ledger(self, store: LedgerStore | None) -> Ledger:
        return Ledger(store, lock=self._lock, timeout=self._timeout)

    def warm(self, *models: str) -> Thread:
        """Load the vocabularies of these models on a background thread, and return the thread."""
        names = {family_of(model).vocabulary or BASE for model in models} or {BASE}
        return warm(*sorted(names))

    @property
    def revision(self) -> int:
        """A number that changes when the count of a text may have changed: cached counts are then stale."""
        with self._lock:
            return self._ledger.revision

    def estimate_text(self, model: str, text: str) -> int:
        """Count the tokens of a text.

        The count is exact if the model's vocabulary is bundled, unless reported usage has shown that the
        model counts differently. Then, and without a vocabulary, it is the rounded sum of the weights of all
        text features.
        """
        counts = self._text_counts.get(model)
        if counts is None:
            # `partial`, because a function that uses `model` would make every call slower.
            counts = self._read(partial(self._load_weights, model=model))
        elif (recent := counts.cache.recent.get(text)) is not None:
            return recent
        key = text_key(text)
        count = counts.cache.get(key)
        if count is None:
            features = self._ledger.prepare_text(model, text)  # can be slow, so it runs without the lock
            count = round(counts.weights.total(features))
            counts.cache.put(key, count)
        return count

    def _load_weights(self, ledger: Ledger, model: str) -> _TextCounts:
        counts = _TextCounts(ledger.text_weights(model))
        if ledger is self._ledger:  # and not the empty one that replaces it while the store is locked
            if len(self._text_counts) >= _CACHED_MODELS:
                self._text_counts = {}
            self._text_counts[model] = counts
        return counts

    def estimate_message(self, model: str, message: Message) -> int:
        """Count the tokens of a message's content, without the overhead per message, which hosts add."""
        self._ledger.prepare_messages(model, [message])
        return self._read(lambda ledger: ledger.message_tokens(model, message))

    def estimate_conversation(
        self, model: str, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> EstimationResult:
        """Predict the input tokens a gateway will report for these messages and tools."""
        return self.estimate_request(ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools)))

    def estimate_request(self, request: ChatRequest) -> EstimationResult:
        """Predict the input tokens a gateway will report for this request."""
        self._ledger.prepare_messages(request.model, request.messages)
        return self._read(lambda ledger: ledger.estimate(request))

    def preflight(self, request: ChatRequest, window: int | None) -> Preflight:
        """Compare the request with the maximum input tokens the model accepts (`None` if unknown)."""
        return Preflight(self.estimate_request(request), window or None)

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
        return self._write(
            lambda ledger: ledger.record(request, usage, estimate=estimate, provider=name, answer=parts)
        )

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
        is_bundled = family_of(model).vocabulary is not None
        return is_bundled or model in self._counted_models or self.seen(model) > 0

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

    def _write(self, operation: Callable[[Ledger], T]) -> T:
        """Run an operation that writes, waiting while another process writes; skip saving on a timeout."""
        try:
            result = self._run(operation)
            self._is_failing = self._retry_at is not None
            return result
        except StoreBusy as error:
            log.warning("%s; calibration from this request was not saved", error.message)
            return operation(Ledger())

    def _read(self, operation: Callable[[Ledger], T]) -> T:
        """Run an operation without waiting; use an empty ledger if the store is locked."""
        try:
            with self._lock:
                return self._run(operation)
        except StoreBusy as error:
            log.warning("%s; this estimate uses no calibration", error.message)
            return operation(Ledger())

    def _run(self, operation: Callable[[Ledger], T]) -> T:
        """Run an operation. If the store has failed, continue in memory, and try the store again later.

        A writing operation holds the lock by itself, and not while it waits: see `Ledger`.
        """
        if self._retry_at is not None:
            with self._lock:
                if self._retry_at is not None and time.monotonic() >= self._retry_at:
                    self._replace_ledger(self._store, None)
        try:
            result = operation(self._ledger)
        except StoreBusy:
            raise
        except StoreUnusable as error:
            with self._lock:
                if not self._is_failing:
                    log.warning("%s; continuing without saved calibration", error.message)
                self._is_failing = True
                self._replace_ledger(None, time.monotonic() + _RETRY_SECONDS)
                ledger = self._ledger
            result = operation(ledger)
        if self._revision != self._ledger.revision:
            with self._lock:
                self._revision = self._ledger.revision
                self._text_counts = {}
        return result

    def _replace_ledger(self, store: LedgerStore | None, retry_at: float | None) -> None:
        self._ledger, self._retry_at = self._open_ledger(store), retry_at
        self._revision = self._ledger.revision
        self._text_counts = {}
