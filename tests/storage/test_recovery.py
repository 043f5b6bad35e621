"""A database that cannot be written for a while: turns go on, and every row is written when it recovers."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.locking import locked
from tests.turns import Runner
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.storage import tracker as tracking
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.storage.tracker import StoredTracker, open_tracker
from tollbridge.testing.server import Gateway
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Role


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def tracker(path: Path) -> Iterator[StoredTracker]:
    tracker = open_tracker(path)
    assert isinstance(tracker, StoredTracker)
    yield tracker
    tracker.close()


def rows(path: Path) -> list[UsageRow]:
    table = UsageTable(Database(path))
    try:
        return table.since(0)
    finally:
        table.close()


def record(tracker: StoredTracker, *names: str) -> None:
    """Record requests, and wait until each was written or kept."""
    for name in names:
        row = UsageRow(key=name, model=name, started=time.time(), outcome="completed", usage=Usage(1, 1, 2))
        written = tracker.record(row)
        assert written is not None
        written.result(20)


def models(path: Path) -> list[str]:
    return [row.model for row in rows(path)]


async def ask(gateway: Gateway, tracker: StoredTracker, text: str = "hello") -> None:
    request = ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, text),))
    async with OpenResponsesClient(gateway.url) as client:
        await Runner(client, tracker).run(request, lambda parts: None)


async def test_a_disk_that_is_full_for_20_turns_loses_no_row(
    path: Path, tracker: StoredTracker, caplog: pytest.LogCaptureFixture
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
            assert len(rows(path)) == 1
            await ask(gateway, tracker)
        counted = [answer.usage for answer in gateway.counted]
    assert [row.usage for row in rows(path)] == counted
    assert {row.outcome for row in rows(path)} == {"completed"}
    messages = [record.getMessage() for record in caplog.records if record.name == tracking.__name__]
    assert len(messages) == 2, messages  # one for the failure, one for the end of it
    assert "kept in memory" in messages[0]
    assert "0 lost" in messages[1]


@pytest.mark.parametrize("side_files", [True, False], ids=["with its log", "alone"])
def test_rows_are_written_after_the_file_was_deleted(
    path: Path, tracker: StoredTracker, side_files: bool
) -> None:
    record(tracker, "before")
    for file in path.parent.glob("store.db*") if side_files else [path]:
        file.unlink()
    record(tracker, "after", "later")
    assert models(path) == ["after", "later"]


def test_rows_are_written_after_the_folder_was_deleted(path: Path, tracker: StoredTracker) -> None:
    record(tracker, "before")
    shutil.rmtree(path.parent)
    record(tracker, "after")
    assert models(path) == ["after"]
    table = UsageTable(Database(path))
    table.mark_interrupted()  # the process has a lock file again
    table.close()


@pytest.mark.parametrize("side_files", [True, False], ids=["with its log", "alone"])
def test_rows_are_written_after_the_file_was_replaced(
    path: Path, tracker: StoredTracker, side_files: bool
) -> None:
    other = path.with_name("other.db")
    table = UsageTable(Database(other))
    table.put([UsageRow(key="restored", model="restored", started=1.0, outcome="completed")])
    table.close()
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
    path: Path, tracker: StoredTracker
) -> None:
    row = UsageRow(key="k", model="m", started=time.time(), outcome="running")
    begun = tracker.begin(row)
    assert begun is not None
    begun.result(10)
    path.unlink()
    record(tracker, "k")
    assert [(each.key, each.outcome) for each in rows(path)] == [("k", "completed")]


def test_several_processes_reopen_a_deleted_file_without_losing_a_row(path: Path) -> None:
    trackers = [open_tracker(path) for _ in range(4)]
    for number, tracker in enumerate(trackers):
        assert isinstance(tracker, StoredTracker)
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
    for tracker in trackers:
        tracker.close()
    assert sorted(models(path)) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(20))


def test_rows_are_written_after_the_file_was_corrupt(path: Path, tracker: StoredTracker) -> None:
    record(tracker, "before")
    path.write_bytes(b"no database at all " * 1000)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    record(tracker, "after", "later")
    assert models(path)[-2:] == ["after", "later"]


@pytest.mark.timed
async def test_a_locked_database_delays_nothing_and_its_rows_are_written_later(
    path: Path, tracker: StoredTracker, caplog: pytest.LogCaptureFixture
) -> None:
    record(tracker, "first")
    async with Gateway() as gateway:
        with locked(path), caplog.at_level(logging.WARNING):
            started = time.monotonic()
            await ask(gateway, tracker)
            await ask(gateway, tracker)
            assert time.monotonic() - started < 8
        await ask(gateway, tracker)
    tracker.close()
    assert [row.outcome for row in rows(path)] == ["completed"] * 4


@pytest.mark.timed
def test_closing_does_not_wait_for_a_locked_database_and_says_what_is_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = open_tracker(path)
    Database(path).close()
    with locked(path), caplog.at_level(logging.WARNING):
        started = time.monotonic()
        tracker.begin(UsageRow(key="k", model="m", started=1.0, outcome="running"))
        tracker.record(UsageRow(key="k", model="m", started=1.0, outcome="completed"))
        tracker.close()
        assert time.monotonic() - started < 5
    assert caplog.records[-1].getMessage() == "The usage of 1 attempt was not recorded."


def test_a_database_that_cannot_be_opened_is_used_as_soon_as_it_can(
    path: Path, tracker: StoredTracker, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        record(tracker, "one", "two")
    assert len([record for record in caplog.records if "kept in memory" in record.getMessage()]) == 1
    assert tracker.unwritten == 2
    path.rmdir()
    record(tracker, "three")
    assert models(path) == ["one", "two", "three"]


@pytest.mark.io
def test_rows_are_written_without_another_request(
    path: Path, tracker: StoredTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "RETRY_SECONDS", 0.05)
    path.mkdir()
    record(tracker, "one")
    path.rmdir()
    deadline = time.monotonic() + 10
    while tracker.unwritten and time.monotonic() < deadline:
        time.sleep(0.01)
    assert models(path) == ["one"]


def test_the_oldest_rows_are_dropped_and_counted_if_the_failure_lasts(
    path: Path, tracker: StoredTracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracking, "SPOOL_LIMIT", 3)
    path.mkdir()
    record(tracker, *(f"m{number}" for number in range(5)))
    assert (tracker.unwritten, tracker.lost) == (3, 2)
    path.rmdir()
    with caplog.at_level(logging.WARNING):
        record(tracker, "last")
    assert models(path) == ["m3", "m4", "last"]
    assert caplog.records[-1].getMessage().endswith("3 rows written, 3 lost since the start.")


def test_a_row_that_cannot_be_stored_does_not_stop_the_others(
    path: Path, tracker: StoredTracker, caplog: pytest.LogCaptureFixture
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
    assert tracker.lost == 1
    assert "cannot be stored" in caplog.text


async def test_a_database_without_its_table_does_not_fail_a_turn(path: Path, tracker: StoredTracker) -> None:
    async with Gateway() as gateway:
        await ask(gateway, tracker)
        other = Database(path)
        other.execute("DROP TABLE usage")
        other.close()
        await ask(gateway, tracker)
        await ask(gateway, tracker)
    assert (tracker.requests(), tracker.unwritten) == (3, 2)


def test_a_database_of_the_first_release_keeps_its_rows(path: Path) -> None:
    # A dump of a database that the first release wrote: a completed, a failed and a running request.
    old = sqlite3.connect(path)
    old.executescript((Path(__file__).parent / "first-release.sql").read_text())
    old.close()
    first, second, third = rows(path)
    assert (first.model, first.account, first.outcome) == ("openai/gpt-5.4", "work", "completed")
    assert (first.usage, first.cost, first.key) == (Usage(1200, 34, 1234, 1000, 12), None, None)
    assert (second.error, second.incomplete) == ("rate_limited", False)
    assert (third.outcome, third.incomplete) == ("running", True)
    tracker = open_tracker(path)
    assert isinstance(tracker, StoredTracker)
    record(tracker, "new")
    tracker.close()
    assert [(row.model, row.outcome) for row in rows(path)] == [
        ("openai/gpt-5.4", "completed"),
        ("openai/gpt-5.4", "failed"),
        ("anthropic/claude", "interrupted"),
        ("new", "completed"),
    ]


def test_the_first_release_can_still_write_to_the_database(path: Path) -> None:
    Database(path).close()
    old = sqlite3.connect(path)
    with old:
        old.execute(
            "INSERT INTO usage (session, started, model, account, base_url, outcome) "
            "VALUES ('s', 1.0, 'm', '', 'u', 'running') RETURNING id"
        )
        old.execute("UPDATE usage SET outcome = 'completed', input = 3, output = 4, total = 7 WHERE id = 1")
    old.close()
    (row,) = rows(path)
    assert (row.outcome, row.usage, row.incomplete) == ("completed", Usage(3, 4, 7), False)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_all_files_are_private_and_existing_ones_become_private(tmp_path: Path) -> None:
    path = tmp_path / "tollbridge" / "store.db"
    path.parent.mkdir(0o755)
    Database(path).close()
    path.chmod(0o644)
    path.parent.chmod(0o755)
    tracker = open_tracker(path)
    assert isinstance(tracker, StoredTracker)
    record(tracker, "one")
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    tracker.close()
    assert {"store.db", "store.db-wal", "store.db-shm"} < set(modes)  # and the lock of this process
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_folder_that_the_user_chose_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    Database(shared / "deep" / "store.db").close()
    assert shared.stat().st_mode & 0o777 == 0o755
    assert (shared / "deep").stat().st_mode & 0o777 == 0o700
