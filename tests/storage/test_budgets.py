"""Reservations in the database: in all budgets or none, settled, and lapsed when their process is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.storage.stored import write_rows
from tollbridge.storage import budgets as module
from tollbridge.storage._sqlite_file import Database
from tollbridge.storage.budgets import Budget, BudgetStatus, CostEstimate, start_of_period
from tollbridge.storage.limits import LIMITS, Limits
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.types.errors import BudgetExceeded

DAY = Budget(name="day", limit=Decimal(1))
# 10 cents for the prompt and 10 for 1,000 output tokens.
ESTIMATE = CostEstimate(
    prompt=Decimal("0.1"), output_token=Decimal("0.0001"), output_tokens=1_000, least_tokens=1_000
)

LONG = CostEstimate(prompt=Decimal("0.1"), output_token=Decimal("0.0001"), output_tokens=64_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tollbridge.db"


class Budgets:
    """The budgets of a store, for a thread that waits for each result."""

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        self.store = SqliteStore(path, limits)

    def reserve(
        self,
        row: UsageRow,
        estimate: CostEstimate,
        budgets: Sequence[Budget],
        requests_per_minute: int = 0,
        *,
        over_budget: bool = False,
    ) -> int:
        reserving = self.store.budgets.reserve(
            row, estimate, budgets, requests_per_minute, over_budget=over_budget
        )
        return reserving.result(30)

    def settle(self, key: str, cost: Decimal) -> None:
        self.store.budgets.settle(key, cost).result(30)

    def status(self, budgets: Sequence[Budget]) -> list[BudgetStatus]:
        return self.store.budgets.status(budgets).result(30)


@pytest.fixture
def table(path: Path) -> Iterator[Budgets]:
    table = Budgets(path)
    yield table
    table.store.close()


def row(key: str, **fields: object) -> UsageRow:
    values = {"started": time.time(), "model": "m", "outcome": "running", "incomplete": True, **fields}
    return UsageRow(key=key, turn=key, **values)  # type: ignore[arg-type]


def figures(table: Budgets, budget: Budget = DAY) -> tuple[Decimal | int, Decimal | int]:
    """Return what is spent and reserved."""
    [status] = table.status([budget])
    return status.spent, status.reserved


def test_what_is_reserved_is_not_spent_until_it_is_settled(table: Budgets) -> None:
    table.reserve(row("a"), ESTIMATE, [DAY])
    assert figures(table) == (0, Decimal("0.2"))
    table.settle("a", Decimal("0.15"))
    assert figures(table) == (Decimal("0.15"), 0)


def test_a_reservation_that_does_not_fit_is_refused_with_all_figures(table: Budgets) -> None:
    for key in "abcd":
        table.reserve(row(key), ESTIMATE, [DAY])
    table.settle("a", Decimal("0.3"))
    table.reserve(row("e"), ESTIMATE, [Budget(name="month", limit=Decimal(9))])
    with pytest.raises(BudgetExceeded) as caught:
        table.reserve(row("f"), ESTIMATE, [DAY])
    error = caught.value
    assert (error.budget, error.limit, error.spent) == ("day", Decimal(1), Decimal("0.3"))
    assert (error.reserved, error.estimate) == (Decimal("0.8"), Decimal("0.2"))
    for amount in ("$1.00", "$0.30 is spent", "$0.80 reserved", "$0.20"):
        assert amount in error.message


def test_what_fits_exactly_is_allowed(table: Budgets) -> None:
    for key in "abcde":
        table.reserve(row(key), ESTIMATE, [DAY])
    assert figures(table) == (0, 1)


def test_a_request_is_reserved_in_all_budgets_or_in_none(table: Budgets) -> None:
    small = Budget(name="conversation", limit=Decimal("0.1"), conversation="c")
    with pytest.raises(BudgetExceeded, match=r"budgets\.conversation"):
        table.reserve(row("a", conversation="c"), ESTIMATE, [DAY, small])
    assert figures(table) == (0, 0)


def test_the_output_is_limited_to_what_is_left(table: Budgets) -> None:
    estimate = CostEstimate(
        prompt=Decimal("0.1"), output_token=Decimal("0.0001"), output_tokens=64_000, least_tokens=1_000
    )
    # 90 cents are left for output: 9,000 tokens.
    assert table.reserve(row("a"), estimate, [DAY]) == 9_000
    assert figures(table) == (0, 1)


def test_a_limited_output_leaves_some_of_a_large_budget(table: Budgets) -> None:
    estimate = CostEstimate(output_token=Decimal("0.0001"), output_tokens=64_000, least_tokens=1_000)
    budget = Budget(name="day", limit=Decimal(4))  # 40,000 tokens
    assert table.reserve(row("a"), estimate, [budget]) == module.LIMITED_OUTPUT
    assert table.reserve(row("b"), estimate, [budget]) == module.LIMITED_OUTPUT
    assert table.reserve(row("c"), estimate, [budget]) == 40_000 - 2 * module.LIMITED_OUTPUT


def test_the_user_can_exceed_a_budget_and_it_is_counted(table: Budgets) -> None:
    budget = Budget(name="day", limit=Decimal("0.1"))
    assert table.reserve(row("a"), ESTIMATE, [budget], over_budget=True) == 1_000
    assert figures(table, budget) == (0, Decimal("0.2"))


def test_absurd_prices_do_not_overflow_a_sum(table: Budgets) -> None:
    estimate = CostEstimate(prompt=Decimal("1e30"), output_token=Decimal("1e30"), output_tokens=1)
    for key in "abc":
        table.reserve(row(key), estimate, [DAY], over_budget=True)
    assert figures(table)[1] > 1_000


def test_requests_of_programs_without_a_budget_count(path: Path, table: Budgets) -> None:
    billed = {"outcome": "completed", "cost": Decimal("0.5"), "billed": Decimal("0.3")}
    completed = row("a", outcome="completed", cost=Decimal("0.4"))
    write_rows(path, completed, row("b", cost=None), row("c", **billed))
    assert figures(table) == (Decimal("0.7"), 0)


def test_a_charge_that_is_known_later_replaces_the_estimate(path: Path, table: Budgets) -> None:
    table.reserve(row("a"), ESTIMATE, [DAY])
    table.settle("a", Decimal("0.2"))
    write_rows(path, row("a", outcome="cancelled", billed=Decimal("0.11")))
    assert figures(table) == (Decimal("0.11"), 0)


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (Budget(name="a", limit=DAY.limit, account="work"), "0.2"),
        (Budget(name="b", limit=DAY.limit, account="https://a.example/v1"), "0.3"),
        (Budget(name="c", limit=DAY.limit, conversation="one"), "0.4"),
        (Budget(name="d", limit=DAY.limit, since=2.0**40), "0"),
    ],
)
def test_a_budget_counts_only_what_falls_under_it(table: Budgets, budget: Budget, spent: str) -> None:
    rows = {
        row("a", account="work", base_url="https://b.example/v1"): "0.2",
        row("b", account="home", base_url="https://a.example/v1"): "0.3",
        row("c", account="home", base_url="https://b.example/v1", conversation="one"): "0.4",
    }
    for each, cost in rows.items():
        table.reserve(each, ESTIMATE, [])
        table.settle(each.key or "", Decimal(cost))
    assert figures(table, budget) == (Decimal(spent), 0)


def test_too_many_requests_within_a_minute_are_refused(table: Budgets) -> None:
    now = time.time()
    table.reserve(row("old", started=now - 61), ESTIMATE, [], 2)
    table.reserve(row("a", started=now), ESTIMATE, [], 2)
    table.reserve(row("b", started=now), ESTIMATE, [], 2)
    for key in "cd":  # a refused request does not count
        with pytest.raises(BudgetExceeded, match="requests_per_minute is 2"):
            table.reserve(row(key, started=now), ESTIMATE, [], 2)
    table.reserve(row("e", started=now + 61), ESTIMATE, [], 2)


HOLDER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.storage.test_budgets import Budgets, LONG, row
table = Budgets(Path(sys.argv[1]))
table.reserve(row("a", started=time.time() - 1), LONG, [])
print("reserved", flush=True)
time.sleep(60)
"""


