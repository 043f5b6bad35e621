"""One SQLite file in WAL mode that several processes share: opening, replacement, locks and the schema.

`Database` is a connection. Errors of SQLite are raised as `StoreUnusable`, or as its subclass `StoreBusy`
while another process holds the write lock. A corrupt file is renamed and replaced by a new one. A file that
was deleted or replaced while it was open is opened again. `ProcessLock` shows which processes are alive.
"""

from __future__ import annotations

import logging
import math
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from tollbridge.storage._sqlite_schema import OutdatedSchema, create_tables
from tollbridge.storage.limits import LIMITS
from tollbridge.storage.store import StoreBusy, StoreUnusable
from tollbridge.transport.files import create_file, make_folder, make_private

if TYPE_CHECKING:  # at run time, functions import it: it is 1 MB, and many programs open no database
    import sqlite3

if sys.platform == "win32":
    import msvcrt

    def _lock_file(file: IO[bytes]) -> None:
        """Lock a file until it is closed. Raise `OSError` if another process has locked it."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    @contextmanager
    def _folder_lock(_: Path) -> Iterator[None]:
        # Not needed: files that a process has open cannot be deleted.
        yield
else:
    import fcntl

    def _lock_file(file: IO[bytes]) -> None:
        """Lock a file until it is closed. Raise `OSError` if another process has locked it."""
        # Not `lockf`: its locks belong to the process, and end when it closes any file object of that path.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @contextmanager
    def _folder_lock(folder: Path) -> Iterator[None]:
        """Wait until no other process creates files in a folder."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


_log = logging.getLogger(__name__)
T = TypeVar("T")

# How long one statement waits for another process, in seconds. Short, because the connection's lock is held
# meanwhile: `Database.retry_while_busy` waits longer, and holds none.
_STATEMENT_TIMEOUT = 0.02
# A write-ahead log larger than this (bytes) is truncated after a checkpoint.
_WAL_SIZE_LIMIT = 4_000_000


class ProcessLock:
    """A locked file next to the database that shows other processes that this one is alive.

    A row that is `running`, and a reservation, belong to a process. If that process is killed, nobody
    completes them, so other processes must be able to tell. A process id is not sufficient: ids are reused,
    and mean nothing in another container that shares the folder. The time of the last write is not either: a
    laptop that sleeps for an hour has processes that are alive and wrote nothing. A lock of the operating
    system ends when its process does, however it ends.

    So every store that writes such rows creates a file with a random name (the `session` of its rows) and
    holds a lock on it. A process that can lock the file of a session knows that its owner is gone, and
    deletes it. The file must be there before the first row that names it. If somebody has emptied the folder,
    the next write creates another file with another name; rows with the old name look interrupted until they
    are completed, which is allowed for rows that look so.

    Raises:
        StoreUnusable: The file cannot be written.
    """

    def __init__(self, database: Path) -> None:
        self.name = uuid.uuid4().hex
        self._path = _lock_path(database, self.name)
        try:
            self._file = self._path.open("wb")
            make_private(self._path)
            _lock_file(self._file)
        except OSError as error:
            raise StoreUnusable(f"Cannot write {self._path}: {error.strerror}") from error

    def exists(self) -> bool:
        """Return whether the file is there. It is not if somebody deleted the folder's content."""
        return self._path.exists()

    def release(self) -> None:
        """Unlock and delete the file."""
        with suppress(OSError):
            self._file.close()
            self._path.unlink(missing_ok=True)


def is_alive(database: Path, name: str) -> bool:
    """Whether the process that holds the lock `name` is alive. The lock file of a dead process is deleted."""
    path = _lock_path(database, name)
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: assume that it is
    with file:
        try:
            _lock_file(file)
        except OSError:
            return True
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return False


def remove_stale_locks(database: Path, grace: float) -> None:
    """Delete the lock files of processes that were killed, if they are older than `grace` seconds."""
    prefix = _lock_path(database, "").name
    with suppress(OSError):
        for path in list(database.parent.iterdir()):
            if path.name.startswith(prefix) and path.stat().st_mtime < time.time() - grace:
                is_alive(database, path.name.removeprefix(prefix))


def _lock_path(database: Path, name: str) -> Path:
    return database.with_name(f"{database.name}-alive-{name}")


