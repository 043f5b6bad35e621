"""Learning weights from the difference between measured and predicted tokens."""

from __future__ import annotations

import random

import pytest

from tollbridge.tokens.features import SIZE
from tollbridge.tokens.learner import WEIGHTS, Block, Extra, Weights, extra_prior, prior, text_prior
from tollbridge.tokens.tokenizers import Overheads, family_of


def weights(model: str = "hidden/model") -> Weights:
    family = family_of(model)
    return Weights(text_prior(family), extra_prior(family.overheads))


def random_text(rng: random.Random) -> list[tuple[int, float]]:
    return [(kind, float(rng.randint(1, 60))) for kind in rng.sample(range(SIZE), 12)]


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.3, 1.8])
def test_the_learned_weights_converge_to_the_true_ratio(ratio: float) -> None:
    learned, rng = weights(), random.Random(1)
    for _ in range(200):
        text = random_text(rng)
        learned.learn(text, [], ratio * sum(count for _, count in text))
    text = random_text(rng)
    assert learned.text.predict(text) == pytest.approx(ratio * sum(count for _, count in text), rel=0.01)


def test_a_tokenizer_left_out_of_the_prior_is_learned_from_forty_reports() -> None:
    truth = WEIGHTS["claude2"]
    family = family_of("hidden/model")
    learned = Weights(text_prior(family, frozenset({"claude2"})), extra_prior(family.overheads))
    rng = random.Random(2)

    def cost(text: list[tuple[int, float]]) -> float:
        return sum(truth[kind] * count for kind, count in text)

    held_out = [random_text(rng) for _ in range(50)]

    def mean_error() -> float:
        return sum(abs(learned.text.predict(text) / cost(text) - 1) for text in held_out) / 50

    before = mean_error()
    for _ in range(40):
        text = random_text(rng)
        learned.learn(text, [(Extra.MESSAGES, 2.0)], cost(text) + 10)
    assert mean_error() < before / 3
    assert mean_error() < 0.05


def test_one_wrong_report_has_little_effect() -> None:
    learned, rng = weights(), random.Random(3)
    for _ in range(50):
        text = random_text(rng)
        learned.learn(text, [], 1.2 * sum(count for _, count in text))
    text = random_text(rng)
    before = learned.text.predict(text)
    learned.learn(text, [], 100_000_000)
    assert learned.text.predict(text) == pytest.approx(before, rel=0.25)


def test_a_bundled_vocabulary_is_exact_until_reports_contradict_it() -> None:
    learned = weights("openai/gpt-5")
    learned.learn([(0, 1000.0)], [], 1003)
    assert learned.text_tokens([(0, 1000)]) == 1000
    for _ in range(100):
        learned.learn([(0, 1000.0)], [], 1400)
    assert learned.text_tokens([(0, 1000)]) == pytest.approx(1400, rel=0.02)


def test_weights_are_packed_without_loss() -> None:
    learned, rng = weights(), random.Random(4)
    learned.learn(random_text(rng), [(Extra.BASE, 1.0)], 500)
    for block in (learned.text, learned.extra):
        copy = Block.unpack(block.pack(), len(block.weights))
        assert copy is not None
        assert copy.weights == block.weights
        for row, other in zip(copy.covariance, block.covariance, strict=True):
            assert row == pytest.approx(other, rel=1e-9, abs=1e-12)


def test_data_of_the_wrong_length_is_not_unpacked() -> None:
    assert Block.unpack(b"nonsense", 29) is None
    assert Block.unpack(weights().extra.pack(), 29) is None


def test_the_prior_has_the_documented_overheads() -> None:
    documented = extra_prior(Overheads(base=6, message=3, tools_scale=1.1, tools_present=400, tool=10))
    assert documented.predict([(Extra.BASE, 1), (Extra.MESSAGES, 10), (Extra.TOOLS_PRESENT, 1)]) == 436


def test_tokenizers_can_be_left_out_of_the_prior() -> None:
    complete, _ = prior()
    others, _ = prior(without=frozenset({"claude2"}))
    assert complete != others
    claude, _ = prior(("claude2",), scale=1.1)
    assert claude == pytest.approx([1.1 * weight for weight in WEIGHTS["claude2"]])
