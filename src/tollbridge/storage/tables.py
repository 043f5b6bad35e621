"""The tables of the database: one row per attempt of a request, the token ledger's records, learned quirks.

`UsageTable` has a row for every attempt from the moment it starts. Each process marks its rows with a session
name and holds a lock on a file of that name (`ProcessLock`), so that other processes can tell whether a
`running` row is still running. `LedgerTables` stores measured prefixes and messages, learned weights and the
outcomes of estimates. `LessonTable` stores what was learned about servers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec

from tollbridge.storage.database import Database, StoreBusy, StoreUnusable, lock_file
from tollbridge.transport.files import make_private
from tollbridge.types.events import CostSource, Usage
from tollbridge.types.models import Prices
from tollbridge.types.quirks import Evidence, Lesson

# A lock file younger than this (seconds) is not removed: its process may be about to lock it.
LOCK_GRACE_SECONDS = 60.0
# Rows of the usage table; the oldest are deleted. At about 150 bytes each, 30 MB.
ROW_LIMIT = 200_000
# Rows of each ledger table; the oldest are deleted. Together they stay well under 50 MB.
LIMITS = {"prefix": 150_000, "measured": 200_000, "learned": 1_000, "toolset": 1_000, "outcome": 20_000}
# Tables are trimmed at the first of every so many writes. The first write of a process trims too, because a
# short-lived process never reaches the second trim.
_TRIM_INTERVAL = 500


# --- Which processes are alive ---


class ProcessLock:
    """A locked file next to the database that shows other processes that this one is alive.

    The operating system releases the lock when the process dies. A process id is not sufficient: ids are
    reused, and mean nothing in another container. `name` identifies the lock, for `is_alive`.

    Raises:
        StoreUnusable: The file cannot be written.
    """

    def __init__(self, database: Path) -> None:
        self.name = uuid.uuid4().hex
        self._path = _lock_path(database, self.name)
        try:
            self._file = self._path.open("wb")
            make_private(self._path)
            lock_file(self._file)
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
            lock_file(file)
        except OSError:
            return True
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return False


def remove_stale_locks(database: Path) -> None:
    """Delete the lock files of processes that were killed."""
    prefix = _lock_path(database, "").name
    with suppress(OSError):
        for path in list(database.parent.iterdir()):
            if path.name.startswith(prefix) and path.stat().st_mtime < time.time() - LOCK_GRACE_SECONDS:
                is_alive(database, path.name.removeprefix(prefix))


def _lock_path(database: Path, name: str) -> Path:
    return database.with_name(f"{database.name}-alive-{name}")


# --- Attempts ---

Outcome = Literal["completed", "failed", "cancelled", "interrupted", "running"]

# Costs are stored as integers of this unit (US dollars): sums are exact, in SQL too.
COST_UNIT = Decimal("1e-12")
# Higher costs (US dollars) do not fit into a 64-bit integer of this unit. They are errors of a price list.
_COST_LIMIT = 9_000_000
# Characters of a model's name, an account's name, a URL or an id.
_TEXT_LIMIT = 500
# Errors by which a gateway refuses a request before it answers. The provider charges nothing for them,
# so missing usage is not incomplete usage.
REFUSALS = frozenset(
    {
        "authentication",
        "permission",
        "not_found",
        "rate_limited",
        "context_too_long",
        "invalid_request",
        "overloaded",
        "network",
    }
)


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt: a request as it was sent once. A retry or a repair is another attempt of the same turn.

    Attributes:
        key: Identifies the attempt. `None` in rows of the first release, which had one row per request.
        turn: The same for all attempts of a turn.
        attempt: The number of the attempt in its turn, from 1.
        started: When it started, in seconds since the epoch.
        outcome: `running` until the attempt ends, and `interrupted` if its process died before.
        usage: What the gateway reported.
        incomplete: Whether the gateway may have counted tokens that are not in `usage`.
        duration: Seconds from the start to the end.
        first: Seconds from the start to the first event.
        error: The kind of the error by which it failed.
        initiator: The program that sent the request through the local server.
        conversation: The conversation of the request, if the caller says which.
        provider: The provider that answered, if the gateway says which.
        generation_id: The id under which the gateway can be asked for the cost.
        prices: The prices at the time of the attempt, if they were known.
        cost: The cost at these prices, in US dollars; `None` if it is not known.
        billed: What the gateway says it charged, in US dollars; `None` if it does not say.
        cost_source: Where `billed` or, without it, `cost` comes from.
    """

    key: str | None = None
    turn: str | None = None
    attempt: int = 1
    started: float
    model: str
    account: str = ""
    base_url: str = ""
    outcome: Outcome
    usage: Usage = Usage()
    incomplete: bool = False
    duration: float | None = None
    first: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    response_id: str | None = None
    initiator: str | None = None
    conversation: str | None = None
    provider: str | None = None
    generation_id: str | None = None
    prices: Prices | None = None
    cost: Decimal | None = None
    billed: Decimal | None = None
    cost_source: CostSource | None = None

    @property
    def charge(self) -> Decimal | None:
        """What the attempt costs in US dollars: what the gateway charged, or else the computed cost."""
        return self.cost if self.billed is None else self.billed


