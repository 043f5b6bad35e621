"""Learn weights from reported usage, by recursive least squares with a prior.

Two blocks of weights make a prediction: the text weights, shared by all models of a tokenizer family, and
the weights of what a provider adds to the text, for one model. Every report gives a difference between the
measured and the predicted tokens of what was not known before; it moves each weight in proportion to the
weight's uncertainty. This is a Kalman filter with a constant state. Large differences are clipped, so that
one wrong report has little effect.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum
from math import copysign, sqrt

from tollbridge.tokens.priors import Matrix, prior
from tollbridge.tokens.tokenizers import Family, Overheads

# Pairs of a feature's index and its amount, for the features that are not zero.
Features = Iterable[tuple[int, float]]

# A difference is clipped to this many standard deviations.
_CLIP = 5.0
# A clipped difference also multiplies the covariance by this factor, as long as the standard deviation is
# less than this share of the tokens. One outlier has little effect, but a model that changed its tokenizer
# is learned again.
_WIDENING = 1.5
_WIDENING_LIMIT = 0.1
# The counts of a bundled vocabulary are exact until the learned scale differs from 1 by more than this.
_EXACT_TOLERANCE = 0.02
# The noise in a text's count that no weights explain: standard deviation as a share of the tokens, and
# variance per token. Measured for weighted categories. A bundled vocabulary deviates only at the
# boundaries where servers join texts.
_EXACT_NOISE = 0.005, 0.0
_WEIGHTED_NOISE = 0.03, 0.4


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


class Block:
    """Weights and their covariance."""

    def __init__(self, weights: list[float], covariance: Matrix) -> None:
        self.weights = weights
        self.covariance = covariance

    def copy(self) -> Block:
        return Block(list(self.weights), [list(row) for row in self.covariance])

    def predict(self, features: Features) -> float:
        weights = self.weights
        return sum([weights[i] * amount for i, amount in features])

    def uncertainty(self, features: list[tuple[int, float]]) -> tuple[list[float], float]:
        """Return the covariance of each weight with the prediction, and the prediction's variance."""
        covariances = [sum([row[i] * amount for i, amount in features]) for row in self.covariance]
        return covariances, sum([covariances[i] * amount for i, amount in features])

    def update(self, covariances: list[float], variance: float, difference: float) -> None:
        """Move the weights by a difference between measured and predicted tokens."""
        gains = [value / variance for value in covariances]
        self.weights = [weight + gain * difference for weight, gain in zip(self.weights, gains, strict=True)]
        self.covariance = [
            [value - gain * other for value, other in zip(row, covariances, strict=True)]
            for row, gain in zip(self.covariance, gains, strict=True)
        ]

    def widen(self) -> None:
        """Increase the uncertainty, so that the next differences move the weights more."""
        self.covariance = [[_WIDENING * value for value in row] for row in self.covariance]

    def pack(self) -> bytes:
        """Encode the weights and the upper half of the covariance as doubles."""
        flat = array("d", self.weights)
        for i, row in enumerate(self.covariance):
            flat.extend(row[i:])
        return flat.tobytes()

    @classmethod
    def unpack(cls, data: bytes, size: int) -> Block | None:
        """Decode a packed block with this many weights; `None` if the data has another length."""
        if len(data) != 8 * (size + size * (size + 1) // 2):
            return None
        flat = array("d")
        flat.frombytes(data)
        weights, rest = list(flat[:size]), iter(flat[size:])
        covariance = [[0.0] * size for _ in range(size)]
        for i in range(size):
            for j in range(i, size):
                covariance[i][j] = covariance[j][i] = next(rest)
        return cls(weights, covariance)


def text_prior(family: Family, without: frozenset[str] = frozenset()) -> Block:
    """Return the text weights of a family before anything was learned."""
    if family.vocabulary:
        return Block([1.0], [[0.03**2]])
    like = tuple(name for name in family.like if name not in without)
    complete = len(like) == len(family.like)
    return Block(
        *prior(
            like,
            scale=family.scale if complete else 1.0,
            latin=family.latin if complete else 1.0,
            doubt=family.doubt if complete else 1.0,
            without=without,
        )
    )


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
    covariance = [[0.0] * len(Extra) for _ in Extra]
    for feature, deviation in _DEVIATIONS.items():
        covariance[feature][feature] = deviation**2
    return Block(weights, covariance)


class Weights:
    """The two blocks of weights that predict the prompts of one model."""

    def __init__(self, text: Block, extra: Block) -> None:
        self.text = text
        self.extra = extra

    def noise(self, tokens: float) -> float:
        """Return the variance of a text's count that no weights explain."""
        share, per_token = _EXACT_NOISE if len(self.text.weights) == 1 else _WEIGHTED_NOISE
        return (share * tokens) ** 2 + per_token * max(0.0, tokens)

    @property
    def exact(self) -> bool:
        """Whether the vocabulary is bundled, and its counts agree with what was reported."""
        return len(self.text.weights) == 1 and abs(self.text.weights[0] - 1.0) <= _EXACT_TOLERANCE

    @property
    def text_prices(self) -> tuple[float, ...]:
        """The weights that decide how a text is counted; equal tuples give equal counts."""
        return () if self.exact else tuple(self.text.weights)

    def text_tokens(self, vector: Features) -> float:
        """Return the tokens of a text with these features."""
        return sum([amount for _, amount in vector]) if self.exact else self.text.predict(vector)

    def variance(self, text: list[tuple[int, float]], extra: list[tuple[int, float]]) -> float:
        """Return the variance of a prediction that comes from the uncertainty of the weights."""
        return self.text.uncertainty(text)[1] + self.extra.uncertainty(extra)[1]

    def learn(self, text: list[tuple[int, float]], extra: list[tuple[int, float]], tokens: float) -> None:
        """Learn that these features have `tokens` tokens."""
        text_covariances, text_variance = self.text.uncertainty(text)
        extra_covariances, extra_variance = self.extra.uncertainty(extra)
        variance = text_variance + extra_variance + self.noise(max(tokens, 1.0)) + 4.0
        difference = tokens - self.text.predict(text) - self.extra.predict(extra)
        bound = _CLIP * sqrt(variance)
        clipped = abs(difference) > bound
        if clipped:
            difference = copysign(bound, difference)
        self.text.update(text_covariances, variance, difference)
        self.extra.update(extra_covariances, variance, difference)
        if clipped and text_variance + extra_variance < (_WIDENING_LIMIT * tokens) ** 2:
            self.text.widen()
            self.extra.widen()
