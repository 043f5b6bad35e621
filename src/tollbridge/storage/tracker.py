"""Usage tracking: one record per attempt of a request, with its outcome, token usage, prices and timing.

`UsageTracker` keeps records and totals in memory. `StoredTracker` also writes them to the database, on a
background thread, and keeps them in memory while the database cannot be written.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import msgspec

from tollbridge.storage.database import BatchQueue, Database, StoreUnusable, WorkerThread
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Usage

log = logging.getLogger(__name__)

# Records kept in memory. Totals include the records that were dropped.
RECORD_LIMIT = 1000
# Rows kept in memory while the database cannot be written; the oldest are dropped. About 1 kB each.
SPOOL_LIMIT = 10_000
# Seconds until rows that could not be written are tried again, if nothing else is written before.
RETRY_SECONDS = 5.0
# Seconds, when closing: how long writes wait for another process, and how long `close` takes at most.
CLOSING_BUSY_TIMEOUT, CLOSING_TIMEOUT = 1.0, 1.5


class BillingAccount(msgspec.Struct, frozen=True):
    """The account that pays for a request, the base URL it was sent to, and the program that sent it.

    `initiator` is the name of an editor or agent that uses the local server; `None` for Tollbridge itself.
    """

    account: str = ""
    base_url: str = ""
    initiator: str | None = None


class UsageTracker:
    """Records the attempts of requests and adds up their reported usage by model.

    Missing usage is not estimated.

    Args:
        limit: How many records to keep. Totals include all.
    """

    def __init__(self, limit: int = RECORD_LIMIT) -> None:
        self.records: deque[UsageRow] = deque(maxlen=limit)
        self._totals: dict[str, ModelTotals] = {}

    def begin(self, row: UsageRow) -> Future[None] | None:  # noqa: ARG002
        """Note that an attempt starts.

        Returns:
            A future that is done when the row has been written; `None` if the tracker does not write.
        """
        return None

    def record(self, row: UsageRow, *, last: bool = True, delay: float = 0.0) -> Future[None] | None:  # noqa: ARG002
        """Add an attempt that has ended.

        Args:
            row: The attempt.
            last: Whether it is the last attempt of its request, so that its outcome is that of the request.
            delay: Seconds that the row may wait, to be written together with others.

        Returns:
            A future that is done when the row has been written; `None` if the tracker does not write.
        """
        self.records.append(row)
        totals = self._totals.setdefault(row.model, ModelTotals())
        totals.requests += last
        totals.failures += last and row.outcome == "failed"
        totals.incomplete += row.incomplete
        totals.usage += row.usage
        return None

    def amend(self, row: UsageRow) -> Future[None] | None:
        """Replace an attempt that has ended, because the gateway has reported its cost later.

        Returns:
            A future that is done when the row has been written; `None` if the tracker does not write.
        """
        for index in range(len(self.records) - 1, -1, -1):
            earlier = self.records[index]
            if earlier.key == row.key:
                self.records[index] = row
                totals = self._totals.setdefault(row.model, ModelTotals())
                totals.incomplete -= earlier.incomplete and not row.incomplete
                if not earlier.usage.known:
                    totals.usage += row.usage
                break
        return None

    def total(self, model: str | None = None) -> Usage:
        """Return the sum of all reported usage, for one model or for all. See `incomplete`."""
        return sum((totals.usage for totals in self._select(model)), Usage())

    def requests(self, model: str | None = None) -> int:
        """Return the number of requests, for one model or for all."""
        return sum(totals.requests for totals in self._select(model))

    def failures(self, model: str | None = None) -> int:
        """Return the number of requests that failed, for one model or for all."""
        return sum(totals.failures for totals in self._select(model))

    def incomplete(self, model: str | None = None) -> int:
        """Return how many attempts may have used tokens that `total` does not include."""
        return sum(totals.incomplete for totals in self._select(model))

    def models(self) -> list[str]:
        """Return the models that were used."""
        return list(self._totals)

    def reset(self) -> None:
        """Forget all records and totals."""
        self.records.clear()
        self._totals.clear()

    def close(self) -> None:
        """Finish writing. Records added later are not written."""

    def _select(self, model: str | None) -> list[ModelTotals]:
        if model is None:
            return list(self._totals.values())
        return [self._totals[model]] if model in self._totals else []


class ModelTotals(msgspec.Struct):
    """The sums of one model."""

    requests: int = 0
    failures: int = 0
    incomplete: int = 0
    usage: Usage = Usage()


class StoredTracker(UsageTracker):
    """Also writes every attempt to a table: a row when it starts, completed when it ends.

    A background thread writes, in order, because a write can wait for another process. If a write fails, for
    whatever reason, its rows are kept in memory (at most `SPOOL_LIMIT`) and written with a later one, or
    after `RETRY_SECONDS`. The log has one warning for each period of failures, and one line at its end.

    Args:
        open_table: Opens the table. It is called on the background thread, until it succeeds.
        limit: How many records to keep.
    """

    def __init__(self, open_table: Callable[[], UsageTable], limit: int = RECORD_LIMIT) -> None:
        super().__init__(limit)
        self.lost = 0  # rows that were dropped because the database could not be written for too long
        self._open_table = open_table
        self._table: UsageTable | None = None
        self._spool: dict[str | None, UsageRow] = {}  # by key, oldest first
        self._failing = False
        self._timeout: float | None = None
        self._timer: threading.Timer | None = None
        self._writer = WorkerThread("usage")
        self._queue = BatchQueue(self._writer, self._write)

    @property
    def unwritten(self) -> int:
        """The number of rows that are not in the database yet."""
        return len(self._spool)

    def begin(self, row: UsageRow) -> Future[None] | None:
        return self._queue.add(row)

    def record(self, row: UsageRow, *, last: bool = True, delay: float = 0.0) -> Future[None] | None:
        super().record(row, last=last)
        return self._queue.add(row, delay)

    def amend(self, row: UsageRow) -> Future[None] | None:
        super().amend(row)
        return self._queue.add(row)

    def close(self) -> None:
        """Write what is pending, at most `CLOSING_TIMEOUT` seconds, and close the database."""
        self._timeout = CLOSING_BUSY_TIMEOUT
        if (table := self._table) is not None:
            table.set_timeout(CLOSING_BUSY_TIMEOUT)
        self._queue.hurry()
        self._writer.submit(self._finish)
        self._writer.close(CLOSING_TIMEOUT)

    # --- On the background thread ---

    def _write(self, rows: list[UsageRow]) -> None:
        for row in rows:
            self._spool[row.key] = row
            if len(self._spool) > SPOOL_LIMIT:
                del self._spool[next(iter(self._spool))]
                self.lost += 1
        self._flush()

    def _flush(self) -> None:
        """Write all rows that are kept. This is the only place that writes, so it catches everything."""
        if not self._spool:
            return
        try:
            self._put(list(self._spool.values()))
        except Exception as error:  # noqa: BLE001 - usage must not fail a turn
            self._fail(error)
        else:
            self._recover()

    def _put(self, rows: list[UsageRow]) -> None:
        if self._table is None:
            self._table = self._open_table()
            if self._timeout is not None:
                self._table.set_timeout(self._timeout)
            self._table.mark_interrupted()
        try:
            self._table.put(rows)
        except StoreUnusable:
            raise
        except Exception as error:  # noqa: BLE001 - see `_flush`
            # One of the rows cannot be stored. It must not keep the others from being written.
            if len(rows) > 1:
                for row in rows:
                    self._put([row])
                return
            self.lost += 1
            log.warning("Usage of one request cannot be stored: %s", error)

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            message = error.message if isinstance(error, BridgeError) else repr(error)
            log.warning("%s; usage is kept in memory and written when that is possible again", message)
        if self._timer is None and self._timeout is None:
            self._timer = threading.Timer(RETRY_SECONDS, lambda: self._writer.submit(self._retry))
            self._timer.daemon = True
            self._timer.start()

    def _retry(self) -> None:
        self._timer = None
        self._flush()

    def _recover(self) -> None:
        if self._failing:
            self._failing = False
            log.warning(
                "Usage is recorded again: %d rows written, %d lost since the start.",
                len(self._spool),
                self.lost,
            )
        self._spool.clear()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        if self._spool or self.lost:
            lost = len(self._spool) + self.lost
            log.warning("The usage of %d attempt%s was not recorded.", lost, "" if lost == 1 else "s")
        if self._table is not None:
            self._table.close()


def open_tracker(path: Path) -> UsageTracker:
    """Return a tracker that writes to this database, as soon as it can be used."""
    return StoredTracker(lambda: UsageTable(Database(path)))
