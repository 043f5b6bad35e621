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

from tests.storage.stored import create_database, open_store, stored_rows
from tollbridge.storage._sqlite_file import ProcessLock, is_alive
from tollbridge.storage.limits import Limits
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.storage.store import Store, StoreUnusable
from tollbridge.storage.store import open_store as open_url
from tollbridge.types.events import Usage
from tollbridge.types.models import Prices

# Starts a request in another process, reports it, and waits to be killed.
OTHER = """
import sys
from pathlib import Path
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
store.usage.put(UsageRow(key="theirs", model="theirs", outcome="running", started=1.0)).result(10)
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
def store(path: Path) -> Iterator[SqliteStore]:
    with open_store(path) as store:
        yield store


async def put(store: SqliteStore, *rows: UsageRow) -> None:
    for row in rows:
        await store.usage.put(row)


async def mark_interrupted(store: SqliteStore) -> None:
    await store.usage.sums((), 0, 0)


def outcomes(store: SqliteStore) -> list[tuple[str, str]]:
    return [(row.model, row.outcome) for row in stored_rows(store)]


async def test_a_row_is_inserted_at_the_start_and_completed_at_the_end(store: SqliteStore) -> None:
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
    await put(store, msgspec.structs.replace(row, outcome="running", usage=Usage(), cost=None, first=None))
    assert outcomes(store) == [("m", "running")]
    await put(store, row)
    assert stored_rows(store) == [row]


async def test_unknown_values_stay_unknown(store: SqliteStore) -> None:
    row = UsageRow(key="k", model="m", started=7.0, outcome="failed", error="rate_limited")
    await put(store, row)
    assert stored_rows(store) == [row]


async def test_only_the_first_end_of_an_attempt_counts(store: SqliteStore) -> None:
    first = UsageRow(key="k", model="m", started=7.0, outcome="completed", usage=Usage(1, 1, 2))
    await put(store, running("k"))
    await put(store, first)
    await put(store, msgspec.structs.replace(first, outcome="failed", usage=Usage(9, 9, 18)))
    assert stored_rows(store) == [first]


async def test_an_attempt_that_ends_after_it_was_given_up_is_completed(
    store: SqliteStore, path: Path
) -> None:
    await put(store, running("k"))
    for lock in path.parent.glob("*-alive-*"):
        lock.unlink()  # as if somebody had emptied the folder
    with open_store(path) as other:
        await mark_interrupted(other)
    assert outcomes(store) == [("k", "interrupted")]
    await put(store, UsageRow(key="k", model="k", started=7.0, outcome="completed", usage=Usage(1, 1, 2)))
    assert outcomes(store) == [("k", "completed")]


async def test_the_largest_and_strangest_values_can_be_stored(store: SqliteStore) -> None:
    prices = Prices(Decimal("1e999999"), Decimal("0"))
    strange = UsageRow(
        key="k",
        model="m\ud800" + "x" * 5000,
        started=7.0,
        outcome="completed",
        usage=Usage(2**53 - 1, 0),
        prices=prices,
        cost=Decimal("1e999"),
    )
    await put(store, strange)
    (row,) = stored_rows(store)
    assert row.model == "m?" + "x" * 498
    assert (row.usage.input_tokens, row.prices, row.cost) == (2**53 - 1, prices, None)


async def test_only_requests_of_dead_processes_are_marked_interrupted(store: SqliteStore, path: Path) -> None:
    await put(store, running("mine", 2.0))
    other = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", OTHER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SRC},
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        await mark_interrupted(store)
        assert outcomes(store) == [("theirs", "running"), ("mine", "running")]
        other.kill()
        other.wait()
    await mark_interrupted(store)
    assert outcomes(store) == [("theirs", "interrupted"), ("mine", "running")]
    assert len(list(path.parent.glob("*-alive-*"))) == 1  # only ours is left


async def test_an_unfinished_row_is_interrupted_after_its_process_has_exited(
    path: Path, store: SqliteStore
) -> None:
    with open_store(path) as leaving:
        await put(leaving, running("left"))
    await mark_interrupted(store)
    assert outcomes(store) == [("left", "interrupted")]


async def test_the_oldest_rows_are_deleted(store: SqliteStore, path: Path) -> None:
    for number in range(5):
        await put(store, running(f"m{number}", float(number)))
    with open_store(path, Limits(usage_rows=3)) as reopened:
        await put(reopened, running("m5", 5.0))
        assert [row.model for row in stored_rows(reopened)] == ["m3", "m4", "m5"]


def test_a_process_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    lock = ProcessLock(tmp_path / "store.db")
    assert is_alive(tmp_path / "store.db", lock.name)
    assert is_alive(tmp_path / "store.db", lock.name)
    lock.release()
    assert not is_alive(tmp_path / "store.db", lock.name)
    assert list(tmp_path.iterdir()) == []


async def test_only_old_lock_files_of_dead_processes_are_deleted(store: SqliteStore, path: Path) -> None:
    create_database(path)
    old = time.time() - 3600
    for name in ("killed", "young"):
        path.with_name(f"store.db-alive-{name}").touch()
    living = ProcessLock(path)
    for name in ("killed", living.name):
        os.utime(path.with_name(f"store.db-alive-{name}"), (old, old))
    path.with_name("other.db-alive-killed").touch()
    os.utime(path.with_name("other.db-alive-killed"), (old, old))
    await mark_interrupted(store)
    left = {file.name for file in path.parent.glob("*-alive-*")}
    assert left == {"store.db-alive-young", f"store.db-alive-{living.name}", "other.db-alive-killed"}
    living.release()


async def test_a_store_in_memory_has_no_files_and_loses_nothing_while_it_is_open(tmp_path: Path) -> None:
    store = await Store.open(":memory:")
    await store.usage.put(running("m"))
    groups = await store.usage.sums(("model",), 0, 10)
    assert [(group.key, group.requests) for group in groups] == [(("m",), 1)]
    await store.aclose()
    assert list(tmp_path.iterdir()) == []


async def test_opening_a_store_fails_if_it_cannot_be_used(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnusable, match="Cannot use the database"):
        await Store.open(f"sqlite:///{path}")


@pytest.mark.parametrize("url", ["", "store.db", "mysql:///store", "sqlite:/store.db"])
def test_an_unknown_url_is_an_error(url: str) -> None:
    with pytest.raises(ValueError, match="Expected sqlite:///path"):
        open_url(url)
