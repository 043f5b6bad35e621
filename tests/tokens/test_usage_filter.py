"""Which reports are believed."""

from __future__ import annotations

import pytest

from tollbridge.tokens.ledger import UsageFilter, UsageVerdict, prompt_tokens
from tollbridge.types.usage import Usage


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(), None),
        (Usage(0, 0, 0), None),
        (Usage(-5), None),
        (Usage(1000), 1000),
        (Usage(1000, cached_tokens=0), 1000),
        # Part of the input, as the specification has it.
        (Usage(1000, cached_tokens=900), 1000),
        # More was cached than came in: it was left out.
        (Usage(100, cached_tokens=900), 1000),
        # Less was cached than came in, but only together do they make what was expected.
        (Usage(600, cached_tokens=400), 1000),
    ],
)
def test_the_size_of_a_prompt_includes_what_was_cached(usage: Usage, tokens: int | None) -> None:
    assert prompt_tokens(usage, expected=1000) == tokens


def test_a_report_far_from_the_estimate_is_refused() -> None:
    gate = UsageFilter()
    assert gate.judge("m", 1500, 1000, reports=100) is UsageVerdict.ACCEPTED
    assert gate.judge("m", 5, 1000, reports=100) is UsageVerdict.REJECTED
    assert gate.judge("m", 90_000, 1000, reports=100) is UsageVerdict.REJECTED


def test_a_new_model_may_surprise() -> None:
    assert UsageFilter().judge("m", 2500, 1000, reports=0) is UsageVerdict.ACCEPTED
    assert UsageFilter().judge("m", 2500, 1000, reports=10) is UsageVerdict.REJECTED
    assert UsageFilter().judge("m", 5000, 1000, reports=0) is UsageVerdict.REJECTED


def test_refused_reports_that_agree_are_right_in_the_end() -> None:
    gate = UsageFilter()
    verdicts = [
        gate.judge("m", tokens, expected, reports=10) for tokens, expected in ((2000, 1000), (4100, 2000))
    ]
    assert verdicts == [UsageVerdict.REJECTED, UsageVerdict.REJECTED]
    assert gate.judge("other", 2000, 1000, reports=10) is UsageVerdict.REJECTED
    assert gate.judge("m", 6000, 3000, reports=10) is UsageVerdict.RESET


def test_garbage_does_not_agree_with_itself() -> None:
    gate = UsageFilter()
    reports = (1, 1_000_000, 3, 77_777, 12, 500_000)
    assert {gate.judge("m", tokens, 1000, reports=10) for tokens in reports} == {UsageVerdict.REJECTED}
