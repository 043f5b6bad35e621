"""The ledger: records the reported tokens of every prompt, and estimates the next one from them.

Gateways also report zeros, partial counts, sums over several steps, and wrong numbers: `UsageFilter` decides
which reports the ledger uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal

import msgspec

from tollbridge.tokens.learner import Extra, Weights
from tollbridge.tokens.prediction import (
    NO_ANCHOR,
    Anchor,
    Predictor,
    PromptEstimate,
    Share,
    WeightStore,
    content_tokens,
    find_measured,
    reasoning_tokens,
    shares,
    tools_tokens,
)
from tollbridge.tokens.prompts import Prompt, Reader, answer_fingerprint, long_texts, message_key
from tollbridge.tokens.records import Accuracy, HitRates, LedgerStore, MemoryStore, Outcome, summarise
from tollbridge.tokens.tokenizers import family_of
from tollbridge.types.messages import ChatRequest, Message, Part, Role
from tollbridge.types.usage import Usage

# --- Plausibility of reports ---

# A report is accepted if it is within these bounds, as shares of the estimate.
USUAL_BOUNDS = (0.6, 1.6)
# The same for the first reports of a model, when the estimate itself can be far off.
NEW_MODEL_BOUNDS = (0.35, 3.0)
NEW_MODEL_REPORTS = 5
# If the input tokens are outside of these bounds, and inside with the cached tokens added, the provider has
# excluded the cached tokens.
CLOSE_BOUNDS = (0.85, 1.2)
# If this many rejected reports in a row deviate by the same factor, within this tolerance, the estimate is
# wrong.
AGREEING_REPORTS = 3
AGREEMENT_TOLERANCE = 0.15


def prompt_tokens(usage: Usage, expected: float) -> int | None:
    """Return the size of the prompt according to the reported usage; `None` if it was not reported.

    Cached tokens are part of the input tokens, but some providers exclude them. `expected` is the estimate.
    """
    tokens, cached = usage.input_tokens, usage.cached_tokens
    if not tokens or tokens < 0:
        return None
    if not cached or cached < 0:
        return tokens
    if cached > tokens:
        return tokens + cached
    if not _within(tokens, expected, CLOSE_BOUNDS) and _within(tokens + cached, expected, CLOSE_BOUNDS):
        return tokens + cached
    return tokens


def _within(tokens: float, expected: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] * expected <= tokens <= bounds[1] * expected


class UsageVerdict(Enum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    # Several rejected reports agree, so the learned weights must be wrong.
    RESET = "reset"


class UsageFilter:
    """Decides, model by model, which reports are plausible."""

    def __init__(self) -> None:
        self._rejected: dict[str, list[float]] = {}  # reported / expected tokens, by model

    def accepts(self, tokens: int, expected: float, reports: int) -> bool:
        """Whether a number is close enough to the expected one, after this many reports of the model."""
        return _within(tokens, expected, NEW_MODEL_BOUNDS if reports < NEW_MODEL_REPORTS else USUAL_BOUNDS)

    def judge(self, model: str, tokens: int, expected: float, reports: int) -> UsageVerdict:
        """Decide about a report of a model, after `reports` accepted ones, and remember it if rejected."""
        rejected = self._rejected.setdefault(model, [])
        if self.accepts(tokens, expected, reports):
            rejected.clear()
            return UsageVerdict.ACCEPTED
        rejected.append(tokens / max(expected, 1.0))
        latest = rejected[-AGREEING_REPORTS:]
        if len(latest) == AGREEING_REPORTS and max(latest) <= min(latest) * (1 + AGREEMENT_TOLERANCE):
            rejected.clear()
            return UsageVerdict.RESET
        del rejected[:-AGREEING_REPORTS]
        return UsageVerdict.REJECTED


# --- The ledger ---

Method = Literal["actual", "hybrid", "estimated"]

# The reported tokens of an answer are used if they are within this factor, and this many, of its estimate.
_ANSWER_FACTOR, _ANSWER_TOLERANCE = 1.5, 20
# An unexplained difference is distributed over new messages only if it changes each by a factor within these.
_LOWEST_FACTOR, _HIGHEST_FACTOR = 0.7, 1.4
# How many lower bounds are kept.
_LOWER_BOUND_LIMIT = 1000


class EstimationResult(msgspec.Struct, frozen=True):
    """The estimated input tokens of a request.

    Attributes:
        tokens: The estimate, with a safety margin unless the count is `actual`.
        method: `actual` if the gateway has counted exactly this prompt before, `hybrid` if it has counted a
            part of it, `estimated` if it has counted none.
        confidence: The share of past estimates by this method that were within 2 % of the reported tokens.
        parts: Where the tokens come from, largest first.
    """

    tokens: int
    method: Method
    confidence: float
    parts: tuple[Share, ...] = ()


class Ledger:
    """Estimates prompts, and learns from the reported usage.

    Args:
        store: Where records and weights are kept; in memory by default.
        without: Tokenizers to leave out of the prior, for simulations that use one of them as the provider's.
    """

    def __init__(self, store: LedgerStore | None = None, *, without: frozenset[str] = frozenset()) -> None:
        self._store: LedgerStore = MemoryStore() if store is None else store
        self._reader = Reader()
        self._weight_store = WeightStore(self._store, without)
        self._predictor = Predictor(self._store, self._weight_store)
        # Predicts as if nothing had been recorded.
        self._blank_predictor = Predictor(MemoryStore(), self._weight_store)
        self._usage_filter = UsageFilter()
        self._hit_rates: HitRates | None = None
        self._lower_bounds: dict[tuple[bytes, bytes], int] = {}  # by prefix and tool set

    @property
    def revision(self) -> int:
        """A number that changes when the count of a text may have changed."""
        return self._weight_store.revision

    @property
    def hit_rates(self) -> HitRates:
        if self._hit_rates is None:
            self._hit_rates = HitRates(self._store.outcomes())
        return self._hit_rates

    def accuracy(self) -> list[Accuracy]:
        return summarise(self._store.outcomes())

    def prepare_text(self, model: str, text: str) -> None:
        """Count a text in advance, so that later calls are quick. Thread-safe, unlike most methods."""
        self._reader.texts.vector(family_of(model), text)

    def prepare_message(self, model: str, message: Message) -> None:
        """Count the long texts of a message in advance. Thread-safe."""
        for text in long_texts(message):
            self.prepare_text(model, text)

    def text_tokens(self, model: str, text: str) -> int:
        """Count the tokens of a text."""
        vector = self._reader.texts.vector(family_of(model), text)
        return round(self._weight_store.weights(model).text_tokens(vector))

    def message_tokens(self, model: str, message: Message) -> int:
        """Count the tokens of a message's content, without the overhead per message.

        Reasoning before the last user message counts as the provider counts it: mostly not at all. That of a
        message without tool calls is always before it, because the user is the next to speak.
        """
        counted = self._reader.read_message(model, message)
        weights = self._weight_store.weights(model)
        rows = self._predictor.measured([counted])
        row = find_measured(counted, rows)
        tokens = row[1] if row else content_tokens(counted, weights)
        reasoning = reasoning_tokens(counted, rows, weights)
        place = Extra.REASONING_LOOP if counted.content.calls else Extra.REASONING_PAST
        return max(0, round(tokens + weights.extra.weights[place] * reasoning))

    def estimate(self, request: ChatRequest) -> EstimationResult:
        """Estimate the input tokens that the gateway will report for this request."""
        prompt = self._reader.read(request)
        weights, best = self._predict(prompt)
        method = _method(prompt, best.anchor)
        tokens, parts = best.total, shares(best, weights)
        missing = 0 if method == "actual" else self._lower_bound(prompt) - tokens
        if missing > 0:
            tokens, parts = tokens + missing, (*parts, Share("rejected as too long before", missing))
        return EstimationResult(tokens, method, self.hit_rates.rate(prompt.model, method), parts)

    def record(
        self,
        request: ChatRequest,
        usage: Usage,
        *,
        estimate: EstimationResult | None = None,
        trusted: bool = False,
    ) -> bool:
        """Learn from the reported usage of a request.

        Args:
            request: The request as it was sent.
            usage: The reported usage.
            estimate: The estimate from before the request, if more was learned since. `accuracy` compares it
                with the report.
            trusted: Accept the report without comparing it with the estimate. The numbers of a context-length
                error are about exactly this prompt.

        Returns:
            Whether the report was accepted.
        """
        if not request.messages:
            return False
        prompt = self._reader.read(request)
        with self._store.transaction():
            weights, best = self._predict(prompt)
            tokens = prompt_tokens(usage, best.tokens)
            if tokens is None:
                return False
            if not trusted:
                reports = self.hit_rates.count(prompt.model)
                verdict = self._usage_filter.judge(prompt.model, tokens, best.tokens, reports)
                if verdict is UsageVerdict.REJECTED:
                    return False
                if verdict is UsageVerdict.RESET:
                    weights = self._weight_store.initial(prompt.model)
                    best = self._blank_predictor.predict_from(prompt, weights, NO_ANCHOR)
            if estimate is None:
                self._record_outcome(prompt, _method(prompt, best.anchor), best.total, tokens)
            else:
                self._record_outcome(prompt, estimate.method, estimate.tokens, tokens)
            self._learn(prompt, weights, best, tokens)
        return True

    def record_count(self, request: ChatRequest, tokens: int) -> bool:
        """Learn from a token-count response. It does not affect `accuracy`: the usage that follows does.

        Returns:
            Whether the count was accepted.
        """
        if not request.messages or tokens <= 0:
            return False
        prompt = self._reader.read(request)
        with self._store.transaction():
            weights, best = self._predict(prompt)
            if not self._usage_filter.accepts(tokens, best.tokens, self.hit_rates.count(prompt.model)):
                return False
            self._learn(prompt, weights, best, tokens)
        return True

    def record_lower_bound(self, request: ChatRequest, tokens: int) -> None:
        """Note that this prompt, and every prompt it is a prefix of, has at least this many tokens."""
        prompt = self._reader.read(request)
        if prompt.prefix_keys:
            if len(self._lower_bounds) >= _LOWER_BOUND_LIMIT:
                self._lower_bounds.clear()
            self._lower_bounds[prompt.prefix_keys[-1], prompt.toolset_key] = tokens

    def _lower_bound(self, prompt: Prompt) -> int:
        if not self._lower_bounds:
            return 0
        bounds = (self._lower_bounds.get((key, prompt.toolset_key), 0) for key in prompt.prefix_keys)
        return max(bounds, default=0)

    def record_answer(self, model: str, parts: Iterable[Part], usage: Usage) -> bool:
        """Record the reported output tokens of an answer, for when it comes back as history.

        Returns:
            Whether the report was plausible and was recorded.
        """
        message = Message(role=Role.ASSISTANT, parts=tuple(parts))
        output = usage.output_tokens
        if not output or output < 0 or not message.parts:
            return False
        counted = self._reader.read_message(model, message)
        expected = content_tokens(counted, self._weight_store.weights(model))
        reasoning = usage.reasoning_tokens
        if reasoning is None:  # if the text explains too few of the tokens, the rest was hidden reasoning
            reasoned = counted.content.has_thinking or output > _ANSWER_FACTOR * expected + _ANSWER_TOLERANCE
            reasoning = round(output - expected) if reasoned else 0
        visible = output - min(max(0, reasoning), output)
        lowest = expected / _ANSWER_FACTOR - _ANSWER_TOLERANCE
        if not lowest <= visible <= expected * _ANSWER_FACTOR + _ANSWER_TOLERANCE:
            return False
        with self._store.transaction():
            self._store.put_measured([(answer_fingerprint(model, message.parts), visible, output - visible)])
        return True

    def clear(self) -> None:
        """Forget everything that was learned and recorded."""
        with self._store.transaction():
            self._store.clear()
        self._weight_store.refresh(force=True)
        self._hit_rates = None
        self._lower_bounds.clear()

    def _predict(self, prompt: Prompt) -> tuple[Weights, PromptEstimate]:
        """Return the current weights, including what other processes have learned, and the best estimate."""
        self._weight_store.refresh()
        weights = self._weight_store.weights(prompt.model)
        return weights, self._predictor.predict(prompt, weights)

    def _record_outcome(self, prompt: Prompt, method: Method, estimate: int, tokens: int) -> None:
        prior = self._weight_store.prior(prompt.model)
        plain = self._blank_predictor.predict_from(prompt, prior, NO_ANCHOR)
        outcome: Outcome = (prompt.model, method, plain.total, estimate, tokens)
        self.hit_rates.add(outcome)
        self._store.put_outcome(outcome)

    def _learn(self, prompt: Prompt, weights: Weights, best: PromptEstimate, tokens: int) -> None:
        """Adjust the weights to the reported tokens, and record the prompt as a measured prefix."""
        anchor, features = best.anchor, best.features
        texts, extras = features.texts(), features.extras()
        cost = tokens - anchor.tokens - features.measured
        if texts or extras:
            weights.learn(texts, extras, cost)
            self._weight_store.save(prompt.model, weights)
        remainder = cost - weights.text.predict(texts) - weights.extra.predict(extras)
        self._distribute(prompt, anchor, weights, remainder)
        self._weight_store.save_toolset(prompt.family, prompt.toolset_key, prompt.toolset)
        self._store.put_prefix((prompt.prefix_keys[-1], prompt.toolset_key, tokens, round(best.loop)))

    def _distribute(self, prompt: Prompt, anchor: Anchor, weights: Weights, remainder: float) -> None:
        """Distribute the unexplained tokens over the new messages and tools, and record each as measured."""
        messages = prompt.messages[anchor.length :]
        rows = self._predictor.measured(messages)
        new = {
            message.key: content_tokens(message, weights)
            for message in messages
            if not find_measured(message, rows)
        }
        tools = message_key(prompt.model, prompt.toolset_key)
        if anchor.toolset_key != prompt.toolset_key and not self._store.measured([tools]):
            new[tools] = tools_tokens(prompt.toolset, weights)
        total = sum(new.values())
        if total <= 0 or not _LOWEST_FACTOR <= 1 + remainder / total <= _HIGHEST_FACTOR:
            return
        factor = 1 + remainder / total
        self._store.put_measured([(key, max(0, round(tokens * factor)), 0) for key, tokens in new.items()])


def _method(prompt: Prompt, anchor: Anchor) -> Method:
    if not anchor.length:
        return "estimated"
    complete = anchor.length == len(prompt.messages) and anchor.toolset_key == prompt.toolset_key
    return "actual" if complete else "hybrid"
