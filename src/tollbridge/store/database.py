"""One SQLite file in WAL mode: opened, brought up to date, read and written without a lock error."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tollbridge.core.errors import BridgeError
from tollbridge.store.schema import STEPS

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How long to wait for another process that writes. A write takes a millisecond or two.
PATIENCE = 10.0
# How long one statement waits for it, with our own lock held: whoever is patient tries again.
_MOMENT = 0.02
# A log larger than this is cut back when it has been carried over into the file.
_LOG_LIMIT = 4_000_000


class StoreUnusable(BridgeError):
    """The file cannot be read or written: no space, no permission, a disk that failed."""

    advice = "Look at the data folder (its permissions, its space), or name another with TOLLBRIDGE_DATA_DIR."


class StoreBusy(StoreUnusable):
    """Another process is writing, and has been for a while. It will end."""

    advice = "Try again when the other program has written what it had to."


def patiently(act: Callable[[], T]) -> T:
    """Do it, and again as long as another process is in the way: `StoreBusy` only after `PATIENCE`.

    Between the tries no lock is held. Never on a thread that others wait for.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except StoreBusy:
            if time.monotonic() > end:
                raise
        time.sleep(random.uniform(0.001, 0.01))  # noqa: S311


class Database:
    """A connection that threads may share. Every statement is one transaction, unless inside `writing`.

    What another process is in the way of raises `StoreBusy` after a moment; `patiently` waits for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection = _open(path)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, _named(self.path):
            return self._connection.execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        with self._lock, _named(self.path):
            self._connection.execute(statement, values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._lock, _named(self.path):
            self._connection.executemany(statement, rows)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else writes until the block is left; all of it is kept, or none.

        The lock is taken at the start: a reader that becomes a writer can be refused, a writer only waits.
        """
        with self._lock:
            self.run("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._roll_back()
                raise
            self.run("COMMIT")

    def _roll_back(self) -> None:
        with _named(self.path):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def changes(self) -> int:
        """Another number whenever another connection has written."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def close(self) -> None:
        with self._lock:
            self._connection.close()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = StoreBusy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreUnusable
        raise kind(f"the store {path} cannot be used: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnusable(f"the folder {path.parent} cannot be made: {error}") from error
    with _named(path):
        try:
            return _connect(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            # Not a database, or a damaged one. What it held can be learned again; the chat must go on.
            aside = _set_aside(path)
            _log.warning("%s was damaged (%s); it is now %s, and a new one is begun", path, error, aside)
            return _connect(path)


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    try:
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnusable(f"{path} is damaged and cannot be moved: {error}") from error
    return aside


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _insist(connection, "PRAGMA journal_mode = WAL")
        # A power cut may lose the last writes but not the file; a killed process loses nothing committed.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
        _bring_up_to_date(connection)
        connection.execute(f"PRAGMA busy_timeout = {_MOMENT * 1000:.0f}")
    except BaseException:
        connection.close()
        raise
    return connection


def _insist(connection: sqlite3.Connection, statement: str) -> None:
    """Changing the journal's mode does not wait for other connections by itself."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    if _version(connection) >= len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited for the lock.
        for number in range(_version(connection), len(STEPS)):
            for statement in STEPS[number].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
