"""Access to one SQLite file in WAL mode that several processes share, and the thread that writes to it.

`Database` opens the file, creates or migrates its tables, and runs statements. Errors of SQLite are raised as
`StoreUnusable`, or as its subclass `StoreBusy` while another process holds the write lock. A corrupt file is
renamed and replaced by a new one. A file that was deleted or replaced while it was open is opened again.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from tollbridge.transport.files import create_file, make_folder, make_private
from tollbridge.types.errors import BridgeError

if TYPE_CHECKING:  # at run time, functions import it: it is 1 MB, and many programs open no database
    import sqlite3

if sys.platform == "win32":
    import msvcrt

    def lock_file(file: IO[bytes]) -> None:
        """Lock a file until it is closed. Raise `OSError` if another process has locked it."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    @contextmanager
    def _folder_lock(_: Path) -> Iterator[None]:
        # Not needed: files that a process has open cannot be deleted.
        yield
else:
    import fcntl
    import os

    def lock_file(file: IO[bytes]) -> None:
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


# --- A background thread that runs functions one after the other ---
#
# Writing to the database can block while another process holds the file's lock, so it must not happen on the
# event loop's thread. `WorkerThread` runs such calls; `wait_for_write` waits for one of them in a coroutine.

T = TypeVar("T")

# Seconds that a turn waits for its own writes. A write takes about a millisecond; a slower write continues in
# the background.
WRITE_TIMEOUT = 0.5


class WorkerThread:
    """A daemon thread that runs the submitted functions in the order of submission.

    The thread starts with the first `submit`, so an unused worker costs nothing. Unlike the threads of
    `concurrent.futures.ThreadPoolExecutor`, it does not keep the interpreter from exiting: `close` waits at
    most for its timeout.

    Args:
        name: The thread's name, as shown in debuggers and tracebacks.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the thread, after everything submitted before. Threads can call this at any time.

        Returns:
            A future with the function's result, or with the exception it raised. A function submitted after
            `close` never runs, and its future is never done. Cancelling a future has an effect only before
            its function has started.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                return future
            if self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._tasks.put(lambda: _run_into(future, function))
        return future

    def close(self, timeout: float) -> None:
        """Wait until all submitted functions have run, at most `timeout` seconds; later ones are ignored.

        Functions that have not run by then still run in the background, until the interpreter exits. With a
        timeout of 0 this only ends the thread after the last function.
        """
        with self._lock:
            self._closed = True
            if self._thread is None:
                return
            self._tasks.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class BatchQueue(Generic[T]):
    """Passes items to a function on a worker thread, with one call for all that have arrived meanwhile.

    Args:
        worker: The thread.
        handle: Is called with the items, in order. It must not raise.
    """

    def __init__(self, worker: WorkerThread, handle: Callable[[list[T]], object]) -> None:
        self._worker = worker
        self._handle = handle
        self._lock = Lock()
        self._items: list[T] = []
        self._call: Future[None] | None = None  # the next call, if there are items
        self._hurry = Event()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T, delay: float = 0.0) -> Future[None]:
        """Add an item.

        Args:
            item: The item.
            delay: Seconds in which more items may follow. It ends when an item without a delay is added.

        Returns:
            A future that is done when the item has been handled.
        """
        with self._lock:
            self._items.append(item)
            if delay == 0:
                self._hurry.set()
            if self._call is None:
                self._call = self._worker.submit(lambda: self._handle_items(delay))
            return self._call

    def hurry(self) -> None:
        """Handle the items now, whatever their delays."""
        self._hurry.set()

    def _handle_items(self, delay: float) -> None:
        if delay > 0:
            self._hurry.wait(delay)
        with self._lock:
            items, self._items, self._call = self._items, [], None
            self._hurry.clear()
        self._handle(items)


def _run_into(future: Future[T], function: Callable[[], T]) -> None:
    """Run a function and put its result or its exception into the future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - the caller gets it from the future
        future.set_exception(error)
    else:
        future.set_result(result)


