"""Which usage reports are plausible."""

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
        # Cached tokens are part of the input, as specified.
        (Usage(1000, cached_tokens=900), 1000),
        # More cached than input tokens: the provider has excluded them.
        (Usage(100, cached_tokens=900), 1000),
        # Fewer cached than input tokens, but only their sum is close to the estimate.
        (Usage(600, cached_tokens=400), 1000),
    ],
)
def test_the_prompt_tokens_include_cached_tokens(usage: Usage, tokens: int | None) -> None:
    assert prompt_tokens(usage, expected=1000) == tokens


def test_a_report_far_from_the_estimate_is_rejected() -> None:
    usage_filter = UsageFilter()
    assert usage_filter.judge("m", 1500, 1000, reports=100) is UsageVerdict.ACCEPTED
    assert usage_filter.judge("m", 5, 1000, reports=100) is UsageVerdict.REJECTED
    assert usage_filter.judge("m", 90_000, 1000, reports=100) is UsageVerdict.REJECTED


def test_the_bounds_are_wider_for_a_new_model() -> None:
    assert UsageFilter().judge("m", 2500, 1000, reports=0) is UsageVerdict.ACCEPTED
    assert UsageFilter().judge("m", 2500, 1000, reports=10) is UsageVerdict.REJECTED
    assert UsageFilter().judge("m", 5000, 1000, reports=0) is UsageVerdict.REJECTED


def test_several_rejected_reports_that_agree_reset_the_model() -> None:
    usage_filter = UsageFilter()
    verdicts = [
        usage_filter.judge("m", tokens, expected, reports=10)
        for tokens, expected in ((2000, 1000), (4100, 2000))
    ]
    assert verdicts == [UsageVerdict.REJECTED, UsageVerdict.REJECTED]
    assert usage_filter.judge("other", 2000, 1000, reports=10) is UsageVerdict.REJECTED
    assert usage_filter.judge("m", 6000, 3000, reports=10) is UsageVerdict.RESET


def test_random_reports_stay_rejected() -> None:
    usage_filter = UsageFilter()
    reports = (1, 1_000_000, 3, 77_777, 12, 500_000)
    assert {usage_filter.judge("m", tokens, 1000, reports=10) for tokens in reports} == {
        UsageVerdict.REJECTED
    }