class Database:
    """A connection to one SQLite file, which threads can share. It is opened by the first statement.

    A statement that another process blocks fails after 20 ms; `read` and `write` repeat their operations.

    Args:
        path: The file. It is created if missing, together with its parent directories. `None` is a database
            in memory.
        timeout: How many seconds `retry_while_busy` waits for another process by default.

    Raises:
        StoreUnusable: The file cannot be opened, by all methods.
    """

    def __init__(self, path: Path | None, timeout: float = LIMITS.busy_timeout) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._timeout = timeout
        self._timed_out = False  # the last wait timed out, and nothing was written since
        self._deadline = math.inf  # no wait lasts longer (monotonic clock)
        self._closed = False
        self._files = _NO_FILES  # the open files
        self._held_log: int | None = None  # a file descriptor, see `_hold_log`
        self._connection: sqlite3.Connection | None = None
        self.openings = 0  # how often it was opened

    @property
    def is_missing(self) -> bool:
        """Whether nothing can be read, because no file was created yet."""
        return self._connection is None and self.path is not None and not self.path.exists()

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a statement."""
        return self._call(lambda connection: connection.execute(statement, values).fetchall())

    def query_if_free(
        self, statement: str, values: Sequence[Any] = (), *, reopen: bool = False
    ) -> list[Any] | None:
        """Return all rows of a statement, or `None` if another thread uses the connection.

        A file that does not exist has no rows. With `reopen`, notice that the file was replaced. That takes
        longer than some queries.
        """
        if not self.lock.acquire(blocking=False):
            return None
        try:
            if reopen:
                self._reopen_if_replaced()
            return [] if self.is_missing else self.query(statement, values)
        finally:
            self.lock.release()

    def read(self, operation: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
        """Run queries on the data of one moment. Other processes can write meanwhile.

        A file that does not exist has no rows.
        """

        def read() -> list[T]:
            with self.lock:
                self._reopen_if_replaced()
                if self.is_missing:
                    return []
                return self._call(lambda connection: _run_transaction(connection, "BEGIN", operation))

        return self.retry_while_busy(read)

    def write(self, operation: Callable[[sqlite3.Connection], T], timeout: float | None = None) -> T:
        """Run an operation as one transaction: commit all of it, or roll back if it raises.

        It is repeated as a whole while another process holds the write lock, for at most `timeout` seconds,
        and if the file turns out to be corrupt. The write lock is taken at the start, because SQLite can
        refuse to upgrade a read transaction to a write transaction.
        """

        def write() -> T:
            with self.lock:
                self._reopen_if_replaced()
                return self._call(
                    lambda connection: _run_transaction(connection, "BEGIN IMMEDIATE", operation)
                )

        return self.retry_while_busy(write, timeout)

    def retry_while_busy(self, operation: Callable[[], T], timeout: float | None = None) -> T:
        """Call `operation`, and call it again while it raises `StoreBusy`, until the timeout.

        After a timeout, later calls try only once until a write has succeeded. No lock is held between two
        tries. Can block for the whole timeout: do not call it on the event loop's thread.

        Raises:
            StoreBusy: Another process held the lock for the whole timeout.
        """
        timeout = self._timeout if timeout is None else timeout
        end = time.monotonic() + (0 if self._timed_out else timeout)
        while True:
            try:
                result = operation()
            except StoreBusy:
                if time.monotonic() > min(end, self._deadline):
                    self._timed_out = True
                    raise
            else:
                self._timed_out = False
                return result
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311

    def limit_waiting(self, seconds: float) -> None:
        """Limit all waiting to this many seconds from now. Used before closing."""
        self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        with self.lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
            if self._held_log is not None:
                os.close(self._held_log)
                self._held_log = None

    def _call(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run an operation. If the file turns out to be corrupt, replace it and run the operation again."""
        import sqlite3

        with self.lock:
            try:
                connection = self._connect()
                try:
                    return operation(connection)
                except sqlite3.DatabaseError as error:
                    if self.path is None or not _is_corrupt(error):
                        raise
                    connection.close()
                    self._connection = None
                    _move_aside(self.path, self._files[0], f"was corrupt ({error})")
                return operation(self._connect())
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                is_busy = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                kind = StoreBusy if is_busy else StoreUnusable
                raise kind(f"Cannot use the database {self.path or 'in memory'}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        """Return the connection, and open it first if that has not succeeded yet."""
        import sqlite3

        if self._connection is None and not self._closed:
            if self.path is None:
                self._connection = _open_connection(":memory:")
            else:
                self._connection, self._files = _open(self.path, self._files)
                self._hold_log(self.path)
            self.openings += 1
        if self._connection is None or self._closed:
            raise sqlite3.ProgrammingError("it is closed")
        return self._connection

    def _hold_log(self, path: Path) -> None:
        """Keep the log of the connection open, instead of the one before.

        While it is open, its inode identifies it. Otherwise the log of a new database could get the same
        inode, and would be deleted as if it was the old one.
        """
        held, self._held_log = self._held_log, None
        if sys.platform != "win32":
            with suppress(OSError):
                self._held_log = os.open(_side_file(path, "-wal"), os.O_RDONLY)
        if held is not None:
            os.close(held)

    def _reopen_if_replaced(self) -> None:
        """Close the connection if the file was deleted or replaced: what is written to it would be lost."""
        if self._connection is None or self._closed or self.is_current():
            return
        _log.warning("The database %s was deleted or replaced while it was open.", self.path)
        # SQLite neither changes nor deletes the files next to a database that was replaced.
        self._connection.close()
        self._connection = None

    def is_current(self) -> bool:
        """Return whether the open files are still those at their paths."""
        return self.path is None or _identify_files(self.path) == self._files


def _run_transaction(
    connection: sqlite3.Connection, begin: str, operation: Callable[[sqlite3.Connection], T]
) -> T:
    connection.execute(begin)
    try:
        result = operation(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file is corrupt or not a database. Nothing in it is irreplaceable, so it is recreated."""
    import sqlite3

    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


# The device and inode of a file; `None` if it does not exist.
_Identity = tuple[int, int] | None
_NO_FILES: tuple[_Identity, _Identity] = (None, None)  # the database and its write-ahead log


def _identify(path: Path | str) -> _Identity:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _identify_files(path: Path) -> tuple[_Identity, _Identity]:
    name = str(path)  # faster than paths: this is done before every estimate and every write
    return _identify(name), _identify(f"{name}-wal")


def _side_file(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _open(
    path: Path, old_files: tuple[_Identity, _Identity]
) -> tuple[sqlite3.Connection, tuple[_Identity, _Identity]]:
    """Open the file, and replace it if it is corrupt or too old.

    `old_files` are the database that was open before, and its write-ahead log. All of it happens under the
    lock of the folder: otherwise another process could replace the files between opening and identifying
    them, and this one would write to files that are gone.

    Returns:
        The connection, and the files that it uses.
    """
    try:
        make_folder(path.parent)
        with _folder_lock(path.parent):
            return _open_locked(path, old_files), _identify_files(path)
    except OSError as error:
        raise StoreUnusable(f"Cannot create the database {path}: {error}") from error


def _open_locked(path: Path, old_files: tuple[_Identity, _Identity]) -> sqlite3.Connection:
    import sqlite3

    _prepare_files(path, old_files)
    identity = _identify(path)
    try:
        return _open_connection(path)
    except OutdatedSchema as error:
        _move_aside(path, identity, f"has the schema {error} of an early version")
    except sqlite3.DatabaseError as error:
        if not _is_corrupt(error):
            raise
        _move_aside(path, identity, f"was corrupt ({error})")
    _prepare_files(path, old_files)
    return _open_connection(path)


def _prepare_files(path: Path, old_files: tuple[_Identity, _Identity]) -> None:
    """Create a missing file, and make all files private. SQLite gives new ones the database's permissions.

    The log and the shared memory of a database that is gone must not be used with the new one.
    """
    side_files = [_side_file(path, suffix) for suffix in ("-wal", "-shm")]
    is_missing = _identify(path) is None
    log_is_old = old_files[1] is not None and _identify(side_files[0]) == old_files[1]
    if is_missing or (log_is_old and _identify(path) != old_files[0]):
        for file in side_files:
            file.unlink(missing_ok=True)
    if is_missing:
        create_file(path).close()
    for file in (path, *side_files):
        make_private(file)


def _move_aside(path: Path, identity: _Identity, reason: str) -> None:
    """Rename a file that cannot be used, so that a new one can be created in its place."""
    if _identify(path) != identity:
        return  # another process has already replaced the file
    backup = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    try:
        path.rename(backup)
        for suffix in ("-wal", "-shm"):
            _side_file(path, suffix).unlink(missing_ok=True)
    except OSError as failure:
        raise StoreUnusable(f"The database {path} {reason} and cannot be renamed: {failure}") from failure
    _log.warning("%s %s; created a new one. The old file is %s", path, reason, backup)


def _open_connection(path: Path | str) -> sqlite3.Connection:
    import sqlite3

    connection = sqlite3.connect(
        path, timeout=_STATEMENT_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    try:
        _set_journal_mode(connection)
        # A power failure can lose the last transactions, but does not corrupt the file; a killed process
        # loses nothing that it has committed.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE_LIMIT}")
        create_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_journal_mode(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log. Retry while the file is locked: this statement ignores the busy timeout."""
    import sqlite3

    end = time.monotonic() + _STATEMENT_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)
