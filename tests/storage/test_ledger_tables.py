"""The ledger's records, in memory and in a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.stored import open_database, open_store
from tollbridge.storage.limits import Limits
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.tokens.records import LedgerChanges, LedgerStore, MemoryStore


@pytest.fixture(params=["dictionary", "memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LedgerStore]:
    if request.param == "dictionary":
        yield MemoryStore()
        return
    opened = SqliteStore(tmp_path / "store.db" if request.param == "file" else None)
    yield opened.tokens
    opened.close()


def test_prefixes_are_found_by_key_with_every_tool_set(store: LedgerStore) -> None:
    rows = [(b"chain", b"tools", 100, 5), (b"chain", b"other", 200, 0), (b"longer", b"tools", 300, 0)]
    store.commit(LedgerChanges(prefixes=[*rows, (b"chain", b"tools", 101, 6)]))
    assert sorted(store.prefixes([b"chain", b"unknown"])) == [
        (b"chain", b"other", 200, 0),
        (b"chain", b"tools", 101, 6),
    ]
    assert store.prefixes([]) == []


def test_many_messages_are_found_by_key(store: LedgerStore) -> None:
    rows = [(bytes([number // 256, number % 256]), number, 1, number / 4) for number in range(2000)]
    store.commit(LedgerChanges(measured=rows))
    assert sorted(store.measured([row[0] for row in rows])) == rows
    assert store.measured([b"unknown"]) == []


def test_learned_data_is_replaced(store: LedgerStore) -> None:
    assert store.learned("text claude") is None
    version = store.version()
    for data in (b"1", b"2"):
        next_version = store.commit(LedgerChanges(version, learned={"text claude": data}))
        assert next_version is not None
        version = next_version
    assert (store.learned("text claude"), store.version()) == (b"2", version)


def test_outcomes_are_returned_in_order(store: LedgerStore) -> None:
    rows = [("m", "hybrid", 90, 99, 100, ""), ("n", "estimated", 1, 2, 3, "partial")]
    for row in rows:
        store.commit(LedgerChanges(outcomes=[row]))
    assert store.outcomes() == rows


def test_clear_deletes_everything(store: LedgerStore) -> None:
    store.commit(
        LedgerChanges(
            store.version(),
            prefixes=[(b"chain", b"tools", 100, 5)],
            measured=[(b"key", 1, 2, 0.5)],
            learned={"name": b"data"},
            toolsets={"name": b"data"},
            outcomes=[("m", "hybrid", 90, 99, 100, "")],
        )
    )
    assert store.learned("name") == b"data"
    store.clear()
    assert store.prefixes([b"chain"]) == []
    assert store.outcomes() == []
    assert store.measured([b"key"]) == []
    assert store.learned("name") is None
    assert store.toolset("name") is None


def test_weights_that_others_have_changed_are_not_replaced(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as one, open_store(tmp_path / "store.db") as other:
        version = one.tokens.version()
        assert other.tokens.commit(LedgerChanges(version, learned={"text claude": b"theirs"}))
        changes = LedgerChanges(
            version, learned={"text claude": b"mine"}, outcomes=[("m", "hybrid", 1, 2, 3, "")]
        )
        assert one.tokens.commit(changes) is None
        assert (one.tokens.learned("text claude"), one.tokens.outcomes()) == (b"theirs", [])
        changes.version = one.tokens.version()
        assert one.tokens.commit(changes)
        assert other.tokens.learned("text claude") == b"mine"
        assert len(other.tokens.outcomes()) == 1


def test_nothing_is_created_by_reading(tmp_path: Path) -> None:
    with open_store(tmp_path / "deep" / "store.db") as store:
        assert (store.tokens.version(), store.tokens.prefixes([b"key"])) == (0, [])
    assert not (tmp_path / "deep").exists()


def test_a_full_table_loses_its_oldest_rows(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path, Limits(prefixes=100, measured=10, trim_interval=7)) as store:
        for number in range(500):
            key = str(number).encode()
            prefixes = [(key, b"", number, 0), (b"written again and again", b"", number, 0)]
            store.tokens.commit(LedgerChanges(prefixes=prefixes, measured=[(key, number, 0, 1.0)]))
        with open_database(path) as database:
            (count,) = database.query("SELECT count(*), (SELECT count(*) FROM measured) FROM prefix")
        assert 100 <= count[0] <= 100 + 2 * 7
        assert 10 <= count[1] <= 10 + 7
        assert store.tokens.prefixes([b"499"])
        assert store.tokens.prefixes([b"written again and again"])
        assert not store.tokens.prefixes([b"1"])


def test_many_tool_sets_do_not_displace_weights(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db", Limits(learned=10, toolsets=10, trim_interval=1)) as store:
        store.tokens.commit(LedgerChanges(learned={"text claude": b"weights"}))
        for number in range(50):
            store.tokens.commit(LedgerChanges(toolsets={str(number): b"features"}))
        assert store.tokens.learned("text claude") == b"weights"
        assert store.tokens.toolset("49") == b"features"
        assert store.tokens.toolset("1") is None


def test_a_full_memory_store_loses_its_oldest_records() -> None:
    store = MemoryStore(limit=100)
    for number in range(1000):
        key = str(number).encode()
        store.commit(
            LedgerChanges(
                prefixes=[(key, b"", number, 0)],
                measured=[(key, number, 0, 1.0)],
                outcomes=[("m", "hybrid", 1, 2, number, "")],
            )
        )
    assert store.measured([b"999"])
    assert not store.measured([b"1"])
    assert not store.prefixes([b"1"])
    assert len(store.outcomes()) == 100