# The columns of a row, in the order of `_encode_row` and `_decode_row`.
_COLUMNS = (
    *("key", "turn", "attempt", "started", "model", "account", "base_url", "outcome"),
    *("input", "output", "total", "cached", "reasoning", "cache_write", "incomplete"),
    *("duration", "first", "finish_reason", "error", "response_id", "initiator"),
    *("conversation", "provider", "generation_id"),
    *("input_price", "output_price", "cache_read_price", "cache_write_price"),
    *("computed_cost", "billed_cost", "cost_source"),
    *("long_cache_write", "images", "web_searches", "other_prices"),
)
_NAMES = ", ".join(_COLUMNS)
# A row that has ended stays as it is: a row is written again if it is not certain that it was written. Only
# the billed cost can follow later.
_UPSERT = (
    f"INSERT INTO usage (session, {_NAMES}) VALUES (?, {', '.join('?' * len(_COLUMNS))}) "  # noqa: S608
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS)} "
    "WHERE usage.outcome IN ('running', 'interrupted') "
    "OR (usage.billed_cost IS NULL AND excluded.billed_cost IS NOT NULL)"
)


def write_rows(database: Database, session: str, rows: Sequence[UsageRow]) -> None:
    """Insert or update rows, inside a transaction. `session` is the name of the process's lock."""
    database.execute_many(_UPSERT, [(session, *_encode_row(row)) for row in rows])


