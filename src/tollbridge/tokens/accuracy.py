"""How right the estimates were: measured against what was reported, never assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tollbridge.tokens.memory import Outcome

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
