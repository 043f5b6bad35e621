"""Usage tracking: one record per attempt of a request, with its outcome, token usage, prices and timing.

`UsageTracker` keeps records and totals in memory. `StoredTracker` also writes them to the database, on a
background thread, and keeps them in memory while the database cannot be written. `RequestAccounting` measures
the attempts of one request and records each when it ends. `BillLookup` completes the rows of attempts whose
cost the gateway reports only later.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path

import msgspec

from tollbridge.protocols.billing import Generation
from tollbridge.storage.database import BatchQueue, Database, StoreUnusable, WorkerThread
from tollbridge.storage.tables import Outcome, UsageRow, UsageTable, is_incomplete
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Billing, Cost, Event, File, Finished, Usage
from tollbridge.types.models import Prices, explain_difference

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


class RequestAccounting:
    """Measures the attempts of one request from its creation, and records each with a tracker.

    Attributes:
        finished: The event by which the gateway ended the answer; `None` before, and if it sent none.
        first: Seconds from the start of the request to the first event.
        duration: Seconds from the start of the request to `close`.
        usage: What the gateway reported for all attempts; `None` if it reported nothing.
        cost: The cost of all attempts that have ended.
        row: A future that is done when the row of the current attempt has been written, or `None`.
        last_row: The record of the last attempt that has ended.

    Args:
        model: The model.
        tracker: Where attempts are recorded.
        account: The account that pays.
        prices: The prices of the model, if they are known.
        find_prices: Returns the prices if they become known while the request runs.
        conversation: The conversation of the request, if the caller says which.
        sent: Whether the request is sent without a call of `send`.
        begin: Whether the row of the first attempt is written now, and not only by a call of `begin`.
        on_unbilled: Called with each attempt whose cost the gateway can be asked for, because the stream was
            cut or did not contain it.
    """

    def __init__(
        self,
        model: str,
        tracker: UsageTracker,
        account: BillingAccount,
        prices: Prices | None = None,
        *,
        find_prices: Callable[[], Prices | None] | None = None,
        conversation: str | None = None,
        sent: bool = True,
        begin: bool = True,
        on_unbilled: Callable[[UsageRow], object] | None = None,
    ) -> None:
        self.finished: Finished | None = None
        self.first: float | None = None
        self.duration = 0.0
        self.usage: Usage | None = None
        self.cost = Cost()
        self.row: Future[None] | None = None
        self._on_unbilled = on_unbilled
        self._billing = Billing()
        self.last_row: UsageRow | None = None
        self._tracker = tracker
        self._prices = prices
        self._find_prices = find_prices
        self._closed = False
        self._first: float | None = None  # when the first event of the current attempt arrived
        self._clock = time.monotonic()
        turn = secrets.token_hex(16)
        self._attempt = UsageRow(
            key=turn,
            turn=turn,
            started=time.time(),
            model=model,
            account=account.account,
            base_url=account.base_url,
            initiator=account.initiator,
            conversation=conversation,
            outcome="running",
            incomplete=True,
            prices=prices,
        )
        self._begin(sent=sent, write=begin)

    def begin(self) -> None:
        """Write the row of the current attempt, unless it was written or the request has ended."""
        if self.row is None and not self._closed:
            self.row = self._tracker.begin(self._attempt)

    def send(self) -> None:
        """Note that the current attempt is sent now. One that was not sent has used no tokens."""
        self._sent = True

    def add_events(self, batch: list[Event]) -> None:
        """Take the events of one network read."""
        for event in batch:
            if isinstance(event, Finished):
                self.finished = event
                if event.billing is not None:
                    self.add_billing(event.billing)
                continue
            if self._first is None:
                self._first = time.monotonic()
            if isinstance(event, File) and event.mime.startswith("image/"):
                self._images += 1

    def add_billing(self, billing: Billing) -> None:
        """Note what the gateway says about the bill of the current attempt."""
        self._billing |= billing

    def retry(self, error: BridgeError) -> None:
        """Record that the current attempt has failed, and begin the next one."""
        self._record("failed", error, last=False)
        number = self._attempt.attempt + 1
        key = f"{self._attempt.turn}-{number}"
        self._attempt = msgspec.structs.replace(self._attempt, key=key, attempt=number, started=time.time())
        self.finished = None
        self._begin(sent=False)

    def close(
        self, outcome: Outcome, error: BridgeError | None = None, *, delay: float = 0.0
    ) -> Future[None] | None:
        """Record how the request ended. Only the first call has an effect.

        Args:
            outcome: How it ended.
            error: Why it failed.
            delay: Seconds that the record may wait, to be written together with others.

        Returns:
            A future that is done when the record has been written; `None` if nothing is written.
        """
        if self._closed:
            return None
        self._closed = True
        self.duration = time.monotonic() - self._clock
        self.first = None if self._first is None else self._first - self._clock
        return self._record(outcome, error, last=True, delay=delay)

    def _begin(self, *, sent: bool, write: bool = True) -> None:
        self._sent = sent
        self._began = time.monotonic()
        self._first = None
        self._images = 0
        self._billing = Billing()
        self.row = self._tracker.begin(self._attempt) if write else None

    def _record(
        self, outcome: Outcome, error: BridgeError | None, *, last: bool, delay: float = 0.0
    ) -> Future[None] | None:
        finished = self.finished
        usage = finished.usage if finished else error.usage if error else None
        if usage is not None and self._images and usage.images is None:
            usage = msgspec.structs.replace(usage, images=self._images)
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage
        kind = error.kind if error else None
        if self._prices is None and self._find_prices is not None:
            self._prices = self._find_prices()
        prices, billing = self._prices, self._billing
        if prices is not None and usage is not None and usage.input_tokens is not None:
            prices = prices.for_prompt(usage.input_tokens)
        cost = prices.cost(usage) if prices is not None and usage is not None else None
        source = billing.source if prices is None or cost is None else billing.source or prices.source
        row = msgspec.structs.replace(
            self._attempt,
            outcome=outcome,
            usage=usage or Usage(),
            incomplete=self._sent and is_incomplete(usage, outcome, kind, self._first),
            duration=time.monotonic() - self._began,
            first=None if self._first is None else self._first - self._began,
            finish_reason=finished.reason if finished else None,
            error=kind,
            response_id=finished.response_id if finished else None,
            provider=billing.provider,
            generation_id=billing.generation_id,
            prices=prices,
            cost=cost,
            billed=billing.cost,
            cost_source=source,
        )
        difference = explain_difference(
            billing.cost, self._prices, usage, billing.provider, billing.surcharge
        )
        self.cost += Cost(cost, billing.cost, row.charge, source, difference)
        if self._on_unbilled is not None and row.billed is None and row.generation_id is not None:
            self._on_unbilled(row)
        self.last_row = row
        return self._tracker.record(row, last=last, delay=delay)


# --- Costs that the gateway reports later ---

# Seconds before each lookup: the gateway's record of a request follows shortly after its answer.
DELAYS = (0.5, 1.5, 3.0)
# The most lookups at the same time. The cost of further requests stays unknown.
PENDING_LIMIT = 32


class BillLookup:
    """Looks up the cost of single attempts at the gateway and completes their rows. No turn waits for it.

    Args:
        tracker: Where the attempts are recorded.
        delays: Seconds before each lookup of an attempt.
    """

    def __init__(self, tracker: UsageTracker, delays: tuple[float, ...] = DELAYS) -> None:
        self._tracker = tracker
        self._delays = delays
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, row: UsageRow, fetch: Callable[[str], Awaitable[Generation]]) -> None:
        """Start to look up the cost of an attempt.

        Args:
            row: The attempt.
            fetch: Returns the gateway's record for a generation id.
        """
        if len(self._tasks) >= PENDING_LIMIT:
            log.info("Too many cost lookups are running; the cost of one request stays unknown.")
            return
        task = asyncio.create_task(self._look_up(row, fetch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all lookups have ended."""
        await asyncio.gather(*self._tasks)

    async def aclose(self) -> None:
        """Cancel all lookups. The rows keep their generation ids."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look_up(self, row: UsageRow, fetch: Callable[[str], Awaitable[Generation]]) -> None:
        for delay in self._delays:
            await asyncio.sleep(delay)
            try:
                generation = await fetch(row.generation_id or "")
            except BridgeError as error:
                if error.kind == "not_found" or error.transient:
                    continue
                log.info("The gateway does not report the cost of a request: %s", error.message)
                return
            if generation.billing.cost is not None:
                self._tracker.amend(_complete(row, generation))
                return
        log.info("The gateway did not report the cost of a request in time.")


def _complete(row: UsageRow, generation: Generation) -> UsageRow:
    """Return the row with the cost, and with the usage if the stream did not contain it."""
    usage = generation.usage if generation.usage is not None and not row.usage.known else row.usage
    return msgspec.structs.replace(
        row,
        billed=generation.billing.cost,
        cost_source=generation.billing.source,
        provider=row.provider or generation.billing.provider,
        usage=usage,
        incomplete=row.incomplete and not usage.known,
        cost=row.prices.cost(usage) if row.prices is not None else None,
    )


def open_tracker(path: Path) -> UsageTracker:
    """Return a tracker that writes to this database, as soon as it can be used."""
    return StoredTracker(lambda: UsageTable(Database(path)))
