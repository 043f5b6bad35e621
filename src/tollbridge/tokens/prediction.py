"""The parts of a sum, for showing: where the tokens of a prompt come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

import msgspec

from tollbridge.tokens.learner import Block, Extra, Weights, extra_prior, text_prior
from tollbridge.tokens.prompts import FeatureSum, Line, Prompt, Toolset, message_key
from tollbridge.tokens.records import LedgerStore, Measured
from tollbridge.tokens.tokenizers import Family, family_of

# SECTION Where the weights of every model are kept, between the store and their use.


class WeightStore:
    """Weights are shared: what another process learned is taken over at the next `refresh`."""

    def __init__(self, store: LedgerStore, without: frozenset[str] = frozenset()) -> None:
        self._store = store
        self._without = without
        self._changes = store.changes()
        self._weights: dict[str, Weights] = {}
        self._priors: dict[str, Weights] = {}
        self._stored: dict[str, bytes | None] = {}  # as last read or written, by name
        self._prices: dict[str, tuple[float, ...]] = {}  # of a text, by family
        # Counts up whenever a text may count otherwise than before, so that others know when to forget.
        self.lesson = 0

    def refresh(self, *, force: bool = False) -> None:
        """Others write into the store all the time, and rarely what prices anything: that is compared."""
        changes = self._store.changes()
        if not force and changes == self._changes:
            return
        self._changes = changes
        if force or any(self._store.learned(name) != data for name, data in self._stored.items()):
            models = list(self._weights)
            self._weights.clear()
            self._stored.clear()
            for model in models:
                self.weights(model)

    def weights(self, model: str) -> Weights:
        found = self._weights.get(model)
        if found is None:
            found = self._weights[model] = self._load(model)
        return found

    def prior(self, model: str) -> Weights:
        """The weights before anything was learned."""
        found = self._priors.get(model)
        if found is None:
            family = family_of(model)
            found = Weights(text_prior(family, self._without), extra_prior(family.overheads))
            self._priors[model] = found
        return found

    def _load(self, model: str) -> Weights:
        family, prior = family_of(model).name, self.prior(model)
        text, extra = (self._read(name) for name in (f"text {family}", f"extra {model}"))
        weights = Weights(
            (text and Block.unpack(text, len(prior.text.weights))) or prior.text.copy(),
            (extra and Block.unpack(extra, len(Extra))) or prior.extra.copy(),
        )
        self._compare(family, weights)
        return weights

    def _read(self, name: str) -> bytes | None:
        found = self._stored[name] = self._store.learned(name)
        return found

    def _compare(self, family: str, weights: Weights) -> None:
        prices = weights.text_prices
        if self._prices.setdefault(family, prices) != prices:
            self._prices[family] = prices
            self.lesson += 1

    def keep(self, model: str, weights: Weights) -> None:
        family = family_of(model).name
        for name, block in ((f"text {family}", weights.text), (f"extra {model}", weights.extra)):
            data = self._stored[name] = block.pack()
            self._store.put_learned(name, data)
        # Other models of the family read the text's weights anew.
        self._weights = {model: weights}
        self._compare(family, weights)

    def forget(self, model: str) -> Weights:
        """Start this model, and its family, from the prior again."""
        prior = self.prior(model)
        return Weights(prior.text.copy(), prior.extra.copy())

    def toolset(self, family: Family, key: bytes) -> Toolset | None:
        data = self._store.learned(_toolset_name(family, key))
        try:
            return msgspec.msgpack.decode(data, type=Toolset) if data else None
        except msgspec.MsgspecError:
            return None

    def keep_toolset(self, family: Family, key: bytes, toolset: Toolset) -> None:
        name = _toolset_name(family, key)
        if self._store.learned(name) is None:
            self._store.put_learned(name, msgspec.msgpack.encode(toolset))


def _toolset_name(family: Family, key: bytes) -> str:
    return f"tools {family.name} {key.hex()}"


# SECTION Pricing a prompt: the longest prefix whose cost was reported, plus a calibrated count of the rest.

# Measured rows by their key.
KnownPrefix = dict[bytes, Measured]


class Anchor(msgspec.Struct, frozen=True):
    """The known beginning of a prompt: `length` messages came to `tokens`, with this tool set.

    `loop` of them were reasoning since the user's last word at the time.
    """

    length: int = 0
    tokens: int = 0
    loop: int = 0
    toolset_key: bytes = b""


NOTHING = Anchor()

# The margin, in standard deviations of the estimate; and the most it may be as a share of it, once something
# is known and before.
_CAUTION = 0.6
_WIDEST, _WIDEST_UNSURE = 0.02, 0.05
# An estimate is unsure when its standard deviation is more than this share of it.
_UNSURE = 0.1


class Sum(msgspec.Struct, frozen=True):
    """One way to price a prompt, and how unsure it is. `loop` as in Anchor, for the whole prompt."""

    anchor: Anchor
    tally: FeatureSum
    text: float
    tokens: float
    variance: float
    loop: float

    @property
    def margin(self) -> float:
        """Added for safety: a prompt counted too low is refused, one too high is cut a little early."""
        tokens, deviation = max(0.0, self.tokens), sqrt(self.variance)
        widest = _WIDEST_UNSURE if deviation > _UNSURE * tokens else _WIDEST
        return min(_CAUTION * deviation, widest * tokens)

    @property
    def shown(self) -> int:
        """What is told: with the margin, and never less than the text alone where nothing was counted yet."""
        least = 0.0 if self.anchor.length else self.text + self.tally.known
        return round(max(least, self.tokens + self.margin, 0.0))


def content_tokens(line: Line, weights: Weights) -> float:
    """What a message's content costs by its features."""
    content = line.content
    return (
        weights.text.predict(content.text)
        + content.media * weights.extra.weights[Extra.MEDIA]
        + content.calls * weights.extra.weights[Extra.CALLS]
    )


