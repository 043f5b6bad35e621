"""Which usage reports are plausible, and what the others are."""

from __future__ import annotations

import pytest

from tollbridge.tokens.records import Report, UsageFilter, Verdict, prompt_tokens
from tollbridge.types.events import Usage


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
        (Usage(1000, cached_tokens=700, cache_write_tokens=280), 1000),
        # More cached than input tokens: the provider has excluded them.
        (Usage(100, cached_tokens=900), 1000),
        # Fewer cached than input tokens, but only their sum is close to the estimate.
        (Usage(600, cached_tokens=400), 1000),
        # Anthropic's counts, added up by nobody: what was read and what was written is apart.
        (Usage(4, cached_tokens=600, cache_write_tokens=396), 1000),
        (Usage(104, cache_write_tokens=896), 1000),
        # The input includes what was read, but not what was written.
        (Usage(700, cached_tokens=690, cache_write_tokens=300), 1000),
    ],
)
def test_the_prompt_tokens_include_what_the_cache_has_read_and_written(
    usage: Usage, tokens: int | None
) -> None:
    assert prompt_tokens(usage, expected=1000) == tokens


def report(
    tokens: int,
    expected: float = 1000,
    *,
    scope: str = "m",
    reports: int = 10,
    deviation: float = 50,
    cached: int = 0,
    previous: float | None = None,
    previous_report: int | None = None,
    is_edited: bool = False,
    independent: float | None = None,
) -> Report:
    return Report(
        scope, tokens, expected, deviation, reports, cached, previous, previous_report, is_edited, independent
    )


def test_a_report_far_from_the_estimate_is_refused() -> None:
    usage_filter = UsageFilter()
    assert usage_filter.judge(report(1500)) is Verdict.ACCEPTED
    assert usage_filter.judge(report(5)) is Verdict.IMPLAUSIBLE
    assert usage_filter.judge(report(90_000)) is Verdict.IMPLAUSIBLE


def test_the_bounds_are_wider_for_a_new_model() -> None:
    assert UsageFilter().judge(report(2400, reports=0)) is Verdict.ACCEPTED
    assert UsageFilter().judge(report(2400)) is Verdict.IMPLAUSIBLE
    assert UsageFilter().judge(report(2600, reports=0)) is Verdict.IMPLAUSIBLE
    assert UsageFilter().judge(report(450, reports=0, deviation=300)) is Verdict.IMPLAUSIBLE


def test_several_refused_reports_that_agree_reset_the_model() -> None:
    usage_filter = UsageFilter()
    assert usage_filter.judge(report(2000)) is Verdict.IMPLAUSIBLE
    assert usage_filter.judge(report(4100, 2000)) is Verdict.IMPLAUSIBLE
    assert usage_filter.judge(report(2000, scope="other")) is Verdict.IMPLAUSIBLE
    assert usage_filter.judge(report(6000, 3000)) is Verdict.RESET


@pytest.mark.parametrize("ratio", [0.02, 0.4, 2.6, 9.0])
def test_an_impossible_ratio_is_never_a_new_truth(ratio: float) -> None:
    usage_filter = UsageFilter()
    for expected in range(10_000, 40_000, 2_000):
        verdict = usage_filter.judge(report(round(ratio * expected), expected))
        assert verdict is Verdict.IMPLAUSIBLE


def test_random_reports_stay_refused() -> None:
    usage_filter = UsageFilter()
    reports = (1, 1_000_000, 3, 77_777, 12, 500_000)
    assert {usage_filter.judge(report(tokens)) for tokens in reports} == {Verdict.IMPLAUSIBLE}


def test_a_later_prompt_of_known_size_cannot_shrink() -> None:
    usage_filter = UsageFilter()
    # 30,000 tokens were counted before; the gateway reports the rest, or the rest and a little more.
    for tokens in (1_000, 9_000, 22_000, 29_000):
        later = report(tokens, 31_000, deviation=40, previous=30_000)
        assert usage_filter.judge(later) is Verdict.PARTIAL


def test_the_first_prompt_of_a_conversation_can_have_fewer_tokens_than_expected() -> None:
    assert UsageFilter().judge(report(8_500, 9_500, deviation=200)) is Verdict.ACCEPTED


def test_new_text_can_have_fewer_tokens_than_expected() -> None:
    later = report(33_000, 41_000, deviation=1_200, previous=26_000)
    assert UsageFilter().judge(later) is Verdict.ACCEPTED


def test_agreeing_reports_of_parts_are_not_a_new_truth() -> None:
    usage_filter = UsageFilter()
    for turn in range(6):
        expected = 20_000 + 2_000 * turn
        later = report(round(0.9 * expected), expected, deviation=40, previous=expected - 2_000)
        assert usage_filter.judge(later) is Verdict.PARTIAL


def test_a_gateway_that_reports_parts_is_believed_only_if_it_is_close() -> None:
    usage_filter = UsageFilter()
    later = report(970, deviation=8, previous=700)
    assert usage_filter.judge(later) is Verdict.ACCEPTED
    for _ in range(3):
        assert usage_filter.judge(report(300, deviation=8, previous=700)) is Verdict.PARTIAL
    assert usage_filter.judge(report(970, deviation=8, previous=700)) is Verdict.PARTIAL
    for _ in range(3):
        assert usage_filter.judge(report(998, deviation=8, previous=700)) is Verdict.ACCEPTED
    assert usage_filter.judge(later) is Verdict.ACCEPTED


@pytest.mark.parametrize("is_edited", [True, False])
def test_what_the_server_was_asked_to_remove_is_believed_the_second_time(is_edited: bool) -> None:
    usage_filter = UsageFilter()
    # 9,000 tokens are missing: old tool results that the server has cleared, or what it has cached.
    first = report(52_000, 61_000, deviation=60, previous=60_000, is_edited=is_edited)
    assert usage_filter.judge(first) is Verdict.PARTIAL
    second = report(
        54_010, 63_000, deviation=60, previous=61_000, previous_report=52_000, is_edited=is_edited
    )
    assert usage_filter.judge(second) is (Verdict.CONFIRMED if is_edited else Verdict.PARTIAL)
    third = report(30_000, 56_000, deviation=60, previous=54_010, is_edited=is_edited)
    assert usage_filter.judge(third) is (Verdict.CONFIRMED if is_edited else Verdict.PARTIAL)


def test_a_report_that_agrees_with_the_messages_alone_corrects_a_wrong_prefix() -> None:
    # The prefix was once reported 4,000 tokens too large.
    later = report(53_000, 57_000, deviation=60, previous=56_000, independent=53_500)
    assert UsageFilter().judge(later) is Verdict.CONFIRMED
    partial = report(53_000, 57_000, deviation=60, previous=56_000, independent=56_500)
    assert UsageFilter().judge(partial) is Verdict.PARTIAL


def test_missing_cache_writes_are_recognised() -> None:
    usage_filter = UsageFilter()
    # 30,000 tokens were read from the cache, and the 5,000 new ones are in no number.
    lagging = report(30_010, 35_000, deviation=300, cached=30_000, previous=30_000)
    assert usage_filter.judge(lagging) is Verdict.LAGGING
    complete = report(35_100, 35_000, deviation=300, cached=30_000, previous=30_000)
    assert usage_filter.judge(complete) is Verdict.ACCEPTED


def test_a_prompt_that_the_server_cuts_is_recognised() -> None:
    usage_filter = UsageFilter()
    verdicts = [
        usage_filter.judge(report(16_000, expected, deviation=200)) for expected in (40_000, 44_000, 50_000)
    ]
    assert verdicts[-1] is Verdict.CUT
