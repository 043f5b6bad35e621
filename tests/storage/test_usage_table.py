from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tollbridge.storage.database import Database
from tollbridge.storage.tables import ProcessLock, UsageRow, UsageTable, is_alive
from tollbridge.types.events import Usage
from tollbridge.types.models import Prices

# Starts a request in another process, reports it, and waits to be killed.
OTHER = """
import sys
from pathlib import Path
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
table = UsageTable(Database(Path(sys.argv[1])))
table.put([UsageRow(key="theirs", model="theirs", outcome="running", started=1.0)])
print("begun", flush=True)
sys.stdin.read()
"""
SRC = str(Path(__file__).parents[2] / "src")


def running(name: str, started: float = 7.0) -> UsageRow:
    return UsageRow(key=name, model=name, outcome="running", started=started, incomplete=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def table(path: Path) -> Iterator[UsageTable]:
    table = UsageTable(Database(path))
    yield table
    table.close()


def outcomes(table: UsageTable) -> list[tuple[str, str]]:
    return [(row.model, row.outcome) for row in table.since(0)]


def test_a_row_is_inserted_at_the_start_and_completed_at_the_end(table: UsageTable) -> None:
    row = UsageRow(
        key="k-2",
        turn="k",
        attempt=2,
        started=7.0,
        model="m",
        account="work",
        base_url="https://w.example/v1",
        outcome="completed",
        usage=Usage(5, 3, 8, 2, 1, 4),
        duration=1.5,
        first=0.5,
        finish_reason="stop",
        response_id="resp_1",
        prices=Prices(Decimal("0.000003"), Decimal("0.000015"), Decimal("0.0000003"), Decimal("0.00000375")),
        cost=Decimal("0.000000007500"),
    )
    table.put([msgspec.structs.replace(row, outcome="running", usage=Usage(), cost=None, first=None)])
    assert outcomes(table) == [("m", "running")]
    table.put([row])
    assert table.since(0) == [row]


def test_unknown_values_stay_unknown(table: UsageTable) -> None:
    row = UsageRow(key="k", model="m", started=7.0, outcome="failed", error="rate_limited")
    table.put([row])
    assert table.since(0) == [row]


def test_only_the_first_end_of_an_attempt_counts(table: UsageTable) -> None:
    first = UsageRow(key="k", model="m", started=7.0, outcome="completed", usage=Usage(1, 1, 2))
    table.put([running("k")])
    table.put([first])
    table.put([msgspec.structs.replace(first, outcome="failed", usage=Usage(9, 9, 18))])
    assert table.since(0) == [first]


def test_an_attempt_that_ends_after_it_was_given_up_is_completed(table: UsageTable, path: Path) -> None:
    table.put([running("k")])
    for lock in path.parent.glob("*-alive-*"):
        lock.unlink()  # as if somebody had emptied the folder
    table.mark_interrupted()
    assert outcomes(table) == [("k", "interrupted")]
    table.put([UsageRow(key="k", model="k", started=7.0, outcome="completed", usage=Usage(1, 1, 2))])
    assert outcomes(table) == [("k", "completed")]


def test_the_largest_and_strangest_values_can_be_stored(table: UsageTable) -> None:
    prices = Prices(Decimal("1e999999"), Decimal("0"))
    table.put(
        [
            UsageRow(
                key="k", model="m\ud800" + "x" * 5000, started=7.0, outcome="completed",
                usage=Usage(2**53 - 1, 0), prices=prices, cost=Decimal("1e999"),
            )
        ]
    )  # fmt: skip
    (row,) = table.since(0)
    assert row.model == "m?" + "x" * 498
    assert (row.usage.input_tokens, row.prices, row.cost) == (2**53 - 1, prices, None)


def test_rows_since_a_time_are_read_in_order(table: UsageTable) -> None:
    table.put([running(f"m{started:.0f}", started) for started in (3.0, 1.0, 2.0)])
    assert [row.model for row in table.since(2.0)] == ["m2", "m3"]


@pytest.mark.io
def test_only_requests_of_dead_processes_are_marked_interrupted(table: UsageTable, path: Path) -> None:
    table.put([running("mine", 2.0)])
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SRC},
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        table.mark_interrupted()
        assert outcomes(table) == [("theirs", "running"), ("mine", "running")]
        other.kill()
        other.wait()
    table.mark_interrupted()
    assert outcomes(table) == [("theirs", "interrupted"), ("mine", "running")]
    assert len(list(path.parent.glob("*-alive-*"))) == 1  # only ours is left


def test_an_unfinished_row_is_interrupted_after_its_process_has_exited(path: Path, table: UsageTable) -> None:
    leaving = UsageTable(Database(path))
    leaving.put([running("left")])
    leaving.close()
    table.mark_interrupted()
    assert outcomes(table) == [("left", "interrupted")]


def test_the_oldest_rows_are_deleted(table: UsageTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollbridge.storage.tables.ROW_LIMIT", 3)
    for number in range(5):
        table.put([running(f"m{number}", float(number))])
    reopened = UsageTable(Database(path))
    reopened.put([running("m5", 5.0)])
    assert [row.model for row in reopened.since(0)] == ["m3", "m4", "m5"]
    reopened.close()


def test_a_process_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    lock = ProcessLock(tmp_path / "store.db")
    assert is_alive(tmp_path / "store.db", lock.name)
    assert is_alive(tmp_path / "store.db", lock.name)
    lock.release()
    assert not is_alive(tmp_path / "store.db", lock.name)
    assert list(tmp_path.iterdir()) == []


def test_only_old_lock_files_of_dead_processes_are_deleted(table: UsageTable, path: Path) -> None:
    old = time.time() - 3600
    for name in ("killed", "young"):
        path.with_name(f"store.db-alive-{name}").touch()
    living = ProcessLock(path)
    for name in ("killed", living.name):
        os.utime(path.with_name(f"store.db-alive-{name}"), (old, old))
    path.with_name("other.db-alive-killed").touch()
    os.utime(path.with_name("other.db-alive-killed"), (old, old))
    table.mark_interrupted()
    left = {file.name for file in path.parent.glob("*-alive-*")}
    assert left == {"store.db-alive-young", f"store.db-alive-{living.name}", "other.db-alive-killed"}
    living.release()
