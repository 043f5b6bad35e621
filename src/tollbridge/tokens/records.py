"""The ledger's records: where they are stored, and how accurate the recorded estimates were.

`LedgerStore` is the interface of the storage; `MemoryStore` implements it in memory, and
`tollbridge.storage.tables.LedgerTables` in a database. `summarise` and `HitRates` compare recorded estimates
with the reported token counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Protocol

import msgspec

# Key of a prefix, key of its tool set, input tokens reported for it, and how many of them were reasoning that
# is dropped at the next user message.
Prefix = tuple[bytes, bytes, int, int]
# Key of a message, its tokens, and the reasoning tokens that came with it.
Measured = tuple[bytes, int, int]
# Model, method of the estimate, estimate without learning, estimate, reported tokens.
Outcome = tuple[str, str, int, int, int]


# --- Storage ---


class LedgerStore(Protocol):
    """Stores the ledger's records. All values are of built-in types, so that a store needs no token code."""

    def transaction(self) -> AbstractContextManager[None]:
        """Run a block as one write transaction: commit all of it, or nothing if it raises."""

    def data_version(self) -> int:
        """Return a number that changes when another process may have written."""

    def prefixes(self, keys: Sequence[bytes]) -> list[Prefix]: ...

    def put_prefix(self, prefix: Prefix) -> None: ...

    def measured(self, keys: Sequence[bytes]) -> list[Measured]: ...

    def put_measured(self, rows: Sequence[Measured]) -> None: ...

    def learned(self, name: str) -> bytes | None: ...

    def put_learned(self, name: str, data: bytes) -> None: ...

    def outcomes(self) -> list[Outcome]: ...

    def put_outcome(self, outcome: Outcome) -> None: ...

    def clear(self) -> None: ...


class MemoryStore:
    """A `LedgerStore` in memory. Each table holds at most `limit` records; the oldest are dropped."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._prefixes: dict[bytes, dict[bytes, Prefix]] = {}
        self._measured: dict[bytes, Measured] = {}
        self._learned: dict[str, bytes] = {}
        self._outcomes: list[Outcome] = []

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def data_version(self) -> int:
        return 0

    def prefixes(self, keys: Sequence[bytes]) -> list[Prefix]:
        return [row for key in keys for row in self._prefixes.get(key, {}).values()]

    def put_prefix(self, prefix: Prefix) -> None:
        self._prefixes.setdefault(prefix[0], {})[prefix[1]] = prefix
        _trim(self._prefixes, self._limit)

    def measured(self, keys: Sequence[bytes]) -> list[Measured]:
        return [row for key in keys if (row := self._measured.get(key))]

    def put_measured(self, rows: Sequence[Measured]) -> None:
        self._measured |= {row[0]: row for row in rows}
        _trim(self._measured, self._limit)

    def learned(self, name: str) -> bytes | None:
        return self._learned.get(name)

    def put_learned(self, name: str, data: bytes) -> None:
        self._learned[name] = data
        _trim(self._learned, self._limit)

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes)

    def put_outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        del self._outcomes[: -self._limit]

    def clear(self) -> None:
        self._prefixes.clear()
        self._measured.clear()
        self._learned.clear()
        self._outcomes.clear()


def _trim(entries: dict[Any, Any], limit: int) -> None:
    # Drop a quarter at a time, so that a full table is not trimmed at every insertion.
    if len(entries) > limit:
        for key in list(islice(entries, len(entries) - limit * 3 // 4)):
            del entries[key]


# --- Accuracy ---

# An estimate with a relative error up to this is a hit. The share of hits is the confidence of the next one.
HIT = 0.02


class Accuracy(msgspec.Struct, frozen=True):
    """The errors of one model's estimates, relative to the reported tokens. Negative means too low.

    `plain_median` and `plain_p95` are the errors of the same requests without learning and without known
    prefixes. `recent` has the latest errors with their sign, oldest first, for a plot.
    """

    model: str
    requests: int
    exact: int
    hits: int
    median: float
    p95: float
    worst_under: float
    plain_median: float
    plain_p95: float
    recent: tuple[float, ...] = ()


def relative_error(estimate: int, actual: int) -> float:
    return (estimate - actual) / actual


def is_hit(estimate: int, actual: int) -> bool:
    return abs(relative_error(estimate, actual)) <= HIT


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def summarise(outcomes: Iterable[Outcome], recent: int = 60) -> list[Accuracy]:
    """Summarise the errors by model, the most used model first.

    Args:
        outcomes: The recorded estimates, oldest first.
        recent: How many of the latest errors each summary includes.
    """
    by_model: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_model.setdefault(outcome[0], []).append(outcome)
    summaries = [_summarise_model(model, rows, recent) for model, rows in by_model.items()]
    return sorted(summaries, key=lambda summary: -summary.requests)


def _summarise_model(model: str, rows: Sequence[Outcome], recent: int) -> Accuracy:
    errors = [relative_error(estimate, actual) for _, _, _, estimate, actual in rows]
    plain = [abs(relative_error(plain, actual)) for _, _, plain, _, actual in rows]
    sizes = [abs(value) for value in errors]
    return Accuracy(
        model=model,
        requests=len(rows),
        exact=sum(estimate == actual for _, _, _, estimate, actual in rows),
        hits=sum(size <= HIT for size in sizes),
        median=median(sizes),
        p95=percentile(sizes, 0.95),
        worst_under=min(0.0, *errors),
        plain_median=median(plain),
        plain_p95=percentile(plain, 0.95),
        recent=tuple(errors[-recent:]),
    )


class HitRates:
    """Counts hits by model and method. A model without records gets the method's rate over all models."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._counts: dict[tuple[str | None, str], tuple[int, int]] = {}
        self._requests: dict[str, int] = {}
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        model, method, _, estimate, actual = outcome
        self._requests[model] = self.count(model) + 1
        for key in ((model, method), (None, method)):
            hits, total = self._counts.get(key, (0, 0))
            self._counts[key] = hits + is_hit(estimate, actual), total + 1

    def count(self, model: str) -> int:
        """Return how many outcomes of a model were added."""
        return self._requests.get(model, 0)

    def rate(self, model: str, method: str) -> float:
        """Return the share of hits, with Laplace smoothing: 0.5 if there are no outcomes."""
        hits, total = self._counts.get((model, method)) or self._counts.get((None, method), (0, 0))
        return (hits + 1) / (total + 2)