@pytest.mark.io
def test_the_reservation_of_a_killed_process_lapses(path: Path, table: Budgets) -> None:
    root = str(Path(__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", HOLDER, path, root], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reserved\n"
        # It is held while the process is alive.
        assert figures(table) == (0, Decimal("6.5"))
        process.kill()
        process.wait()
        # What it held is more than the budget of the next request.
        table.reserve(row("b"), ESTIMATE, [DAY])
        spent, reserved = figures(table)
    assert reserved == Decimal("0.2")
    # The prompt, and the output of the second before it was killed, of the seconds until the gateway notices,
    # and of those between two notes that the process is alive: 1,600 tokens. Its start takes a moment, too.
    tokens = (spent - Decimal("0.1")) / Decimal("0.0001")
    assert module.TOKENS_PER_SECOND * (1 + module.SECONDS_AFTER_CUT + LIMITS.heartbeat) == 1_600
    assert 1_600 <= tokens < 3_000


def test_no_other_process_can_reserve_between_the_check_and_the_reservation(
    path: Path, table: Budgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Budgets(path)
    writer = table.store._access.writer
    write = writer.write

    def write_before_another(*arguments: Any) -> object:
        result = write(*arguments)
        with suppress(BudgetExceeded):  # takes the whole budget, if that is possible now
            other.reserve(row("b"), CostEstimate(prompt=DAY.limit), [DAY])
        return result

    monkeypatch.setattr(writer, "write", write_before_another)
    table.reserve(row("a"), ESTIMATE, [DAY])
    assert figures(other) == (0, Decimal("0.2"))
    other.store.close()


RESERVER = """
import sys
from decimal import Decimal
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.storage.test_budgets import BudgetExceeded, Budgets, CostEstimate, DAY, row
table = Budgets(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
allowed = 0
for number in range(60):
    try:
        table.reserve(row(f"{sys.argv[3]}-{number}"), CostEstimate(prompt=Decimal("0.01")), [DAY])
        allowed += 1
    except BudgetExceeded:
        pass
print(allowed, flush=True)
sys.stdin.readline()
"""


@pytest.mark.io
def test_processes_that_reserve_at_the_same_time_use_the_budget_exactly(path: Path) -> None:
    root = str(Path(__file__).parents[2])
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RESERVER, path, root, str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for number in range(4)
        ]
        pipes = [(process.stdin, process.stdout) for process in processes]
        for _, output in pipes:
            assert output is not None
            assert output.readline() == b"ready\n"
        for entry, _ in pipes:
            assert entry is not None
            entry.write(b"start\n")
            entry.flush()
        allowed = [int(output.readline()) for _, output in pipes if output is not None]
    # 240 reservations of one cent, of which a dollar allows 100.
    assert sum(allowed) == 100, allowed


def test_a_cut_answer_costs_what_can_be_written_in_its_time() -> None:
    estimate = CostEstimate(prompt=Decimal("0.1"), output_token=Decimal("0.0001"), output_tokens=10_000)
    # 200 tokens a second, for 5 seconds more than it took.
    assert estimate.cost_if_interrupted(0) == Decimal("0.1") + 1_000 * Decimal("0.0001")
    assert estimate.cost_if_interrupted(10) == Decimal("0.1") + 3_000 * Decimal("0.0001")
    assert estimate.cost_if_interrupted(1_000) == estimate.total


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_days_and_months_begin_at_local_midnight(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        now = datetime(2026, 11, 17, 13, 30).timestamp()
        assert start_of_period("day", now) == datetime(2026, 11, 17).timestamp()
        assert start_of_period("month", now) == datetime(2026, 11, 1).timestamp()
        assert start_of_period("hour", now) == now - 3600
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.io
def test_a_store_notes_that_its_process_is_alive(path: Path) -> None:
    table = Budgets(path, Limits(heartbeat=0.01))
    started = time.time()
    table.reserve(row("a"), ESTIMATE, [DAY])
    database = Database(path)
    deadline = time.monotonic() + 10
    while database.query("SELECT seen FROM reservation")[0][0] < started + 0.05:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    table.settle("a", Decimal("0.1"))
    assert table.status([DAY])[0].spent == Decimal("0.1")
    table.store.close()
    database.close()


def test_settling_what_was_refused_changes_nothing(table: Budgets) -> None:
    with pytest.raises(BudgetExceeded):
        table.reserve(row("a"), ESTIMATE, [Budget(name="day", limit=Decimal("0.1"))])
    table.settle("a", Decimal("0.5"))
    assert table.status([DAY])[0].spent == 0
