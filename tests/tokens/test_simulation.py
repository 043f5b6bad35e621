"""Whole conversations with a tokenizer nobody told us of: a short run of bench/tokens/simulate.py."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from bench.tokens.conversations import Step, steps
from bench.tokens.corpus import corpus
from bench.tokens.providers import Provider

from tollbridge.tokens.ledger import Ledger
from tollbridge.tokens.records import percentile
from tollbridge.tokens.tokenizers import tokenizer
from tollbridge.types.usage import Usage

# Three conversations are open at once: from the fourth on, something was learned before they began.
WARM = 3


# Conversations of as many chances: what one of them happens to bring decides nothing.
SEEDS = (5, 6, 7, 8)


class Told(msgspec.Struct, frozen=True):
    """A request, whether it was the first of all, and how far its estimate was from the truth."""

    step: Step
    first: bool
    error: float


def _simulate(seed: int, texts: dict[str, list[str]]) -> Iterator[Told]:
    hidden = tokenizer("llama2")
    assert hidden is not None
    provider = Provider(hidden.count, "anthropic")
    # Its nearest relative is taken out of the population the prior is made of, and so is what the name says.
    ledger = Ledger(without=frozenset({"mistral_spm", "claude2"}))
    for number, step in enumerate(steps("anthropic/claude-hidden", texts, seed=seed, talks=7, turns=24)):
        actual = provider.input_tokens(step.request)
        yield Told(step, number == 0, (ledger.estimate(step.request).tokens - actual) / actual)
        usage = Usage(actual, provider.answered(step.answer, step.reasoning), reasoning_tokens=step.reasoning)
        assert ledger.record(step.request, usage)
        ledger.record_answer(step.request.model, step.answer, usage)


@pytest.fixture(scope="module")
def told() -> list[Told]:
    texts = corpus()
    return [each for seed in SEEDS for each in _simulate(seed, texts)]


@pytest.fixture
def warm(told: list[Told]) -> list[float]:
    return [each.error for each in told if each.step.conversation >= WARM]


@pytest.mark.slow
def test_the_first_request_ever_is_within_a_fifth(told: list[Told]) -> None:
    assert all(abs(each.error) <= 0.2 for each in told if each.first)


@pytest.mark.slow
def test_warm_requests_are_within_one_percent(warm: list[float]) -> None:
    assert sum(map(abs, warm)) / len(warm) <= 0.01
    assert percentile([abs(error) for error in warm], 0.95) <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize("happening", ["edit", "compact"])
def test_after_an_edit_or_a_compaction_the_rest_is_still_known(told: list[Told], happening: str) -> None:
    after = [abs(each.error) for each in told if each.step.happening == happening]
    assert after
    assert sum(after) / len(after) <= 0.025


@pytest.mark.slow
def test_few_warm_requests_are_counted_too_low(warm: list[float]) -> None:
    assert sum(error < -0.01 for error in warm) <= 0.05 * len(warm)
