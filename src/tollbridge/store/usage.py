"""The table of requests: one row each, from the moment it starts."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import msgspec

from tollbridge.core.usage import Usage
from tollbridge.store.alive import Sign, clear, is_alive
from tollbridge.store.database import Database, StoreBusy

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
        self._sign: Sign | None = None
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
            self._sign = Sign(self._database.path)
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
