"""Predict the input tokens of a prompt: the longest measured prefix plus a calibrated count of the rest.

`WeightStore` caches the learned weights of every model, `Predictor` estimates a prompt with them, and
`shares` lists where the tokens of an estimate come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import sqrt

import msgspec

from tollbridge.tokens.features import TokenTable, shipped_table
from tollbridge.tokens.learner import (
    Block,
    Extra,
    TextWeights,
    Weights,
    extra_prior,
    text_prior,
    unpack_scale,
)
from tollbridge.tokens.prompts import CountedMessage, FeatureSum, Prompt, Toolset, message_key, scope_of
from tollbridge.tokens.records import LedgerChanges, LedgerStore, Measured
from tollbridge.tokens.tokenizers import Family, family_of

# --- Weights ---


# A provider that serves a model for the first time starts from what was learned of the model elsewhere, with
# this share of the initial covariance added.
_NEW_PROVIDER_DOUBT = 0.1
# How many providers of a model are remembered, the latest first.
_PROVIDER_LIMIT = 4


class WeightStore:
    """The weights of every model and provider, cached between the store and their use.

    Processes share the weights: `refresh` reads what other processes have learned.

    Args:
        store: Where the weights are persisted.
        table: The clusters and the prior of the text weights.
    """

    def __init__(self, store: LedgerStore, table: TokenTable | None = None) -> None:
        self._store = store
        self._given_table = table
        self.version = -1  # of the cached weights in the store; before the first `refresh`, unknown
        self._changes = LedgerChanges()
        self._weights: dict[tuple[str, str], Weights] = {}
        self._priors: dict[str, Weights] = {}
        self._stored: dict[str, bytes | None] = {}  # as last read or written, by name
        self._text_weights: dict[str, tuple[float, ...]] = {}  # `Weights.text_weights` by family
        # Incremented whenever the count of a text may have changed, so that callers can drop cached counts.
        self.revision = 0

    @cached_property
    def _table(self) -> TokenTable:
        return self._given_table or shipped_table()

    @cached_property
    def _table_digest(self) -> str:
        return self._table.digest

    def refresh(self) -> None:
        """Read the weights again if another process has changed them."""
        version = self._store.version()
        if version != self.version:
            self.version = version
            if any(self._store.learned(name) != data for name, data in self._stored.items()):
                self.reload()

    def begin(self) -> LedgerChanges:
        """Read what other processes have learned, and return an object that all changes are added to."""
        self.refresh()
        self._changes = LedgerChanges(self.version)
        return self._changes

    def forget(self) -> None:
        """Drop the cached weights, so that those of the store are read."""
        self._weights.clear()
        self._stored.clear()

    def reload(self) -> None:
        """Read all weights again that are cached, so that `revision` is right for them."""
        scopes = list(self._weights)
        self.forget()
        self.version = self._store.version()
        for model, provider in scopes:
            self.weights(model, provider)

    def weights(self, model: str, provider: str = "") -> Weights:
        """Return the weights of a model, as one provider serves it, or of its latest provider."""
        weights = self._weights.get((model, provider))
        if weights is None:
            weights = self._weights[model, provider] = self._load(model, provider)
        return weights

    def prior(self, model: str) -> Weights:
        """Return the weights before anything was learned."""
        weights = self._priors.get(model)
        if weights is None:
            family = family_of(model)
            text = TextWeights(text_prior(family, None if family.vocabulary else self._table))
            weights = self._priors[model] = Weights(text, extra_prior(family.overheads))
        return weights

    def providers(self, model: str) -> list[str]:
        """Return the latest providers of a model, the latest first."""
        return (self._read(f"providers {model}") or b"").decode().split("\n")

    def add_provider(self, model: str, provider: str) -> None:
        """Note that a provider has served a model. One without a name is forgotten when another has one."""
        previous = self.providers(model)
        if previous[0] != provider:
            latest = [provider, *(name for name in previous if name and name != provider)]
            self._save(f"providers {model}", "\n".join(latest[:_PROVIDER_LIMIT]).encode())

    def _load(self, model: str, provider: str) -> Weights:
        family, prior = family_of(model), self.prior(model)
        text = self._load_text(self._text_name(family), provider, prior.text)
        extra = self._load_extra(f"extra {model}", provider, prior.extra)
        scale = unpack_scale(self._read_scoped(f"scale {model}", provider)[0] or b"")
        is_learned = self._read(f"extra {model}") is not None
        weights = Weights(text, extra, error_scale=scale, is_learned=is_learned)
        if not provider:
            self._update_text_weights(family.name, weights)
        return weights

    def _load_text(self, name: str, provider: str, prior: TextWeights) -> TextWeights:
        data, is_own = self._read_scoped(name, provider)
        weights = TextWeights.unpack(data, prior.prior) if data else None
        if weights is not None and not is_own:
            weights.block = weights.block.widened(prior.block, _NEW_PROVIDER_DOUBT)
        return weights or prior.copy()

    def _load_extra(self, name: str, provider: str, prior: Block) -> Block:
        data, is_own = self._read_scoped(name, provider)
        block = Block.unpack(data, len(prior.values)) if data else None
        if block is not None and not is_own:
            block = block.widened(prior, _NEW_PROVIDER_DOUBT)
        return block or prior.copy()

    def _read_scoped(self, name: str, provider: str) -> tuple[bytes | None, bool]:
        """Return what was learned of a provider, or else of the latest one, and whether it is the former."""
        data = self._read(scope_of(name, provider))
        return (data, True) if data or not provider else (self._read(name), False)

    def _text_name(self, family: Family) -> str:
        # The parameters have a meaning only with the table they were learned with.
        return f"text {family.name}" if family.vocabulary else f"text {family.name} {self._table_digest}"

    def _read(self, name: str) -> bytes | None:
        if name not in self._stored:
            self._stored[name] = self._store.learned(name)
        return self._stored[name]

    def _save(self, name: str, data: bytes) -> None:
        self._stored[name] = self._changes.learned[name] = data

    def _update_text_weights(self, family: str, weights: Weights) -> None:
        text_weights = weights.text_weights
        if self._text_weights.setdefault(family, text_weights) != text_weights:
            self._text_weights[family] = text_weights
            self.revision += 1

    def save(self, model: str, provider: str, weights: Weights) -> None:
        """Change the weights of a model. Those of its text are shared by all models of its family."""
        family = family_of(model)
        rows = {
            self._text_name(family): weights.text.pack(),
            f"extra {model}": weights.extra.pack(),
            f"scale {model}": weights.pack_scale(),
        }
        for name, data in rows.items():
            self._save(name, data)
            if provider:
                self._save(scope_of(name, provider), data)
        # The other models of the family load the new text weights when they are used next.
        self._weights = {(model, provider): weights}
        self._update_text_weights(family.name, weights)

    def initial(self, model: str) -> Weights:
        """Return a modifiable copy of the prior, to learn this model and its family from the start again."""
        prior = self.prior(model)
        return Weights(prior.text.copy(), prior.extra.copy())

    def toolset(self, family: Family, key: bytes) -> Toolset | None:
        data = self._store.toolset(self._toolset_name(family, key))
        try:
            return msgspec.msgpack.decode(data, type=Toolset) if data else None
        except msgspec.MsgspecError:
            return None

    def save_toolset(self, family: Family, key: bytes, toolset: Toolset) -> None:
        name = self._toolset_name(family, key)
        if self._store.toolset(name) is None:
            self._changes.toolsets[name] = msgspec.msgpack.encode(toolset)

    def _toolset_name(self, family: Family, key: bytes) -> str:
        return f"{self._text_name(family)} {key.hex()}"


# --- Prediction ---

# Measured messages and tool sets by key.
MeasuredRows = dict[bytes, Measured]


class Anchor(msgspec.Struct, frozen=True):
    """A measured prefix of a prompt: its first `length` messages, with this tool set, have `tokens` tokens.

    `loop` of them were reasoning since the last user message at the time of the measurement. Providers drop
    such reasoning from the prompt when the user sends the next message.
    """

    length: int = 0
    tokens: int = 0
    loop: int = 0
    toolset_key: bytes = b""


NO_ANCHOR = Anchor()

# The variance of a report, in tokens.
REPORT_VARIANCE = 4.0
# The standard deviation of a tool set's tokens that the weights do not explain, as a share.
TOOLS_DEVIATION = 0.03
# The safety margin makes an estimate that is too low by more than a tolerance, a share or a number of tokens,
# as unlikely as a deviation of this many standard deviations. It is at most `_MARGIN_LIMIT`, as a share.
# There is none before the first report of a model whose tokenizer is known: the uncertainty is then that of
# the overheads, which are as often lower as higher.
_MARGIN_DEVIATIONS = 2.3
_TOLERANCE, _TOLERANCE_TOKENS = 0.01, 40
_MARGIN_LIMIT = 0.05


class PromptEstimate(msgspec.Struct, frozen=True):
    """The estimate of a prompt from one anchor.

    Attributes:
        anchor: The measured prefix.
        features: The features of the rest.
        text: Predicted tokens of the rest's text.
        tokens: Predicted tokens of the whole prompt, without the safety margin.
        variance: Variance of `tokens`, before it is compared with the reports.
        error_scale: How much larger the variance of the reports was (see `Weights.error_scale`).
        noise: The part of the variance that the weights do not explain.
        text_noise: The part of `noise` that comes from the text.
        loop: Reasoning tokens since the last user message, in the whole prompt.
        margin_limit: The largest safety margin, as a share of `tokens`.
    """

    anchor: Anchor
    features: FeatureSum
    text: float
    tokens: float
    variance: float
    error_scale: float
    noise: float
    text_noise: float
    loop: float
    margin_limit: float

    @property
    def deviation(self) -> float:
        """The standard deviation of the difference between the estimate and a report."""
        return sqrt(self.error_scale) * self.unscaled_deviation

    @property
    def unscaled_deviation(self) -> float:
        """The same as `deviation`, as if all tokenizers had the same errors.

        Few reports can make `deviation` small by chance. So it does not decide which reports are refused.
        """
        return sqrt(self.variance + REPORT_VARIANCE)

    @property
    def margin(self) -> float:
        """The safety margin. An estimate that is too low can lead to a rejected request; too high is safe.

        It depends on the variance before `error_scale`, because large errors are more frequent than a normal
        distribution with the standard deviation `deviation` has them.
        """
        tokens = max(0.0, self.tokens)
        margin = _MARGIN_DEVIATIONS * sqrt(self.variance) - max(_TOLERANCE_TOKENS, _TOLERANCE * tokens)
        return min(max(0.0, margin), self.margin_limit * tokens)

    @property
    def total(self) -> int:
        """The reported estimate: with the margin, and without an anchor at least the tokens of the text."""
        minimum = 0.0 if self.anchor.length else self.text + self.features.measured
        return round(max(minimum, self.tokens + self.margin, 0.0))


def content_tokens(message: CountedMessage, weights: Weights) -> float:
    """Predict the tokens of a message's content from its features."""
    content = message.content
    tokens = weights.text.predict(content.text)
    if content.media or content.calls:
        values = weights.extra.values
        tokens += content.media * values[Extra.MEDIA] + content.calls * values[Extra.CALLS]
    return tokens


