"""What tests read from the store of another program, and write to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage._sqlite_file import Database
from tollbridge.storage.budgets import Budget, BudgetStatus
from tollbridge.storage.limits import LIMITS, Limits
from tollbridge.storage.rows import COST_UNIT, USAGE_COLUMNS, StoredReport, UsageRow, decode_reports
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.types.events import Usage
from tollbridge.types.models import Prices

_SELECT_USAGE = f"SELECT {', '.join(USAGE_COLUMNS)} FROM usage ORDER BY started, id"


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open the file, which is created if it does not exist."""
    database = Database(path)
    try:
        database.query("SELECT 1")
        yield database
    finally:
        database.close()


def create_database(path: Path) -> None:
    with open_database(path):
        pass


@contextmanager
def open_store(path: Path, limits: Limits = LIMITS) -> Iterator[SqliteStore]:
    store = SqliteStore(path, limits)
    try:
        yield store
    finally:
        store.close()


def read_rows(path: Path) -> list[UsageRow]:
    """Return the attempts in the order of their start."""
    with open_database(path) as database:
        return [decode_row(row) for row in database.query(_SELECT_USAGE)]


def stored_rows(store: SqliteStore) -> list[UsageRow]:
    """Return the attempts in an open store, in the order of their start."""
    return [decode_row(row) for row in store._access.query(_SELECT_USAGE)]


def decode_row(values: Sequence[Any]) -> UsageRow:
    """Return a row from the values of `USAGE_COLUMNS`."""
    fields = dict(zip(USAGE_COLUMNS, values, strict=True))
    fields["usage"] = Usage(*(fields.pop(name) for name in Usage.__struct_fields__))
    fields["incomplete"] = bool(fields["incomplete"])
    fields["prices"] = msgspec.json.decode(fields["prices"], type=Prices) if fields["prices"] else None
    for name in ("cost", "billed"):
        fields[name] = None if fields[name] is None else fields[name] * COST_UNIT
    return UsageRow(**fields)


def write_rows(path: Path, *rows: UsageRow) -> None:
    with open_store(path) as store:
        store._access.worker.run(lambda: store.usage._write_rows(rows))


def read_reports(path: Path) -> list[StoredReport]:
    """Return what the prompt cache did for each turn, the last one first."""
    with open_database(path) as database:
        rows = database.query("SELECT report FROM cache_report ORDER BY started DESC")
    return list(decode_reports(data for (data,) in rows))


def read_status(path: Path, budget: Budget) -> BudgetStatus:
    with open_store(path) as store:
        [status] = store.budgets.status([budget]).result(10)
    return status


@contextmanager
def open_estimator(path: Path, limits: Limits = LIMITS, **options: Any) -> Iterator[HybridTokenEstimator]:
    with open_store(path, limits) as store:
        yield HybridTokenEstimator(store.tokens, **options)
