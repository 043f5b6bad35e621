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
from functools import lru_cache
from math import copysign, sqrt

from tollbridge.tokens.features import CATEGORIES, LATIN, SIZE
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


# --- Priors: the weights of real tokenizers ---
#
# A weight is the number of tokens a tokenizer makes of one o200k token of a category. The weights were fitted
# by least squares on millions of characters of prose, code, data and logs in a dozen languages.

# In the order of CATEGORIES: ten of words, six of digits and spaces, four of punctuation, nine of scripts.
WEIGHTS: dict[str, tuple[float, ...]] = {
    "o200k": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        *(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        *(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    "cl100k": (
        *(0.979, 1.073, 0.926, 0.966, 1.056, 1.041, 1.02, 0.935, 1.102, 0.959),
        *(1.111, 1.044, 0.949, 0.768, 0.974, 0.99, 0.936, 0.984, 0.995, 1.006),
        *(1.416, 1.436, 1.718, 1.707, 2.374, 2.603, 2.731, 1.369, 1.401),
    ),
    "claude2": (
        *(1.558, 0.105, 1.223, 1.119, 0.51, 1.079, 1.094, 0.634, 1.08, 1.636),
        *(0.81, 0.623, 0.996, 0.688, 0.796, 1.03, 1.287, 0.94, 1.61, 0.907),
        *(1.268, 1.501, 1.992, 2.075, 3.198, 3.525, 2.94, 2.1, 1.043),
    ),
    "gemma3": (
        *(1.032, 0.669, 0.943, 1.022, 0.15, 1.183, 0.884, 0.572, 0.985, 1.668),
        *(0.776, 1.919, 3.077, 0.98, 1.026, 1.73, 1.18, 1.054, 1.406, 1.183),
        *(0.853, 0.569, 0.905, 0.951, 1.017, 0.915, 0.803, 0.585, 0.746),
    ),
    "llama3": (
        *(0.992, 1.064, 0.958, 0.979, 0.976, 1.054, 1.011, 0.971, 1.098, 0.954),
        *(1.096, 1.041, 0.958, 0.804, 0.962, 0.971, 0.936, 0.982, 0.99, 1.015),
        *(1.02, 0.895, 1.022, 1.188, 1.168, 2.435, 1.96, 0.246, 1.791),
    ),
    "llama4": (
        *(1.016, 0.808, 0.9, 0.936, 0.712, 1.069, 0.986, 0.9, 1.03, 0.995),
        *(1.041, 1.086, 1.021, 0.946, 0.984, 1.007, 0.925, 1.069, 1.082, 1.01),
        *(0.807, 0.692, 0.849, 0.862, 1.128, 1.014, 1.123, 0.436, 1.265),
    ),
    "tekken": (
        *(1.036, 0.976, 0.958, 0.872, 0.949, 1.044, 0.939, 0.982, 1.143, 1.252),
        *(1.087, 2.023, 2.953, 1.036, 1.025, 1.017, 0.932, 1.064, 1.095, 0.995),
        *(1.3, 0.862, 0.929, 1.185, 0.963, 1.478, 1.265, 1.592, 1.828),
    ),
    "mistral_spm": (
        *(1.239, 0.636, 1.174, 1.175, 0.642, 1.134, 1.178, 0.89, 1.274, 1.861),
        *(0.977, 1.777, 2.794, 0.628, 1.269, 1.876, 1.274, 0.86, 1.876, 1.076),
        *(1.503, 1.61, 2.098, 1.653, 3.129, 3.592, 2.8, 1.881, 1.192),
    ),
    "qwen3": (
        *(1.019, 1.071, 0.916, 0.995, 1.039, 1.051, 0.987, 0.909, 1.088, 0.95),
        *(1.142, 1.996, 2.908, 0.962, 0.976, 0.994, 0.944, 1.01, 0.953, 0.997),
        *(0.91, 0.901, 1.201, 1.263, 1.322, 2.456, 1.217, 1.956, 0.379),
    ),
    "qwen36": (
        *(0.922, 1.203, 0.774, 0.953, 0.23, 1.111, 1.012, 0.721, 1.127, 0.998),
        *(1.014, 1.979, 2.94, 0.844, 1.204, 1.516, 0.978, 1.132, 1.329, 1.139),
        *(0.787, 0.636, 0.817, 0.976, 0.995, 1.059, 1.142, 1.805, 1.208),
    ),
    "deepseek": (
        *(1.038, 0.685, 1.038, 1.191, 0.948, 1.028, 0.995, 0.985, 1.063, 1.324),
        *(1.035, 0.967, 0.976, 0.757, 0.723, 0.999, 1.113, 0.939, 1.276, 1.085),
        *(0.823, 0.961, 1.147, 1.148, 1.254, 2.392, 1.171, 1.138, 0.931),
    ),
    "grok1": (
        *(1.075, 0.594, 0.964, 1.098, 0.225, 1.103, 1.049, 0.483, 0.993, 1.673),
        *(0.799, 1.995, 3.028, 0.67, 1.016, 2.025, 1.138, 1.028, 1.52, 1.095),
        *(1.777, 0.598, 3.442, 1.372, 3.14, 2.769, 3.545, 2.359, 2.011),
    ),
    "kimi_k2": (
        *(1.1, 0.75, 0.991, 0.973, 0.925, 1.056, 1.056, 0.85, 1.057, 0.927),
        *(1.036, 1.004, 0.94, 0.866, 1.012, 1.053, 1.004, 0.97, 1.029, 0.984),
        *(0.796, 1.102, 1.456, 1.503, 1.58, 3.669, 1.773, 0.913, 1.196),
    ),
    "glm4": (
        *(1.023, 1.107, 0.924, 0.938, 0.972, 1.054, 0.985, 0.978, 1.082, 0.959),
        *(1.148, 0.887, 1.687, 0.916, 0.947, 0.946, 0.9, 1.009, 1.001, 1.019),
        *(0.83, 0.986, 1.443, 1.011, 1.307, 1.814, 2.729, 0.937, 1.474),
    ),
    "commandr": (
        *(1.118, 0.361, 1.092, 1.131, 0.295, 1.104, 1.031, 0.532, 0.943, 1.641),
        *(0.821, 1.882, 3.048, 1.131, 0.777, 0.894, 1.249, 1.016, 1.531, 1.035),
        *(0.908, 0.687, 0.903, 0.977, 1.114, 1.069, 1.187, 0.791, 1.142),
    ),
    "smollm2": (
        *(0.877, 1.139, 1.295, 1.087, 1.094, 0.982, 1.307, 0.804, 1.135, 1.848),
        *(1.259, 2.08, 2.758, 0.363, 0.632, 0.579, 1.065, 1.061, 1.603, 1.167),
        *(2.429, 2.909, 3.944, 2.975, 3.13, 4.102, 1.826, 2.557, 1.169),
    ),
}

# Standard deviation of each weight in addition to the spread of the known tokenizers.
_OWN_DEVIATION = 0.03
# Correlations between categories are reduced to this share, because sixteen tokenizers are a small sample.
_SHRINKAGE = 0.7

Matrix = list[list[float]]


def prior(
    like: tuple[str, ...] = (),
    *,
    scale: float = 1.0,
    latin: float = 1.0,
    doubt: float = 1.0,
    without: frozenset[str] = frozenset(),
) -> tuple[list[float], Matrix]:
    """Return the mean and the covariance of the weights of an unknown tokenizer.

    Args:
        like: Known tokenizers that it resembles; all of them if empty.
        scale: Factor for all weights.
        latin: Factor for the weights of Latin letters.
        doubt: Factor for the covariance.
        without: Known tokenizers to leave out, for simulations that use one of them as the provider's.
    """
    mean, covariance = _population(without)
    if like:
        mean = tuple(sum(WEIGHTS[name][i] for name in like) / len(like) for i in range(SIZE))
    centre = [
        weight * scale * (latin if name in LATIN else 1.0)
        for weight, name in zip(mean, CATEGORIES, strict=True)
    ]
    return centre, [[doubt * value for value in row] for row in covariance]


@lru_cache(maxsize=8)
def _population(without: frozenset[str]) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    members = [weights for name, weights in WEIGHTS.items() if name not in without]
    mean = tuple(sum(column) / len(members) for column in zip(*members, strict=True))
    deviations = [[weight - centre for weight, centre in zip(row, mean, strict=True)] for row in members]
    columns = list(zip(*deviations, strict=True))
    covariance = []
    for i, column in enumerate(columns):
        row = [
            _SHRINKAGE * sum(a * b for a, b in zip(column, other, strict=True)) / len(members)
            for other in columns
        ]
        row[i] = row[i] / _SHRINKAGE + _OWN_DEVIATION**2
        covariance.append(tuple(row))
    return mean, tuple(covariance)


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
