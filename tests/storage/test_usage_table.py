from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tollbridge.storage.database import Database
from tollbridge.storage.tables import ProcessLock, UsageTable, is_alive
from tollbridge.types.usage import Usage

# Starts a request in another process, reports it, and waits to be killed.
OTHER = """
import sys
from pathlib import Path
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageTable
table = UsageTable(Database(Path(sys.argv[1])))
table.begin("theirs", "a", "u", 1.0)
print("begun", flush=True)
sys.stdin.read()
"""
SRC = str(Path(__file__).parents[2] / "src")


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
    row_id = table.begin("m", "work", "https://w.example/v1", 7.0)
    assert outcomes(table) == [("m", "running")]
    table.end(row_id, "completed", Usage(5, 3, 8, 2, 1), duration=1.5, first=0.5, finish_reason="stop")
    (row,) = table.since(0)
    assert (row.outcome, row.usage) == ("completed", Usage(5, 3, 8, 2, 1))
    assert (row.account, row.base_url, row.started) == ("work", "https://w.example/v1", 7.0)
    assert (row.duration, row.first, row.finish_reason, row.error) == (1.5, 0.5, "stop", None)


def test_unknown_values_stay_unknown(table: UsageTable) -> None:
    table.end(table.begin("m", "", "", 7.0), "failed", Usage(), duration=1.0, error="rate_limited")
    (row,) = table.since(0)
    assert (row.usage, row.first, row.error) == (Usage(), None, "rate_limited")


def test_only_the_first_end_of_a_request_counts(table: UsageTable) -> None:
    row_id = table.begin("m", "", "", 7.0)
    table.end(row_id, "completed", Usage(1, 1, 2), duration=1.0)
    table.end(row_id, "failed", Usage(9, 9, 18), duration=9.0)
    (row,) = table.since(0)
    assert (row.outcome, row.usage) == ("completed", Usage(1, 1, 2))


def test_rows_since_a_time_are_read_in_order(table: UsageTable) -> None:
    for started in (3.0, 1.0, 2.0):
        table.begin(f"m{started:.0f}", "", "", started)
    assert [row.model for row in table.since(2.0)] == ["m2", "m3"]


@pytest.mark.io
def test_only_requests_of_dead_processes_are_marked_interrupted(table: UsageTable, path: Path) -> None:
    table.begin("mine", "", "", 2.0)
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
    leaving.begin("left", "", "", 1.0)
    leaving.close()
    table.mark_interrupted()
    assert outcomes(table) == [("left", "interrupted")]


def test_the_oldest_rows_are_deleted(table: UsageTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollbridge.storage.tables.ROW_LIMIT", 3)
    for number in range(5):
        table.begin(f"m{number}", "", "", float(number))
    reopened = UsageTable(Database(path))
    reopened.begin("m5", "", "", 5.0)
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
    left = {found.name for found in path.parent.glob("*-alive-*")}
    assert left == {"store.db-alive-young", f"store.db-alive-{living.name}", "other.db-alive-killed"}
    living.release()
