"""The ledger: what every prompt already sent really cost, and from that, what the next one will."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal

import msgspec

from tollbridge.tokens.learner import Extra, Weights
from tollbridge.tokens.prediction import (
    NOTHING,
    Anchor,
    Predictor,
    Share,
    Sum,
    WeightStore,
    content_tokens,
    measured_as,
    reasoning_tokens,
    shares,
    tools_tokens,
)
from tollbridge.tokens.prompts import Prompt, Reader, answer_fingerprint, long_texts, message_key
from tollbridge.tokens.records import Accuracy, HitRates, LedgerStore, MemoryStore, Outcome, summarise
from tollbridge.tokens.tokenizers import family_of
from tollbridge.types.messages import ChatRequest, Message, Part, Role
from tollbridge.types.usage import Usage

# SECTION Which reports of usage to believe. Gateways report zeros, parts, sums of several steps, and nonsense.

# A report is believed when it is within these bounds, as shares of the estimate.
USUAL = (0.6, 1.6)
# The same while a model is new, when the estimate itself may be far off.
FIRST = (0.35, 3.0)
NEW = 5
# Where the report without its cached tokens is outside of these, and with them inside, they were left out.
CLOSE = (0.85, 1.2)
# After so many refused reports in a row that agree with each other, it is the estimate that is wrong.
AGREEING = 3
AGREEMENT = 0.15


def prompt_tokens(usage: Usage, expected: float) -> int | None:
    """The size of the prompt a usage speaks of; `None` where it does not say.

    Cached tokens are part of the input, but some providers leave them out of it.
    """
    tokens, cached = usage.input_tokens, usage.cached_tokens
    if not tokens or tokens < 0:
        return None
    if not cached or cached < 0:
        return tokens
    if cached > tokens:
        return tokens + cached
    if not _within(tokens, expected, CLOSE) and _within(tokens + cached, expected, CLOSE):
        return tokens + cached
    return tokens


def _within(tokens: float, expected: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] * expected <= tokens <= bounds[1] * expected


class UsageVerdict(Enum):
    BELIEVED = "believed"
    REFUSED = "refused"
    # Refused so often, and so alike, that what was learned must be wrong.
    NEW_TRUTH = "new truth"


class UsageFilter:
    """Lets believable reports through, model by model."""

    def __init__(self) -> None:
        self._refused: dict[str, list[float]] = {}

    def believes(self, tokens: int, expected: float, seen: int) -> bool:
        """Whether a number is near enough to what was expected, after `seen` reports of the model."""
        return _within(tokens, expected, FIRST if seen < NEW else USUAL)

    def judge(self, model: str, tokens: int, expected: float, seen: int) -> UsageVerdict:
        """Whether to believe `tokens`, after `seen` reports of this model were believed."""
        refused = self._refused.setdefault(model, [])
        if self.believes(tokens, expected, seen):
            refused.clear()
            return UsageVerdict.BELIEVED
        refused.append(tokens / max(expected, 1.0))
        last = refused[-AGREEING:]
        if len(last) == AGREEING and max(last) <= min(last) * (1 + AGREEMENT):
            refused.clear()
            return UsageVerdict.NEW_TRUTH
        del refused[:-AGREEING]
        return UsageVerdict.REFUSED


# SECTION The ledger: what every prompt already sent really cost, and from that, what the next one will.

Method = Literal["actual", "hybrid", "estimated"]

# An answer is known by its reported tokens when they are within this factor, and so many, of its estimate.
_MUCH, _SOME = 1.5, 20
# A surprise is spread over new messages only when it changes none of them by more than this.
_LEAST, _MOST = 0.7, 1.4
# Refused prompts whose length nobody said, as many as are remembered.
_FLOORS = 1000


class EstimationResult(msgspec.Struct, frozen=True):
    """`actual`: this very prompt was counted by the gateway. `hybrid`: a part of it was. `estimated`: none.

    `confidence` is the share of past estimates of this kind that came within 2 % of the truth.
    """

    tokens: int
    method: Method
    confidence: float
    parts: tuple[Share, ...] = ()


class Ledger:
    """Prices prompts, and learns from what they really cost. Without a store it works in memory.

    `without` leaves tokenizers out of the prior, for trials in which one of them is the hidden truth.
    """

    def __init__(self, store: LedgerStore | None = None, *, without: frozenset[str] = frozenset()) -> None:
        self._store: LedgerStore = MemoryStore() if store is None else store
        self._reader = Reader()
        self._school = WeightStore(self._store, without)
        self._pricer = Predictor(self._store, self._school)
        # Prices as if nothing had been recorded.
        self._blank = Predictor(MemoryStore(), self._school)
        self._gate = UsageFilter()
        self._rates: HitRates | None = None
        self._floors: dict[tuple[bytes, bytes], int] = {}  # by prefix and tool set

    @property
    def lesson(self) -> int:
        """Another number whenever the same text may count otherwise than before."""
        return self._school.lesson

    @property
    def rates(self) -> HitRates:
        if self._rates is None:
            self._rates = HitRates(self._store.outcomes())
        return self._rates

    def accuracy(self) -> list[Accuracy]:
        return summarise(self._store.outcomes())

    def read_text(self, model: str, text: str) -> None:
        """Count a text, so that pricing it is quick. Needs no lock, unlike everything else here."""
        self._reader.texts.vector(family_of(model), text)

    def read_texts(self, model: str, message: Message) -> None:
        """The same for the long texts of a message."""
        for text in long_texts(message):
            self.read_text(model, text)

    def text_tokens(self, model: str, text: str) -> int:
        """What a text alone costs."""
        vector = self._reader.texts.vector(family_of(model), text)
        return round(self._school.weights(model).text_tokens(vector))

    def message_tokens(self, model: str, message: Message) -> int:
        """What a message's content costs, without what surrounds every message."""
        line = self._reader.read_line(model, message)
        weights = self._school.weights(model)
        known = self._pricer.known([line])
        found = measured_as(line, known)
        tokens = found[1] if found else content_tokens(line, weights)
        reasoning = reasoning_tokens(line, known, weights)
        return max(0, round(tokens + weights.extra.weights[Extra.REASONING_LOOP] * reasoning))

    def estimate(self, request: ChatRequest) -> EstimationResult:
        prompt = self._reader.read(request)
        weights, best = self._priced(prompt)
        method = _method(prompt, best.anchor)
        tokens, parts = best.shown, shares(best, weights)
        short = 0 if method == "actual" else self._floor(prompt) - tokens
        if short > 0:
            tokens, parts = tokens + short, (*parts, Share("refused before", short))
        return EstimationResult(tokens, method, self.rates.rate(prompt.model, method), parts)

    def record(
        self,
        request: ChatRequest,
        usage: Usage,
        *,
        told: EstimationResult | None = None,
        surely: bool = False,
    ) -> bool:
        """Take what the gateway says this prompt came to; whether it was believed.

        `told` is the estimate that was given beforehand, where more was learned since then; how right it was
        is what `accuracy` shows. `surely` is for the numbers of a refusal, which are about this prompt and no
        other: they are not held against the estimate.
        """
        if not request.messages:
            return False
        prompt = self._reader.read(request)
        with self._store.writing():
            weights, best = self._priced(prompt)
            tokens = prompt_tokens(usage, best.tokens)
            if tokens is None:
                return False
            if not surely:
                seen = self.rates.seen(prompt.model)
                verdict = self._gate.judge(prompt.model, tokens, best.tokens, seen)
                if verdict is UsageVerdict.REFUSED:
                    return False
                if verdict is UsageVerdict.NEW_TRUTH:
                    weights = self._school.forget(prompt.model)
                    best = self._blank.sum(prompt, weights, NOTHING)
            method = _method(prompt, best.anchor)
            given = (told.method, told.tokens) if told else (method, best.shown)
            self._note(prompt, *given, tokens)
            self._learn(prompt, weights, best, tokens)
        return True

    def record_count(self, request: ChatRequest, tokens: int) -> bool:
        """Take a count that was asked for; whether it was believed.

        It says nothing of how right the estimate was: the usage that follows does.
        """
        if not request.messages or tokens <= 0:
            return False
        prompt = self._reader.read(request)
        with self._store.writing():
            weights, best = self._priced(prompt)
            if not self._gate.believes(tokens, best.tokens, self.rates.seen(prompt.model)):
                return False
            self._learn(prompt, weights, best, tokens)
        return True

    def record_floor(self, request: ChatRequest, tokens: int) -> None:
        """This prompt, and whatever begins with it, has at least so many tokens: nobody said how many."""
        prompt = self._reader.read(request)
        if prompt.links:
            if len(self._floors) >= _FLOORS:
                self._floors.clear()
            self._floors[prompt.links[-1], prompt.toolset_key] = tokens

    def _floor(self, prompt: Prompt) -> int:
        if not self._floors:
            return 0
        return max((self._floors.get((link, prompt.toolset_key), 0) for link in prompt.links), default=0)

    def record_answer(self, model: str, parts: Iterable[Part], usage: Usage) -> bool:
        """Know this answer by its reported output tokens when it comes back as history."""
        message = Message(role=Role.ASSISTANT, parts=tuple(parts))
        output = usage.output_tokens
        if not output or output < 0 or not message.parts:
            return False
        line = self._reader.read_line(model, message)
        expected = content_tokens(line, self._school.weights(model))
        reasoning = usage.reasoning_tokens
        if reasoning is None:  # what the text does not explain was thought, and not told
            thought = line.content.thinks or output > _MUCH * expected + _SOME
            reasoning = round(output - expected) if thought else 0
        said = output - min(max(0, reasoning), output)
        if not expected / _MUCH - _SOME <= said <= expected * _MUCH + _SOME:
            return False
        with self._store.writing():
            self._store.put_measured([(answer_fingerprint(model, message.parts), said, output - said)])
        return True

    def clear(self) -> None:
        """Forget everything that was learned and recorded."""
        with self._store.writing():
            self._store.clear()
        self._school.refresh(force=True)
        self._rates = None
        self._floors.clear()

    def _priced(self, prompt: Prompt) -> tuple[Weights, Sum]:
        """What a prompt comes to by all that is known by now, what other processes learned included."""
        self._school.refresh()
        weights = self._school.weights(prompt.model)
        return weights, self._pricer.price(prompt, weights)

    def _note(self, prompt: Prompt, method: Method, estimate: int, tokens: int) -> None:
        plain = self._blank.sum(prompt, self._school.prior(prompt.model), NOTHING)
        outcome: Outcome = (prompt.model, method, plain.shown, estimate, tokens)
        self.rates.add(outcome)
        self._store.put_outcome(outcome)

    def _learn(self, prompt: Prompt, weights: Weights, best: Sum, tokens: int) -> None:
        anchor, tally = best.anchor, best.tally
        texts, extras = tally.texts(), tally.extras()
        cost = tokens - anchor.tokens - tally.known
        if texts or extras:
            weights.learn(texts, extras, cost)
            self._school.keep(prompt.model, weights)
        left = cost - weights.text.predict(texts) - weights.extra.predict(extras)
        self._attribute(prompt, anchor, weights, left)
        self._school.keep_toolset(prompt.family, prompt.toolset_key, prompt.toolset)
        self._store.put_prefix((prompt.links[-1], prompt.toolset_key, tokens, round(best.loop)))

    def _attribute(self, prompt: Prompt, anchor: Anchor, weights: Weights, left: float) -> None:
        """Spread what is left unexplained over what is new, and know each part of it by the result."""
        lines = prompt.lines[anchor.length :]
        known = self._pricer.known(lines)
        new = {line.key: content_tokens(line, weights) for line in lines if not measured_as(line, known)}
        tools = message_key(prompt.model, prompt.toolset_key)
        if anchor.toolset_key != prompt.toolset_key and not self._store.measured([tools]):
            new[tools] = tools_tokens(prompt.toolset, weights)
        total = sum(new.values())
        if total <= 0 or not _LEAST <= 1 + left / total <= _MOST:
            return
        factor = 1 + left / total
        self._store.put_measured([(key, max(0, round(tokens * factor)), 0) for key, tokens in new.items()])


def _method(prompt: Prompt, anchor: Anchor) -> Method:
    if not anchor.length:
        return "estimated"
    whole = anchor.length == len(prompt.lines) and anchor.toolset_key == prompt.toolset_key
    return "actual" if whole else "hybrid"
