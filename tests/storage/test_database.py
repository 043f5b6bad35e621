"""The database file: shared, migrated, and recreated if it is corrupt."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from tests.storage.locking import locked
from tests.storage.stored import create_database
from tollbridge.storage._sqlite_file import Database
from tollbridge.storage._sqlite_schema import VERSION
from tollbridge.storage.store import StoreBusy, StoreUnusable


def put(database: Database, *names: str, timeout: float | None = None) -> None:
    rows = [(name, b"") for name in names]
    statement = "INSERT INTO learned (name, data) VALUES (?, ?)"
    database.write(lambda connection: connection.executemany(statement, rows), timeout)


def names(database: Database) -> list[str]:
    return [row[0] for row in database.query("SELECT name FROM learned ORDER BY id")]


def test_a_database_in_memory_has_the_same_tables() -> None:
    database = Database(None)
    put(database, "one")
    assert names(database) == ["one"]
    assert database.is_current()
    database.close()


def test_the_file_and_its_directories_are_created(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "store.db"
    database = Database(path)
    put(database, "one")
    database.close()
    again = Database(path)
    assert names(again) == ["one"]
    assert again.query("PRAGMA user_version") == [(VERSION,)]
    assert again.query("PRAGMA journal_mode") == [("wal",)]
    again.close()


def test_a_transaction_is_committed_completely_or_not_at_all(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.db")

    def fail_halfway(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO learned (name, data) VALUES ('lost', x'')")
        raise KeyError

    with pytest.raises(KeyError):
        database.write(fail_halfway)
    put(database, "kept")
    assert names(database) == ["kept"]
    database.close()


@pytest.mark.parametrize(
    "damage", [b"this is no database at all, " * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_corrupt_file_is_renamed_and_recreated(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(damage)
    database = Database(path)
    put(database, "new")
    assert names(database) == ["new"]
    database.close()
    (aside,) = tmp_path.glob("store.db.damaged-*")
    assert aside.read_bytes() == damage


def corrupt(path: Path) -> bytes:
    """Corrupt the rows, but not the schema: the file can be opened, but not read. Return its content."""
    filled = Database(path)
    for number in range(1500):
        put(filled, f"{number} " * 50)
    filled.close()
    data = path.read_bytes()
    schema = 30 * 4096  # bytes: the pages of the schema come first
    assert len(data) > 2 * schema
    corrupted = data[:schema] + bytes((7 * place) % 256 for place in range(schema, len(data)))
    path.write_bytes(corrupted)
    return corrupted


def test_a_file_found_corrupt_after_opening_is_recreated_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    corrupted = corrupt(path)
    database = Database(path)
    assert not list(tmp_path.glob("store.db.damaged-*"))
    put(database, "new")
    assert names(database) == ["new"]
    database.close()
    (aside,) = tmp_path.glob("store.db.damaged-*")
    assert aside.read_bytes() == corrupted
    assert "was corrupt" in caplog.text


def test_a_transaction_on_a_corrupt_file_is_repeated(tmp_path: Path) -> None:
    corrupt(tmp_path / "store.db")
    database = Database(tmp_path / "store.db")

    put(database, "one", "two")
    assert names(database) == ["one", "two"]
    database.close()


def test_a_corrupt_file_is_recreated_only_once_by_two_connections(tmp_path: Path) -> None:
    corrupt(tmp_path / "store.db")
    one, other = Database(tmp_path / "store.db"), Database(tmp_path / "store.db")
    put(one, "first")
    put(other, "second")
    assert names(one) == names(other) == ["first", "second"]
    assert len(list(tmp_path.glob("store.db.damaged-*"))) == 1
    one.close()
    other.close()


def test_the_error_names_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnusable, match="file"):
        put(Database(tmp_path / "file" / "store.db"), "one")


def test_the_error_names_a_path_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreUnusable, match=r"store\.db"):
        put(Database(tmp_path / "store.db"), "one")


def test_a_closed_database_raises_an_error(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.db")
    database.close()
    with pytest.raises(StoreUnusable, match="Cannot use the database"):
        database.query("SELECT 1")


def test_a_file_of_a_later_version_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    create_database(path)
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.execute("CREATE TABLE tomorrow (x)")
    later.close()
    database = Database(path)
    assert database.query("PRAGMA user_version") == [(99,)]
    put(database, "still works")
    database.close()


def test_a_migration_that_fails_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    dump = (Path(__file__).parent / "version-8.sql").read_text()
    broken = sqlite3.connect(path)
    broken.executescript(dump.replace("CREATE TABLE toolset", "CREATE TABLE another_name"))
    broken.close()
    with pytest.raises(StoreUnusable, match="toolset"):
        Database(path).query("SELECT 1")
    mended = sqlite3.connect(path)
    assert mended.execute("PRAGMA user_version").fetchall() == [(8,)]
    mended.execute("ALTER TABLE another_name RENAME TO toolset")
    mended.close()
    database = Database(path)
    assert database.query("SELECT name FROM sqlite_master WHERE name LIKE 'old_%'") == []
    assert names(database) == ["text claude"]
    database.close()


def test_after_a_timeout_later_writes_do_not_wait_until_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    create_database(path)
    database, tries = Database(path, timeout=0.2), list[float]()

    def write() -> None:
        tries.append(time.monotonic())
        put(database, f"try {len(tries)}", timeout=0)

    with locked(path):
        with pytest.raises(StoreBusy):
            database.retry_while_busy(write)
        assert len(tries) > 1
        for _ in range(3):
            tries.clear()
            with pytest.raises(StoreBusy):
                database.retry_while_busy(write)
            assert len(tries) == 1
    tries.clear()
    database.retry_while_busy(write)
    assert names(database) == ["try 1"]
    # A write has succeeded, so the next one waits again.
    with locked(path):
        tries.clear()
        with pytest.raises(StoreBusy):
            database.retry_while_busy(write)
        assert len(tries) > 1
    database.close()


def test_all_waiting_can_be_limited(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    create_database(path)
    database = Database(path, timeout=1000)
    database.limit_waiting(0.1)
    with locked(path), pytest.raises(StoreBusy):
        put(database, "late")
    database.close()


def test_a_locked_new_file_is_opened_when_the_lock_is_released(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with locked(path, "EXCLUSIVE"):
        database = Database(path)
        with pytest.raises(StoreBusy):
            put(database, "too early", timeout=0)
    put(database, "in time")
    assert names(database) == ["in time"]
    database.close()
