"""What every request came to: a record for each, however it ended."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from tollbridge.core.usage import Usage
from tollbridge.store.database import StoreUnusable

if TYPE_CHECKING:
    from tollbridge.store import UsageTable

log = logging.getLogger(__name__)

# Records kept in memory; sums go on beyond them.
RECORD_LIMIT = 1000

Outcome = Literal["completed", "failed", "cancelled"]


class Payer(msgspec.Struct, frozen=True):
    """On whose account a request is, and where it went."""

    account: str = ""
    base_url: str = ""


class Record(msgspec.Struct, frozen=True):
    """One request. Times are seconds; `first` is from the request to the first thing said."""

    model: str
    outcome: Outcome
    usage: Usage | None
    started: float
    duration: float
    first: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    payer: Payer = Payer()


class UsageTracker:
    """Adds up what requests cost, by model. Usage that was not reported is not made up."""

    def __init__(self, limit: int = RECORD_LIMIT) -> None:
        self.records: deque[Record] = deque(maxlen=limit)
        self._totals: dict[str, Usage] = {}
        self._requests: dict[str, int] = {}

    def begin(self, model: str, payer: Payer, started: float) -> int | None:  # noqa: ARG002
        """A request is on its way. What is returned goes to `record` when it has ended."""
        return None

    def record(self, record: Record, ticket: int | None = None) -> None:  # noqa: ARG002
        self.records.append(record)
        self._requests[record.model] = self._requests.get(record.model, 0) + 1
        if record.usage is not None:
            self._totals[record.model] = self._totals.get(record.model, Usage()) + record.usage

    def total(self, model: str | None = None) -> Usage:
        """Everything reported so far, for one model or for all."""
        if model is not None:
            return self._totals.get(model, Usage())
        total = Usage()
        for usage in self._totals.values():
            total += usage
        return total

    def requests(self, model: str | None = None) -> int:
        return self._requests.get(model, 0) if model is not None else sum(self._requests.values())

    def models(self) -> list[str]:
        return list(self._requests)

    def reset(self) -> None:
        self.records.clear()
        self._totals.clear()
        self._requests.clear()

    def close(self) -> None:
        """Nothing more will be recorded."""


class StoredTracker(UsageTracker):
    """Also writes every request into a table: when it starts, and what it came to when it ends.

    A table that can no longer be written is said once in the log; the requests go on.
    """

    def __init__(self, table: UsageTable, limit: int = RECORD_LIMIT) -> None:
        super().__init__(limit)
        self._table: UsageTable | None = table
        table.settle()

    def begin(self, model: str, payer: Payer, started: float) -> int | None:
        if self._table is None:
            return None
        try:
            return self._table.begin(model, payer.account, payer.base_url, started)
        except StoreUnusable as error:
            self._give_up(error)
            return None

    def record(self, record: Record, ticket: int | None = None) -> None:
        super().record(record)
        if self._table is None or ticket is None:
            return
        try:
            self._table.end(
                ticket,
                record.outcome,
                record.usage or Usage(),
                duration=record.duration,
                first=record.first,
                finish_reason=record.finish_reason,
                error=record.error,
            )
        except StoreUnusable as error:
            self._give_up(error)

    def close(self) -> None:
        if self._table is not None:
            self._table.close()

    def _give_up(self, error: StoreUnusable) -> None:
        log.warning("%s; what is used from now on is not written down", error.message)
        self.close()
        self._table = None


def open_tracker(path: Path) -> UsageTracker:
    """A tracker that writes into this file, or one that only remembers where the file cannot be used."""
    from tollbridge.store import Database, UsageTable

    try:
        return StoredTracker(UsageTable(Database(path)))
    except StoreUnusable as error:
        log.warning("%s; what is used now is not written down", error.message)
        return UsageTracker()