def find_measured(message: CountedMessage, rows: MeasuredRows) -> Measured | None:
    """Return the measurement of a message: as an answer, else as new input."""
    return rows.get(message.answer_key or b"") or rows.get(message.key)


def reasoning_tokens(message: CountedMessage, rows: MeasuredRows, weights: Weights) -> float:
    """Return the tokens of the reasoning in a message: as reported, else predicted from its text."""
    if not message.content.has_thinking:
        return 0.0
    row = rows.get(message.answer_key or b"")
    return float(row[2]) if row and row[2] else weights.text.predict(message.content.thinking)


class Predictor:
    """Predicts the tokens of prompts. Reads the store, and never writes to it."""

    def __init__(self, store: LedgerStore, weight_store: WeightStore) -> None:
        self._store = store
        self._weight_store = weight_store

    def predict(self, prompt: Prompt, weights: Weights) -> PromptEstimate:
        """Return the estimate with the smallest variance, over all usable anchors."""
        estimates = [self.predict_from(prompt, weights, anchor) for anchor in self._anchors(prompt)]
        return min(estimates, key=lambda estimate: estimate.variance)

    def measured(self, messages: Sequence[CountedMessage]) -> MeasuredRows:
        """Return the measurements of these messages."""
        keys = [message.key for message in messages]
        keys += [message.answer_key for message in messages if message.answer_key]
        return {row[0]: row for row in self._store.measured(keys)} if keys else {}

    def _anchors(self, prompt: Prompt) -> Iterator[Anchor]:
        """Yield the longest measured prefix, and the longest with the same tool set if that is another."""
        first = True
        for start, keys in _slices_from_end(prompt.prefix_keys):
            lengths = {key: start + offset + 1 for offset, key in enumerate(keys)}
            anchors = [
                Anchor(lengths[key], tokens, loop, toolset)
                for key, toolset, tokens, loop in self._store.prefixes(keys)
            ]
            anchors.sort(key=lambda anchor: (anchor.length, anchor.toolset_key == prompt.toolset_key))
            for anchor in reversed(anchors):
                if anchor.toolset_key == prompt.toolset_key:
                    yield anchor
                    return
                if first and self._weight_store.toolset(prompt.family, anchor.toolset_key) is not None:
                    yield anchor
                    first = False
        if first:
            yield NO_ANCHOR

    def predict_from(self, prompt: Prompt, weights: Weights, anchor: Anchor) -> PromptEstimate:
        """Estimate a prompt from one measured prefix."""
        features = FeatureSum()
        self._add_tools(prompt, weights, anchor, features)
        tail = prompt.messages[anchor.length :]
        loop_messages = prompt.messages[prompt.last_user_index + 1 : anchor.length]
        thinking = [message for message in loop_messages if message.content.has_thinking]
        rows = self.measured([*tail, *thinking])
        for message in tail:
            _add_message(message, rows, features)
        prefix_loop = sum(reasoning_tokens(message, rows, weights) for message in thinking)
        loop = prefix_loop
        for index, message in enumerate(tail, anchor.length):
            reasoning = reasoning_tokens(message, rows, weights)
            if index > prompt.last_user_index:
                loop += reasoning
            else:
                features.extra[Extra.REASONING_PAST] += reasoning
        # Reasoning that was part of the loop when the prefix was measured may be before the last user message
        # now.
        features.extra[Extra.REASONING_LOOP] += loop - anchor.loop
        features.extra[Extra.REASONING_PAST] += max(0.0, anchor.loop - prefix_loop)
        texts, extras = features.texts(), features.extras()
        text = weights.text.predict(texts)
        text_noise = weights.text.noise(texts, text, features.squares)
        noise = text_noise + features.share_variance + TOOLS_DEVIATION**2 * features.tools_squares
        return PromptEstimate(
            anchor=anchor,
            features=features,
            text=text,
            tokens=anchor.tokens + features.measured + text + weights.extra.predict(extras),
            variance=weights.variance(texts, extras) + noise,
            error_scale=weights.error_scale,
            noise=noise,
            text_noise=text_noise,
            loop=loop,
            margin_limit=_MARGIN_LIMIT if weights.is_learned or not prompt.family.is_known else 0.0,
        )

    def _add_tools(self, prompt: Prompt, weights: Weights, anchor: Anchor, features: FeatureSum) -> None:
        """Add the tool set, and subtract the one that the anchor was measured with."""
        if anchor.length and anchor.toolset_key == prompt.toolset_key:
            return
        self._add_toolset(prompt, prompt.toolset_key, prompt.toolset, weights, features)
        if not anchor.length:
            features.extra[Extra.BASE] = 1.0
        elif previous := self._weight_store.toolset(prompt.family, anchor.toolset_key):
            self._add_toolset(prompt, anchor.toolset_key, previous, weights, features, -1.0)

    def _add_toolset(
        self,
        prompt: Prompt,
        key: bytes,
        toolset: Toolset,
        weights: Weights,
        features: FeatureSum,
        times: float = 1.0,
    ) -> None:
        rows = self._store.measured([message_key(prompt.scope, key)])
        if rows:
            features.add_share(rows[0], times)
        else:
            features.add_tools(toolset, weights.text.predict(toolset.text), times)


