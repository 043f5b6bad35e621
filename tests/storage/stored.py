"""What tests read from the store of another program, and write to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage._sqlite_file import Database
from tollbridge.storage.budgets import Budget, BudgetStatus
from tollbridge.storage.limits import LIMITS, Limits
from tollbridge.storage.rows import USAGE_COLUMNS, StoredReport, UsageRow, decode_reports, decode_row
from tollbridge.storage.sqlite import SqliteStore


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
        rows = database.query(f"SELECT {', '.join(USAGE_COLUMNS)} FROM usage ORDER BY started, id")
    return [decode_row(row) for row in rows]


def write_rows(path: Path, *rows: UsageRow) -> None:
    with open_store(path) as store:
        store.usage._write(rows)


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
