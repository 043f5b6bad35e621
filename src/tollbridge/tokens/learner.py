"""Learn weights from reported usage, by a Bayesian linear regression that is robust to wrong reports.

Two blocks of parameters make a prediction: those of the text weights, shared by all models of a tokenizer
family, and the weights of what a provider adds to the text, for one model. Every report gives a difference
between the measured and the predicted tokens of what was not known before; it moves each parameter in
proportion to the parameter's uncertainty. This is a Kalman filter with a constant state. The noise has
Student's t-distribution, so that a report that contradicts all others has little effect.

A text has hundreds of features, too many to learn from a few reports. So the text weights move only in some
directions: those in which real tokenizers differ, each category of tokens, and all weights at once. Neither
half works alone: the weights of 240 clusters without directions diverge after a few reports, and 29
categories without clusters cannot come closer to a real tokenizer than 0.5 %.

One update, as in `Weights.learn`, has these steps:

1. The variance of the predicted difference is that of both blocks and the noise. It is what the parameters
   and the noise together expect of the square of the difference; `ratio` is the square that was seen, divided
   by it.
2. The noise of the text follows the ratio (`TextWeights.adjust_noise`), by the noise's share in the variance:
   a difference that the parameters can explain says little about the noise.
3. `error_scale` follows the ratio too. Two thirds of the variance are assumptions (the prior of the weights,
   answers that come back, overheads) and do not follow the reports: without the scale, the errors were 0.58
   to 1.20 times as large as stated, with it 0.90 to 1.16 times. It corrects what is stated. The safety margin
   and the refusal of reports do not use it: few reports can make it small by chance, and large errors are
   more frequent than in a normal distribution. With it, the 95th percentiles of the two worst tokenizers
   rose from 1.8 and 2.3 % to 3.0 and 3.8 %.
4. If the ratio is large, the noise of this report is assumed to be larger, so that the parameters move less.
   That is the t-distribution: one wrong report cannot undo ten right ones.
5. If the ratio is very large, the covariance is widened afterwards, at most to the initial one. Several such
   reports in a row then move the parameters quickly: the tokenizer of the model has changed. Without this
   step, the parameters hardly move after many reports, because each report reduces their covariance.

The two blocks are separate, because they are shared differently: the text weights belong to a tokenizer
family, the others to one model. Their covariance with each other is not kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from math import sqrt
from operator import mul
from struct import Struct

import msgspec

from tollbridge.tokens.features import CATEGORIES, LATIN, SIZE, TokenTable, unpack_floats
from tollbridge.tokens.tokenizers import Family, Overheads

# Pairs of a feature's index and its amount, for the features that are not zero.
Features = Sequence[tuple[int, float]]
Matrix = list[list[float]]

# The degrees of freedom of the noise: fewer give outliers less effect.
_FREEDOM = 4.0
# A difference of more than this many standard deviations is a surprise: it multiplies the covariance by this
# factor, so that a model that has changed its tokenizer is learned again.
_SURPRISE, _WIDENING = 4.0, 1.5
# The noise is adjusted to the differences of about this many reports; the square of each is clipped to this
# multiple of its expected value, and the factor to these bounds.
_FACTOR_MEMORY, _FACTOR_CLIP, _FACTOR_BOUNDS = 20.0, 9.0, (0.1, 30.0)
_FACTOR = Struct("<d")
# The same for the whole stated variance (see `Weights.error_scale`).
_SCALE_MEMORY, _SCALE_CLIP, _SCALE_BOUNDS = 30.0, 25.0, (0.02, 30.0)
# The counts of a bundled vocabulary are exact until the learned scale differs from 1 by more than this.
_EXACT_TOLERANCE = 0.02


class Noise(msgspec.Struct, frozen=True):
    """The variance of a text's count that no parameters explain.

    Attributes:
        share: Standard deviation of the count of one text, as a share of its tokens.
        per_token: Variance per token.
        own: Standard deviation of each weight that no direction explains.
    """

    share: float
    per_token: float
    own: float

    def variance(self, features: Features, tokens: float, squares: float) -> float:
        """Return the variance of several texts' count, from the sums of their features and tokens.

        `squares` is the sum of the squares of each text's tokens.
        """
        own = sum([amount * amount for _, amount in features])
        return self.share**2 * squares + self.per_token * abs(tokens) + self.own**2 * own


# Before any reports; `TextWeights.noise_factor` adjusts it. The count of a bundled vocabulary deviates only
# at the boundaries where servers join texts.
_EXACT_NOISE = Noise(0.005, 0.0, 0.0)
_WEIGHTED_NOISE = Noise(0.02, 0.3, 0.02)

# Standard deviations: of the weights of each category, of all weights in common, and of a bundled
# vocabulary's scale.
_CATEGORY_DEVIATION, _SCALE_DEVIATION, _EXACT_DEVIATION = 0.08, 0.1, 0.03


class Block(msgspec.Struct):
    """Parameters and their covariance."""

    values: list[float]
    covariance: Matrix

    @classmethod
    def independent(cls, values: list[float], deviations: Sequence[float]) -> Block:
        """Return independent parameters with these standard deviations."""
        covariance = [[0.0] * len(values) for _ in values]
        for i, deviation in enumerate(deviations):
            covariance[i][i] = deviation**2
        return cls(values, covariance)

    def copy(self) -> Block:
        return Block(list(self.values), [list(row) for row in self.covariance])

    def widened(self, prior: Block, share: float) -> Block:
        """Return a copy with a share of the prior's covariance added."""
        rows = zip(self.covariance, prior.covariance, strict=True)
        covariance = [[a + share * b for a, b in zip(row, other, strict=True)] for row, other in rows]
        return Block(list(self.values), covariance)

    def predict(self, amounts: Sequence[float]) -> float:
        """Return the tokens of these amounts, one for every parameter."""
        tokens: float = sum(map(mul, self.values, amounts))
        return tokens

    def uncertainty(self, amounts: Sequence[float]) -> tuple[list[float], float]:
        """Return the covariance of each parameter with the prediction, and the prediction's variance."""
        covariances = [sum(map(mul, row, amounts)) for row in self.covariance]
        return covariances, sum(map(mul, covariances, amounts))

    def update(self, covariances: list[float], variance: float, difference: float) -> None:
        """Move the parameters by a difference between measured and predicted tokens."""
        gains = [value / variance for value in covariances]
        self.values = [value + gain * difference for value, gain in zip(self.values, gains, strict=True)]
        self.covariance = [
            [value - gain * other for value, other in zip(row, covariances, strict=True)]
            for row, gain in zip(self.covariance, gains, strict=True)
        ]

    def widen(self, deviations: Sequence[float]) -> None:
        """Increase the uncertainty of each parameter, at most to its initial standard deviation."""
        factors = [
            sqrt(max(1.0, min(_WIDENING, deviation**2 / max(row[i], 1e-30))))
            for i, (row, deviation) in enumerate(zip(self.covariance, deviations, strict=True))
        ]
        self.covariance = [
            [factor * value * other for value, other in zip(row, factors, strict=True)]
            for row, factor in zip(self.covariance, factors, strict=True)
        ]

    def pack(self) -> bytes:
        """Encode the parameters and the upper half of the covariance as doubles."""
        flat = array("d", self.values)
        for i, row in enumerate(self.covariance):
            flat.extend(row[i:])
        return flat.tobytes()

    @classmethod
    def unpack(cls, data: bytes, size: int) -> Block | None:
        """Decode a packed block with this many parameters; `None` if the data has another length."""
        if len(data) != 8 * (size + size * (size + 1) // 2):
            return None
        flat = array("d")
        flat.frombytes(data)
        values, rest = list(flat[:size]), iter(flat[size:])
        covariance = [[0.0] * size for _ in range(size)]
        for i in range(size):
            for j in range(i, size):
                covariance[i][j] = covariance[j][i] = next(rest)
        return cls(values, covariance)


# --- The weights of texts ---


class TextPrior(msgspec.Struct, frozen=True):
    """The text weights before anything was learned, and the directions in which they can move.

    The parameters are, in this order: the amount of every direction, the deviation of every category, and the
    deviation of all weights.

    Attributes:
        weights: One for every feature.
        directions: As long as the weights.
        categories: The category of every feature; empty if the categories are not learned.
        deviations: Standard deviations of the parameters.
    """

    weights: list[float]
    directions: Sequence[list[float]]
    categories: bytes
    deviations: Sequence[float]
    noise: Noise

    def project(self, features: Features) -> list[float]:
        """Return by how much each parameter changes the prediction."""
        projection = [sum([row[i] * amount for i, amount in features]) for row in self.directions]
        if self.categories:
            totals = [0.0] * SIZE
            for i, amount in features:
                totals[self.categories[i]] += amount
            projection += totals
        projection.append(sum([self.weights[i] * amount for i, amount in features]))
        return projection

    def move(self, parameters: Sequence[float]) -> list[float]:
        """Return the weights with these parameters."""
        factor = 1.0 + parameters[-1]
        weights = [factor * weight for weight in self.weights]
        if self.directions:
            columns = zip(weights, zip(*self.directions, strict=True), strict=True)
            weights = [weight + sum(map(mul, parameters, column)) for weight, column in columns]
        if self.categories:
            first = len(self.directions)
            weights = [
                weight + parameters[first + category]
                for weight, category in zip(weights, self.categories, strict=True)
            ]
        return weights


def text_prior(family: Family, table: TokenTable | None) -> TextPrior:
    """Return the text weights of a family before anything was learned.

    One with a bundled vocabulary needs no table of known tokenizers.
    """
    if table is None:
        return TextPrior([1.0], (), b"", [_EXACT_DEVIATION], _EXACT_NOISE)
    like = table.known.get(family.like or "")
    weights = unpack_floats(table.mean if like is None else like)
    doubt = 1.0 if like is None else family.doubt**0.5
    if like is not None:
        factors = [family.scale * (family.latin if name in LATIN else 1.0) for name in CATEGORIES]
        weights = [
            weight * factors[category] for weight, category in zip(weights, table.categories, strict=True)
        ]
    directions = [unpack_floats(row) for row in table.directions]
    deviations = [doubt] * len(directions) + [doubt * _CATEGORY_DEVIATION] * SIZE + [_SCALE_DEVIATION]
    return TextPrior(weights, directions, table.categories, deviations, _WEIGHTED_NOISE)


class TextWeights:
    """The learned text weights of a family.

    Attributes:
        noise_factor: How much more variance the reports had than the prior's noise explains.
        weights: One for every feature.
    """

    def __init__(self, prior: TextPrior, block: Block | None = None, noise_factor: float = 1.0) -> None:
        self.prior = prior
        self.block = block or Block.independent([0.0] * len(prior.deviations), prior.deviations)
        self.noise_factor = noise_factor
        self.weights = prior.move(self.block.values)

    def copy(self) -> TextWeights:
        return TextWeights(self.prior, self.block.copy(), self.noise_factor)

    def noise(self, features: Features, tokens: float, squares: float) -> float:
        """Return the variance of several texts' count that the parameters do not explain (see `Noise`)."""
        return self.noise_factor * self.prior.noise.variance(features, tokens, squares)

    def pack(self) -> bytes:
        return _FACTOR.pack(self.noise_factor) + self.block.pack()

    @classmethod
    def unpack(cls, data: bytes, prior: TextPrior) -> TextWeights | None:
        """Decode packed weights; `None` if they were learned with another number of parameters."""
        block = Block.unpack(data[_FACTOR.size :], len(prior.deviations))
        return TextWeights(prior, block, *_FACTOR.unpack_from(data)) if block else None

    def predict(self, features: Features) -> float:
        weights = self.weights
        return sum([weights[i] * amount for i, amount in features])

    def update(self, covariances: list[float], variance: float, difference: float) -> None:
        self.block.update(covariances, variance, difference)
        self.weights = self.prior.move(self.block.values)

    def adjust_noise(self, ratio: float, share: float) -> None:
        """Adjust the noise to a report.

        Args:
            ratio: The square of the difference, divided by its expected variance.
            share: The share of the noise in the variance.
        """
        step = (_FACTOR_MEMORY + min(ratio, _FACTOR_CLIP)) / (_FACTOR_MEMORY + 1)
        lowest, highest = _FACTOR_BOUNDS
        self.noise_factor = min(max(self.noise_factor * step**share, lowest), highest)


# --- The weights of everything else ---


class Extra(IntEnum):
    """The features of a prompt apart from the text of its messages."""

    TOOLS_TEXT = 0  # tokens of the tools' JSON
    TOOLS = 1  # number of tools
    TOOLS_PRESENT = 2  # 1 if there are tools
    MESSAGES = 3  # number of messages
    BASE = 4  # 1 for every prompt
    MEDIA = 5  # tokens by the provider's formula
    REASONING_LOOP = 6  # since the last user message
    REASONING_PAST = 7  # before the last user message
    CALLS = 8  # number of tool calls and results
    ANSWERS = 9  # messages measured by their reported output tokens


# Standard deviation of each weight before anything was learned.
_DEVIATIONS = {
    Extra.TOOLS_TEXT: 0.2,
    Extra.TOOLS: 8.0,
    Extra.TOOLS_PRESENT: 150.0,
    Extra.MESSAGES: 2.0,
    Extra.BASE: 15.0,
    Extra.MEDIA: 0.25,
    Extra.REASONING_LOOP: 0.4,
    Extra.REASONING_PAST: 0.3,
    Extra.CALLS: 5.0,
    Extra.ANSWERS: 3.0,
}


def extra_prior(overheads: Overheads) -> Block:
    """Return the weights of what a provider adds, before anything was learned."""
    weights = [0.0] * len(Extra)
    weights[Extra.TOOLS_TEXT] = overheads.tools_scale
    weights[Extra.TOOLS] = overheads.tool
    weights[Extra.TOOLS_PRESENT] = overheads.tools_present
    weights[Extra.MESSAGES] = overheads.message
    weights[Extra.BASE] = overheads.base
    weights[Extra.MEDIA] = 1.0
    weights[Extra.REASONING_LOOP] = 1.0
    weights[Extra.CALLS] = 4.0
    return Block.independent(weights, EXTRA_DEVIATIONS)


EXTRA_DEVIATIONS = [_DEVIATIONS[feature] for feature in Extra]


class Weights(msgspec.Struct):
    """The weights that predict the prompts of one model.

    Attributes:
        error_scale: The mean square of the differences between reports and predictions, divided by the
            variance that the weights and their noise imply. Only a part of that variance follows the
            reports, so it is mostly too large for a tokenizer that the table describes well.
        is_learned: Whether anything was reported of the model.
    """

    text: TextWeights
    extra: Block
    error_scale: float = 1.0
    is_learned: bool = False

    @property
    def exact(self) -> bool:
        """Whether the vocabulary is bundled, and its counts agree with what was reported."""
        return len(self.text.weights) == 1 and abs(self.text.weights[0] - 1.0) <= _EXACT_TOLERANCE

    @property
    def text_weights(self) -> tuple[float, ...]:
        """The weights that decide how a text is counted, for `ClusterWeights`; empty if all are 1."""
        return () if self.exact else tuple(self.text.weights)

    def variance(self, text: Features, extra: Sequence[float]) -> float:
        """Return the variance of a prediction that comes from the uncertainty of the parameters."""
        projection = self.text.prior.project(text)
        return self.text.block.uncertainty(projection)[1] + self.extra.uncertainty(extra)[1]

    def learn(
        self,
        text: Features,
        extra: Sequence[float],
        difference: float,
        noise: float,
        text_noise: float = 0.0,
    ) -> float:
        """Learn that the tokens of these features differ from the prediction.

        Args:
            difference: The measured less the predicted tokens.
            noise: The variance of the difference that the parameters do not explain.
            text_noise: The part of it that comes from the text.

        Returns:
            The variance of the difference, larger than expected if the report is unlikely.
        """
        projection = self.text.prior.project(text)
        text_covariances, text_variance = self.text.block.uncertainty(projection)
        extra_covariances, extra_variance = self.extra.uncertainty(extra)
        explained = text_variance + extra_variance
        variance = explained + noise
        # The noise of an unlikely report is assumed to be larger, as Student's t-distribution implies.
        ratio = difference**2 / variance
        self.text.adjust_noise(ratio, text_noise / variance)
        step = (_SCALE_MEMORY + min(ratio / self.error_scale, _SCALE_CLIP)) / (_SCALE_MEMORY + 1)
        self.error_scale = min(max(self.error_scale * step, _SCALE_BOUNDS[0]), _SCALE_BOUNDS[1])
        variance = explained + noise * max(1.0, (_FREEDOM + ratio) / (_FREEDOM + 1))
        self.text.update(text_covariances, variance, difference)
        self.extra.update(extra_covariances, variance, difference)
        self.is_learned = True
        if ratio > _SURPRISE**2:
            self.text.block.widen(self.text.prior.deviations)
            self.extra.widen(EXTRA_DEVIATIONS)
        return variance

    def pack_scale(self) -> bytes:
        return _FACTOR.pack(self.error_scale)


def unpack_scale(data: bytes) -> float:
    """Decode `Weights.pack_scale`; 1 if the data has another length."""
    return float(_FACTOR.unpack(data)[0]) if len(data) == _FACTOR.size else 1.0
