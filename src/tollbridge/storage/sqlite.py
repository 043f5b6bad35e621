"""The store in one SQLite file, shared by all processes of a user, or in memory.

One connection writes, on a thread of its own and in the order of the calls, because a write can wait for
another process. A second connection reads: reports, and whatever is read while the first one is in a
transaction. In WAL mode it waits for no writer. Short queries prefer the first connection, because every
write makes the pages that the second one has cached invalid; they run on the caller's thread and wait for
neither, except if a report and a transaction are going on, and then for the milliseconds of the transaction.

One lock file shows that the process is alive. In memory there is one connection for everything and no lock.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tollbridge.storage._sqlite_file import Database, ProcessLock, is_alive, remove_stale_locks
from tollbridge.storage.budgets import Budget, BudgetStatus, CostEstimate, allow_output, check_rate
from tollbridge.storage.limits import LIMITS, Limits
from tollbridge.storage.rows import (
    COST_UNIT,
    LESSON_COLUMNS,
    LESSON_KEY,
    USAGE_COLUMNS,
    CacheEntry,
    Scope,
    StoredReport,
    UsageRow,
    decode_lesson,
    decode_prompts,
    decode_reports,
    encode_lesson,
    encode_prompt,
    encode_report,
    encode_reservation,
    encode_row,
    encode_text,
)
from tollbridge.storage.spool import UsageSpool
from tollbridge.storage.store import Store, StoreUnusable
from tollbridge.storage.worker import WRITE_TIMEOUT, BatchQueue, Pending, WorkerThread
from tollbridge.tokens.prompt_cache import SentPrompt
from tollbridge.tokens.records import EstimateOutcome, LedgerChanges, Measured, Prefix
from tollbridge.types.errors import BudgetExceeded
from tollbridge.types.quirks import Lesson

if TYPE_CHECKING:
    from sqlite3 import Connection

    from tollbridge.storage.reports import Dimension, UsageGroup
    from tollbridge.storage.store import FindPrices

log = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds in which `budgets.requests_per_minute` counts.
_MINUTE = 60.0
# SQLite allows 32,766 values in a statement; a statement with this many is compiled fast enough.
_VALUES = 500


class SqliteStore(Store):
    """A store in one file. See `Store`.

    Args:
        path: The file, which is created by the first write; `None` for a store in memory.
    """

    def __init__(self, path: Path | None, limits: Limits = LIMITS) -> None:
        self._access = access = _Access(path, limits)
        self.usage: SqliteUsage = SqliteUsage(access)
        self.budgets: SqliteBudgets = SqliteBudgets(access)
        self.tokens: SqliteTokens = SqliteTokens(access)
        self.lessons: SqliteLessons = SqliteLessons(access)
        self.prompts: SqlitePrompts = SqlitePrompts(access)

    async def aclose(self) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Write what is pending, at most `Limits.closing_timeout` seconds, and close the file."""
        access = self._access
        access.writer.limit_waiting(access.limits.closing_busy_timeout)
        self.usage.spool.hurry()
        if access.worker.is_started:
            access.worker.submit(self._finish)
        else:
            access.close()
        access.worker.close(access.limits.closing_timeout)

    def _finish(self) -> None:
        self.usage.spool.finish()
        with suppress(StoreUnusable):
            self.lessons.finish()
        self._access.close()