def tools_tokens(toolset: Toolset, weights: Weights) -> float:
    """Predict the tokens of a tool set from its features."""
    features = FeatureSum()
    features.add_tools(toolset, weights.text.predict(toolset.text))
    return weights.extra.predict(features.extras())


def _add_message(message: CountedMessage, rows: MeasuredRows, features: FeatureSum) -> None:
    features.extra[Extra.MESSAGES] += 1.0
    row = find_measured(message, rows)
    if row is None:
        features.add_text(message.content.text)
        features.extra[Extra.MEDIA] += message.content.media
        features.extra[Extra.CALLS] += message.content.calls
        return
    features.add_share(row)
    if row[0] == message.answer_key:
        features.extra[Extra.ANSWERS] += 1.0


def _slices_from_end(keys: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield slices of growing length from the end, with their start: most anchors are near the end."""
    end, size = len(keys), 8
    while end > 0:
        start = max(0, end - size)
        yield start, keys[start:end]
        end, size = start, min(size * 4, 500)


# --- The parts of an estimate ---

# Labels of the features in `shares`.
_LABELS: dict[Extra, str] = {
    Extra.TOOLS_TEXT: "tools",
    Extra.TOOLS: "tools",
    Extra.TOOLS_PRESENT: "tools",
    Extra.MESSAGES: "message overhead",
    Extra.BASE: "message overhead",
    Extra.MEDIA: "images and files",
    Extra.REASONING_LOOP: "reasoning",
    Extra.REASONING_PAST: "reasoning",
    Extra.CALLS: "tool call overhead",
    Extra.ANSWERS: "message overhead",
}


class Share(msgspec.Struct, frozen=True):
    """A part of an estimate, with a label for people."""

    label: str
    tokens: int


def shares(estimate: PromptEstimate, weights: Weights) -> tuple[Share, ...]:
    """Return the parts of an estimate, largest first; their sum is the estimate's total.

    Parts that round to zero, and overheads that were learned to be negative, are included in the largest.
    """
    amounts: dict[str, float] = {
        "previously counted": float(estimate.anchor.tokens),
        "previously measured messages": estimate.features.measured,
        "text": estimate.text,
        "safety margin": estimate.margin,
    }
    for feature, amount in estimate.features.extras():
        label = _LABELS[Extra(feature)]
        amounts[label] = amounts.get(label, 0.0) + amount * weights.extra.values[feature]
    parts = sorted(
        (Share(label, round(amount)) for label, amount in amounts.items() if round(amount) > 0),
        key=lambda share: -share.tokens,
    )
    if parts:
        remainder = estimate.total - sum(share.tokens for share in parts)
        parts[0] = Share(parts[0].label, parts[0].tokens + remainder)
    return tuple(parts)