async def wait_for_write(write: Future[Any] | None, within: float = WRITE_TIMEOUT) -> None:
    """Wait until a submitted write is done, at most `within` seconds. The write itself is not cancelled.

    Raises:
        BaseException: The exception that the write raised, if it ended in time.
    """
    import asyncio  # here: a program without an event loop can use `WorkerThread` without loading it

    if write is None:
        return
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake_up(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop may be closed before the write ends
            loop.call_soon_threadsafe(done.cancel)

    write.add_done_callback(wake_up)
    await asyncio.wait([done], timeout=within)
    if write.done():
        write.result()


# --- The database ---

# The schema as a list of migrations. A file's `user_version` is the number of migrations it has had. A
# released migration never changes: a new table or column is a new migration at the end.
MIGRATIONS: tuple[str, ...] = (
    # The rowid orders rows by age in all of these tables: `INSERT OR REPLACE` makes a row the newest.
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
    # One row per request, inserted as `running` when it starts and updated when it ends.
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
    # One row per attempt: the rows of a request have the same `turn`. `key` identifies an attempt in any
    # file, so that it can be written again. Prices are US dollars per token as decimal text; costs are
    # integers of 10^-12 US dollars, see docs/decisions/usage-rows.md. Programs of the first release still
    # write to this table; their rows have no key.
    """
    ALTER TABLE usage ADD COLUMN key TEXT;
    ALTER TABLE usage ADD COLUMN turn TEXT;
    ALTER TABLE usage ADD COLUMN attempt INTEGER;
    ALTER TABLE usage ADD COLUMN incomplete INTEGER;
    ALTER TABLE usage ADD COLUMN cache_write INTEGER;
    ALTER TABLE usage ADD COLUMN response_id TEXT;
    ALTER TABLE usage ADD COLUMN generation_id TEXT;
    ALTER TABLE usage ADD COLUMN provider TEXT;
    ALTER TABLE usage ADD COLUMN conversation TEXT;
    ALTER TABLE usage ADD COLUMN initiator TEXT;
    ALTER TABLE usage ADD COLUMN input_price TEXT;
    ALTER TABLE usage ADD COLUMN output_price TEXT;
    ALTER TABLE usage ADD COLUMN cache_read_price TEXT;
    ALTER TABLE usage ADD COLUMN cache_write_price TEXT;
    ALTER TABLE usage ADD COLUMN computed_cost INTEGER;
    ALTER TABLE usage ADD COLUMN billed_cost INTEGER;
    ALTER TABLE usage ADD COLUMN cost_source TEXT;
    ALTER TABLE usage ADD COLUMN reserved_cost INTEGER;
    CREATE UNIQUE INDEX usage_by_key ON usage (key);
    """,
    # What was learned about servers from rejected requests. `value` and `evidence` are JSON.
    """
    CREATE TABLE lesson (
        id INTEGER PRIMARY KEY,
        base_url TEXT NOT NULL,
        model TEXT NOT NULL,
        conversation TEXT NOT NULL,
        feature TEXT NOT NULL,
        subject TEXT NOT NULL,
        value TEXT NOT NULL,
        evidence TEXT NOT NULL,
        learned_at REAL NOT NULL,
        expires_at REAL NOT NULL,
        confirmations INTEGER NOT NULL,
        UNIQUE (base_url, model, conversation, feature, subject)
    );
    """,
    # What else the cost of an attempt depends on. `other_prices` is JSON.
    """
    ALTER TABLE usage ADD COLUMN long_cache_write INTEGER;
    ALTER TABLE usage ADD COLUMN images INTEGER;
    ALTER TABLE usage ADD COLUMN web_searches INTEGER;
    ALTER TABLE usage ADD COLUMN other_prices TEXT;
    """,
    # The last prompts of conversations as digests, and what the prompt cache did for each turn. `prompt` is
    # MessagePack, `report` is JSON.
    """
    CREATE TABLE sent_prompt (
        id INTEGER PRIMARY KEY,
        turn TEXT NOT NULL UNIQUE,
        base_url TEXT NOT NULL,
        account TEXT NOT NULL,
        conversation TEXT,
        prompt BLOB NOT NULL
    );
    CREATE INDEX sent_prompt_by_conversation ON sent_prompt (base_url, account, conversation);
    CREATE TABLE cache_report (
        id INTEGER PRIMARY KEY,
        turn TEXT NOT NULL UNIQUE,
        started REAL NOT NULL,
        missed INTEGER NOT NULL,
        report TEXT NOT NULL
    );
    """,
    # The attempts that are running and have a reservation in `usage.reserved_cost`. The costs are those of
    # the prompt and of one output token; `seen` is when the process was last known to be alive. The indices
    # contain all that a budget adds up.
    """
    CREATE TABLE reservation (
        key TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        seen REAL NOT NULL,
        prompt_cost INTEGER NOT NULL,
        token_cost INTEGER NOT NULL,
        tokens INTEGER NOT NULL
    );
    CREATE INDEX usage_costs
        ON usage (started, account, base_url, billed_cost, computed_cost, reserved_cost);
    CREATE INDEX usage_by_conversation ON usage (conversation, started) WHERE conversation IS NOT NULL;
    """,
    # Tool sets have a table of their own, so that many of them do not displace weights. The weights of texts
    # and the features of tool sets from before are not usable any more.
    """
    CREATE TABLE toolset (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        data BLOB NOT NULL
    );
    DELETE FROM learned WHERE name LIKE 'tools %' OR name LIKE 'text %';
    ALTER TABLE measured ADD COLUMN deviation REAL;
    ALTER TABLE outcome ADD COLUMN refused TEXT NOT NULL DEFAULT '';
    """,
)


_log = logging.getLogger(__name__)


# Seconds. How long `retry_while_busy` waits for another process by default. A write takes 1 or 2 ms.
BUSY_TIMEOUT = 10.0
# How long the constructor waits for another process. If that fails, the next statement tries again.
OPEN_TIMEOUT = 0.5
# How long one statement waits. Short, because the connection's lock is held meanwhile.
_STATEMENT_TIMEOUT = 0.02
# A write-ahead log larger than this (bytes) is truncated after a checkpoint.
_WAL_SIZE_LIMIT = 4_000_000


class StoreUnusable(BridgeError):
    """Raised when the file cannot be read or written: disk full, no permission, I/O error."""

    advice = (
        "Check permissions and disk space of the data directory, or choose another with TOLLBRIDGE_DATA_DIR."
    )


class StoreBusy(StoreUnusable):
    """Raised when another process holds the write lock. Trying again later can succeed."""

    advice = "Another process is using the database. Try again."


class Database:
    """A connection to one SQLite file, which threads can share.

    Every statement is one transaction, unless it runs inside a `transaction` block. A statement that another
    process blocks raises `StoreBusy` after 20 ms; `retry_while_busy` repeats it.

    Args:
        path: The file. It is created if missing, together with its parent directories.
        timeout: How many seconds `retry_while_busy` waits for another process (default: `BUSY_TIMEOUT`).

    Raises:
        StoreUnusable: The file cannot be opened. A locked file raises nothing here: the first statement tries
            to open it again.
    """

    def __init__(self, path: Path, timeout: float | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._timeout = BUSY_TIMEOUT if timeout is None else timeout
        self._timed_out = False  # the last wait timed out, and nothing was written since
        self._deadline = math.inf  # no wait lasts longer (monotonic clock)
        self._closed = False
        self._files = _NO_FILES  # the open files
        self._connection: sqlite3.Connection | None = None
        with suppress(StoreBusy), _translate_errors(path):
            self._connect(OPEN_TIMEOUT)

    def query(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return all rows of a statement."""
        return self._call(lambda connection: connection.execute(statement, values).fetchall())

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._reopen_if_replaced()
        self._call(lambda connection: connection.execute(statement, values))

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._reopen_if_replaced()
        self._call(lambda connection: connection.executemany(statement, rows))

    def retry_while_busy(self, operation: Callable[[], T]) -> T:
        """Call `operation`, and call it again while it raises `StoreBusy`, until the timeout.

        After a timeout, later calls try only once until a write has succeeded. No lock is held between two
        tries. Can block for the whole timeout: do not call it on the event loop's thread.

        Raises:
            StoreBusy: Another process held the lock for the whole timeout.
        """
        end = time.monotonic() + (0 if self._timed_out else self._timeout)
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

    def set_timeout(self, seconds: float) -> None:
        """Limit all waiting to this many seconds from now. Used before closing."""
        self._deadline = time.monotonic() + seconds

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one write transaction: commit all of it, or roll back if it raises.

        The write lock is taken at the start, because SQLite can refuse to upgrade a read transaction to a
        write transaction.
        """
        with self._lock:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._roll_back()
                raise
            self.execute("COMMIT")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Run all queries of the block on the data of one moment. Other processes can write meanwhile."""
        with self._lock:
            if self._connection is not None and self._connection.in_transaction:
                yield
                return
            self.query("BEGIN")
            try:
                yield
            finally:
                self._roll_back()

    def _roll_back(self) -> None:
        with _translate_errors(self.path):
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def data_version(self) -> int:
        """Return a number that changes when another connection has written; -1 before the file is open."""
        try:
            return int(self.query("PRAGMA data_version")[0][0])
        except StoreBusy:
            return -1

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _call(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run an operation, and replace the file first if it turns out to be corrupt.

        An operation inside a transaction is not repeated on the new file: it raises `StoreBusy`, so that
        the caller repeats the whole transaction.
        """
        import sqlite3

        with self._lock, _translate_errors(self.path):
            connection = self._connect(_STATEMENT_TIMEOUT)
            in_transaction = connection.in_transaction
            try:
                return operation(connection)
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                connection.close()
                self._connection = None
                _move_aside(self.path, self._files[0], error)
                if in_transaction:
                    raise StoreBusy(f"The database {self.path} was corrupt; created a new one") from error
            return operation(self._connect(_STATEMENT_TIMEOUT))

    def _connect(self, timeout: float) -> sqlite3.Connection:
        """Return the connection, and open it first if that has not succeeded yet."""
        import sqlite3

        if self._connection is None and not self._closed:
            self._connection = _open(self.path, timeout, self._files)
            self._files = _identify_files(self.path)
        if self._connection is None:
            raise sqlite3.ProgrammingError("it is closed")
        return self._connection

    def _reopen_if_replaced(self) -> None:
        """Close the connection if the file was deleted or replaced: what is written to it would be lost."""
        with self._lock:
            if (
                self._connection is None
                or self._closed
                or self._connection.in_transaction
                or self.is_current()
            ):
                return
            _log.warning("The database %s was deleted or replaced while it was open.", self.path)
            # SQLite neither changes nor deletes the files next to a database that was replaced.
            self._connection.close()
            self._connection = None

    def is_current(self) -> bool:
        """Return whether the open files are still those at their paths."""
        return _identify_files(self.path) == self._files


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as `StoreBusy` or `StoreUnusable`."""
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = StoreBusy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreUnusable
        raise kind(f"Cannot use the database {path}: {error}") from error


def _is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file is corrupt or not a database. Nothing in it is irreplaceable, so it is recreated."""
    import sqlite3

    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


# The device and inode of a file; `None` if it does not exist.
_Identity = tuple[int, int] | None
_NO_FILES: tuple[_Identity, _Identity] = (None, None)  # the database and its write-ahead log


def _identify(path: Path) -> _Identity:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _identify_files(path: Path) -> tuple[_Identity, _Identity]:
    return _identify(path), _identify(_side_file(path, "-wal"))


def _side_file(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _open(path: Path, timeout: float, old_files: tuple[_Identity, _Identity]) -> sqlite3.Connection:
    """Open the file, replacing a corrupt one.

    Args:
        path: The file.
        timeout: How many seconds to wait for another process.
        old_files: The database that was open before, and its write-ahead log.
    """
    import sqlite3

    try:
        make_folder(path.parent)
        _prepare_files(path, old_files)
    except OSError as error:
        raise StoreUnusable(f"Cannot create the database {path}: {error}") from error
    identity = _identify(path)
    try:
        return _open_connection(path, timeout)
    except sqlite3.DatabaseError as error:
        if not _is_corrupt(error):
            raise
        _move_aside(path, identity, error)
        _prepare_files(path, old_files)
        return _open_connection(path, timeout)


def _prepare_files(path: Path, old_files: tuple[_Identity, _Identity]) -> None:
    """Create a missing file, and make all files private. SQLite gives new ones the database's permissions.

    The log and the shared memory of a database that is gone must not be used with the new one. They are
    deleted under a lock, so that no process deletes the files of a database that another has just created.
    """
    side_files = [_side_file(path, suffix) for suffix in ("-wal", "-shm")]
    log_is_old = old_files[1] is not None and _identify(side_files[0]) == old_files[1]
    if _identify(path) is None or (log_is_old and _identify(path) != old_files[0]):
        with _folder_lock(path.parent):
            is_missing = _identify(path) is None
            log_is_old = old_files[1] is not None and _identify(side_files[0]) == old_files[1]
            if is_missing or log_is_old:
                for file in side_files:
                    file.unlink(missing_ok=True)
            if is_missing:
                create_file(path).close()
    for file in (path, *side_files):
        make_private(file)


def _move_aside(path: Path, identity: _Identity, error: sqlite3.Error) -> None:
    """Rename a corrupt file, so that a new one can be created in its place."""
    if _identify(path) != identity:
        return  # another process has already replaced the file
    backup = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    try:
        path.rename(backup)
        for suffix in ("-wal", "-shm"):
            _side_file(path, suffix).unlink(missing_ok=True)
    except OSError as failure:
        raise StoreUnusable(f"The database {path} is corrupt and cannot be renamed: {failure}") from failure
    _log.warning("%s was corrupt (%s); created a new one. The old file is %s", path, error, backup)


def _open_connection(path: Path, timeout: float) -> sqlite3.Connection:
    import sqlite3

    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        _execute_when_unlocked(connection, "PRAGMA journal_mode = WAL", timeout)
        # A power failure can lose the last transactions, but does not corrupt the file; a killed process
        # loses nothing that it has committed.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE_LIMIT}")
        _migrate(connection)
        connection.execute(f"PRAGMA busy_timeout = {_STATEMENT_TIMEOUT * 1000:.0f}")
    except BaseException:
        connection.close()
        raise
    return connection


def _execute_when_unlocked(connection: sqlite3.Connection, statement: str, timeout: float) -> None:
    """Retry a statement while the file is locked: changing the journal mode ignores SQLite's busy timeout."""
    import sqlite3

    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _migrate(connection: sqlite3.Connection) -> None:
    if _schema_version(connection) >= len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read the version again: another process may have migrated the file before this one got the lock.
        for number in range(_schema_version(connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[number].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