class _Access:
    """What the topics share: two connections, the writer thread, and the lock of the process."""

    def __init__(self, path: Path | None, limits: Limits) -> None:
        self.path = path
        self.limits = limits
        self.writer = Database(path, limits.busy_timeout)
        self.reader = self.writer if path is None else Database(path, limits.busy_timeout)
        self.worker = WorkerThread("store")
        self._process_lock: ProcessLock | None = None
        self._writes: Counter[str] = Counter()  # by table

    def submit(self, operation: Callable[[Connection], T], timeout: float | None = None) -> Pending[T]:
        """Run an operation on the writer thread, as one transaction. See `Database.write`."""
        return self.worker.submit(lambda: self.writer.write(operation, timeout))

    def run(self, operation: Callable[[Connection], T], timeout: float | None = None) -> T:
        """The same as `submit`, for a thread that waits for the result, also for its turn on the thread."""
        return self.worker.run(lambda: self.writer.write(operation, timeout), timeout)

    def query(self, statement: str, values: Sequence[Any] = (), *, reopen: bool = False) -> list[Any]:
        """Read a few rows at once, on any thread. See `Database.query_if_free`."""
        for database in (self.writer, self.reader):
            rows = database.query_if_free(statement, values, reopen=reopen)
            if rows is not None:
                return rows
        return self.writer.query(statement, values)

    async def read(self, operation: Callable[[Connection], list[T]]) -> list[T]:
        """Read many rows on another thread. A file that does not exist has no rows."""
        import asyncio  # here: the thread that counts tokens does not need it

        return await asyncio.to_thread(self.reader.read, operation)

    async def read_rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a statement. See `read`."""
        return await self.read(lambda connection: connection.execute(statement, values).fetchall())

    def ensure_session(self) -> str:
        """Return the name of the process's lock, which is created by the first call. In a transaction only.

        A process that reads a row must find the lock, so it is there before the row is committed.
        """
        if self.path is None:
            return ""
        if self._process_lock is not None and not self._process_lock.exists():
            self._process_lock.release()
            self._process_lock = None
        if self._process_lock is None:
            self._process_lock = ProcessLock(self.path)
        return self._process_lock.name

    def find_dead_sessions(self, connection: Connection, table: str, condition: str = "TRUE") -> list[str]:
        """Return the sessions in a table whose processes are gone."""
        query = f"SELECT DISTINCT session FROM {table} WHERE {condition}"  # noqa: S608
        own = None if self._process_lock is None else self._process_lock.name
        return [
            session
            for (session,) in connection.execute(query).fetchall()
            if self.path is not None and session != own and not is_alive(self.path, session)
        ]

    def trim(self, connection: Connection, table: str, limit: int, *, always: bool = False) -> None:
        """Delete the oldest rows of a table, at the first of every `Limits.trim_interval` calls."""
        if always or self._writes[table] % self.limits.trim_interval == 0:
            connection.execute(
                f"DELETE FROM {table} WHERE id <= (SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET ?)",  # noqa: S608
                (limit,),
            )
        self._writes[table] += 1

    def close(self) -> None:
        self.reader.close()
        self.writer.close()
        if self._process_lock is not None:
            self._process_lock.release()


def _placeholders(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


@cache
def _insert(table: str, columns: Sequence[str], verb: str = "INSERT") -> str:
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({_placeholders(columns)})"


def _update(columns: Sequence[str]) -> str:
    return "DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in columns)


_SELECT_USAGE = f"SELECT {', '.join(USAGE_COLUMNS)} FROM usage"  # noqa: S608
# See `UsageStore.put` for which rows are updated.
_PUT_USAGE = (
    f"{_insert('usage', ('session', *USAGE_COLUMNS))} ON CONFLICT (key) {_update(USAGE_COLUMNS)} "
    "WHERE usage.outcome IN ('running', 'interrupted') "
    "OR (usage.billed IS NULL AND excluded.billed IS NOT NULL)"
)


class SqliteUsage:
    """See `UsageStore`. How rows are written, and kept if that fails, is described in `spool.py`."""

    def __init__(self, access: _Access) -> None:
        self._access = access
        self.spool = UsageSpool(access.worker, self._write_rows, access.limits)
        self._has_marked = False
        self._name = uuid.uuid4().hex[:8]  # SQLite's data version is valid for one connection only

    def put(self, row: UsageRow, delay: float = 0.0) -> Pending[None]:
        return self.spool.put(row, delay)

    async def has_account(self, account: str) -> bool:
        statement = "SELECT 1 FROM usage WHERE account = ? OR base_url = ? LIMIT 1"
        return bool(await self._access.read_rows(statement, [account] * 2))

    async def revision(self) -> str:
        rows = await self._access.read_rows("PRAGMA data_version")
        version = rows[0][0] if rows else 0
        return f"{self._name}-{self._access.reader.openings}-{version}"

    async def sums(
        self,
        by: Sequence[Dimension],
        since: float,
        until: float,
        find_prices: FindPrices | None = None,
        *,
        conversation: str | None = None,
        limit: int | None = None,
    ) -> list[UsageGroup]:
        from tollbridge.storage._sqlite_sums import sum_usage  # here: few programs read sums

        def read(connection: Connection) -> list[UsageGroup]:
            return sum_usage(connection, by, since, until, find_prices, conversation, limit)

        if self._access.reader.is_missing:
            return []
        # If another process is writing, the next reader or the next process marks the rows.
        with suppress(StoreUnusable, TimeoutError):
            import asyncio

            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._access.submit(self._mark_interrupted, 0)
        return await self._access.read(read)

    def _write_rows(self, rows: Sequence[UsageRow]) -> None:
        def write(connection: Connection) -> None:
            session = self._access.ensure_session()
            connection.executemany(_PUT_USAGE, [(session, *encode_row(row)) for row in rows])
            self._access.trim(connection, "usage", self._access.limits.usage_rows)

        if not self._has_marked:
            self._access.writer.write(self._mark_interrupted)
            self._has_marked = True
        self._access.writer.write(write)
        if not self._access.writer.is_current():
            # The file was deleted or replaced while the rows were written.
            self._access.writer.write(write)

    def _mark_interrupted(self, connection: Connection) -> None:
        """Mark the running rows of processes that have died as interrupted, and delete their lock files."""
        for session in self._access.find_dead_sessions(connection, "usage", "outcome = 'running'"):
            connection.execute(
                "UPDATE usage SET outcome = 'interrupted' WHERE session = ? AND outcome = 'running'",
                (session,),
            )
        if self._access.path is not None:
            remove_stale_locks(self._access.path, self._access.limits.lock_grace)


class SqliteBudgets:
    """See `BudgetStore`. A budget is a sum over the usage table; a reservation is a part of a usage row.

    The cost of an attempt is in its row: what was billed, or else computed, or else `reserved`. So a budget
    agrees with the usage that is shown, and counts the requests of programs that have no budget. The table
    `reservation` lists the attempts that are running, to tell what is reserved from what is spent.

    Two requests must not both see the same money. So `reserve` does everything in one write transaction,
    which SQLite gives to one connection of one process at a time:

    1. The reservations of processes that have died are replaced by an estimate of what was used, from the
       time that the process was last known to be alive. Otherwise a killed process would block its budget.
    2. The attempts within the last minute are counted.
    3. The rows of each budget are added up, with the reservations of all other attempts. If the most that the
       attempt can cost does not fit, its output is limited; if even that does not fit, nothing is written.
    4. The row is written with what it reserves, and the reservation is listed.

    `settle` follows the row of the attempt's end, on the same thread. In between, the budget counts the cost
    in the row or, if that is not known, what is still reserved. While attempts are reserved, the thread notes
    every few seconds that the process is alive.
    """

    def __init__(self, access: _Access) -> None:
        self._access = access
        self._reserved: set[str | None] = set()  # keys of attempts of this process, on the writer thread
        self._is_beating = False  # the next note is scheduled

    def reserve(
        self,
        row: UsageRow,
        estimate: CostEstimate,
        budgets: Sequence[Budget],
        requests_per_minute: int = 0,
        *,
        over_budget: bool = False,
    ) -> Pending[int]:
        def reserve(connection: Connection) -> int:
            session = self._access.ensure_session()
            self._release_reservations_of_dead_processes(connection)
            tokens = estimate.output_tokens
            if not over_budget:
                if requests_per_minute:
                    check_rate(self._count_attempts(connection, row), requests_per_minute)
                allowed = [allow_output(estimate, _add_up(connection, budget)) for budget in budgets]
                tokens = min(allowed, default=tokens)
            cost = encode_reservation(estimate.prompt + tokens * estimate.output_token)
            figures = encode_reservation(estimate.prompt), encode_reservation(estimate.output_token), tokens
            connection.execute(_PUT_USAGE, (session, *encode_row(row)))
            connection.execute("UPDATE usage SET reserved = ? WHERE key = ?", (cost, row.key))
            connection.execute(
                _insert("reservation", ("key", "session", "seen", "prompt_cost", "token_cost", "tokens")),
                (row.key, session, time.time(), *figures),
            )
            return tokens

        def reserve_and_note() -> int:
            tokens = self._access.writer.write(reserve)
            self._reserved.add(row.key)
            self._schedule_beat()
            return tokens

        return self._access.worker.submit(reserve_and_note)

    def settle(self, key: str, cost: Decimal) -> Pending[None]:
        def settle(connection: Connection) -> None:
            connection.execute("UPDATE usage SET reserved = ? WHERE key = ?", (encode_reservation(cost), key))
            connection.execute("DELETE FROM reservation WHERE key = ?", (key,))

        def settle_if_reserved() -> None:
            if key in self._reserved:
                self._reserved.discard(key)
                self._access.writer.write(settle)

        return self._access.worker.submit(settle_if_reserved)

    def status(self, budgets: Sequence[Budget]) -> Pending[list[BudgetStatus]]:
        def read(connection: Connection) -> list[BudgetStatus]:
            self._release_reservations_of_dead_processes(connection)
            return [_add_up(connection, budget) for budget in budgets]

        if self._access.reader.is_missing:
            empty: Pending[list[BudgetStatus]] = Pending()
            empty.set_result([BudgetStatus(budget, Decimal(), Decimal()) for budget in budgets])
            return empty
        return self._access.submit(read)

    def _count_attempts(self, connection: Connection, row: UsageRow) -> int:
        """Return how many other attempts were sent within a minute. Refused ones were not sent."""
        [(count,)] = connection.execute(
            "SELECT COUNT(*) FROM usage WHERE started > ? AND key <> ? AND "
            "(reserved IS NOT NULL OR (outcome <> 'running' AND COALESCE(error, '') <> ?))",
            (row.started - _MINUTE, row.key, BudgetExceeded.kind),
        )
        return int(count)

    def _release_reservations_of_dead_processes(self, connection: Connection) -> None:
        for session in self._access.find_dead_sessions(connection, "reservation"):
            rows = connection.execute(
                "SELECT seen - started, prompt_cost, token_cost, tokens, usage.key "
                "FROM reservation JOIN usage ON usage.key = reservation.key WHERE reservation.session = ?",
                (session,),
            ).fetchall()
            heartbeat = self._access.limits.heartbeat
            for seconds, prompt, token, tokens, key in rows:
                estimate = CostEstimate(
                    prompt=COST_UNIT * prompt, output_token=COST_UNIT * token, output_tokens=tokens
                )
                cost = encode_reservation(estimate.cost_if_interrupted(seconds + heartbeat))
                connection.execute("UPDATE usage SET reserved = ? WHERE key = ?", (cost, key))
            connection.execute("DELETE FROM reservation WHERE session = ?", (session,))

    def _schedule_beat(self) -> None:
        if not self._is_beating:
            self._is_beating = True
            self._access.worker.call_later(self._access.limits.heartbeat, self._beat)

    def _beat(self) -> None:
        """Note that the process is alive: if it dies, its reservations are valued by the last such note."""
        self._is_beating = False
        if self._reserved:
            with suppress(StoreUnusable):
                self._access.writer.write(
                    lambda connection: connection.execute(
                        "UPDATE reservation SET seen = ? WHERE session = ?",
                        (time.time(), self._access.ensure_session()),
                    )
                )
            self._schedule_beat()


def _add_up(connection: Connection, budget: Budget) -> BudgetStatus:
    conditions, values = ["usage.started >= ?"], list[object]([budget.since])
    if budget.account is not None:
        conditions.append("(account = ? OR base_url = ?)")
        values += [budget.account, budget.account]
    if budget.conversation is not None:
        conditions.append("conversation = ?")
        values.append(encode_text(budget.conversation))

    def add_up(rows: str) -> Decimal:
        [(units,)] = connection.execute(
            f"SELECT COALESCE(SUM(COALESCE(billed, cost, reserved)), 0) FROM {rows} "  # noqa: S608
            f"WHERE {' AND '.join(conditions)}",
            values,
        )
        return COST_UNIT * int(units)

    total = add_up("usage")
    conditions.append("usage.key = reservation.key")
    # A cross join, so that SQLite begins with the few rows of `reservation`.
    reserved = add_up("reservation CROSS JOIN usage")
    return BudgetStatus(budget, total - reserved, reserved)


_PUT_LESSON = (
    f"{_insert('lesson', LESSON_COLUMNS)} ON CONFLICT ({', '.join(LESSON_KEY)}) "
    f"{_update([name for name in LESSON_COLUMNS if name not in LESSON_KEY])}"
)
_DELETE_LESSON = f"DELETE FROM lesson WHERE {' AND '.join(f'{name} = ?' for name in LESSON_KEY)}"  # noqa: S608


class SqliteLessons:
    """See `LessonStore`. Changes that could not be written are kept in memory, and this is logged once."""

    def __init__(self, access: _Access) -> None:
        self._access = access
        self._unwritten: deque[tuple[Sequence[Lesson], Sequence[Lesson]]] = deque(
            maxlen=access.limits.spooled_lessons
        )
        self._is_failing = False

    def load(self) -> Pending[list[Lesson]]:
        statement = f"SELECT {', '.join(LESSON_COLUMNS)}, id FROM lesson ORDER BY learned_at, id"  # noqa: S608

        def load() -> list[Lesson]:
            self.finish()
            rows = self._access.query(statement)
            return [lesson for row in rows if (lesson := decode_lesson(row)) is not None]

        return self._submit(load)

    def change(self, confirmed: Sequence[Lesson], deleted: Sequence[Lesson]) -> Pending[None]:
        self._unwritten.append((confirmed, deleted))
        return self._submit(self.finish)

    def finish(self) -> None:
        """Write what is kept, on the writer thread."""
        while self._unwritten:
            confirmed, deleted = self._unwritten[0]
            with suppress(UnicodeEncodeError):  # a model name that is not valid text
                self._access.writer.write(partial(self._change, confirmed=confirmed, deleted=deleted))
            self._unwritten.popleft()

    def _submit(self, operation: Callable[[], T]) -> Pending[T]:
        def run() -> T:
            try:
                result = operation()
            except StoreUnusable as error:
                if not self._is_failing:
                    log.warning("%s; what is learned about servers is not stored", error.message)
                self._is_failing = True
                raise
            self._is_failing = False
            return result

        return self._access.worker.submit(run)

    def _change(self, connection: Connection, confirmed: Sequence[Lesson], deleted: Sequence[Lesson]) -> None:
        limits = self._access.limits
        connection.executemany(_PUT_LESSON, [encode_lesson(lesson) for lesson in confirmed])
        connection.executemany(_DELETE_LESSON, [lesson.key for lesson in deleted])
        connection.execute(
            "DELETE FROM lesson WHERE expires_at < ? OR id IN "
            "(SELECT id FROM lesson ORDER BY learned_at DESC, id DESC LIMIT -1 OFFSET ?)",
            (time.time() - limits.expired_lessons, limits.lessons),
        )


class SqliteTokens:
    """The ledger's records: see `LedgerStore`, and `Ledger` for how changes are made."""

    def __init__(self, access: _Access) -> None:
        self._access = access

    def version(self) -> int:
        rows = self._access.query("SELECT coalesce(max(id), 0) FROM learned", reopen=True)
        return int(rows[0][0]) if rows else 0

    def prefixes(self, keys: Sequence[bytes]) -> list[Prefix]:
        statement = "SELECT chain, toolset, tokens, loop FROM prefix WHERE chain IN"
        return self._access.query(f"{statement} ({_placeholders(keys)})", keys)

    def measured(self, keys: Sequence[bytes]) -> list[Measured]:
        rows: list[Measured] = []
        statement = "SELECT key, tokens, reasoning, deviation FROM measured WHERE key IN"
        for start in range(0, len(keys), _VALUES):
            batch = keys[start : start + _VALUES]
            rows += self._access.query(f"{statement} ({_placeholders(batch)})", batch)
        return rows

    def learned(self, name: str) -> bytes | None:
        rows = self._access.query("SELECT data FROM learned WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def toolset(self, name: str) -> bytes | None:
        rows = self._access.query("SELECT data FROM toolset WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def outcomes(self) -> list[EstimateOutcome]:
        return self._access.query(
            "SELECT model, method, plain, estimate, actual, refused FROM outcome ORDER BY id"
        )

    def commit(self, changes: LedgerChanges, timeout: float | None = None) -> int | None:
        return self._access.run(lambda connection: self._commit(connection, changes), timeout)

    def _commit(self, connection: Connection, changes: LedgerChanges) -> int | None:
        limits = self._access.limits
        if changes.learned and _read_version(connection) != changes.version:
            return None
        tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]], int]] = {
            "prefix": (("chain", "toolset", "tokens", "loop"), changes.prefixes, limits.prefixes),
            "measured": (("key", "tokens", "reasoning", "deviation"), changes.measured, limits.measured),
            "learned": (("name", "data"), list(changes.learned.items()), limits.learned),
            "toolset": (("name", "data"), list(changes.toolsets.items()), limits.toolsets),
            "outcome": (
                ("model", "method", "plain", "estimate", "actual", "refused"),
                changes.outcomes,
                limits.outcomes,
            ),
        }
        for table, (columns, rows, limit) in tables.items():
            if rows:
                connection.executemany(_insert(table, columns, "INSERT OR REPLACE"), rows)
                self._access.trim(connection, table, limit)
        return _read_version(connection)

    def clear(self) -> None:
        def clear(connection: Connection) -> None:
            for table in ("prefix", "measured", "learned", "toolset", "outcome"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608

        self._access.run(clear)


def _read_version(connection: Connection) -> int:
    [(version,)] = connection.execute("SELECT coalesce(max(id), 0) FROM learned")
    return int(version)


class SqlitePrompts:
    """See `PromptStore`. Entries that arrive while the writer thread is busy are one transaction."""

    def __init__(self, access: _Access) -> None:
        self._access = access
        self._queue = BatchQueue(access.worker, self._write_entries)

    def find(self, scope: Scope) -> list[SentPrompt]:
        rows = self._access.query(
            "SELECT prompt FROM sent_prompt WHERE base_url = ? AND account = ? AND conversation IS ? "
            "ORDER BY id DESC LIMIT ?",
            (scope.base_url, scope.account, scope.conversation, self._access.limits.candidates),
        )
        return list(decode_prompts(data for (data,) in rows))

    def put(self, entry: CacheEntry) -> Pending[None]:
        return self._queue.add(entry)

    def _write_entries(self, entries: Sequence[CacheEntry]) -> None:
        def write(connection: Connection) -> None:
            for entry in entries:
                scope, prompt, report = entry.scope, entry.prompt, entry.report
                connection.execute("DELETE FROM sent_prompt WHERE turn IS ?", (entry.replaced,))
                connection.execute(
                    _insert(
                        "sent_prompt",
                        ("turn", "base_url", "account", "conversation", "prompt"),
                        "INSERT OR REPLACE",
                    ),
                    (prompt.turn, scope.base_url, scope.account, scope.conversation, encode_prompt(prompt)),
                )
                connection.execute(
                    _insert("cache_report", ("turn", "started", "missed", "report"), "INSERT OR REPLACE"),
                    (report.turn, report.started, report.report.missed, encode_report(report).decode()),
                )
            self._access.trim(connection, "sent_prompt", self._access.limits.prompts, always=True)
            self._access.trim(connection, "cache_report", self._access.limits.reports, always=True)

        try:
            self._access.writer.write(write)
        except StoreUnusable as error:
            log.info("%s", error.message)

    async def report(self, turn: str | None = None) -> StoredReport | None:
        escaped = (turn or "").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return next(iter(await self._read("turn LIKE ? ESCAPE '\\'", f"{escaped}%", 1)), None)

    async def misses(self, since: float = 0.0, limit: int = LIMITS.reports) -> list[StoredReport]:
        return await self._read("missed AND started >= ?", since, limit)

    async def _read(self, condition: str, value: object, limit: int) -> list[StoredReport]:
        statement = f"SELECT report FROM cache_report WHERE {condition} ORDER BY started DESC LIMIT ?"  # noqa: S608
        rows = await self._access.read_rows(statement, (value, limit))
        return list(decode_reports(data for (data,) in rows))
