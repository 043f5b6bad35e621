"""A database that cannot be written for a while: turns go on, and every row is written when it recovers."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.storage.locking import locked
from tests.storage.stored import (
    create_database,
    open_database,
    open_store,
    read_rows,
    read_status,
    write_rows,
)
from tests.turns import Runner
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.storage import spool
from tollbridge.storage.budgets import Budget
from tollbridge.storage.limits import Limits
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.storage.tracker import UsageTracker
from tollbridge.testing.server import Gateway
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Role
from tollbridge.types.models import Prices


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with open_store(path) as store:
        yield store


@pytest.fixture
def tracker(store: SqliteStore) -> UsageTracker:
    return UsageTracker(store.usage)


def record(tracker: UsageTracker, *names: str) -> None:
    """Record requests, and wait until each was written or kept."""
    for name in names:
        row = UsageRow(key=name, model=name, started=time.time(), outcome="completed", usage=Usage(1, 1, 2))
        written = tracker.record(row)
        assert written is not None
        written.result(20)


def models(path: Path) -> list[str]:
    return [row.model for row in read_rows(path)]


async def ask(gateway: Gateway, tracker: UsageTracker, text: str = "hello") -> None:
    request = ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, text),))
    async with OpenResponsesClient(gateway.url) as client:
        await Runner(client, tracker).run(request, lambda parts: None)


async def test_a_disk_that_is_full_for_20_turns_loses_no_row(
    path: Path, tracker: UsageTracker, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with Gateway() as gateway:
        await ask(gateway, tracker)
        with caplog.at_level(logging.WARNING):
            # No file of this process can grow: writing fails as on a full disk.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
            try:
                for _ in range(20):
                    await ask(gateway, tracker)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert len(read_rows(path)) == 1
            await ask(gateway, tracker)
        counted = [answer.usage for answer in gateway.counted]
    assert [row.usage for row in read_rows(path)] == counted
    assert {row.outcome for row in read_rows(path)} == {"completed"}
    messages = [record.getMessage() for record in caplog.records if record.name == spool.__name__]
    assert len(messages) == 2, messages  # one for the failure, one for the end of it
    assert "kept in memory" in messages[0]
    assert "0 lost" in messages[1]


@pytest.mark.parametrize("side_files", [True, False], ids=["with its log", "alone"])
def test_rows_are_written_after_the_file_was_deleted(
    path: Path, tracker: UsageTracker, side_files: bool
) -> None:
    record(tracker, "before")
    for file in path.parent.glob("store.db*") if side_files else [path]:
        file.unlink()
    record(tracker, "after", "later")
    assert models(path) == ["after", "later"]


def test_rows_are_written_after_the_folder_was_deleted(path: Path, tracker: UsageTracker) -> None:
    record(tracker, "before")
    shutil.rmtree(path.parent)
    record(tracker, "after")
    assert models(path) == ["after"]
    running = UsageRow(key="k", model="running", started=2e9, outcome="running")
    begun = tracker.begin(running)
    assert begun is not None
    begun.result(10)
    write_rows(path, UsageRow(key="l", model="last", started=3e9, outcome="completed"))
    # The process has a lock file again, so another one does not take it for dead.
    assert [row.outcome for row in read_rows(path)] == ["completed", "running", "completed"]


@pytest.mark.parametrize("side_files", [True, False], ids=["with its log", "alone"])
def test_rows_are_written_after_the_file_was_replaced(
    path: Path, tracker: UsageTracker, side_files: bool
) -> None:
    other = path.with_name("other.db")
    write_rows(other, UsageRow(key="restored", model="restored", started=1.0, outcome="completed"))
    record(tracker, "before")
    if side_files:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink()
    other.replace(path)
    record(tracker, "after")
    assert models(path) == ["restored", "after"]
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def test_a_row_that_was_running_when_the_file_was_replaced_is_completed_in_the_new_one(
    path: Path, tracker: UsageTracker
) -> None:
    row = UsageRow(key="k", model="m", started=time.time(), outcome="running")
    begun = tracker.begin(row)
    assert begun is not None
    begun.result(10)
    path.unlink()
    record(tracker, "k")
    assert [(each.key, each.outcome) for each in read_rows(path)] == [("k", "completed")]


def test_several_processes_reopen_a_deleted_file_without_losing_a_row(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(4)]
    trackers = [UsageTracker(store.usage) for store in stores]
    for number, tracker in enumerate(trackers):
        record(tracker, f"before {number}")
    path.unlink()
    threads = [
        threading.Thread(target=record, args=(tracker, *(f"{number}.{turn}" for turn in range(20))))
        for number, tracker in enumerate(trackers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for store in stores:
        store.close()
    assert sorted(models(path)) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(20))


def test_rows_are_written_after_the_file_was_corrupt(path: Path, tracker: UsageTracker) -> None:
    record(tracker, "before")
    path.write_bytes(b"no database at all " * 1000)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    record(tracker, "after", "later")
    assert models(path)[-2:] == ["after", "later"]


@pytest.mark.timed
async def test_a_locked_database_delays_nothing_and_its_rows_are_written_later(
    path: Path, store: SqliteStore, tracker: UsageTracker, caplog: pytest.LogCaptureFixture
) -> None:
    record(tracker, "first")
    async with Gateway() as gateway:
        with locked(path), caplog.at_level(logging.WARNING):
            started = time.monotonic()
            await ask(gateway, tracker)
            await ask(gateway, tracker)
            assert time.monotonic() - started < 8
        await ask(gateway, tracker)
    store.close()
    assert [row.outcome for row in read_rows(path)] == ["completed"] * 4


@pytest.mark.timed
def test_closing_does_not_wait_for_a_locked_database_and_says_what_is_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_database(path)
    store = SqliteStore(path)
    tracker = UsageTracker(store.usage)
    with locked(path), caplog.at_level(logging.WARNING):
        started = time.monotonic()
        tracker.begin(UsageRow(key="k", model="m", started=1.0, outcome="running"))
        tracker.record(UsageRow(key="k", model="m", started=1.0, outcome="completed"))
        store.close()
        assert time.monotonic() - started < 5
    assert caplog.records[-1].getMessage() == "The usage of 1 attempt was not recorded."


def test_a_database_that_cannot_be_opened_is_used_as_soon_as_it_can(
    path: Path, store: SqliteStore, tracker: UsageTracker, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        record(tracker, "one", "two")
    assert len([record for record in caplog.records if "kept in memory" in record.getMessage()]) == 1
    assert len(store.usage.spool) == 2
    path.rmdir()
    record(tracker, "three")
    assert models(path) == ["one", "two", "three"]


@pytest.mark.io
def test_rows_are_written_without_another_request(path: Path) -> None:
    path.mkdir()
    with open_store(path, Limits(retry_seconds=0.05)) as store:
        record(UsageTracker(store.usage), "one")
        path.rmdir()
        deadline = time.monotonic() + 10
        while len(store.usage.spool) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert models(path) == ["one"]


def test_the_oldest_rows_are_dropped_and_counted_if_the_failure_lasts(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    with open_store(path, Limits(spooled_rows=3)) as store:
        tracker = UsageTracker(store.usage)
        record(tracker, *(f"m{number}" for number in range(5)))
        assert (len(store.usage.spool), store.usage.spool.lost) == (3, 2)
        path.rmdir()
        with caplog.at_level(logging.WARNING):
            record(tracker, "last")
        caplog_end = caplog.records[-1].getMessage()
    assert models(path) == ["m3", "m4", "last"]
    assert caplog_end.endswith("3 rows written, 3 lost since the start.")


def test_a_row_that_cannot_be_stored_does_not_stop_the_others(
    path: Path, store: SqliteStore, tracker: UsageTracker, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    record(tracker, "one")
    too_large = UsageRow(key="x", model="x", started=1.0, outcome="completed", usage=Usage(2**70))
    written = tracker.record(too_large)
    assert written is not None
    written.result(10)
    path.rmdir()
    with caplog.at_level(logging.WARNING):
        record(tracker, "two")
    assert models(path) == ["one", "two"]
    assert store.usage.spool.lost == 1
    assert "cannot be stored" in caplog.text


async def test_a_database_without_its_table_does_not_fail_a_turn(
    path: Path, store: SqliteStore, tracker: UsageTracker
) -> None:
    async with Gateway() as gateway:
        await ask(gateway, tracker)
        with open_database(path) as other:
            other.query("DROP TABLE usage")
        await ask(gateway, tracker)
        await ask(gateway, tracker)
    assert (tracker.requests(), len(store.usage.spool)) == (3, 2)


def restore(path: Path, name: str) -> None:
    """Create a database from a dump."""
    old = sqlite3.connect(path)
    old.executescript((Path(__file__).parent / name).read_text())
    old.close()


def test_a_database_of_the_last_version_keeps_its_rows(path: Path) -> None:
    # A dump of a database with three rows of the first release, and a row of the version before this one.
    restore(path, "version-8.sql")
    first, second, third, last = read_rows(path)
    assert (first.model, first.account, first.outcome) == ("openai/gpt-5.4", "work", "completed")
    assert (first.usage, first.cost, first.key) == (Usage(1200, 34, 1234, 1000, 12), None, None)
    assert (first.incomplete, first.attempt, first.prices) == (False, 1, None)
    assert (second.error, second.incomplete) == ("rate_limited", False)
    assert (third.outcome, third.incomplete) == ("running", True)
    assert last == UsageRow(
        key="k-2",
        turn="k",
        attempt=2,
        started=1760000030.5,
        model="openai/gpt-5.4",
        account="work",
        base_url="https://w.example/v1",
        outcome="completed",
        usage=Usage(5, 3, 8, 2, 1, 4, 1, 2, 3),
        duration=1.5,
        first=0.5,
        finish_reason="stop",
        response_id="resp_1",
        initiator="codex",
        conversation="chat",
        provider="azure",
        generation_id="gen",
        prices=Prices(
            *(Decimal("0.000003"), Decimal("0.000015"), Decimal("3E-7"), Decimal("0.00000375")),
            web_search=Decimal("0.01"),
            source="genai-prices",
        ),
        cost=Decimal("7.5E-9"),
        billed=Decimal("0.25"),
        cost_source="gateway",
    )
    with open_store(path) as store:
        record(UsageTracker(store.usage), "new")
        assert store.tokens.measured([b"\1"]) == [(b"\1", 1000, 7, 20.0)]
        assert store.tokens.learned("text claude") == b"\1\2"
        [lesson] = store.lessons.load().result(10)
    assert (lesson.subject, lesson.evidence.message) == ("top_p", "Unsupported.")
    assert [(row.model, row.outcome) for row in read_rows(path)] == [
        ("openai/gpt-5.4", "completed"),
        ("openai/gpt-5.4", "failed"),
        ("anthropic/claude", "interrupted"),
        ("openai/gpt-5.4", "completed"),
        ("new", "completed"),
    ]
    assert read_status(path, Budget(name="day", limit=Decimal(1))).spent == Decimal("0.25")


def test_an_older_database_is_renamed_and_recreated(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    restore(path, "first-release.sql")
    assert read_rows(path) == []
    assert "has the schema 2 of an early version; created a new one" in caplog.text
    (aside,) = path.parent.glob("store.db.damaged-*")
    old = sqlite3.connect(aside)
    assert old.execute("SELECT count(*) FROM usage").fetchall() == [(3,)]
    old.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_all_files_are_private_and_existing_ones_become_private(tmp_path: Path) -> None:
    path = tmp_path / "tollbridge" / "store.db"
    path.parent.mkdir(0o755)
    create_database(path)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    with open_store(path) as store:
        record(UsageTracker(store.usage), "one")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert {"store.db", "store.db-wal", "store.db-shm"} < set(modes)  # and the lock of this process
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_folder_that_the_user_chose_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    create_database(shared / "deep" / "store.db")
    assert shared.stat().st_mode & 0o777 == 0o755
    assert (shared / "deep").stat().st_mode & 0o777 == 0o700
