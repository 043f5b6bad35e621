"""Usage tracking: one record per attempt of a request, with its outcome, token usage, prices and timing.

`UsageTracker` keeps records and totals in memory, and writes the records to a store.
"""

from __future__ import annotations

import logging
from collections import deque

import msgspec

from tollbridge.storage.rows import UsageRow
from tollbridge.storage.store import UsageStore
from tollbridge.storage.worker import Pending
from tollbridge.types.events import Usage

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
