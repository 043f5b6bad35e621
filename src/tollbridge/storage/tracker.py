"""Usage tracking: one record per attempt of a request, with its outcome, token usage, prices and timing.

`UsageTracker` keeps records and totals in memory, and writes the records to a store. `RequestAccounting`
measures the attempts of one request and records each when it ends. `BillLookup` completes the rows of
attempts whose cost the gateway reports only later.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from tollbridge.protocols.billing import Generation
from tollbridge.storage.rows import Outcome, UsageRow, is_incomplete
from tollbridge.storage.store import UsageStore
from tollbridge.storage.worker import Pending
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Billing, Cost, Event, File, Finished, Usage
from tollbridge.types.models import Prices, explain_difference

log = logging.getLogger(__name__)

# Records kept in memory. Totals include the records that were dropped.
RECORD_LIMIT = 1000


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
        store: Where every attempt is written: a row when it starts, completed when it ends.
        limit: How many records to keep in memory. Totals include all.
    """

    def __init__(self, store: UsageStore | None = None, limit: int = RECORD_LIMIT) -> None:
        self.records: deque[UsageRow] = deque(maxlen=limit)
        self._totals: dict[str, ModelTotals] = {}
        self._store = store

    def begin(self, row: UsageRow) -> Pending[None] | None:
        """Note that an attempt starts.

        Returns:
            Is done when the row has been written, or is kept until it can be; `None` without a store.
        """
        return None if self._store is None else self._store.put(row)

    def record(self, row: UsageRow, *, last: bool = True, delay: float = 0.0) -> Pending[None] | None:
        """Add an attempt that has ended.

        Args:
            row: The attempt.
            last: Whether it is the last attempt of its request, so that its outcome is that of the request.
            delay: Seconds that the row may wait, to be written together with others.

        Returns:
            See `begin`.
        """
        self.records.append(row)
        totals = self._totals.setdefault(row.model, ModelTotals())
        totals.requests += last
        totals.failures += last and row.outcome == "failed"
        totals.incomplete += row.incomplete
        totals.usage += row.usage
        return None if self._store is None else self._store.put(row, delay)

    def amend(self, row: UsageRow) -> Pending[None] | None:
        """Replace an attempt that has ended, because the gateway has reported its cost later.

        Returns:
            See `begin`.
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
        return None if self._store is None else self._store.put(row)

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


class RequestAccounting:
    """Measures the attempts of one request from its creation, and records each with a tracker.

    Attributes:
        finished: The event by which the gateway ended the answer; `None` before, and if it sent none.
        first: Seconds from the start of the request to the first event.
        duration: Seconds from the start of the request to `close`.
        usage: What the gateway reported for all attempts; `None` if it reported nothing.
        cost: The cost of all attempts that have ended.
        row: Is done when the row of the current attempt has been written; `None` if it is not written.
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
        self.row: Pending[None] | None = None
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
    ) -> Pending[None] | None:
        """Record how the request ended. Only the first call has an effect.

        Args:
            outcome: How it ended.
            error: Why it failed.
            delay: Seconds that the record may wait, to be written together with others.

        Returns:
            Is done when the record has been written; `None` if nothing is written.
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
    ) -> Pending[None] | None:
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
