"""One SQLite file: opened by anyone, whatever state it is in."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from tests.storage.locked_database import held
from tollbridge.storage.database import STEPS, Database, StoreBusy, StoreUnusable


def put(database: Database, name: str) -> None:
    database.run("INSERT INTO learned (name, data) VALUES (?, ?)", (name, b""))


def names(database: Database) -> list[str]:
    return [row[0] for row in database.rows("SELECT name FROM learned ORDER BY id")]


def test_a_file_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "store.db"
    database = Database(path)
    put(database, "one")
    database.close()
    again = Database(path)
    assert names(again) == ["one"]
    assert again.rows("PRAGMA user_version") == [(len(STEPS),)]
    assert again.rows("PRAGMA journal_mode") == [("wal",)]
    again.close()


def test_a_block_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.db")

    def fail_halfway() -> None:
        with database.writing():
            put(database, "lost")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    with database.writing():
        put(database, "kept")
    assert names(database) == ["kept"]
    database.close()


def test_what_another_connection_wrote_is_noticed(tmp_path: Path) -> None:
    one, other = Database(tmp_path / "store.db"), Database(tmp_path / "store.db")
    before = one.changes()
    put(one, "own")
    assert one.changes() == before
    put(other, "other")
    assert one.changes() != before
    assert names(one) == ["own", "other"]
    one.close()
    other.close()


@pytest.mark.parametrize(
    "damage", [b"this is no database at all, " * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(damage)
    database = Database(path)
    put(database, "new")
    assert names(database) == ["new"]
    database.close()
    (aside,) = tmp_path.glob("store.db.damaged-*")
    assert aside.read_bytes() == damage


def spoil(path: Path) -> bytes:
    """Damage everything but the first page, by which a file is known: it opens, and cannot be read."""
    filled = Database(path)
    for number in range(300):
        put(filled, f"{number} " * 50)
    filled.close()
    data = path.read_bytes()
    spoiled = data[:4096] + bytes((7 * place) % 256 for place in range(4096, len(data)))
    path.write_bytes(spoiled)
    return spoiled


def test_damage_that_shows_later_is_set_aside_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.db"
    spoiled = spoil(path)
    database = Database(path)
    assert not list(tmp_path.glob("store.db.damaged-*"))
    put(database, "new")
    assert names(database) == ["new"]
    database.close()
    (aside,) = tmp_path.glob("store.db.damaged-*")
    assert aside.read_bytes() == spoiled
    assert "was damaged" in caplog.text


def test_a_block_in_which_the_damage_shows_is_done_again(tmp_path: Path) -> None:
    spoil(tmp_path / "store.db")
    database = Database(tmp_path / "store.db")

    def write() -> None:
        with database.writing():
            put(database, "one")
            put(database, "two")

    database.patiently(write)
    assert names(database) == ["one", "two"]
    database.close()


def test_who_finds_the_damage_second_keeps_what_the_first_has_begun(tmp_path: Path) -> None:
    spoil(tmp_path / "store.db")
    one, other = Database(tmp_path / "store.db"), Database(tmp_path / "store.db")
    put(one, "first")
    put(other, "second")
    assert names(one) == names(other) == ["first", "second"]
    assert len(list(tmp_path.glob("store.db.damaged-*"))) == 1
    one.close()
    other.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnusable, match="file"):
        Database(tmp_path / "file" / "store.db")


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreUnusable, match=r"store\.db"):
        Database(tmp_path / "store.db")


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.db")
    database.close()
    with pytest.raises(StoreUnusable, match="cannot be used"):
        database.rows("SELECT 1")


def test_a_file_of_a_later_version_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Database(path).close()
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.execute("CREATE TABLE tomorrow (x)")
    later.close()
    database = Database(path)
    assert database.rows("PRAGMA user_version") == [(99,)]
    put(database, "still works")
    database.close()


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    Database(path).close()
    broken = (*STEPS, "CREATE TABLE half (x); CREATE TABLE broken syntax here")
    monkeypatch.setattr("tollbridge.storage.database.STEPS", broken)
    with pytest.raises(StoreUnusable):
        Database(path)
    monkeypatch.undo()
    database = Database(path)
    assert database.rows("SELECT name FROM sqlite_master WHERE name = 'half'") == []
    database.close()


def test_a_process_that_is_waited_for_in_vain_is_not_waited_for_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database, tries = Database(path, patience=0.2), list[float]()

    def write() -> None:
        tries.append(time.monotonic())
        put(database, f"try {len(tries)}")

    with held(path):
        with pytest.raises(StoreBusy):
            database.patiently(write)
        assert len(tries) > 1
        for _ in range(3):
            tries.clear()
            with pytest.raises(StoreBusy):
                database.patiently(write)
            assert len(tries) == 1
    tries.clear()
    database.patiently(write)
    assert names(database) == ["try 1"]
    # What could be written is reason to be patient again.
    with held(path):
        tries.clear()
        with pytest.raises(StoreBusy):
            database.patiently(write)
        assert len(tries) > 1
    database.close()


def test_who_is_in_a_hurry_waits_no_longer_than_said(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = Database(path, patience=1000)
    database.hurry(0.1)
    with held(path), pytest.raises(StoreBusy):
        database.patiently(lambda: put(database, "late"))
    database.close()


def test_a_new_file_that_another_process_holds_is_opened_once_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with held(path, "EXCLUSIVE"):
        database = Database(path)
        with pytest.raises(StoreBusy):
            put(database, "too early")
        assert database.changes() == -1
    put(database, "in time")
    assert names(database) == ["in time"]
    assert database.changes() >= 0
    database.close()
