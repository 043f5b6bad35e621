"""Usage tracking: one record per request, with its outcome, token usage and timing.

`UsageTracker` keeps records and totals in memory. `StoredTracker` also writes them to the database, on a
background thread. `RequestAccounting` measures one request and records it when it ends.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tollbridge.storage.database import Database, StoreBusy, StoreUnusable, WorkerThread
from tollbridge.storage.tables import UsageTable
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event, Finished
from tollbridge.types.usage import Usage

log = logging.getLogger(__name__)

T = TypeVar("T")
# The id of a request's row, when it has been written; `None` if it could not be written.
RowFuture = Future[int | None]

# Records kept in memory. Totals include the records that were dropped.
RECORD_LIMIT = 1000
# Seconds, when closing: how long writes wait for another process, and how long `close` takes at most.
CLOSING_BUSY_TIMEOUT, CLOSING_TIMEOUT = 1.0, 1.5

Outcome = Literal["completed", "failed", "cancelled"]


class BillingAccount(msgspec.Struct, frozen=True):
    """The account that pays for a request, and the base URL it was sent to."""

    account: str = ""
    base_url: str = ""


class Record(msgspec.Struct, frozen=True):
    """One request.

    Times are seconds: `started` since the epoch, `first` from the start to the first event. `usage` is `None`
    if the gateway reported none.
    """

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
    """Records requests and adds up their reported usage by model. Missing usage is not estimated.

    Args:
        limit: How many records to keep. Totals include all.
    """

    def __init__(self, limit: int = RECORD_LIMIT) -> None:
        self.records: deque[Record] = deque(maxlen=limit)
        self._totals: dict[str, Usage] = {}
        self._requests: dict[str, int] = {}

    def begin(self, model: str, payer: BillingAccount, started: float) -> RowFuture | None:  # noqa: ARG002
        """Note that a request starts. Pass the returned future to `record` when the request has ended."""
        return None

    def record(self, record: Record, ticket: RowFuture | None = None) -> Future[None] | None:  # noqa: ARG002
        """Add the record of a request that has ended.

        Returns:
            A future that is done when the record has been written; `None` if the tracker does not write.
        """
        self.records.append(record)
        self._requests[record.model] = self._requests.get(record.model, 0) + 1
        if record.usage is not None:
            self._totals[record.model] = self._totals.get(record.model, Usage()) + record.usage
        return None

    def total(self, model: str | None = None) -> Usage:
        """Return the sum of all reported usage, for one model or for all."""
        if model is not None:
            return self._totals.get(model, Usage())
        total = Usage()
        for usage in self._totals.values():
            total += usage
        return total

    def requests(self, model: str | None = None) -> int:
        """Return the number of requests, for one model or for all."""
        return self._requests.get(model, 0) if model is not None else sum(self._requests.values())

    def models(self) -> list[str]:
        """Return the models that were used."""
        return list(self._requests)

    def reset(self) -> None:
        """Forget all records and totals."""
        self.records.clear()
        self._totals.clear()
        self._requests.clear()

    def close(self) -> None:
        """Finish writing. Records added later are not written."""


class StoredTracker(UsageTracker):
    """Also writes every request to a table: a row when it starts, completed when it ends.

    A background thread writes, in order, because a write can wait for another process. A write that times out
    is skipped with a warning in the log. After any other failure nothing more is written, with one warning.
    """

    def __init__(self, table: UsageTable, limit: int = RECORD_LIMIT) -> None:
        super().__init__(limit)
        self._table: UsageTable | None = table
        self._writer = WorkerThread("usage")
        self._write(lambda table: table.mark_interrupted())

    def begin(self, model: str, payer: BillingAccount, started: float) -> RowFuture | None:
        return self._write(lambda table: _begin(table, model, payer, started))

    def record(self, record: Record, ticket: RowFuture | None = None) -> Future[None] | None:
        super().record(record)
        return self._write(lambda table: _end(table, record, ticket))

    def close(self) -> None:
        """Write what is pending, at most `CLOSING_TIMEOUT` seconds, and close the database."""
        if (table := self._table) is not None:
            table.set_timeout(CLOSING_BUSY_TIMEOUT)
        self._write(lambda table: table.close())
        self._writer.close(CLOSING_TIMEOUT)

    def _write(self, operation: Callable[[UsageTable], T]) -> Future[T | None]:
        return self._writer.submit(lambda: self._try_write(operation))

    def _try_write(self, operation: Callable[[UsageTable], T]) -> T | None:
        """Run an operation on the background thread. Failures are logged and return `None`."""
        if self._table is None:
            return None
        try:
            return operation(self._table)
        except StoreBusy as error:
            log.warning("%s; the usage of one request was not recorded", error.message)
        except StoreUnusable as error:
            log.warning("%s; usage will not be recorded", error.message)
            self._table.close()
            self._table = None
        return None


def _begin(table: UsageTable, model: str, payer: BillingAccount, started: float) -> int | None:
    """Insert the row of a request, and return its id; `None` if the table is busy: `_end` then inserts it."""
    try:
        return table.begin(model, payer.account, payer.base_url, started)
    except StoreBusy:
        return None


def _end(table: UsageTable, record: Record, ticket: RowFuture | None) -> None:
    """Complete the row of a request. Insert it first if `_begin` could not."""
    payer = record.payer
    row = ticket.result() if ticket is not None else None  # done: it was submitted before, to the same thread
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


class RequestAccounting:
    """Measures one request from its creation, and records it with a tracker.

    Attributes:
        finished: The event by which the gateway ended the answer; `None` before, and if it sent none.
        first: Seconds from the start to the first event.
        duration: Seconds from the start to `close`.
        row: What `UsageTracker.begin` returned: a future of the request's row.
    """

    def __init__(self, model: str, tracker: UsageTracker, payer: BillingAccount) -> None:
        self.finished: Finished | None = None
        self.first: float | None = None
        self.duration = 0.0
        self._model = model
        self._tracker = tracker
        self._payer = payer
        self._started = time.time()
        self.row = tracker.begin(model, payer, self._started)
        self._clock = time.monotonic()
        self._closed = False

    def add_events(self, batch: list[Event]) -> None:
        """Take the events of one network read."""
        for event in batch:
            if isinstance(event, Finished):
                self.finished = event
            elif self.first is None:
                self.first = time.monotonic() - self._clock

    def close(self, outcome: Outcome, error: BridgeError | None = None) -> Future[None] | None:
        """Record how the request ended. Only the first call has an effect.

        Returns:
            A future that is done when the record has been written; `None` if nothing is written.
        """
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
            self.row,
        )


def open_tracker(path: Path) -> UsageTracker:
    """Return a tracker that writes to this database, or one in memory if the database cannot be used."""
    try:
        return StoredTracker(UsageTable(Database(path)))
    except StoreUnusable as error:
        log.warning("%s; usage will not be recorded", error.message)
        return UsageTracker()
