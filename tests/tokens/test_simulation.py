"""Whole conversations with a tokenizer nobody told us of: a short run of bench/tokens/simulate.py."""

from __future__ import annotations

import pytest
from bench.tokens.conversations import Step, steps
from bench.tokens.corpus import corpus
from bench.tokens.providers import Provider

from tollbridge.core.usage import Usage
from tollbridge.tokens import Ledger
from tollbridge.tokens.accuracy import percentile
from tollbridge.tokens.tokenizers import tokenizer

# Three conversations are open at once: from the fourth on, something was learned before they began.
WARM = 3


@pytest.fixture(scope="module")
def errors() -> list[tuple[Step, float]]:
    """Each request of some conversations, and how far its estimate was from the truth."""
    hidden = tokenizer("llama2")
    assert hidden is not None
    provider = Provider(hidden.count, "anthropic")
    # Its nearest relative is taken out of the population the prior is made of.
    ledger = Ledger(without=frozenset({"mistral_spm"}))
    found = []
    for step in steps("hidden/model", corpus(), seed=5, talks=5, turns=24):
        actual = provider.input_tokens(step.request)
        found.append((step, (ledger.estimate(step.request).tokens - actual) / actual))
        usage = Usage(actual, provider.answered(step.answer, step.reasoning), reasoning_tokens=step.reasoning)
        assert ledger.record(step.request, usage)
        ledger.record_answer(step.request.model, step.answer, usage)
    return found


@pytest.mark.slow
def test_the_first_request_ever_is_within_a_third(errors: list[tuple[Step, float]]) -> None:
    # Its tool overhead is Anthropic's, and the model's name does not say so.
    assert abs(errors[0][1]) < 0.33


@pytest.mark.slow
def test_warm_requests_are_within_one_percent(errors: list[tuple[Step, float]]) -> None:
    warm = [abs(share) for step, share in errors if step.conversation >= WARM]
    assert sum(warm) / len(warm) < 0.01
    assert percentile(warm, 0.95) < 0.03


@pytest.mark.slow
def test_few_warm_requests_are_counted_too_low(errors: list[tuple[Step, float]]) -> None:
    warm = [share for step, share in errors if step.conversation >= WARM]
    assert sum(share < -0.01 for share in warm) <= 0.08 * len(warm)
