"""Look up the cost of requests that the gateway reports only later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from tollbridge.protocols.billing import Generation
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.tracker import UsageTracker
from tollbridge.types.errors import BridgeError

log = logging.getLogger(__name__)

# Seconds before each lookup: the gateway's record of a request follows shortly after its answer.
DELAYS = (0.5, 1.5, 3.0)
# The most lookups at the same time. The cost of further requests stays unknown.
PENDING_LIMIT = 32


class BillLookup:
    """Looks up the cost of single attempts at the gateway and completes their rows. No turn waits for it."""

    def __init__(self, tracker: UsageTracker, delays: tuple[float, ...] = DELAYS) -> None:
        self._tracker = tracker
        self._delays = delays
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, row: UsageRow, fetch: Callable[[str], Awaitable[Generation]]) -> None:
        """Start to look up the cost of an attempt. `fetch` returns the record of a generation id."""
        if len(self._tasks) >= PENDING_LIMIT:
            log.info("Too many cost lookups are running; the cost of one request stays unknown.")
            return
        task = asyncio.create_task(self._look_up(row, fetch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
