"""The ledger's tables: prefixes, measured messages, learned weights, and how right the estimates were."""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Literal

import msgspec

from tollbridge.storage.database import Database, StoreBusy, StoreUnusable
from tollbridge.types.usage import Usage

# SECTION Signs of life: a file that a process keeps locked, and that the system lets go of when the process dies.
#
# A process's number would not do: numbers are given again, and mean nothing in another container.

# Seconds.
YOUNG = 60.0

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        # Not `lockf`: its locks are of the process, and end when any of its files on the path is closed.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class ProcessLock:
    """A name of this process's own, beside a database; alive until taken down, or until the process dies."""

    def __init__(self, database: Path) -> None:
        self.name = uuid.uuid4().hex
        self._path = _path(database, self.name)
        try:
            self._file = self._path.open("wb")
            _lock(self._file)
        except OSError as error:
            raise StoreUnusable(f"{self._path} cannot be written: {error.strerror}") from error

    def take_down(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
            self._path.unlink(missing_ok=True)


def is_alive(database: Path, name: str) -> bool:
    """Whether the process with this name lives. The file of one that does not is removed."""
    path = _path(database, name)
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to judge
    with file:
        try:
            _lock(file)
        except OSError:
            return True
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    return False


def clear(database: Path) -> None:
    """Remove what processes left behind that were killed. A young file may be about to be locked."""
    begins = _path(database, "").name
    with contextlib.suppress(OSError):
        for path in list(database.parent.iterdir()):
            if path.name.startswith(begins) and path.stat().st_mtime < time.time() - YOUNG:
                is_alive(database, path.name.removeprefix(begins))


def _path(database: Path, name: str) -> Path:
    return database.with_name(f"{database.name}-alive-{name}")


# SECTION The table of requests: one row each, from the moment it starts.

# Rows kept; the oldest go. At some 150 bytes each, 30 MB.
ROW_LIMIT = 200_000
# The table is trimmed once in so many writes, the first among them.
_OFTEN = 500

Outcome = Literal["completed", "failed", "cancelled", "interrupted", "running"]


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `running` is under way; `interrupted` was, when its process died."""

    started: float
    model: str
    account: str
    base_url: str
    outcome: Outcome
    usage: Usage
    duration: float | None
    first: float | None
    finish_reason: str | None
    error: str | None


class UsageTable:
    """Writes rows for one process, and reads everybody's. Owns the database it is given.

    A write waits for another process that writes, and may take its time.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sign: ProcessLock | None = None
        self._writes = 0

    def settle(self) -> None:
        """Rows whose process has died without ending them are marked as interrupted.

        Nobody is waited for: what is not done now is done when the next process starts.
        """
        with suppress(StoreBusy), self._database.writing():
            for (session,) in self._database.rows(
                "SELECT DISTINCT session FROM usage WHERE outcome = 'running'"
            ):
                if not is_alive(self._database.path, session):
                    self._database.run(
                        "UPDATE usage SET outcome = 'interrupted' WHERE session = ? AND outcome = 'running'",
                        (session,),
                    )
        clear(self._database.path)

    def begin(self, model: str, account: str, base_url: str, started: float) -> int:
        """The number of the new row."""
        if self._sign is None:
            # Before the first row: whoever sees the row must see that we live.
            self._sign = ProcessLock(self._database.path)
        values = (self._sign.name, started, model, account, base_url)
        row = self._database.patiently(
            lambda: self._database.rows(
                "INSERT INTO usage (session, started, model, account, base_url, outcome) "
                "VALUES (?, ?, ?, ?, ?, 'running') RETURNING id",
                values,
            )
        )
        self._trim_sometimes()
        return int(row[0][0])

    def end(
        self,
        row: int,
        outcome: Outcome,
        usage: Usage,
        *,
        duration: float,
        first: float | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> None:
        """Only a row that is running ends: none does so twice."""
        tokens = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
        parts = (usage.cached_tokens, usage.reasoning_tokens)
        values = (outcome, *tokens, *parts, duration, first, finish_reason, error, row)
        self._database.patiently(
            lambda: self._database.run(
                "UPDATE usage SET outcome = ?, input = ?, output = ?, total = ?, cached = ?, reasoning = ?, "
                "duration = ?, first = ?, finish_reason = ?, error = ? WHERE id = ? AND outcome = 'running'",
                values,
            )
        )

    def since(self, started: float) -> list[UsageRow]:
        """The requests that started then or later, in order."""
        rows = self._database.rows(
            "SELECT started, model, account, base_url, outcome, input, output, total, cached, reasoning, "
            "duration, first, finish_reason, error FROM usage WHERE started >= ? ORDER BY started, id",
            (started,),
        )
        return [_row(*row) for row in rows]

    def hurry(self, seconds: float) -> None:
        """Writes still to come wait no longer than this."""
        self._database.hurry(seconds)

    def close(self) -> None:
        self._database.close()
        if self._sign is not None:
            self._sign.take_down()

    def _trim_sometimes(self) -> None:
        if self._writes % _OFTEN == 0:
            with suppress(StoreBusy):  # another time
                self._database.run(
                    "DELETE FROM usage WHERE id <= (SELECT id FROM usage ORDER BY id DESC LIMIT 1 OFFSET ?)",
                    (ROW_LIMIT,),
                )
        self._writes += 1


def _row(
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
    duration: float | None,
    first: float | None,
    finish_reason: str | None,
    error: str | None,
) -> UsageRow:
    return UsageRow(
        started=started,
        model=model,
        account=account,
        base_url=base_url,
        outcome=outcome,
        usage=Usage(input, output, total, cached, reasoning),
        duration=duration,
        first=first,
        finish_reason=finish_reason,
        error=error,
    )


# SECTION The ledger's tables: prefixes, measured messages, learned weights, and how right the estimates were.

# How many rows each table keeps; the oldest go. Together they stay well under 50 MB.
LIMITS = {"prefix": 150_000, "measured": 200_000, "learned": 2_000, "outcome": 20_000}


class LedgerTables:
    """Keeps and finds rows, and knows nothing of what they mean."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # The first write trims too: a process may be too short-lived to reach the second.
        self._writes = 0

    def writing(self) -> AbstractContextManager[None]:
        return self._database.writing()

    def changes(self) -> int:
        return self._database.changes()

    def prefixes(self, chains: Sequence[bytes]) -> list[tuple[bytes, bytes, int, int]]:
        return self._database.rows(
            f"SELECT chain, toolset, tokens, loop FROM prefix WHERE chain IN ({_marks(chains)})",  # noqa: S608
            chains,
        )

    def put_prefix(self, prefix: tuple[bytes, bytes, int, int]) -> None:
        self._database.run(
            "INSERT OR REPLACE INTO prefix (chain, toolset, tokens, loop) VALUES (?, ?, ?, ?)", prefix
        )
        self._trim_sometimes()

    def measured(self, keys: Sequence[bytes]) -> list[tuple[bytes, int, int]]:
        found: list[tuple[bytes, int, int]] = []
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            found += self._database.rows(
                f"SELECT key, tokens, reasoning FROM measured WHERE key IN ({_marks(some)})",  # noqa: S608
                some,
            )
        return found

    def put_measured(self, rows: Sequence[tuple[bytes, int, int]]) -> None:
        self._database.run_many(
            "INSERT OR REPLACE INTO measured (key, tokens, reasoning) VALUES (?, ?, ?)", rows
        )

    def learned(self, name: str) -> bytes | None:
        found = self._database.rows("SELECT data FROM learned WHERE name = ?", (name,))
        return bytes(found[0][0]) if found else None

    def put_learned(self, name: str, data: bytes) -> None:
        self._database.run("INSERT OR REPLACE INTO learned (name, data) VALUES (?, ?)", (name, data))

    def outcomes(self) -> list[tuple[str, str, int, int, int]]:
        return self._database.rows("SELECT model, method, plain, estimate, actual FROM outcome ORDER BY id")

    def put_outcome(self, outcome: tuple[str, str, int, int, int]) -> None:
        self._database.run(
            "INSERT INTO outcome (model, method, plain, estimate, actual) VALUES (?, ?, ?, ?, ?)", outcome
        )

    def clear(self) -> None:
        for table in LIMITS:
            self._database.run(f"DELETE FROM {table}")  # noqa: S608

    def _trim_sometimes(self) -> None:
        if self._writes % _OFTEN == 0:
            for table, most in LIMITS.items():
                self._database.run(
                    f"DELETE FROM {table} WHERE id <= "  # noqa: S608
                    f"(SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                    (most,),
                )
        self._writes += 1


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
