"""How right the estimates were: measured against what was reported, never assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Protocol

import msgspec

# SECTION What a ledger needs to remember, and a memory that lasts as long as the process.

# The chain of a prefix, its tool set, the input tokens reported for it, and how many of them were reasoning
# that goes when the user speaks again.
Prefix = tuple[bytes, bytes, int, int]
# The key of a message, its tokens, and the tokens of reasoning that came with it.
Measured = tuple[bytes, int, int]
# A model, the method of the estimate, the estimate before anything was learned, the one given, the truth.
Outcome = tuple[str, str, int, int, int]


class LedgerStore(Protocol):
    """Values are plain, so that what keeps them knows nothing of tokens."""

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes until the block is left; all of it is kept, or none."""

    def changes(self) -> int:
        """Another number whenever somebody else may have written."""

    def prefixes(self, chains: Sequence[bytes]) -> list[Prefix]: ...

    def put_prefix(self, prefix: Prefix) -> None: ...

    def measured(self, keys: Sequence[bytes]) -> list[Measured]: ...

    def put_measured(self, rows: Sequence[Measured]) -> None: ...

    def learned(self, name: str) -> bytes | None: ...

    def put_learned(self, name: str, data: bytes) -> None: ...

    def outcomes(self) -> list[Outcome]: ...

    def put_outcome(self, outcome: Outcome) -> None: ...

    def clear(self) -> None: ...


class MemoryStore:
    """A ledger's memory without a file. The oldest entries go when it is full."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._prefixes: dict[bytes, dict[bytes, Prefix]] = {}
        self._measured: dict[bytes, Measured] = {}
        self._learned: dict[str, bytes] = {}
        self._outcomes: list[Outcome] = []

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def changes(self) -> int:
        return 0

    def prefixes(self, chains: Sequence[bytes]) -> list[Prefix]:
        return [row for chain in chains for row in self._prefixes.get(chain, {}).values()]

    def put_prefix(self, prefix: Prefix) -> None:
        self._prefixes.setdefault(prefix[0], {})[prefix[1]] = prefix
        _trim(self._prefixes, self._most)

    def measured(self, keys: Sequence[bytes]) -> list[Measured]:
        return [row for key in keys if (row := self._measured.get(key))]

    def put_measured(self, rows: Sequence[Measured]) -> None:
        self._measured |= {row[0]: row for row in rows}
        _trim(self._measured, self._most)

    def learned(self, name: str) -> bytes | None:
        return self._learned.get(name)

    def put_learned(self, name: str, data: bytes) -> None:
        self._learned[name] = data
        _trim(self._learned, self._most)

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes)

    def put_outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        del self._outcomes[: -self._most]

    def clear(self) -> None:
        self._prefixes.clear()
        self._measured.clear()
        self._learned.clear()
        self._outcomes.clear()


def _trim(entries: dict[Any, Any], most: int) -> None:
    # A quarter at a time, so that a full memory is not trimmed at every entry.
    if len(entries) > most:
        for key in list(islice(entries, len(entries) - most * 3 // 4)):
            del entries[key]


# SECTION How right the estimates were: measured against what was reported, never assumed.

# An estimate this close to the truth is a hit; the share of hits is the confidence of the next estimate.
HIT = 0.02


class Accuracy(msgspec.Struct, frozen=True):
    """The errors of one model's estimates, as shares of the truth. Negative is an under-count."""

    model: str
    requests: int
    exact: int
    hits: int
    median: float
    p95: float
    worst_under: float
    # The same requests, had nothing been learned and no prefix been known.
    plain_median: float
    plain_p95: float
    # The latest errors, oldest first, with their sign: for a plot.
    recent: tuple[float, ...] = ()


def error(estimate: int, actual: int) -> float:
    return (estimate - actual) / actual


def is_hit(estimate: int, actual: int) -> bool:
    return abs(error(estimate, actual)) <= HIT


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def summarise(outcomes: Iterable[Outcome], plotted: int = 60) -> list[Accuracy]:
    """One summary for every model, the most used first."""
    by_model: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_model.setdefault(outcome[0], []).append(outcome)
    summaries = [_summary(model, rows, plotted) for model, rows in by_model.items()]
    return sorted(summaries, key=lambda summary: -summary.requests)


def _summary(model: str, rows: Sequence[Outcome], plotted: int) -> Accuracy:
    errors = [error(estimate, actual) for _, _, _, estimate, actual in rows]
    plain = [abs(error(plain, actual)) for _, _, plain, _, actual in rows]
    sizes = [abs(value) for value in errors]
    return Accuracy(
        model=model,
        requests=len(rows),
        exact=sum(estimate == actual for _, _, _, estimate, actual in rows),
        hits=sum(size <= HIT for size in sizes),
        median=percentile(sizes, 0.5),
        p95=percentile(sizes, 0.95),
        worst_under=min(0.0, *errors),
        plain_median=percentile(plain, 0.5),
        plain_p95=percentile(plain, 0.95),
        recent=tuple(errors[-plotted:]),
    )


class HitRates:
    """How often estimates hit, by model and method; by method alone for a model without a record."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._counts: dict[tuple[str | None, str], tuple[int, int]] = {}
        self._seen: dict[str, int] = {}
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        model, method, _, estimate, actual = outcome
        self._seen[model] = self.seen(model) + 1
        for key in ((model, method), (None, method)):
            hits, total = self._counts.get(key, (0, 0))
            self._counts[key] = hits + is_hit(estimate, actual), total + 1

    def seen(self, model: str) -> int:
        return self._seen.get(model, 0)

    def rate(self, model: str, method: str) -> float:
        """The share of hits, with one hit and one miss added: 0.5 where nothing was measured."""
        hits, total = self._counts.get((model, method)) or self._counts.get((None, method), (0, 0))
        return (hits + 1) / (total + 2)
