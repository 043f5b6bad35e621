"""Benchmarks report missed targets and fail."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from bench import __main__ as benchmarks
from bench.streaming import OPENAI_TARGET, SOCKET_EVENTS_LIMIT, SOCKET_TARGET, show
from bench.targets import at_least, at_most, exit_if_missed


def test_a_value_equal_to_its_target_is_not_missed() -> None:
    assert at_most("the mean", 1.0, 1.0, " %") == []
    assert at_least("the speed", 1.5, 1.5) == []


def test_a_missed_target_is_reported_with_value_and_target() -> None:
    assert at_most("the mean", 1.234, 1.0, " %") == ["the mean: 1.234 % (target: at most 1 %)"]
    assert at_least("the speed", 1.2, 1.5) == ["the speed: 1.2 (target: at least 1.5)"]


def test_a_value_that_is_not_a_number_misses_its_target() -> None:
    assert at_most("edits", math.nan, 2.5)
    assert at_least("edits", math.nan, 2.5)


def test_the_process_fails_only_if_a_target_was_missed() -> None:
    exit_if_missed([])
    with pytest.raises(SystemExit) as caught:
        exit_if_missed(["one", "two"])
    assert caught.value.code == "Missed targets: one; two."


def test_the_missed_targets_of_all_benchmarks_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = {"bench.streaming": ["slow"], "bench.aisdk": [], "bench.tokens.store": ["large"]}
    monkeypatch.setattr(benchmarks, "import_module", lambda name: SimpleNamespace(main=lambda: missed[name]))
    with pytest.raises(SystemExit) as caught:
        benchmarks.main(["streaming", "aisdk", "tokens.store"])
    assert caught.value.code == "Missed targets: slow; large."


def _run(client: str, cost: float, events_per_read: float = 1.0) -> dict[str, Any]:
    values = {"events_s": 1.0, "first_ms": 1.0, "rss_mb": 1.0, "events_read": events_per_read}
    return {"client": client, "cpu_us": cost, **values}


@pytest.mark.parametrize(
    ("cost", "events_per_read", "misses"),
    [
        (SOCKET_TARGET, 1.0, 0),
        (SOCKET_TARGET + 0.1, 1.0, 1),
        (SOCKET_TARGET + 0.1, SOCKET_EVENTS_LIMIT + 1, 0),  # a busy machine: not checked
    ],
)
def test_the_ratio_to_a_bare_read_is_checked_unless_the_machine_is_busy(
    cost: float, events_per_read: float, misses: int
) -> None:
    openai = _run("openai", cost * OPENAI_TARGET)
    runs = [_run("ours", cost), openai, _run("socket", 1.0, events_per_read), _run("decode", 1.0)]
    assert len(show(runs, 100)) == misses
