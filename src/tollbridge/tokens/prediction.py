"""Predict the input tokens of a prompt: the longest measured prefix plus a calibrated count of the rest.

`Predictor` estimates a prompt, and `shares` lists where the tokens of an estimate come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

import msgspec

from tollbridge.tokens.features import Vector
from tollbridge.tokens.learner import Extra, Weights
from tollbridge.tokens.prompts import CountedMessage, Prompt, Toolset, message_key
from tollbridge.tokens.records import LedgerStore, Measured
from tollbridge.tokens.weights import WeightStore

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


class FeatureSum(msgspec.Struct):
    """A sum of features: of text, of everything else, and tokens that were measured before.

    Attributes:
        text: Amounts by cluster.
        extra: Amounts by `Extra`.
        squares: The sum of the squares of each text's o200k tokens.
        tools_squares: The sum of the squares of the tools' tokens, if they were not measured.
        measured: The sum of `shares`.
        shares: The measurements, with how often each is added.
    """

    text: dict[int, float] = {}
    extra: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(Extra))
    squares: float = 0.0
    tools_squares: float = 0.0
    measured: float = 0.0
    shares: list[tuple[Measured, float]] = []

    def add_text(self, vector: Vector) -> None:
        total = 0
        for kind, count in vector:
            self.text[kind] = self.text.get(kind, 0.0) + count
            total += count
        self.squares += total**2

    def add_share(self, row: Measured, times: float = 1.0) -> None:
        self.measured += times * row[1]
        self.shares.append((row, times))

    def add_tools(self, toolset: Toolset, tokens: float, times: float = 1.0) -> None:
        self.extra[Extra.TOOLS_TEXT] += times * tokens
        self.extra[Extra.TOOLS] += times * toolset.count
        self.extra[Extra.TOOLS_PRESENT] += times * bool(toolset.count)
        self.tools_squares += tokens**2

    def texts(self) -> list[tuple[int, float]]:
        return list(self.text.items())


class PromptEstimate(msgspec.Struct, frozen=True):
    """The estimate of a prompt from one anchor.

    Attributes:
        features: The features of what follows the anchor, the rest.
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

    def measured(self, messages: Sequence[CountedMessage], toolsets: Iterable[bytes] = ()) -> MeasuredRows:
        """Return the measurements of these messages, and of tool sets by their keys."""
        keys = [message.key for message in messages]
        keys += [message.answer_key for message in messages if message.answer_key]
        keys += toolsets
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
        tail = prompt.messages[anchor.length :]
        loop_messages = prompt.messages[prompt.last_user_index + 1 : anchor.length]
        thinking = [message for message in loop_messages if message.content.has_thinking]
        has_same_tools = anchor.length > 0 and anchor.toolset_key == prompt.toolset_key
        toolsets = () if has_same_tools else (prompt.toolset_key, anchor.toolset_key)
        keys = [message_key(prompt.scope, toolset) for toolset in toolsets]
        rows = self.measured([*tail, *thinking], keys)
        if not has_same_tools:
            _add_tools(prompt.toolset, rows.get(keys[0]), weights, features)
            if not anchor.length:
                features.extra[Extra.BASE] = 1.0
            elif previous := self._weight_store.toolset(prompt.family, anchor.toolset_key):
                _add_tools(previous, rows.get(keys[1]), weights, features, -1.0)
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
        texts = features.texts()
        text = weights.text.predict(texts)
        text_noise = weights.text.noise(texts, text, features.squares)
        share_variance = sum([(times * row[3]) ** 2 for row, times in features.shares])
        noise = text_noise + share_variance + TOOLS_DEVIATION**2 * features.tools_squares
        return PromptEstimate(
            anchor=anchor,
            features=features,
            text=text,
            tokens=anchor.tokens + features.measured + text + weights.extra.predict(features.extra),
            variance=weights.variance(texts, features.extra) + noise,
            error_scale=weights.error_scale,
            noise=noise,
            text_noise=text_noise,
            loop=loop,
            margin_limit=_MARGIN_LIMIT if weights.is_learned or not prompt.family.is_known else 0.0,
        )


def _add_tools(
    toolset: Toolset, row: Measured | None, weights: Weights, features: FeatureSum, times: float = 1.0
) -> None:
    """Add a tool set, as it was measured or else as predicted. `times` is -1 to subtract it."""
    if row is not None:
        features.add_share(row, times)
    else:
        features.add_tools(toolset, weights.text.predict(toolset.text), times)


def tools_tokens(toolset: Toolset, weights: Weights) -> float:
    """Predict the tokens of a tool set from its features."""
    features = FeatureSum()
    features.add_tools(toolset, weights.text.predict(toolset.text))
    return weights.extra.predict(features.extra)


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
    for feature, label in _LABELS.items():
        tokens = estimate.features.extra[feature] * weights.extra.values[feature]
        amounts[label] = amounts.get(label, 0.0) + tokens
    parts = sorted(
        (Share(label, round(amount)) for label, amount in amounts.items() if round(amount) > 0),
        key=lambda share: -share.tokens,
    )
    if parts:
        remainder = estimate.total - sum(share.tokens for share in parts)
        parts[0] = Share(parts[0].label, parts[0].tokens + remainder)
    return tuple(parts)
