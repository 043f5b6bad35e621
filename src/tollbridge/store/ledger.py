"""The ledger's tables: prefixes, measured messages, learned weights, and how right the estimates were."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from tollbridge.store.database import Database

# How many rows each table keeps; the oldest go. Together they stay well under 50 MB.
LIMITS = {"prefix": 150_000, "measured": 200_000, "learned": 2_000, "outcome": 20_000}
# A table is trimmed once in so many writes.
_OFTEN = 500


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
