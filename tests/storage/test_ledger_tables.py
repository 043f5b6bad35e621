"""The ledger's records, in memory and in a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tollbridge.storage import tables
from tollbridge.storage.database import Database
from tollbridge.storage.tables import LedgerTables
from tollbridge.tokens.records import LedgerStore, MemoryStore


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, database: Database) -> LedgerStore:
    return MemoryStore() if request.param == "memory" else LedgerTables(database)


def test_prefixes_are_found_by_key_with_every_tool_set(store: LedgerStore) -> None:
    rows = [(b"chain", b"tools", 100, 5), (b"chain", b"other", 200, 0), (b"longer", b"tools", 300, 0)]
    for row in rows:
        store.put_prefix(row)
    store.put_prefix((b"chain", b"tools", 101, 6))
    assert sorted(store.prefixes([b"chain", b"unknown"])) == [
        (b"chain", b"other", 200, 0),
        (b"chain", b"tools", 101, 6),
    ]
    assert store.prefixes([]) == []


def test_many_messages_are_found_by_key(store: LedgerStore) -> None:
    rows = [(bytes([number // 256, number % 256]), number, 1, number / 4) for number in range(2000)]
    with store.transaction():
        store.put_measured(rows)
    assert sorted(store.measured([row[0] for row in rows])) == rows
    assert store.measured([b"unknown"]) == []


def test_learned_data_is_replaced(store: LedgerStore) -> None:
    assert store.learned("text claude") is None
    store.put_learned("text claude", b"1")
    store.put_learned("text claude", b"2")
    assert store.learned("text claude") == b"2"


def test_outcomes_are_returned_in_order(store: LedgerStore) -> None:
    rows = [("m", "hybrid", 90, 99, 100, ""), ("n", "estimated", 1, 2, 3, "partial")]
    for row in rows:
        store.put_outcome(row)
    assert store.outcomes() == rows


def test_clear_deletes_everything(store: LedgerStore) -> None:
    store.put_prefix((b"chain", b"tools", 100, 5))
    store.put_outcome(("m", "hybrid", 90, 99, 100, ""))
    store.put_learned("name", b"data")
    store.put_measured([(b"key", 1, 2, 0.5)])
    store.put_toolset("name", b"data")
    store.clear()
    assert store.prefixes([b"chain"]) == []
    assert store.outcomes() == []
    assert store.measured([b"key"]) == []
    assert store.learned("name") is None
    assert store.toolset("name") is None


def test_a_full_table_loses_its_oldest_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"prefix": 100, "measured": 10, "learned": 10, "toolset": 10, "outcome": 10}
    monkeypatch.setattr(tables, "LIMITS", limits)
    monkeypatch.setattr(tables, "_TRIM_INTERVAL", 7)
    store = LedgerTables(database)
    for number in range(500):
        store.put_measured([(str(number).encode(), number, 0, 1.0)])
        store.put_prefix((str(number).encode(), b"", number, 0))
        store.put_prefix((b"written again and again", b"", number, 0))
    (count,) = database.query("SELECT count(*), (SELECT count(*) FROM measured) FROM prefix")
    assert 100 <= count[0] <= 100 + 2 * 7
    assert 10 <= count[1] <= 10 + 7
    assert store.prefixes([b"499"])
    assert store.prefixes([b"written again and again"])
    assert not store.prefixes([b"1"])


def test_many_tool_sets_do_not_displace_weights(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LIMITS", dict.fromkeys(tables.LIMITS, 10))
    monkeypatch.setattr(tables, "_TRIM_INTERVAL", 1)
    store = LedgerTables(database)
    store.put_learned("text claude", b"weights")
    for number in range(50):
        store.put_toolset(str(number), b"features")
        store.put_prefix((str(number).encode(), b"", number, 0))
    assert store.learned("text claude") == b"weights"
    assert store.toolset("49") == b"features"
    assert store.toolset("1") is None


def test_a_measurement_of_an_earlier_release_has_a_deviation(database: Database) -> None:
    database.execute("INSERT INTO measured (key, tokens, reasoning) VALUES (?, ?, ?)", (b"old", 1000, 7))
    assert LedgerTables(database).measured([b"old"]) == [(b"old", 1000, 7, 20.0)]


def test_a_full_memory_store_loses_its_oldest_records() -> None:
    store = MemoryStore(limit=100)
    for number in range(1000):
        store.put_measured([(str(number).encode(), number, 0, 1.0)])
        store.put_prefix((str(number).encode(), b"", number, 0))
        store.put_outcome(("m", "hybrid", 1, 2, number, ""))
    assert store.measured([b"999"])
    assert not store.measured([b"1"])
    assert not store.prefixes([b"1"])
    assert len(store.outcomes()) == 100