class UsageTable:
    """Writes the rows of one process, and reads those of all. Closes the given database when it is closed.

    `put` waits for other processes that write, up to the database's timeout.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process_lock: ProcessLock | None = None
        self._writes = 0

    def mark_interrupted(self) -> None:
        """Mark the running rows of processes that have died as interrupted, and delete their lock files.

        Does not wait: if another process is writing, the next process to start marks the rows.
        """
        with suppress(StoreBusy), self._database.transaction():
            for (session,) in self._database.query(
                "SELECT DISTINCT session FROM usage WHERE outcome = 'running'"
            ):
                if not is_alive(self._database.path, session):
                    self._database.execute(
                        "UPDATE usage SET outcome = 'interrupted' WHERE session = ? AND outcome = 'running'",
                        (session,),
                    )
        remove_stale_locks(self._database.path)

    def put(self, rows: Sequence[UsageRow]) -> None:
        """Insert or update rows in one transaction. Rows that have ended in the file stay as they are.

        Raises:
            StoreUnusable: They could not be written. Some may have been; writing them again does no harm.
        """
        self._database.retry_while_busy(lambda: self._put(rows))
        if not self._database.is_current():
            # The file was deleted or replaced while the rows were written.
            self._database.retry_while_busy(lambda: self._put(rows))
        self._trim_periodically()

    def _put(self, rows: Sequence[UsageRow]) -> None:
        with self._database.transaction():
            # Before the rows: a process that reads them must find the lock.
            if self._process_lock is not None and not self._process_lock.exists():
                self._process_lock.release()
                self._process_lock = None
            if self._process_lock is None:
                self._process_lock = ProcessLock(self._database.path)
            write_rows(self._database, self._process_lock.name, rows)

    def since(self, started: float) -> list[UsageRow]:
        """Return the attempts that started at this time or later, in order of their start."""
        rows = self._database.query(
            f"SELECT {_NAMES} FROM usage WHERE started >= ? ORDER BY started, id",  # noqa: S608
            (started,),
        )
        return [_decode_row(*row) for row in rows]

    def set_timeout(self, seconds: float) -> None:
        """Limit the waiting of all further writes to this many seconds from now."""
        self._database.set_timeout(seconds)

    def close(self) -> None:
        self._database.close()
        if self._process_lock is not None:
            self._process_lock.release()

    def _trim_periodically(self) -> None:
        if self._writes % _TRIM_INTERVAL == 0:
            with suppress(StoreBusy):  # the next trim deletes the rows
                self._database.execute(
                    "DELETE FROM usage WHERE id <= (SELECT id FROM usage ORDER BY id DESC LIMIT 1 OFFSET ?)",
                    (ROW_LIMIT,),
                )
        self._writes += 1


def is_incomplete(usage: Usage | None, outcome: Outcome, error: str | None, first: float | None) -> bool:
    """Return whether the gateway may have counted tokens for an attempt that are not in its usage.

    Args:
        usage: What the gateway reported.
        outcome: How the attempt ended.
        error: The kind of the error.
        first: When the first event arrived.
    """
    if usage is not None and usage.known:
        return False
    return not (outcome == "failed" and error in REFUSALS and first is None)


def _encode_row(row: UsageRow) -> tuple[Any, ...]:
    usage, prices = row.usage, row.prices or Prices()
    return (
        *(row.key, row.turn, row.attempt, row.started),
        *map(encode_text, (row.model, row.account, row.base_url)),
        row.outcome,
        *(usage.input_tokens, usage.output_tokens, usage.total_tokens),
        *(usage.cached_tokens, usage.reasoning_tokens, usage.cache_write_tokens),
        row.incomplete,
        *(row.duration, row.first, row.finish_reason, row.error),
        *map(encode_text, (row.response_id, row.initiator, row.conversation)),
        *map(encode_text, (row.provider, row.generation_id)),
        *map(_encode_price, (prices.input, prices.output, prices.cache_read, prices.cache_write)),
        *map(_encode_cost, (row.cost, row.billed)),
        row.cost_source,
        *(usage.long_cache_write_tokens, usage.images, usage.web_searches),
        _encode_other_prices(prices),
    )


def _decode_row(
    key: str | None,
    turn: str | None,
    attempt: int | None,
    started: float,
    model: str,
    account: str,
    base_url: str,
    outcome: Outcome,
    input: int | None,
    output: int | None,
    total: int | None,
    cached: int | None,
    reasoning: int | None,
    cache_write: int | None,
    incomplete: int | None,
    duration: float | None,
    first: float | None,
    finish_reason: str | None,
    error: str | None,
    response_id: str | None,
    initiator: str | None,
    conversation: str | None,
    provider: str | None,
    generation_id: str | None,
    input_price: str | None,
    output_price: str | None,
    cache_read_price: str | None,
    cache_write_price: str | None,
    computed_cost: int | None,
    billed_cost: int | None,
    cost_source: CostSource | None,
    long_cache_write: int | None,
    images: int | None,
    web_searches: int | None,
    other_prices: str | None,
) -> UsageRow:
    usage = Usage(
        *(input, output, total, cached, reasoning, cache_write, long_cache_write, images, web_searches)
    )
    prices: list[Any] = [
        None if price is None else Decimal(price)
        for price in (input_price, output_price, cache_read_price, cache_write_price)
    ]
    return UsageRow(
        key=key,
        turn=turn,
        attempt=attempt or 1,
        started=started,
        model=model,
        account=account,
        base_url=base_url,
        outcome=outcome,
        usage=usage,
        incomplete=is_incomplete(usage, outcome, error, first) if incomplete is None else bool(incomplete),
        duration=duration,
        first=first,
        finish_reason=finish_reason,
        error=error,
        response_id=response_id,
        initiator=initiator,
        conversation=conversation,
        provider=provider,
        generation_id=generation_id,
        prices=Prices(*prices, **_decode_other_prices(other_prices))
        if any(price is not None for price in prices)
        else None,
        cost=_decode_cost(computed_cost),
        billed=_decode_cost(billed_cost),
        cost_source=cost_source,
    )


def _encode_cost(cost: Decimal | None) -> int | None:
    return None if cost is None or cost >= _COST_LIMIT else int((cost / COST_UNIT).to_integral_value())


def _decode_cost(units: int | None) -> Decimal | None:
    return None if units is None else units * COST_UNIT


def _encode_price(price: Decimal | None) -> str | None:
    return None if price is None else str(price)


# The prices without a column of their own. Tiers are not stored: a row has the prices of its prompt.
_OTHER_PRICES = ("cache_write_long", "reasoning", "image", "web_search")


def _encode_other_prices(prices: Prices) -> str | None:
    fields: dict[str, str] = {
        name: str(price) for name in _OTHER_PRICES if (price := getattr(prices, name)) is not None
    }
    if prices.source != Prices().source:
        fields["source"] = prices.source
    return msgspec.json.encode(fields).decode() if fields else None


def _decode_other_prices(text: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(text) if text else {}
    return {
        name: value if name == "source" else Decimal(value)
        for name, value in fields.items()
        if name in (*_OTHER_PRICES, "source")
    }


def encode_text(text: str | None) -> str | None:
    """Limit the length of a text from outside, and replace lone surrogates, which SQLite does not accept."""
    return None if text is None else text[:_TEXT_LIMIT].encode("utf-8", "replace").decode()


# --- The token ledger ---


class LedgerTables:
    """Stores the ledger's rows: the `LedgerStore` (see `tollbridge.tokens.records`) of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = 0

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def data_version(self) -> int:
        return self._database.data_version()

    def prefixes(self, chains: Sequence[bytes]) -> list[tuple[bytes, bytes, int, int]]:
        return self._database.query(
            f"SELECT chain, toolset, tokens, loop FROM prefix WHERE chain IN ({_placeholders(chains)})",  # noqa: S608
            chains,
        )

    def put_prefix(self, prefix: tuple[bytes, bytes, int, int]) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO prefix (chain, toolset, tokens, loop) VALUES (?, ?, ?, ?)", prefix
        )
        self._trim_periodically()

    def measured(self, keys: Sequence[bytes]) -> list[tuple[bytes, int, int, float]]:
        rows: list[tuple[bytes, int, int, float]] = []
        for start in range(0, len(keys), 500):
            batch = keys[start : start + 500]
            rows += self._database.query(
                "SELECT key, tokens, reasoning, coalesce(deviation, tokens * 0.02) FROM measured "  # noqa: S608
                f"WHERE key IN ({_placeholders(batch)})",
                batch,
            )
        return rows

    def put_measured(self, rows: Sequence[tuple[bytes, int, int, float]]) -> None:
        self._database.execute_many(
            "INSERT OR REPLACE INTO measured (key, tokens, reasoning, deviation) VALUES (?, ?, ?, ?)", rows
        )

    def learned(self, name: str) -> bytes | None:
        rows = self._database.query("SELECT data FROM learned WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def put_learned(self, name: str, data: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO learned (name, data) VALUES (?, ?)", (name, data))

    def toolset(self, name: str) -> bytes | None:
        rows = self._database.query("SELECT data FROM toolset WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def put_toolset(self, name: str, data: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO toolset (name, data) VALUES (?, ?)", (name, data))

    def outcomes(self) -> list[tuple[str, str, int, int, int, str]]:
        return self._database.query(
            "SELECT model, method, plain, estimate, actual, refused FROM outcome ORDER BY id"
        )

    def put_outcome(self, outcome: tuple[str, str, int, int, int, str]) -> None:
        self._database.execute(
            "INSERT INTO outcome (model, method, plain, estimate, actual, refused) VALUES (?, ?, ?, ?, ?, ?)",
            outcome,
        )

    def clear(self) -> None:
        for table in LIMITS:
            self._database.execute(f"DELETE FROM {table}")  # noqa: S608

    def _trim_periodically(self) -> None:
        if self._writes % _TRIM_INTERVAL == 0:
            for table, limit in LIMITS.items():
                self._database.execute(
                    f"DELETE FROM {table} WHERE id <= "  # noqa: S608
                    f"(SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                    (limit,),
                )
        self._writes += 1


