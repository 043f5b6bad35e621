"""One SQLite file in WAL mode: opened, brought up to date, read and written without a lock error."""

from __future__ import annotations

import logging
import math
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tollbridge.types.errors import BridgeError

# SECTION The tables, as steps: a file of any age is brought up to date by the steps it has not had.

# A step is never changed once released; a new table or column is a new step at the end. The number of
# steps a file has had is its `user_version`.
STEPS: tuple[str, ...] = (
    # The rowid is the age in all of these: what is put again becomes the youngest.
    """
    CREATE TABLE prefix (
        id INTEGER PRIMARY KEY,
        chain BLOB NOT NULL,
        toolset BLOB NOT NULL,
        tokens INTEGER NOT NULL,
        loop INTEGER NOT NULL,
        UNIQUE (chain, toolset)
    );
    CREATE TABLE measured (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        tokens INTEGER NOT NULL,
        reasoning INTEGER NOT NULL
    );
    CREATE TABLE learned (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        data BLOB NOT NULL
    );
    CREATE TABLE outcome (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL DEFAULT (unixepoch()),
        model TEXT NOT NULL,
        method TEXT NOT NULL,
        plain INTEGER NOT NULL,
        estimate INTEGER NOT NULL,
        actual INTEGER NOT NULL
    );
    """,
    # Every request. A row is written when it starts, as `running`, and completed when it ends.
    """
    CREATE TABLE usage (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        started REAL NOT NULL,
        model TEXT NOT NULL,
        account TEXT NOT NULL,
        base_url TEXT NOT NULL,
        outcome TEXT NOT NULL,
        input INTEGER,
        output INTEGER,
        total INTEGER,
        cached INTEGER,
        reasoning INTEGER,
        duration REAL,
        first REAL,
        finish_reason TEXT,
        error TEXT
    );
    CREATE INDEX usage_by_time ON usage (started);
    CREATE INDEX usage_running ON usage (session) WHERE outcome = 'running';
    """,
)


# SECTION One SQLite file in WAL mode: opened, brought up to date, read and written without a lock error.

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How long to wait for another process that writes. A write takes a millisecond or two.
PATIENCE = 10.0
# How long to wait for one that keeps even from opening the file. Whoever comes later tries again.
OPENING = 0.5
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


class Database:
    """A connection that threads may share. Every statement is one transaction, unless inside `writing`.

    What another process is in the way of raises `StoreBusy` after a moment; `patiently` waits for it, at most
    `patience` seconds (`PATIENCE`, if not said).
    """

    def __init__(self, path: Path, patience: float | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._patience = PATIENCE if patience is None else patience
        self._in_vain = False  # another process was waited for, and has written ever since
        self._end = math.inf  # of all waiting
        self._closed = False
        self._inode: int | None = None  # of the file that is open
        self._connection: sqlite3.Connection | None = None
        with suppress(StoreBusy), _named(path):  # the first statement tries again
            self._connected(OPENING)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._do(lambda connection: connection.execute(statement, values).fetchall())

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._do(lambda connection: connection.execute(statement, values))

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._do(lambda connection: connection.executemany(statement, rows))

    def patiently(self, act: Callable[[], T]) -> T:
        """Do it, and again as long as another process is in the way: `StoreBusy` only after `patience`.

        Who was waited for in vain is not waited for again until something could be written. Between the tries
        no lock is held. Never on a thread that others wait for.
        """
        end = time.monotonic() + (0 if self._in_vain else self._patience)
        while True:
            try:
                done = act()
            except StoreBusy:
                if time.monotonic() > min(end, self._end):
                    self._in_vain = True
                    raise
            else:
                self._in_vain = False
                return done
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311

    def hurry(self, seconds: float) -> None:
        """Nobody is waited for any longer than this: the end is near."""
        self._end = time.monotonic() + seconds

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
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def changes(self) -> int:
        """Another number whenever another connection has written."""
        try:
            return int(self.rows("PRAGMA data_version")[0][0])
        except StoreBusy:
            return -1  # not even opened yet

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """A file that turns out to be damaged is begun anew. What was under way in it must be done again."""
        with self._lock, _named(self.path):
            connection = self._connected(_MOMENT)
            within = connection.in_transaction
            try:
                return act(connection)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                connection.close()
                self._connection = None
                _set_aside(self.path, self._inode, error)
                if within:
                    raise StoreBusy(f"the store {self.path} was damaged, and is begun anew") from error
            return act(self._connected(_MOMENT))

    def _connected(self, within: float) -> sqlite3.Connection:
        """Opened now if it could not be before."""
        if self._connection is None and not self._closed:
            self._inode, self._connection = _open(self.path, within)
        if self._connection is None:
            raise sqlite3.ProgrammingError("it is closed")
        return self._connection


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = StoreBusy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreUnusable
        raise kind(f"the store {path} cannot be used: {error}") from error


def _is_damage(error: sqlite3.Error) -> bool:
    """Not a database, or a damaged one. What it held can be learned again; the chat must go on."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _open(path: Path, within: float) -> tuple[int | None, sqlite3.Connection]:
    """With the file's inode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnusable(f"the folder {path.parent} cannot be made: {error}") from error
    before = _inode(path)
    try:
        connection = _connect(path, within)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        _set_aside(path, before, error)
        connection = _connect(path, within)
    return _inode(path), connection


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _set_aside(path: Path, inode: int | None, error: sqlite3.Error) -> None:
    if _inode(path) != inode:
        return  # another process has done it: what is there now is the new one
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    try:
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as failure:
        raise StoreUnusable(f"{path} is damaged and cannot be moved: {failure}") from failure
    _log.warning("%s was damaged (%s); it is now %s, and a new one is begun", path, error, aside)


def _connect(path: Path, within: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=within, isolation_level=None, check_same_thread=False)
    try:
        _insist(connection, "PRAGMA journal_mode = WAL", within)
        # A power cut may lose the last writes but not the file; a killed process loses nothing committed.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
        _bring_up_to_date(connection)
        connection.execute(f"PRAGMA busy_timeout = {_MOMENT * 1000:.0f}")
    except BaseException:
        connection.close()
        raise
    return connection


def _insist(connection: sqlite3.Connection, statement: str, within: float) -> None:
    """Changing the journal's mode does not wait for other connections by itself."""
    end = time.monotonic() + within
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
