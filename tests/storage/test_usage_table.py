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

# Starts a request in a process of its own, says so, and waits to be killed.
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


def test_a_request_is_there_from_its_start_and_complete_at_its_end(table: UsageTable) -> None:
    row = table.begin("m", "work", "https://w.example/v1", 7.0)
    assert outcomes(table) == [("m", "running")]
    table.end(row, "completed", Usage(5, 3, 8, 2, 1), duration=1.5, first=0.5, finish_reason="stop")
    (found,) = table.since(0)
    assert (found.outcome, found.usage) == ("completed", Usage(5, 3, 8, 2, 1))
    assert (found.account, found.base_url, found.started) == ("work", "https://w.example/v1", 7.0)
    assert (found.duration, found.first, found.finish_reason, found.error) == (1.5, 0.5, "stop", None)


def test_what_is_unknown_stays_unknown(table: UsageTable) -> None:
    table.end(table.begin("m", "", "", 7.0), "failed", Usage(), duration=1.0, error="rate_limited")
    (found,) = table.since(0)
    assert (found.usage, found.first, found.error) == (Usage(), None, "rate_limited")


def test_a_request_ends_once(table: UsageTable) -> None:
    row = table.begin("m", "", "", 7.0)
    table.end(row, "completed", Usage(1, 1, 2), duration=1.0)
    table.end(row, "failed", Usage(9, 9, 18), duration=9.0)
    (found,) = table.since(0)
    assert (found.outcome, found.usage) == ("completed", Usage(1, 1, 2))


def test_only_what_started_since_is_read_in_order(table: UsageTable) -> None:
    for started in (3.0, 1.0, 2.0):
        table.begin(f"m{started:.0f}", "", "", started)
    assert [row.model for row in table.since(2.0)] == ["m2", "m3"]


@pytest.mark.io
def test_a_request_whose_process_was_killed_is_interrupted_and_one_that_lives_is_not(
    table: UsageTable, path: Path
) -> None:
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
        table.settle()
        assert outcomes(table) == [("theirs", "running"), ("mine", "running")]
        other.kill()
        other.wait()
    table.settle()
    assert outcomes(table) == [("theirs", "interrupted"), ("mine", "running")]
    assert len(list(path.parent.glob("*-alive-*"))) == 1  # only ours is left


def test_a_row_that_was_never_ended_is_interrupted_once_its_process_has_left(
    path: Path, table: UsageTable
) -> None:
    leaving = UsageTable(Database(path))
    leaving.begin("left", "", "", 1.0)
    leaving.close()
    table.settle()
    assert outcomes(table) == [("left", "interrupted")]


def test_the_oldest_rows_go(table: UsageTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollbridge.storage.tables.ROW_LIMIT", 3)
    for number in range(5):
        table.begin(f"m{number}", "", "", float(number))
    reopened = UsageTable(Database(path))
    reopened.begin("m5", "", "", 5.0)
    assert [row.model for row in reopened.since(0)] == ["m3", "m4", "m5"]
    reopened.close()


def test_a_sign_of_life_lasts_until_it_is_taken_down(tmp_path: Path) -> None:
    sign = ProcessLock(tmp_path / "store.db")
    assert is_alive(tmp_path / "store.db", sign.name)
    assert is_alive(tmp_path / "store.db", sign.name)
    sign.take_down()
    assert not is_alive(tmp_path / "store.db", sign.name)
    assert list(tmp_path.iterdir()) == []


def test_signs_that_were_left_behind_are_cleared_away_and_young_or_living_ones_are_not(
    table: UsageTable, path: Path
) -> None:
    old = time.time() - 3600
    for name in ("killed", "young"):
        path.with_name(f"store.db-alive-{name}").touch()
    living = ProcessLock(path)
    for name in ("killed", living.name):
        os.utime(path.with_name(f"store.db-alive-{name}"), (old, old))
    path.with_name("other.db-alive-killed").touch()
    os.utime(path.with_name("other.db-alive-killed"), (old, old))
    table.settle()
    left = {found.name for found in path.parent.glob("*-alive-*")}
    assert left == {"store.db-alive-young", f"store.db-alive-{living.name}", "other.db-alive-killed"}
    living.take_down()