def measured_as(line: Line, known: KnownPrefix) -> Measured | None:
    """What is known of a message: from when it was an answer, or from when it was new."""
    return known.get(line.answer or b"") or known.get(line.key)


def reasoning_tokens(line: Line, known: KnownPrefix, weights: Weights) -> float:
    """What the thinking in a message costs: as it was reported, or as its text counts."""
    if not line.content.thinks:
        return 0.0
    found = known.get(line.answer or b"")
    return float(found[2]) if found and found[2] else weights.text.predict(line.content.thinking)


class Predictor:
    """Reads the store, and changes nothing."""

    def __init__(self, store: LedgerStore, school: WeightStore) -> None:
        self._store = store
        self._school = school

    def price(self, prompt: Prompt, weights: Weights) -> Sum:
        """The surest of the ways to price a prompt."""
        sums = [self.sum(prompt, weights, anchor) for anchor in self._anchors(prompt)]
        return min(sums, key=lambda candidate: candidate.variance)

    def known(self, lines: Sequence[Line]) -> KnownPrefix:
        keys = [line.key for line in lines] + [line.answer for line in lines if line.answer]
        return {row[0]: row for row in self._store.measured(keys)} if keys else {}

    def _anchors(self, prompt: Prompt) -> Iterator[Anchor]:
        """The longest known prefix; also the longest with the same tools, where that is another one."""
        first = True
        for start, links in _from_the_end(prompt.links):
            places = {link: start + offset + 1 for offset, link in enumerate(links)}
            found = [
                Anchor(places[link], tokens, loop, toolset)
                for link, toolset, tokens, loop in self._store.prefixes(links)
            ]
            found.sort(key=lambda anchor: (anchor.length, anchor.toolset_key == prompt.toolset_key))
            for anchor in reversed(found):
                if anchor.toolset_key == prompt.toolset_key:
                    yield anchor
                    return
                if first and self._school.toolset(prompt.family, anchor.toolset_key) is not None:
                    yield anchor
                    first = False
        if first:
            yield NOTHING

    def sum(self, prompt: Prompt, weights: Weights, anchor: Anchor) -> Sum:
        """The sum over one known beginning."""
        tally = FeatureSum()
        self._tally_tools(prompt, weights, anchor, tally)
        tail = prompt.lines[anchor.length :]
        thinking = [line for line in prompt.lines[prompt.spoken + 1 : anchor.length] if line.content.thinks]
        known = self.known([*tail, *thinking])
        for line in tail:
            _tally_line(line, known, tally)
        kept = sum(reasoning_tokens(line, known, weights) for line in thinking)
        loop = kept
        for place, line in enumerate(tail, anchor.length):
            reasoning = reasoning_tokens(line, known, weights)
            if place > prompt.spoken:
                loop += reasoning
            else:
                tally.extra[Extra.REASONING_PAST] += reasoning
        # The reasoning that was in the prefix when it was measured may have become part of the past.
        gone = anchor.loop - kept
        tally.extra[Extra.REASONING_LOOP] += loop - anchor.loop
        tally.extra[Extra.REASONING_PAST] += max(0.0, gone)
        texts, extras = tally.texts(), tally.extras()
        text = weights.text.predict(texts)
        return Sum(
            anchor=anchor,
            tally=tally,
            text=text,
            tokens=anchor.tokens + tally.known + text + weights.extra.predict(extras),
            variance=weights.variance(texts, extras) + weights.noise(text),
            loop=loop,
        )

    def _tally_tools(self, prompt: Prompt, weights: Weights, anchor: Anchor, tally: FeatureSum) -> None:
        if anchor.length and anchor.toolset_key == prompt.toolset_key:
            return
        self._tally_toolset(prompt.model, prompt.toolset_key, prompt.toolset, weights, tally)
        if not anchor.length:
            tally.extra[Extra.BASE] = 1.0
        elif before := self._school.toolset(prompt.family, anchor.toolset_key):
            self._tally_toolset(prompt.model, anchor.toolset_key, before, weights, tally, -1.0)

    def _tally_toolset(
        self,
        model: str,
        key: bytes,
        toolset: Toolset,
        weights: Weights,
        tally: FeatureSum,
        times: float = 1.0,
    ) -> None:
        found = self._store.measured([message_key(model, key)])
        if found:
            tally.known += times * found[0][1]
        else:
            tally.add_tools(toolset, weights.text.predict(toolset.text), times)


