"""The benches are held to their targets: what is missed is told, and the process fails by it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from bench import __main__ as benches
from bench.streaming import FLOOR_EVENTS, LEAST_OF_OPENAI, MOST_OF_FLOOR, show
from bench.targets import at_least, at_most, leave


def test_a_figure_at_its_target_has_not_missed_it() -> None:
    assert at_most("the mean", 1.0, 1.0, " %") == []
    assert at_least("the speed", 1.5, 1.5) == []


def test_a_miss_says_what_was_found_and_what_should_have_been() -> None:
    assert at_most("the mean", 1.234, 1.0, " %") == ["the mean: 1.234 %, not at most 1 %"]
    assert at_least("the speed", 1.2, 1.5) == ["the speed: 1.2, not at least 1.5"]


def test_what_could_not_be_measured_has_missed() -> None:
    assert at_most("edits", math.nan, 2.5)
    assert at_least("edits", math.nan, 2.5)


def test_a_process_fails_by_what_it_missed_and_by_nothing_else() -> None:
    leave([])
    with pytest.raises(SystemExit) as left:
        leave(["one", "two"])
    assert left.value.code == "Missed: one; two."


def test_every_miss_of_every_bench_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = {"bench.streaming": ["slow"], "bench.aisdk": [], "bench.tokens.store": ["large"]}
    monkeypatch.setattr(benches, "import_module", lambda name: SimpleNamespace(main=lambda: missed[name]))
    with pytest.raises(SystemExit) as left:
        benches.main(["streaming", "aisdk", "tokens.store"])
    assert left.value.code == "Missed: slow; large."


def _run(client: str, cost: float, at_once: float = 1.0) -> dict[str, Any]:
    figures = {"events_s": 1.0, "first_ms": 1.0, "rss_mb": 1.0, "events_read": at_once}
    return {"client": client, "cpu_us": cost, **figures}


@pytest.mark.parametrize(
    ("cost", "at_once", "misses"),
    [
        (MOST_OF_FLOOR, 1.0, 0),
        (MOST_OF_FLOOR + 0.1, 1.0, 1),
        (MOST_OF_FLOOR + 0.1, FLOOR_EVENTS + 1, 0),  # a busy machine: not judged
    ],
)
def test_a_stream_is_judged_by_the_floor_where_the_floor_says_something(
    cost: float, at_once: float, misses: int
) -> None:
    openai = _run("openai", cost * LEAST_OF_OPENAI)
    runs = [_run("ours", cost), openai, _run("socket", 1.0, at_once), _run("decode", 1.0)]
    assert len(show(runs, 100)) == misses
