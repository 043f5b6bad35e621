"""Summaries of estimation errors, and the confidence that follows from them."""

from __future__ import annotations

import pytest

from tollbridge.tokens.records import HitRates, percentile, summarize

# Model, method, estimate without learning, estimate, reported tokens, why the report was refused.
OUTCOMES = [
    ("claude", "estimated", 80, 90, 100, ""),
    ("claude", "hybrid", 80, 100, 100, ""),
    ("claude", "hybrid", 130, 101, 100, ""),
    ("claude", "hybrid", 70, 99, 100, ""),
    ("gpt", "actual", 100, 100, 100, ""),
]


def test_there_is_one_summary_per_model_and_the_most_used_model_is_first() -> None:
    claude, gpt = summarize(OUTCOMES)
    assert (claude.model, claude.requests, claude.exact, claude.hits) == ("claude", 4, 1, 3)
    assert claude.median == pytest.approx(0.01)
    assert claude.p95 == pytest.approx(0.10)
    assert claude.worst_under == pytest.approx(-0.10)
    assert claude.plain_median == pytest.approx(0.25)  # 20, 20, 30 and 30 %
    assert claude.plain_p95 == pytest.approx(0.30)
    assert claude.recent == pytest.approx((-0.10, 0.0, 0.01, -0.01))
    assert (gpt.model, gpt.exact, gpt.worst_under) == ("gpt", 1, 0.0)


def test_openings_later_turns_and_repeats_are_apart() -> None:
    (claude, gpt) = summarize(OUTCOMES)
    assert (claude.openings.requests, claude.later.requests) == (1, 3)
    assert claude.openings.worst_under == pytest.approx(-0.10)
    assert claude.later.median == pytest.approx(0.01)
    assert claude.repeats.requests == 0
    assert (gpt.openings.requests, gpt.later.requests, gpt.repeats.requests) == (0, 0, 1)


def test_refused_reports_are_counted_by_reason_and_do_not_count_as_errors() -> None:
    refused = [("claude", "hybrid", 80, 100, 2, "partial"), ("claude", "hybrid", 80, 100, 3, "partial")]
    (claude, _) = summarize([*OUTCOMES, *refused, ("claude", "hybrid", 1, 50, 900, "implausible")])
    assert claude.refused == {"partial": 2, "implausible": 1}
    assert claude.requests == 4
    assert claude.p95 == pytest.approx(0.10)
    assert claude.recent[-3] == pytest.approx(49.0)
    assert claude.recent_kinds == ("opening", "later", "later", "later", "refused", "refused", "refused")
    assert HitRates(refused).count("claude") == 0


def test_a_model_of_which_every_report_was_refused_is_shown() -> None:
    (summary,) = summarize([("claude", "estimated", 80, 100, 2, "implausible")])
    assert (summary.requests, summary.median, summary.refused) == (0, 0.0, {"implausible": 1})


def test_without_outcomes_there_are_no_summaries() -> None:
    assert summarize([]) == []


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.2, 1), (0.21, 2), (0.5, 3), (0.95, 5), (1.0, 5)])
def test_a_percentile_is_one_of_the_values(share: float, value: int) -> None:
    assert percentile([5, 3, 1, 4, 2], share) == value


def test_the_hit_rate_is_that_of_the_model_and_the_method() -> None:
    rates = HitRates(OUTCOMES)
    assert rates.rate("claude", "hybrid") == pytest.approx(4 / 5)
    assert rates.rate("claude", "estimated") == pytest.approx(1 / 3)


def test_a_model_without_outcomes_gets_the_hit_rate_of_the_method() -> None:
    rates = HitRates(OUTCOMES)
    assert rates.rate("new", "hybrid") == rates.rate("claude", "hybrid")
    assert rates.count("new") == 0
    assert HitRates().rate("new", "hybrid") == 0.5