def tools_tokens(toolset: Toolset, weights: Weights) -> float:
    """What a tool set costs by its features."""
    tally = FeatureSum()
    tally.add_tools(toolset, weights.text.predict(toolset.text))
    return weights.extra.predict(tally.extras())


def _tally_line(line: Line, known: KnownPrefix, tally: FeatureSum) -> None:
    tally.extra[Extra.MESSAGES] += 1.0
    found = measured_as(line, known)
    if found is None:
        tally.add_text(line.content.text)
        tally.extra[Extra.MEDIA] += line.content.media
        tally.extra[Extra.CALLS] += line.content.calls
        return
    tally.known += found[1]
    if found[0] == line.answer:
        tally.extra[Extra.ANSWERS] += 1.0


def _from_the_end(links: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Slices from the end, each longer than the one before: what is known is mostly near the end."""
    end, size = len(links), 8
    while end > 0:
        start = max(0, end - size)
        yield start, links[start:end]
        end, size = start, min(size * 4, 500)


# SECTION The parts of a sum, for showing: where the tokens of a prompt come from.

# What a person calls each feature.
_LABELS: dict[Extra, str] = {
    Extra.TOOLS_TEXT: "tools",
    Extra.TOOLS: "tools",
    Extra.TOOLS_PRESENT: "tools",
    Extra.MESSAGES: "around messages",
    Extra.BASE: "around messages",
    Extra.MEDIA: "images and files",
    Extra.REASONING_LOOP: "reasoning",
    Extra.REASONING_PAST: "reasoning",
    Extra.CALLS: "around tool calls",
    Extra.ANSWERS: "around messages",
}


class Share(msgspec.Struct, frozen=True):
    label: str
    tokens: int


def shares(best: Sum, weights: Weights) -> tuple[Share, ...]:
    """The parts of what is told, largest first.

    What rounding leaves over goes to the largest; so does an overhead learned to be less than nothing.
    """
    amounts: dict[str, float] = {
        "counted before": float(best.anchor.tokens),
        "known before": best.tally.known,
        "text": best.text,
        "margin": best.margin,
    }
    for feature, amount in best.tally.extras():
        label = _LABELS[Extra(feature)]
        amounts[label] = amounts.get(label, 0.0) + amount * weights.extra.weights[feature]
    found = sorted(
        (Share(label, round(amount)) for label, amount in amounts.items() if round(amount) > 0),
        key=lambda share: -share.tokens,
    )
    if found:
        left = best.shown - sum(share.tokens for share in found)
        found[0] = Share(found[0].label, found[0].tokens + left)
    return tuple(found)