def _placeholders(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


# --- Lessons about servers ---

# Rows of the lesson table; those that were confirmed longest ago are deleted.
LESSON_LIMIT = 1_000
# Expired rows are kept for this many seconds: the next success or error decides about them.
_EXPIRED_FOR = 90 * 86_400.0
# The columns that `LessonTable.load` selects, by the names of their fields.
_LESSON_COLUMNS = Lesson.__struct_fields__


class LessonTable:
    """Stores lessons (see `tollbridge.compat.profiles`). Closes the given database when it is closed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> list[Lesson]:
        """Return all lessons, in the order of their confirmation. A row that cannot be read is skipped."""
        rows = self._database.query(
            "SELECT base_url, model, conversation, feature, subject, value, evidence, learned_at, "
            "expires_at, confirmations, id FROM lesson ORDER BY learned_at, id"
        )
        return [lesson for row in rows if (lesson := _decode_lesson(row)) is not None]

    def change(self, confirmed: Sequence[Lesson], deleted: Sequence[Lesson]) -> None:
        """Add or replace lessons and delete others, by their keys. Delete the oldest above the limit."""
        self._database.retry_while_busy(lambda: self._change(confirmed, deleted))

    def _change(self, confirmed: Sequence[Lesson], deleted: Sequence[Lesson]) -> None:
        rows = [
            (*lesson.key, *_encode(lesson), lesson.learned_at, lesson.expires_at, lesson.confirmations)
            for lesson in confirmed
        ]
        with self._database.transaction():
            self._database.execute_many(
                "INSERT INTO lesson (base_url, model, conversation, feature, subject, value, evidence, "
                "learned_at, expires_at, confirmations) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (base_url, model, conversation, feature, subject) DO UPDATE SET "
                "value = excluded.value, evidence = excluded.evidence, learned_at = excluded.learned_at, "
                "expires_at = excluded.expires_at, confirmations = excluded.confirmations",
                rows,
            )
            self._database.execute_many(
                "DELETE FROM lesson WHERE base_url = ? AND model = ? AND conversation = ? AND feature = ? "
                "AND subject = ?",
                [lesson.key for lesson in deleted],
            )
            self._database.execute(
                "DELETE FROM lesson WHERE expires_at < ? OR id IN "
                "(SELECT id FROM lesson ORDER BY learned_at DESC, id DESC LIMIT -1 OFFSET ?)",
                (time.time() - _EXPIRED_FOR, LESSON_LIMIT),
            )

    def close(self) -> None:
        self._database.close()


def _encode(lesson: Lesson) -> tuple[str, str]:
    return msgspec.json.encode(lesson.value).decode(), msgspec.json.encode(lesson.evidence).decode()


def _decode_lesson(row: Sequence[Any]) -> Lesson | None:
    fields = dict(zip(_LESSON_COLUMNS, row, strict=True))
    try:
        fields["value"] = msgspec.json.decode(fields["value"])
        fields["evidence"] = msgspec.json.decode(fields["evidence"], type=Evidence)
        return msgspec.convert(fields, Lesson)
    except (msgspec.MsgspecError, TypeError):
        return None
