"""Learning weights from the difference between measured and predicted tokens."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import sqrt

import pytest
from bench.tokens.corpus import corpus

from tests.tokens.samples import hidden_text, unfamiliar_table
from tollbridge.tokens.features import ClusterWeights, shipped_table, unpack_floats
from tollbridge.tokens.learner import (
    Block,
    Extra,
    TextWeights,
    Weights,
    extra_prior,
    text_prior,
    unpack_scale,
)
from tollbridge.tokens.tokenizers import Family, Overheads, TextFeatures, family_of

Text = list[tuple[int, float]]


def weights(model: str = "hidden/model") -> Weights:
    family = family_of(model)
    table = None if family.vocabulary else shipped_table()
    return Weights(TextWeights(text_prior(family, table)), extra_prior(family.overheads))


def amounts(features: Mapping[Extra, float]) -> list[float]:
    return [features.get(feature, 0.0) for feature in Extra]


NO_EXTRA = amounts({})
TWO_MESSAGES = amounts({Extra.MESSAGES: 2.0})


def teach(learned: Weights, text: Text, tokens: float, extra: list[float] = NO_EXTRA) -> float:
    """Learn that a text has this many tokens, and return the error in stated standard deviations."""
    predicted = learned.text.predict(text) + learned.extra.predict(extra)
    noise = learned.text.noise(text, predicted, sum(count for _, count in text) ** 2)
    deviation = sqrt(learned.variance(text, extra) + noise + 4)
    learned.learn(text, extra, tokens - predicted, noise + 4, noise)
    return (tokens - predicted) / deviation


def random_text(rng: random.Random) -> Text:
    return [(kind, float(rng.randint(1, 60))) for kind in rng.sample(range(shipped_table().size), 40)]


def total(text: Text) -> float:
    return sum(count for _, count in text)


@pytest.mark.series
@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.3, 1.8])
def test_the_learned_weights_converge_to_the_true_ratio(ratio: float) -> None:
    learned, rng = weights(), random.Random(1)
    for _ in range(200):
        text = random_text(rng)
        teach(learned, text, ratio * total(text))
    text = random_text(rng)
    assert learned.text.predict(text) == pytest.approx(ratio * total(text), rel=0.02)


def real_texts() -> list[str]:
    texts = [chunk for chunks in corpus().values() for chunk in chunks if len(chunk) > 200]
    random.Random(2).shuffle(texts)
    return texts[:160]


def test_a_tokenizer_that_the_table_does_not_know_is_learned_from_forty_reports() -> None:
    table = unfamiliar_table()
    features, family = TextFeatures(table), family_of("hidden/model")
    learned = Weights(TextWeights(text_prior(family, table)), extra_prior(family.overheads))
    samples = [
        ([(kind, float(count)) for kind, count in features.vector(family, text)], hidden_text(text))
        for text in real_texts()
    ]

    def mean_error() -> float:
        held_out = samples[40:]
        return sum(abs(learned.text.predict(text) / tokens - 1) for text, tokens in held_out) / len(held_out)

    before = mean_error()
    for text, tokens in samples[:40]:
        teach(learned, text, tokens)
    assert mean_error() < before / 3
    assert mean_error() < 0.05


def test_one_wrong_report_has_little_effect() -> None:
    learned, rng = weights(), random.Random(3)
    for _ in range(50):
        text = random_text(rng)
        teach(learned, text, 1.2 * total(text))
    text = random_text(rng)
    before = learned.text.predict(text)
    teach(learned, text, 100_000_000)
    assert learned.text.predict(text) == pytest.approx(before, rel=0.05)


@pytest.mark.series
@pytest.mark.parametrize("spread", [0.005, 0.02, 0.1])
def test_the_stated_deviation_follows_the_spread_of_the_reports(spread: float) -> None:
    learned, rng = weights(), random.Random(4)
    errors = []
    for _ in range(300):
        text = random_text(rng)
        errors.append(teach(learned, text, total(text) * rng.gauss(1.0, spread)))
    late = errors[100:]
    assert 0.8 <= (sum(error**2 for error in late) / len(late)) ** 0.5 <= 1.2


@pytest.mark.parametrize("deviation", [1.5, 10.0, 60.0])
def test_the_error_scale_corrects_a_variance_that_the_text_does_not_explain(deviation: float) -> None:
    """The stated noise has a standard deviation of 10, whatever the reports are."""
    learned, rng, errors = weights(), random.Random(5), []
    for _ in range(400):
        difference = rng.gauss(0.0, deviation)
        variance = learned.error_scale * (learned.variance([], TWO_MESSAGES) + 100)
        errors.append(difference / sqrt(variance))
        learned.learn([], TWO_MESSAGES, difference, 100.0)
    late = errors[150:]
    assert 0.8 <= sqrt(sum(error**2 for error in late) / len(late)) <= 1.2


def test_one_wrong_report_changes_the_error_scale_by_less_than_a_factor_of_two() -> None:
    learned, rng = weights(), random.Random(6)
    for _ in range(100):
        learned.learn([], TWO_MESSAGES, rng.gauss(0.0, 10.0), 100.0)
    before = learned.error_scale
    learned.learn([], TWO_MESSAGES, 1_000_000.0, 100.0)
    assert before < learned.error_scale < 2 * before


def test_an_error_scale_of_another_length_is_one() -> None:
    learned = weights()
    learned.error_scale = 0.3
    assert unpack_scale(learned.pack_scale()) == 0.3
    assert unpack_scale(b"") == unpack_scale(b"nonsense of another length") == 1.0


def test_a_bundled_vocabulary_is_exact_until_reports_contradict_it() -> None:
    learned = weights("openai/gpt-5")
    teach(learned, [(0, 1000.0)], 1003)
    assert ClusterWeights(learned.text_weights).total(((0, 1000),)) == 1000
    for _ in range(100):
        teach(learned, [(0, 1000.0)], 1400)
    assert ClusterWeights(learned.text_weights).total(((0, 1000),)) == pytest.approx(1400, rel=0.02)


def test_weights_are_packed_without_loss() -> None:
    learned, rng = weights(), random.Random(4)
    teach(learned, random_text(rng), 500, amounts({Extra.BASE: 1.0}))
    text = TextWeights.unpack(learned.text.pack(), learned.text.prior)
    assert text is not None
    assert text.weights == learned.text.weights
    assert text.noise_factor == learned.text.noise_factor != 1.0
    extra = Block.unpack(learned.extra.pack(), len(Extra))
    assert extra is not None
    for copy, block in ((text.block, learned.text.block), (extra, learned.extra)):
        assert copy.values == block.values
        for row, other in zip(copy.covariance, block.covariance, strict=True):
            assert row == pytest.approx(other, rel=1e-9, abs=1e-12)


def test_data_of_the_wrong_length_is_not_unpacked() -> None:
    learned = weights()
    assert Block.unpack(b"nonsense", 29) is None
    assert TextWeights.unpack(b"", learned.text.prior) is None
    assert TextWeights.unpack(learned.extra.pack(), learned.text.prior) is None


def test_the_prior_has_the_documented_overheads() -> None:
    documented = extra_prior(Overheads(base=6, message=3, tools_scale=1.1, tools_present=400, tool=10))
    request = amounts({Extra.BASE: 1, Extra.MESSAGES: 10, Extra.TOOLS_PRESENT: 1})
    assert documented.predict(request) == 436


def test_a_family_starts_from_the_weights_of_the_tokenizer_it_resembles() -> None:
    known = unpack_floats(shipped_table().known["claude2"])
    family = Family("claude", like="claude2", scale=1.1)
    assert text_prior(family, shipped_table()).weights == pytest.approx([1.1 * weight for weight in known])
