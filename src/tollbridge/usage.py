"""What every request came to: a record for each, however it ended."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from tollbridge.core.usage import Usage

# Records kept in memory; sums go on beyond them.
RECORD_LIMIT = 1000

Outcome = Literal["completed", "failed", "cancelled"]


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


class UsageTracker:
    """Adds up what requests cost, by model. Usage that was not reported is not made up."""

    def __init__(self, limit: int = RECORD_LIMIT) -> None:
        self.records: deque[Record] = deque(maxlen=limit)
        self._totals: dict[str, Usage] = {}
        self._requests: dict[str, int] = {}

    def record(self, record: Record) -> None:
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
