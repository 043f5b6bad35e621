"""What every request came to: a record for each, however it ended."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tollbridge.storage.database import Database, StoreBusy, StoreUnusable
from tollbridge.storage.tables import UsageTable
from tollbridge.storage.worker import WorkerThread
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event, Finished
from tollbridge.types.usage import Usage

log = logging.getLogger(__name__)

T = TypeVar("T")
# The number of a request's row, once it has been written; `None` where it could not be.
RowFuture = Future[int | None]

# Records kept in memory; sums go on beyond them.
RECORD_LIMIT = 1000
# How long the last writes may wait for another process, and all of them together may take.
LAST_PATIENCE, LEAVING = 1.0, 1.5

Outcome = Literal["completed", "failed", "cancelled"]


class BillingAccount(msgspec.Struct, frozen=True):
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
    payer: BillingAccount = BillingAccount()


class UsageTracker:
    """Adds up what requests cost, by model. Usage that was not reported is not made up."""

    def __init__(self, limit: int = RECORD_LIMIT) -> None:
        self.records: deque[Record] = deque(maxlen=limit)
        self._totals: dict[str, Usage] = {}
        self._requests: dict[str, int] = {}

    def begin(self, model: str, payer: BillingAccount, started: float) -> RowFuture | None:  # noqa: ARG002
        """A request is on its way. What is returned goes to `record` when it has ended."""
        return None

    def record(self, record: Record, ticket: RowFuture | None = None) -> Future[None] | None:  # noqa: ARG002
        """What is returned is done when the record has been written down, where it is."""
        self.records.append(record)
        self._requests[record.model] = self._requests.get(record.model, 0) + 1
        if record.usage is not None:
            self._totals[record.model] = self._totals.get(record.model, Usage()) + record.usage
        return None

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

    A thread of its own writes, in order, for a write may have to wait for another process. One that had to
    wait too long is left out, and said in the log; a table that can no longer be written is said once.
    """

    def __init__(self, table: UsageTable, limit: int = RECORD_LIMIT) -> None:
        super().__init__(limit)
        self._table: UsageTable | None = table
        self._writer = WorkerThread("usage")
        self._write(lambda table: table.settle())

    def begin(self, model: str, payer: BillingAccount, started: float) -> RowFuture | None:
        return self._write(lambda table: _begin(table, model, payer, started))

    def record(self, record: Record, ticket: RowFuture | None = None) -> Future[None] | None:
        super().record(record)
        return self._write(lambda table: _end(table, record, ticket))

    def close(self) -> None:
        """Everything is written before; what another process is still in the way of is left out."""
        if (table := self._table) is not None:
            table.hurry(LAST_PATIENCE)
        self._write(lambda table: table.close())
        self._writer.close(LEAVING)

    def _write(self, act: Callable[[UsageTable], T]) -> Future[T | None]:
        return self._writer.submit(lambda: self._safely(act))

    def _safely(self, act: Callable[[UsageTable], T]) -> T | None:
        """In the writer's thread."""
        if self._table is None:
            return None
        try:
            return act(self._table)
        except StoreBusy as error:
            log.warning("%s; a request is not written down", error.message)
        except StoreUnusable as error:
            log.warning("%s; what is used from now on is not written down", error.message)
            self._table.close()
            self._table = None
        return None


def _begin(table: UsageTable, model: str, payer: BillingAccount, started: float) -> int | None:
    """Where another process is in the way nothing is lost yet: the row is begun when it ends."""
    try:
        return table.begin(model, payer.account, payer.base_url, started)
    except StoreBusy:
        return None


class RequestAccounting:
    """Keeps the time and the usage of one request, from when it is sent; `finished` is how the gateway ended
    it, where it did."""

    def __init__(self, model: str, tracker: UsageTracker, payer: BillingAccount) -> None:
        self.finished: Finished | None = None
        self.first: float | None = None
        self.duration = 0.0
        self._model = model
        self._tracker = tracker
        self._payer = payer
        self._started = time.time()
        self.ticket = tracker.begin(model, payer, self._started)
        self._clock = time.monotonic()
        self._closed = False

    def see(self, batch: list[Event]) -> None:
        """As it comes."""
        for event in batch:
            if isinstance(event, Finished):
                self.finished = event
            elif self.first is None:
                self.first = time.monotonic() - self._clock

    def close(self, outcome: Outcome, error: BridgeError | None = None) -> Future[None] | None:
        """The first ending counts. What is returned is done when it has been written down."""
        if self._closed:
            return None
        self._closed = True
        self.duration = time.monotonic() - self._clock
        finished = self.finished
        return self._tracker.record(
            Record(
                model=self._model,
                outcome=outcome,
                usage=finished.usage if finished else error.usage if error else None,
                started=self._started,
                duration=self.duration,
                first=self.first,
                finish_reason=finished.reason if finished else None,
                error=error.kind if error else None,
                payer=self._payer,
            ),
            self.ticket,
        )


def _end(table: UsageTable, record: Record, ticket: RowFuture | None) -> None:
    """The row was begun before in the same thread; or is begun now, if that had to be left out."""
    payer = record.payer
    row = ticket.result() if ticket is not None else None
    if row is None:
        row = table.begin(record.model, payer.account, payer.base_url, record.started)
    table.end(
        row,
        record.outcome,
        record.usage or Usage(),
        duration=record.duration,
        first=record.first,
        finish_reason=record.finish_reason,
        error=record.error,
    )


def open_tracker(path: Path) -> UsageTracker:
    """A tracker that writes into this file, or one that only remembers where the file cannot be used."""
    try:
        return StoredTracker(UsageTable(Database(path)))
    except StoreUnusable as error:
        log.warning("%s; what is used now is not written down", error.message)
        return UsageTracker()
