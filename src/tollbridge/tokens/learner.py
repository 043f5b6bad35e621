"""What is learned from reported usage: weights that start from a prior and move with every delta.

Two blocks of weights make a prediction: those of the text, shared by all models of a tokenizer family, and
those of what a provider adds around it, for one model. Each delta (what a request cost beyond what was
known) moves both, by how unsure they are: recursive least squares with a prior, which is a Kalman filter
whose state stands still. A surprise is clipped, so one wrong report does little.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum
from math import copysign, sqrt

from tollbridge.tokens.priors import Matrix, prior
from tollbridge.tokens.tokenizers import Family, Overheads

# Index and amount, for the features that are not zero.
Features = Iterable[tuple[int, float]]

# A surprise beyond so many standard deviations is taken for so many.
_CLIP = 5.0
# Such a surprise also widens the doubt by this factor, as long as the doubt is less than this share of the
# cost: once is nothing, but a model that changed its tokenizer is followed.
_DOUBT = 1.5
_WIDEST = 0.1
# A bundled vocabulary is believed until the learned scale of its counts is this far from 1.
_BELIEF = 0.02
# What no weights explain of a text's count: its standard deviation as a share, and a variance for each token.
# Measured for the weighted categories; a bundled vocabulary is off where servers join texts, and hardly else.
_EXACT = 0.005, 0.0
_WEIGHTED = 0.03, 0.4


class Extra(IntEnum):
    """The features of a prompt that are not its messages' text."""

    TOOLS_TEXT = 0  # tokens of the tools' JSON
    TOOLS = 1
    TOOLS_PRESENT = 2
    MESSAGES = 3
    BASE = 4
    MEDIA = 5  # by the provider's formula
    REASONING_LOOP = 6  # since the last word of the user
    REASONING_PAST = 7  # before it
    CALLS = 8  # tool calls and results
    ANSWERS = 9  # messages known by the output tokens they were reported with


# How far each may be from what is documented: the standard deviation.
_SPREAD = {
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
    """Some weights, and how unsure each is, with respect to the others."""

    def __init__(self, weights: list[float], covariance: Matrix) -> None:
        self.weights = weights
        self.covariance = covariance

    def copy(self) -> Block:
        return Block(list(self.weights), [list(row) for row in self.covariance])

    def predict(self, features: Features) -> float:
        weights = self.weights
        return sum([weights[i] * amount for i, amount in features])

    def spread(self, features: list[tuple[int, float]]) -> tuple[list[float], float]:
        """The covariance with this prediction, weight by weight; and the prediction's own variance."""
        along = [sum([row[i] * amount for i, amount in features]) for row in self.covariance]
        return along, sum([along[i] * amount for i, amount in features])

    def move(self, along: list[float], variance: float, surprise: float) -> None:
        gains = [value / variance for value in along]
        self.weights = [weight + gain * surprise for weight, gain in zip(self.weights, gains, strict=True)]
        self.covariance = [
            [value - gain * other for value, other in zip(row, along, strict=True)]
            for row, gain in zip(self.covariance, gains, strict=True)
        ]

    def widen(self) -> None:
        self.covariance = [[_DOUBT * value for value in row] for row in self.covariance]

    def pack(self) -> bytes:
        """The weights and the upper half of the covariance, as doubles."""
        flat = array("d", self.weights)
        for i, row in enumerate(self.covariance):
            flat.extend(row[i:])
        return flat.tobytes()

    @classmethod
    def unpack(cls, data: bytes, size: int) -> Block | None:
        """What `pack` made of a block of this size; `None` for anything else."""
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
    """The weights of a family's text before anything was learned."""
    if family.vocabulary:
        return Block([1.0], [[0.03**2]])
    like = tuple(name for name in family.like if name not in without)
    told = len(like) == len(family.like)
    return Block(
        *prior(
            like,
            scale=family.scale if told else 1.0,
            latin=family.latin if told else 1.0,
            doubt=family.doubt if told else 1.0,
            without=without,
        )
    )


def extra_prior(overheads: Overheads) -> Block:
    """The weights of what a provider adds, before anything was learned."""
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
    for feature, deviation in _SPREAD.items():
        covariance[feature][feature] = deviation**2
    return Block(weights, covariance)


class Weights:
    """The two blocks that price a prompt of one model."""

    def __init__(self, text: Block, extra: Block) -> None:
        self.text = text
        self.extra = extra

    def noise(self, tokens: float) -> float:
        """The variance in a text's count that no weights explain: short texts vary most."""
        share, each = _EXACT if len(self.text.weights) == 1 else _WEIGHTED
        return (share * tokens) ** 2 + each * max(0.0, tokens)

    @property
    def exact(self) -> bool:
        """Whether the vocabulary is bundled and not refuted."""
        return len(self.text.weights) == 1 and abs(self.text.weights[0] - 1.0) <= _BELIEF

    @property
    def text_prices(self) -> tuple[float, ...]:
        """What decides how a text alone counts: another tuple whenever it may count otherwise."""
        return () if self.exact else tuple(self.text.weights)

    def text_tokens(self, vector: Features) -> float:
        """What a text alone counts."""
        return sum([amount for _, amount in vector]) if self.exact else self.text.predict(vector)

    def variance(self, text: list[tuple[int, float]], extra: list[tuple[int, float]]) -> float:
        return self.text.spread(text)[1] + self.extra.spread(extra)[1]

    def learn(self, text: list[tuple[int, float]], extra: list[tuple[int, float]], tokens: float) -> None:
        """`tokens` is what these features really cost."""
        along_text, text_variance = self.text.spread(text)
        along_extra, extra_variance = self.extra.spread(extra)
        variance = text_variance + extra_variance + self.noise(max(tokens, 1.0)) + 4.0
        surprise = tokens - self.text.predict(text) - self.extra.predict(extra)
        bound = _CLIP * sqrt(variance)
        clipped = abs(surprise) > bound
        self.text.move(along_text, variance, copysign(bound, surprise) if clipped else surprise)
        self.extra.move(along_extra, variance, copysign(bound, surprise) if clipped else surprise)
        if clipped and text_variance + extra_variance < (_WIDEST * tokens) ** 2:
            self.text.widen()
            self.extra.widen()
