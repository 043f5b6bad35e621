"""The usage tracker in memory: one record per request, and totals of the reported usage."""

from __future__ import annotations

from tollbridge.storage.rows import Outcome, UsageRow
from tollbridge.storage.tracker import UsageTracker
from tollbridge.types.events import Usage


def record(model: str, usage: Usage | None, outcome: Outcome = "completed") -> UsageRow:
    incomplete = usage is None
    return UsageRow(model=model, outcome=outcome, usage=usage or Usage(), incomplete=incomplete, started=1.0)


def test_totals_are_kept_by_model_and_over_all_models() -> None:
    tracker = UsageTracker()
    for model, usage in (("a", Usage(1, 2, 3, 1)), ("b", Usage(10, 20, 30)), ("a", Usage(4, 5, 9, None, 2))):
        tracker.record(record(model, usage))
    assert tracker.total("a") == Usage(5, 7, 12, 1, 2)
    assert tracker.total() == Usage(15, 27, 42, 1, 2)
    assert (tracker.requests("a"), tracker.requests(), tracker.models()) == (2, 3, ["a", "b"])


def test_a_request_without_usage_adds_no_tokens() -> None:
    tracker = UsageTracker()
    tracker.record(record("a", None, "failed"))
    assert (tracker.requests("a"), tracker.total("a")) == (1, Usage())
    assert (tracker.failures("a"), tracker.incomplete("a")) == (1, 1)


def test_a_retried_attempt_adds_tokens_but_no_request_and_no_failure() -> None:
    tracker = UsageTracker()
    tracker.record(record("a", Usage(5, 1, 6), "failed"), last=False)
    tracker.record(record("a", Usage(5, 2, 7)))
    assert (tracker.requests("a"), tracker.failures("a"), tracker.total("a")) == (1, 0, Usage(10, 3, 13))


def test_an_unused_model_has_unknown_usage() -> None:
    assert UsageTracker().total("a") == UsageTracker().total() == Usage()
    assert UsageTracker().requests("a") == 0


def test_old_records_are_dropped_and_totals_stay() -> None:
    tracker = UsageTracker(limit=3)
    for number in range(10):
        tracker.record(record(f"m{number}", Usage(1, 1, 2)))
    assert [record.model for record in tracker.records] == ["m7", "m8", "m9"]
    assert (tracker.requests(), tracker.total()) == (10, Usage(10, 10, 20))


def test_reset_forgets_everything() -> None:
    tracker = UsageTracker()
    tracker.record(record("a", Usage(1, 1, 2)))
    tracker.reset()
    assert (tracker.requests(), tracker.total(), tracker.models(), list(tracker.records)) == (
        0,
        Usage(),
        [],
        [],
    )
