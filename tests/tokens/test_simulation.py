"""Conversations with a tokenizer that the ledger does not know: a short run of bench/tokens/simulate.py."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import msgspec
import pytest
from bench.tokens.conversations import Step, steps
from bench.tokens.corpus import corpus
from bench.tokens.providers import Provider

from tests.tokens.samples import unfamiliar_table
from tollbridge.tokens.ledger import Ledger
from tollbridge.tokens.records import percentile
from tollbridge.tokens.tokenizers import tokenizer
from tollbridge.types.events import Usage

# Three conversations run concurrently: the model is known from the fourth on.
WARM = 3

# Several random simulations, so that the result does not depend on a single one.
SEEDS = (5, 6, 7, 8)


class Estimate(msgspec.Struct, frozen=True):
    """A request, whether it was the first of its simulation, and the relative error of its estimate.

    `deviations` is the error of the estimate without its margin, in stated standard deviations.
    """

    step: Step
    first: bool
    error: float
    deviations: float


def _simulate(seed: int, texts: dict[str, list[str]], vocabulary: str = "llama2") -> Iterator[Estimate]:
    hidden = tokenizer(vocabulary)
    assert hidden is not None
    provider = Provider(hidden.count, "anthropic")
    ledger = Ledger(table=unfamiliar_table())
    for number, step in enumerate(steps("hidden/model", texts, seed=seed, conversations=7, turns=24)):
        actual = provider.input_tokens(step.request)
        stated = ledger.predict(step.request)
        error = (ledger.estimate(step.request).tokens - actual) / actual
        yield Estimate(step, number == 0, error, (actual - stated.tokens) / stated.deviation)
        usage = Usage(
            actual, provider.output_tokens(step.answer, step.reasoning), reasoning_tokens=step.reasoning
        )
        assert ledger.record(step.request, usage, answer=step.answer)


@pytest.fixture(scope="module")
def estimates() -> list[Estimate]:
    texts = corpus()
    return [estimate for seed in SEEDS for estimate in _simulate(seed, texts)]


@pytest.fixture
def warm(estimates: list[Estimate]) -> list[float]:
    return [
        estimate.error
        for estimate in estimates
        if estimate.step.conversation >= WARM and estimate.step.turn >= 2
    ]


@pytest.mark.slow
def test_the_very_first_estimate_is_within_20_percent(estimates: list[Estimate]) -> None:
    assert all(abs(estimate.error) <= 0.2 for estimate in estimates if estimate.first)


@pytest.mark.slow
def test_later_estimates_for_a_known_model_are_within_half_a_percent(warm: list[float]) -> None:
    assert sum(map(abs, warm)) / len(warm) <= 0.005
    assert percentile([abs(error) for error in warm], 0.95) <= 0.015


@pytest.mark.slow
@pytest.mark.parametrize("change", ["edit", "compact"])
def test_estimates_after_an_edit_or_a_compaction_are_within_2_5_percent(
    estimates: list[Estimate], change: str
) -> None:
    after = [abs(estimate.error) for estimate in estimates if estimate.step.change == change]
    assert after
    assert sum(after) / len(after) <= 0.025


@pytest.mark.slow
def test_few_estimates_for_a_known_model_are_too_low(warm: list[float]) -> None:
    assert sum(error < -0.01 for error in warm) <= 0.01 * len(warm)


# llama2 is unlike all tokenizers of the table, the others are like one of them.
@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["llama2", "cl100k_base", "kimi_k2"])
def test_the_stated_deviation_is_that_of_the_errors(vocabulary: str) -> None:
    texts = corpus()
    squares = [
        min(estimate.deviations**2, 100.0)
        for seed in SEEDS
        for estimate in _simulate(seed, texts, vocabulary)
        if estimate.step.conversation >= WARM and estimate.step.turn >= 2
    ]
    assert 0.8 <= sqrt(sum(squares) / len(squares)) <= 1.2
