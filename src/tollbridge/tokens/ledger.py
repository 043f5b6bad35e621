"""The ledger: records the reported tokens of every prompt, and estimates the next one from them.

The state. Every message has a fingerprint of all that is sent of it. Chained by hashing, as in
`prefix_fingerprints`, the fingerprints give one key for every prefix of a conversation: two prompts have the
same key at a position if and only if the model, the provider and all messages up to there are the same. When
a gateway reports the input tokens of a prompt, the ledger stores them under the key of the whole prompt, with
the key of its tool set. The next prompt of the conversation contains that prompt as a prefix. So an estimate
looks its keys up from the end and finds an anchor: the longest prefix whose tokens are known. Only what
follows the anchor is counted, and an error of that count does not add up over the turns, because the next
report replaces it. Forked, edited and resumed conversations need no special case: they share the keys of
their common prefix. Only digests and numbers are stored, no text.

Why not simpler. A factor per model, learned from the reports, was the first design. Applied to an estimate
that already contains it, it converges to the square root of the true ratio; shared by all conversations, it
oscillates between them. It was off by 15 %. The tool set is not part of the chain: a prompt with other tools
uses the same anchor, with the measured or predicted difference of the two tool sets.

What may be learned. A wrong report does more harm than a missing one: some gateways report only the tokens
that were not read from a cache, and the estimate would fall to 1 % of the prompt. So `record` first asks
`UsageFilter` for a verdict. A report is accepted if it is plausible, and not clearly less than the anchor. A
refused one changes no weights, but is kept in `_refused` under its prefix: the next report of the
conversation is judged against it, which tells a gateway that lags, cuts or clears prompts from one that
counts differently. Three refused reports that agree are the new truth (`Verdict.RESET`): the model has
another tokenizer now.

An accepted report has one number for many unknown ones: the text, the overheads of messages and tools, the
answers that came back. `_learn` divides the difference between the report and the estimate between them in
proportion to their variances: the weights of the learner, the measurements that the estimate was made from
(`_correct_shares`), and the new messages and tools (`_distribute`), which are then measured themselves.

See docs/decisions/ledger.md for the figures, and docs/tokens.md for what users see of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import sqrt
from typing import Literal, TypeVar

import msgspec

from tollbridge.tokens.features import Features, TokenTable
from tollbridge.tokens.learner import Extra, Weights
from tollbridge.tokens.limits import LIMITS
from tollbridge.tokens.prediction import (
    NO_ANCHOR,
    REPORT_VARIANCE,
    TOOLS_DEVIATION,
    Anchor,
    FeatureSum,
    Predictor,
    PromptEstimate,
    Share,
    content_tokens,
    find_measured,
    reasoning_tokens,
    shares,
    tools_tokens,
)
from tollbridge.tokens.prompts import (
    Prompt,
    Reader,
    answer_fingerprint,
    long_texts,
    message_key,
    scope_of,
)
from tollbridge.tokens.records import (
    Accuracy,
    HitRates,
    LedgerChanges,
    LedgerStore,
    MemoryStore,
    Report,
    UsageFilter,
    Verdict,
    prompt_tokens,
    summarize,
)
from tollbridge.tokens.tokenizers import LruCache, family_of
from tollbridge.tokens.weights import WeightStore
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Part, Role

_log = logging.getLogger(__name__)

T = TypeVar("T")
Method = Literal["actual", "hybrid", "estimated"]

# The reported tokens of an answer are used if they are within this factor, and this many, of its estimate.
_ANSWER_FACTOR, _ANSWER_TOLERANCE = 1.5, 20
# The standard deviation of an answer's tokens when it comes back as history, as a share and in tokens.
_ANSWER_DEVIATION, _ANSWER_DEVIATION_TOKENS = 0.01, 2.0
# The variance of a message's tokens because of its overhead.
_MESSAGE_VARIANCE = 2.0
# An unexplained difference of more standard deviations is not distributed over the new messages.
_LARGEST_REMAINDER = 5.0


class _Refused(msgspec.Struct, frozen=True):
    """A prompt whose report was refused, its estimate, and the report."""

    prompt: Prompt
    expected: float
    tokens: int


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

    Learning reads records and weights, computes new ones, and stores them. Other processes do the same with
    the same store, and none may lose what another has learned. A lock on the store would make estimates wait
    for the learning of other processes, so there is none while a report is read and computed:

    1. `refresh` notices the version of the stored weights, and reads those that others have changed.
    2. The changes are collected in a `LedgerChanges`. The cached weights are those after the report.
    3. `commit` stores all changes in one transaction, unless the version is another one by now. Then the
       cached weights are dropped, and the report is learned again from what the other process has stored.

    Step 3 ends, because every repetition is the success of another process. Prefixes and messages are
    measurements: the last one that is stored is right. Whether a report is used (`UsageFilter`) is decided
    once, and not again when it is learned again.

    Args:
        store: Where records and weights are kept; in memory by default.
        table: Another table than the one of this package, for simulations with a tokenizer that it knows.
        lock: Is held while the ledger is used, if threads share it, but not while changes are stored. The
            caller holds it for all methods that do not record anything.
        timeout: How many seconds to wait for another process that writes to the store.
    """

    def __init__(
        self,
        store: LedgerStore | None = None,
        *,
        table: TokenTable | None = None,
        lock: AbstractContextManager[object] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._store: LedgerStore = MemoryStore() if store is None else store
        self._lock = nullcontext() if lock is None else lock
        self._timeout = timeout
        self._reader = Reader(table)
        self._weight_store = WeightStore(self._store, table)
        self._predictor = Predictor(self._store, self._weight_store)
        # Predicts as if nothing had been recorded.
        self._blank_predictor = Predictor(MemoryStore(), self._weight_store)
        self._usage_filter = UsageFilter()
        self._hit_rates: HitRates | None = None
        self._lower_bounds: dict[tuple[bytes, bytes], int] = {}  # by prefix and tool set
        self._refused: LruCache[bytes, _Refused] = LruCache(LIMITS.refused)  # by prefix
        self._cut_scopes: set[str] = set()
        self._changes = LedgerChanges()  # of the report that is being learned

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
        return summarize(self._store.outcomes())

    def prepare_text(self, model: str, text: str) -> Features:
        """Return the features of a text, and cache them. Thread-safe, unlike most methods."""
        return self._reader.texts.features(family_of(model), text)

    def prepare_messages(self, model: str, messages: Sequence[Message]) -> None:
        """Count the long texts of messages in advance. Thread-safe."""
        for text in long_texts(messages):
            self.prepare_text(model, text)

    def text_weights(self, model: str) -> tuple[float, ...]:
        """Return the weights of a model's text features, until `revision` changes."""
        return self._weight_store.weights(model).text_weights

    def message_tokens(self, model: str, message: Message) -> int:
        """Count the tokens of a message's content, without the overhead per message.

        Reasoning before the last user message counts as the provider counts it: mostly not at all. That of a
        message without tool calls is always before it, because the user is the next to speak.
        """
        provider = self._weight_store.providers(model)[0]
        counted = self._reader.read_message(model, message, provider)
        weights = self._weight_store.weights(model, provider)
        rows = self._predictor.measured([counted])
        row = find_measured(counted, rows)
        tokens = row[1] if row else content_tokens(counted, weights)
        if counted.content.has_thinking:
            place = Extra.REASONING_LOOP if counted.content.calls else Extra.REASONING_PAST
            tokens += weights.extra.values[place] * reasoning_tokens(counted, rows, weights)
        return max(0, round(tokens))

    def estimate(self, request: ChatRequest) -> EstimationResult:
        """Estimate the input tokens that the gateway will report for this request.

        If several providers have served the model, each can be the next, and the largest estimate counts.
        """
        self._weight_store.refresh()
        providers = self._weight_store.providers(request.model)
        estimates = [self._estimate(self._reader.read(request, provider)) for provider in providers]
        return max(estimates, key=lambda estimate: estimate.tokens)

    def predict(self, request: ChatRequest, provider: str | None = None) -> PromptEstimate:
        """Estimate a request without a safety margin, with the standard deviation."""
        self._weight_store.refresh()
        return self._predict(self._read(request, provider))[1]

    def _estimate(self, prompt: Prompt) -> EstimationResult:
        weights, prediction = self._predict(prompt)
        method = _method(prompt, prediction.anchor)
        tokens, parts = prediction.total, shares(prediction, weights)
        keys = () if method == "actual" or not self._lower_bounds else prompt.prefix_keys
        bounds = (self._lower_bounds.get((key, prompt.toolset_key), 0) for key in keys)
        missing = max(bounds, default=0) - tokens
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
        provider: str | None = None,
        answer: Sequence[Part] = (),
    ) -> bool:
        """Learn from the reported usage of a request.

        Args:
            request: The request as it was sent.
            estimate: The estimate from before the request, if more was learned since. `accuracy` compares it
                with the report.
            trusted: Accept the report without comparing it with the estimate. The numbers of a context-length
                error are about exactly this prompt.
            provider: Who served the model behind the gateway; by default the latest known one.
            answer: The answer. Its reported output tokens are used when it comes back as history.

        Returns:
            Whether the report was accepted.
        """
        if not request.messages:
            return False
        verdict = Verdict.ACCEPTED if trusted else None

        def learn() -> bool:
            # It runs again if another process was first to store something; the verdict is given only once.
            nonlocal verdict
            prompt = self._read(request, provider)
            self._weight_store.add_provider(prompt.model, prompt.provider)
            weights, prediction = self._predict(prompt)
            tokens = prompt_tokens(usage, prediction.tokens)
            if tokens is None:
                return False
            verdict = verdict or self._judge(prompt, weights, prediction, usage, tokens)
            earlier = estimate or EstimationResult(prediction.total, _method(prompt, prediction.anchor), 0.0)
            if verdict not in (Verdict.ACCEPTED, Verdict.CONFIRMED, Verdict.RESET):
                self._refuse(prompt, earlier, prediction, tokens, verdict)
                return False
            if verdict is Verdict.RESET:
                weights = self._weight_store.initial(prompt.model)
                prediction = self._blank_predictor.predict_from(prompt, weights, NO_ANCHOR)
            self._record_outcome(prompt, earlier, tokens)
            if verdict is Verdict.CONFIRMED:
                self._record_prefix(prompt, prediction, tokens)
            else:
                self._learn(prompt, weights, prediction, tokens)
            self._add_answer(request.model, answer, usage, provider)
            return True

        return self._learn_and_store(learn)

    def _learn_and_store(self, learn: Callable[[], T]) -> T:
        """Collect the changes of a function and store them. See the description of the class."""
        while True:
            with self._lock:
                changes = self._changes = self._weight_store.begin()
                hit_rates = self.hit_rates
                result = learn()
            version = None
            try:
                version = self._store.commit(changes, self._timeout)
            finally:
                with self._lock:
                    if version is None:
                        self._weight_store.forget()
                    else:
                        self._weight_store.version = version
                        for outcome in changes.outcomes:
                            hit_rates.add(outcome)
            if version is not None:
                return result

    def _judge(
        self, prompt: Prompt, weights: Weights, prediction: PromptEstimate, usage: Usage, tokens: int
    ) -> Verdict:
        previous = self._find_refused(prompt, prediction.anchor.length)
        known = prediction.anchor.tokens if prediction.anchor.length else None
        independent = None
        if prediction.anchor.length and tokens < prediction.tokens:
            independent = self._predictor.predict_from(prompt, weights, NO_ANCHOR).tokens
        return self._usage_filter.judge(
            Report(
                scope=prompt.scope,
                tokens=tokens,
                expected=prediction.tokens,
                deviation=prediction.unscaled_deviation,
                reports=self.hit_rates.count(prompt.model),
                cached=usage.cached_tokens or 0,
                previous=previous.expected if previous else known,
                previous_report=previous.tokens if previous else None,
                is_edited=prompt.is_edited,
                independent=independent,
            )
        )

    def _find_refused(self, prompt: Prompt, anchor_length: int) -> _Refused | None:
        """Return the longest prefix of a prompt, longer than the anchor, whose report was refused."""
        keys = reversed(prompt.prefix_keys[anchor_length:-1])
        return next((refused for key in keys if (refused := self._refused.get(key))), None)

    def _refuse(
        self,
        prompt: Prompt,
        estimate: EstimationResult,
        prediction: PromptEstimate,
        tokens: int,
        verdict: Verdict,
    ) -> None:
        """Record that a report was refused, and learn what can be learned from it all the same."""
        self._record_outcome(prompt, estimate, tokens, verdict.value)
        previous = self._find_refused(prompt, prediction.anchor.length)
        if verdict is Verdict.LAGGING and previous is not None:
            weights, earlier = self._predict(previous.prompt)
            if self._usage_filter.accepts(tokens, earlier.tokens, self.hit_rates.count(prompt.model)):
                self._learn(previous.prompt, weights, earlier, tokens)
        elif verdict is Verdict.CUT and prompt.scope not in self._cut_scopes:
            self._cut_scopes.add(prompt.scope)
            _log.warning(
                "%s read only %d of about %d tokens: the server cuts prompts that are too long for it",
                *(prompt.model, tokens, round(prediction.tokens)),
            )
        self._refused.put(prompt.prefix_keys[-1], _Refused(prompt, prediction.tokens, tokens))

    def record_count(self, request: ChatRequest, tokens: int) -> bool:
        """Learn from a token-count response, and return whether it was accepted.

        It does not affect `accuracy`: the usage that follows does.
        """
        if not request.messages or tokens <= 0:
            return False

        def learn() -> bool:
            prompt = self._read(request)
            weights, prediction = self._predict(prompt)
            if not self._usage_filter.accepts(tokens, prediction.tokens, self.hit_rates.count(prompt.model)):
                return False
            self._learn(prompt, weights, prediction, tokens)
            return True

        return self._learn_and_store(learn)

    def record_lower_bound(self, request: ChatRequest, tokens: int) -> None:
        """Note that this prompt, and every prompt it is a prefix of, has at least this many tokens."""
        if len(self._lower_bounds) >= LIMITS.lower_bounds:
            self._lower_bounds.clear()
        for provider in self._weight_store.providers(request.model) if request.messages else ():
            prompt = self._reader.read(request, provider)
            self._lower_bounds[prompt.prefix_keys[-1], prompt.toolset_key] = tokens

    def _add_answer(self, model: str, parts: Sequence[Part], usage: Usage, provider: str | None) -> None:
        """Record the reported output tokens of an answer, unless they are implausible."""
        message = Message(role=Role.ASSISTANT, parts=parts)
        output = usage.output_tokens
        if not output or output < 0 or not message.parts:
            return
        if provider is None:
            provider = self._weight_store.providers(model)[0]
        counted = self._reader.read_message(model, message, provider)
        expected = content_tokens(counted, self._weight_store.weights(model, provider))
        reasoning = usage.reasoning_tokens
        if reasoning is None:  # if the text explains too few of the tokens, the rest was hidden reasoning
            reasoned = counted.content.has_thinking or output > _ANSWER_FACTOR * expected + _ANSWER_TOLERANCE
            reasoning = round(output - expected) if reasoned else 0
        visible = output - min(max(0, reasoning), output)
        lowest = expected / _ANSWER_FACTOR - _ANSWER_TOLERANCE
        if not lowest <= visible <= expected * _ANSWER_FACTOR + _ANSWER_TOLERANCE:
            return
        deviation = _ANSWER_DEVIATION_TOKENS + _ANSWER_DEVIATION * visible
        key = answer_fingerprint(scope_of(model, provider), message.parts)
        self._changes.measured.append((key, visible, output - visible, deviation))

    def clear(self) -> None:
        """Forget everything that was learned and recorded."""
        self._store.clear()
        with self._lock:
            self._weight_store.reload()
            self._hit_rates = None
            self._lower_bounds.clear()
            self._refused.clear()
            self._cut_scopes.clear()
            self._usage_filter = UsageFilter()

    def _read(self, request: ChatRequest, provider: str | None = None) -> Prompt:
        """Read a request as one provider serves it; by default the latest provider of its model."""
        if provider is None:
            provider = self._weight_store.providers(request.model)[0]
        return self._reader.read(request, provider)

    def _predict(self, prompt: Prompt) -> tuple[Weights, PromptEstimate]:
        """Return the weights of a prompt's model and its estimate."""
        weights = self._weight_store.weights(prompt.model, prompt.provider)
        return weights, self._predictor.predict(prompt, weights)

    def _record_outcome(
        self, prompt: Prompt, estimate: EstimationResult, tokens: int, refused: str = ""
    ) -> None:
        prior = self._weight_store.prior(prompt.model)
        plain = self._blank_predictor.predict_from(prompt, prior, NO_ANCHOR)
        numbers = plain.total, estimate.tokens, tokens
        self._changes.outcomes.append((prompt.model, estimate.method, *numbers, refused))

    def _learn(self, prompt: Prompt, weights: Weights, prediction: PromptEstimate, tokens: int) -> None:
        """Adjust the weights to the reported tokens, and record the prompt as a measured prefix."""
        anchor, features = prediction.anchor, prediction.features
        texts, extra = features.texts(), features.extra
        if texts or any(extra):
            noise = prediction.noise + REPORT_VARIANCE
            variance = weights.learn(texts, extra, tokens - prediction.tokens, noise, prediction.text_noise)
            self._weight_store.save(prompt.model, prompt.provider, weights)
            self._correct_shares(features, (tokens - prediction.tokens) / variance, variance)
        # What neither the prefix, nor measured messages (as just corrected), nor the weights explain.
        remainder = tokens - anchor.tokens - features.measured
        remainder -= weights.text.predict(texts) + weights.extra.predict(extra)
        self._distribute(prompt, anchor, weights, remainder)
        self._record_prefix(prompt, prediction, tokens)

    def _record_prefix(self, prompt: Prompt, prediction: PromptEstimate, tokens: int) -> None:
        self._weight_store.save_toolset(prompt.family, prompt.toolset_key, prompt.toolset)
        prefix = prompt.prefix_keys[-1], prompt.toolset_key, tokens, round(prediction.loop)
        self._changes.prefixes.append(prefix)

    def _correct_shares(self, features: FeatureSum, gain: float, variance: float) -> None:
        """Correct the measurements that an estimate was made from, and their sum in `features`.

        Each is corrected in proportion to its variance, as a Kalman filter does; `gain` is the error of the
        estimate divided by `variance`, that of the whole estimate.
        """
        for (key, tokens, reasoning, deviation), times in features.shares:
            correction = times * deviation**2 * gain
            if abs(correction) >= 1:
                rest = sqrt(max(0.0, 1 - deviation**2 / variance))
                tokens = max(0, round(tokens + correction))
                self._changes.measured.append((key, tokens, reasoning, deviation * rest))
                features.measured += times * correction

    def _distribute(self, prompt: Prompt, anchor: Anchor, weights: Weights, remainder: float) -> None:
        """Distribute the unexplained tokens over the new messages and tools, and record each as measured.

        Each gets a part in proportion to its variance.
        """
        messages = prompt.messages[anchor.length :]
        tools = message_key(prompt.scope, prompt.toolset_key)
        rows = self._predictor.measured(messages, [tools])
        new: dict[bytes, tuple[float, float]] = {}  # tokens and variance, by key
        for message in messages:
            if not find_measured(message, rows):
                tokens, content = content_tokens(message, weights), message.content
                variance = weights.text.noise(
                    content.text, tokens, sum(count for _, count in content.text) ** 2
                )
                new[message.key] = tokens, variance + _MESSAGE_VARIANCE
        if anchor.toolset_key != prompt.toolset_key and tools not in rows:
            tokens = tools_tokens(prompt.toolset, weights)
            new[tools] = tokens, (TOOLS_DEVIATION * tokens) ** 2 + _MESSAGE_VARIANCE
        total = sum(variance for _, variance in new.values())
        if not new or remainder**2 > _LARGEST_REMAINDER**2 * total:
            return
        self._changes.measured += [
            (
                key,
                max(0, round(tokens + remainder * variance / total)),
                0,
                sqrt(variance * (1 - variance / total) + _MESSAGE_VARIANCE),
            )
            for key, (tokens, variance) in new.items()
        ]


def _method(prompt: Prompt, anchor: Anchor) -> Method:
    if not anchor.length:
        return "estimated"
    complete = anchor.length == len(prompt.messages) and anchor.toolset_key == prompt.toolset_key
    return "actual" if complete else "hybrid"
