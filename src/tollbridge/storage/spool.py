"""Keep usage rows in memory while they cannot be written, and write them later.

A row must not be lost because a disk is full, another process holds a lock or somebody deleted the file, and
a turn must not fail or wait because of that. So rows take this path, always on the store's writer thread:

    put      a row enters the queue; the caller may wait for it, briefly
    queue    rows that arrive while the thread is busy, or within their delay, are one batch
    spool    the batch is added to the rows that are not written yet, by key, the oldest first
    write    all rows of the spool in one transaction; if that succeeds, the spool is empty

The order of rows with the same key is kept, because there is one queue and one thread: the row of an
attempt's start cannot overwrite the row of its end. A later row with the same key replaces the earlier one in
the spool, at the earlier one's place, so that a long failure keeps one row per attempt. Writing is idempotent
(`UsageStore.put`): after an error it is not known whether the rows were written, and they are written again.

A failure is tried again with the next row, or after `Limits.retry_seconds` if there is none. One row that the
database does not accept at all must not keep the others from being written: if a batch fails with an error
that is not the database's state, its rows are written one by one, and the one that fails is dropped. The log
has one warning when a period of failures begins, and one line when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tollbridge.storage.limits import Limits
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.store import StoreUnusable
from tollbridge.storage.worker import BatchQueue, Pending, WorkerThread
from tollbridge.types.errors import BridgeError

log = logging.getLogger(__name__)


class UsageSpool:
    """Writes rows on a worker thread, and keeps those that cannot be written."""

    def __init__(
        self, worker: WorkerThread, write: Callable[[Sequence[UsageRow]], object], limits: Limits
    ) -> None:
        self.lost = 0
        self._worker = worker
        self._write = write
        self._limits = limits
        self._rows: dict[str | None, UsageRow] = {}  # by key, oldest first
        self._queue = BatchQueue(worker, self._add)
        self._is_failing = False
        self._is_retrying = False  # a retry is scheduled

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: UsageRow, delay: float = 0.0) -> Pending[None]:
        """Write a row, soon. The result is done when it is written or kept."""
        return self._queue.add(row, delay)

    def finish(self) -> None:
        """Write what is left, at the end of the worker thread, and log what is lost. Call `hurry` before."""
        self._flush()
        if lost := len(self._rows) + self.lost:
            log.warning("The usage of %d attempt%s was not recorded.", lost, "" if lost == 1 else "s")

    def hurry(self) -> None:
        """Write what waits for its delay."""
        self._queue.hurry()

    def _add(self, rows: list[UsageRow]) -> None:
        for row in rows:
            self._rows[row.key] = row
            if len(self._rows) > self._limits.spooled_rows:
                del self._rows[next(iter(self._rows))]
                self.lost += 1
        self._flush()

    def _flush(self) -> None:
        """Write all rows. No other place writes rows of the spool, so it catches everything."""
        if not self._rows:
            return
        try:
            self._write_all(list(self._rows.values()))
        except Exception as error:  # noqa: BLE001 - usage must not fail a turn
            self._fail(error)
            return
        if self._is_failing:
            self._is_failing = False
            log.warning(
                "Usage is recorded again: %d rows written, %d lost since the start.",
                len(self._rows),
                self.lost,
            )
        self._rows.clear()

    def _write_all(self, rows: list[UsageRow]) -> None:
        try:
            self._write(rows)
        except StoreUnusable:
            raise
        except Exception as error:  # noqa: BLE001 - one of the rows cannot be stored
            if len(rows) > 1:
                for row in rows:
                    self._write_all([row])
                return
            self.lost += 1
            log.warning("Usage of one request cannot be stored: %s", error)

    def _fail(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            message = error.message if isinstance(error, BridgeError) else repr(error)
            log.warning("%s; usage is kept in memory and written when that is possible again", message)
        if not self._is_retrying:
            self._is_retrying = True
            self._worker.call_later(self._limits.retry_seconds, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        self._flush()
