"""Record each attempt of a request: its times, its usage and its cost."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.protocols.billing import read_billing_headers
from tollbridge.storage.rows import Outcome, UsageRow, is_incomplete
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.storage.worker import WRITE_TIMEOUT, Pending, wait_for_write
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Billing, Cost, Event, File, Finished, Usage
from tollbridge.types.models import Prices, explain_difference

# Seconds that a cancelled request waits until its usage is written: the editor waits for it.
STOP_TIMEOUT = 0.05


class UsageObserver(Observer):
    """Measures the attempts of one request from `start` on, and records each with a tracker.

    It also sets the usage, the cost and the times of the answer.

    Attributes:
        row: The row of the current attempt, as it is so far.
        row_written: Is done when that row has been written; `None` if it is not written.
        last_row: The row of the last attempt that has ended.
        listeners: Called with the row of each attempt that has ended.

    Args:
        find_prices: Returns the prices if they become known while the request runs.
        delay: Seconds that the last row may wait, to be written together with others.
        waits: Whether the request ends only when the last row was written.
    """

    def __init__(
        self,
        answer: Answer,
        model: str,
        tracker: UsageTracker,
        account: BillingAccount,
        *,
        prices: Prices | None = None,
        find_prices: Callable[[], Prices | None] | None = None,
        conversation: str | None = None,
        delay: float = 0.0,
        waits: bool = True,
    ) -> None:
        self.row_written: Pending[None] | None = None
        self.last_row: UsageRow | None = None
        self.listeners: list[Callable[[UsageRow], object]] = []
        self.is_started = False
        self._answer = answer
        self._tracker = tracker
        self._prices = prices
        self._find_prices = find_prices
        self._delay = delay
        self._waits = waits
        self._usage: Usage | None = None  # of the attempts that have ended
        # Of the current attempt: when the first event arrived, and what was reported of a cut stream.
        self._first: float | None = None
        self._partial_usage: Usage | None = None
        self._images = 0
        self._billing = Billing()
        self._sent = False
        turn = secrets.token_hex(16)
        self.row = UsageRow(
            key=turn,
            turn=turn,
            started=0.0,
            model=model,
            account=account.account,
            base_url=account.base_url,
            initiator=account.initiator,
            conversation=conversation,
            outcome="running",
            incomplete=True,
            prices=prices,
        )

    def start(self, *, sent: bool = False) -> None:
        """Begin the first attempt. Its row is not written yet.

        With `sent`, the request is sent without a call of `request`.
        """
        self.is_started = True
        self._clock = time.monotonic()
        self._begin_attempt(self.row)
        self._sent = sent

    def write_row(self) -> None:
        """Write the row of the current attempt, unless it was written or the request has ended."""
        if self.row_written is None and self._answer.outcome == "running":
            self.row_written = self._tracker.begin(self.row)

    def request(self, form: str, url: str, headers: Mapping[str, str], body: bytes) -> None:  # noqa: ARG002
        self._sent = True  # an attempt that was not sent has used no tokens

    def response(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        if (billing := read_billing_headers(headers)) is not None:
            self.billing(billing)

    def billing(self, billing: Billing) -> None:
        self._billing |= billing

    def cut(self, usage: Usage) -> None:
        self._partial_usage = usage

    def events(self, batch: list[Event]) -> None:
        for event in batch:
            if isinstance(event, Finished):
                if event.billing is not None:
                    self.billing(event.billing)
                continue
            if self._first is None:
                self._first = time.monotonic()
            if isinstance(event, File) and event.mime.startswith("image/"):
                self._images += 1

    def retry(self, error: BridgeError, seconds: float = 0.0) -> None:  # noqa: ARG002
        """Record that the current attempt has failed, and begin the next one."""
        self._record("failed", error, last=False)
        number = self.row.attempt + 1
        key = f"{self.row.turn}-{number}"
        self._begin_attempt(msgspec.structs.replace(self.row, key=key, attempt=number))
        self.write_row()

    async def end(self, answer: Answer) -> None:
        if not self.is_started:
            return
        answer.duration = time.monotonic() - self._clock
        answer.first = None if self._first is None else self._first - self._clock
        outcome = "failed" if answer.outcome == "running" else answer.outcome
        written = self._record(outcome, answer.error, last=True)
        answer.usage = self._usage or self._partial_usage
        if outcome == "cancelled":
            await wait_for_write(written, STOP_TIMEOUT)
        elif self._waits:
            await wait_for_write(written, WRITE_TIMEOUT)

    def _begin_attempt(self, attempt: UsageRow) -> None:
        self.row = msgspec.structs.replace(attempt, started=time.time())
        self.row_written = None
        self._sent = False
        self._began = time.monotonic()
        self._first = self._partial_usage = None
        self._images = 0
        self._billing = Billing()

    def _record(self, outcome: Outcome, error: BridgeError | None, *, last: bool) -> Pending[None] | None:
        finished = self._answer.finished if last else None
        usage = finished.usage if finished else error.usage if error else None
        if usage is not None and self._images and usage.images is None:
            usage = msgspec.structs.replace(usage, images=self._images)
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage
        kind = error.kind if error else None
        if self._prices is None and self._find_prices is not None:
            self._prices = self._find_prices()
        prices, billing = self._prices, self._billing
        if prices is not None and usage is not None and usage.input_tokens is not None:
            prices = prices.for_prompt(usage.input_tokens)
        cost = prices.cost(usage) if prices is not None and usage is not None else None
        source = billing.source if prices is None or cost is None else billing.source or prices.source
        row = msgspec.structs.replace(
            self.row,
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
        self._answer.cost += Cost(cost, billing.cost, row.charge, source, difference)
        self.last_row = row
        written = self._tracker.record(row, last=last, delay=self._delay if last else 0.0)
        for listener in self.listeners:
            listener(row)
        return written


@asynccontextmanager
async def record_request(model: str, tracker: UsageTracker, account: BillingAccount) -> AsyncIterator[Answer]:
    """Record a request that is sent without a turn. The block adds to its answer, and ends it.

    A block that is left before it has ended the answer has cancelled the request.
    """
    answer = Answer()
    usage = UsageObserver(answer, model, tracker, account, waits=False)
    usage.start(sent=True)
    usage.write_row()
    try:
        yield answer
    finally:
        if answer.outcome == "running":
            answer.end("cancelled")
        await usage.end(answer)
