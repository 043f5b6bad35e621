"""The ledger's records: where they are stored, which reports become records, and how accurate estimates were.

`LedgerStore` is the interface of the storage; `MemoryStore` implements it in memory, and the topic `tokens`
of a `tollbridge.storage.store.Store` in a database. `UsageFilter` judges reported usage: is a number the
size of the prompt, a part of it, or wrong? `summarize` and `HitRates` compare recorded estimates with the
reported token counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import Any, Protocol

import msgspec

from tollbridge.types.events import Usage

# Key of a prefix, key of its tool set, input tokens reported for it, and how many of them were reasoning that
# is dropped at the next user message.
Prefix = tuple[bytes, bytes, int, int]
# Key of a message or tool set, its tokens, the reasoning tokens that came with it, and the standard deviation
# of its tokens.
Measured = tuple[bytes, int, int, float]
# Model, method of the estimate, estimate without learning, estimate, reported tokens, and why the report was
# refused (empty if it was used).
EstimateOutcome = tuple[str, str, int, int, int, str]


class LedgerChanges(msgspec.Struct):
    """What one report changes. All of it is stored, or nothing.

    Attributes:
        version: The version of the weights that `learned` was computed from.
        learned: Weights by name.
        toolsets: Features of tool sets by name.
    """

    version: int = 0
    prefixes: list[Prefix] = []
    measured: list[Measured] = []
    learned: dict[str, bytes] = {}
    toolsets: dict[str, bytes] = {}
    outcomes: list[EstimateOutcome] = []


class LedgerStore(Protocol):
    """Stores the ledger's records. All values are of built-in types, so that a store needs no token code.

    Reading does not wait for other processes. Threads can share a store.
    """

    def version(self) -> int:
        """Return a number that changes when weights are stored, by any process."""

    def prefixes(self, keys: Sequence[bytes]) -> list[Prefix]:
        """Return the prefixes with one of these keys, with every tool set they were sent with."""

    def measured(self, keys: Sequence[bytes]) -> list[Measured]:
        """Return the messages and tool sets with one of these keys."""

    def learned(self, name: str) -> bytes | None:
        """Return the weights with this name, encoded by the ledger."""

    def toolset(self, name: str) -> bytes | None:
        """Return the features of the tool set with this name, encoded by the ledger."""

    def outcomes(self) -> list[EstimateOutcome]:
        """Return the latest estimates that were compared with a report, the oldest first."""

    def commit(self, changes: LedgerChanges, timeout: float | None = None) -> int | None:
        """Store changes as one transaction. This waits until they are stored.

        Args:
            timeout: How many seconds to wait for another process that writes.

        Returns:
            The new version; `None` if weights were changed since `changes.version`, and nothing was stored.
        """

    def clear(self) -> None: ...


class MemoryStore:
    """A `LedgerStore` in memory. Each table holds at most `limit` records; the oldest are dropped."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self.clear()

    def version(self) -> int:
        return 0

    def prefixes(self, keys: Sequence[bytes]) -> list[Prefix]:
        return [row for key in keys for row in self._prefixes.get(key, {}).values()]

    def measured(self, keys: Sequence[bytes]) -> list[Measured]:
        return [row for key in keys if (row := self._measured.get(key))]

    def learned(self, name: str) -> bytes | None:
        return self._learned.get(name)

    def toolset(self, name: str) -> bytes | None:
        return self._toolsets.get(name)

    def outcomes(self) -> list[EstimateOutcome]:
        return list(self._outcomes)

    def commit(self, changes: LedgerChanges, timeout: float | None = None) -> int | None:  # noqa: ARG002
        for prefix in changes.prefixes:
            self._prefixes.setdefault(prefix[0], {})[prefix[1]] = prefix
        self._measured |= {row[0]: row for row in changes.measured}
        self._learned |= changes.learned
        self._toolsets |= changes.toolsets
        self._outcomes += changes.outcomes
        for table in (self._prefixes, self._measured, self._learned, self._toolsets):
            _trim(table, self._limit)
        del self._outcomes[: -self._limit]
        return 0

    def clear(self) -> None:
        self._prefixes: dict[bytes, dict[bytes, Prefix]] = {}
        self._measured: dict[bytes, Measured] = {}
        self._learned: dict[str, bytes] = {}
        self._toolsets: dict[str, bytes] = {}
        self._outcomes: list[EstimateOutcome] = []


def _trim(entries: dict[Any, Any], limit: int) -> None:
    # Drop a quarter at a time, so that a full table is not trimmed at every insertion.
    if len(entries) > limit:
        for key in list(islice(entries, len(entries) - limit * 3 // 4)):
            del entries[key]


# --- Which reports are used ---
#
# Gateways report zeros, sums over several steps, and wrong numbers. Some report only a part of the prompt:
# only the tokens that were not read from a cache, or not those that were written to it. Some servers cut a
# prompt that is too long, or clear old tool results from it. `UsageFilter` recognizes each by its pattern.

# A report is plausible if it is within these bounds, as shares of the estimate.
USUAL_BOUNDS = (0.6, 1.6)
# The same for the first reports of a model, when the estimate itself can be far off. A report outside of
# these is never used, however often it is repeated.
NEW_MODEL_BOUNDS = (0.5, 2.5)
NEW_MODEL_REPORTS = 5
# If the input tokens are outside of these bounds, and inside with the cached tokens added, the provider has
# excluded the cached tokens.
CLOSE_BOUNDS = (0.85, 1.2)
# If this many refused reports in a row deviate by the same factor, within this tolerance, the estimate is
# wrong.
AGREEING_REPORTS = 3
AGREEMENT_TOLERANCE = 0.15
# The prompt of a later turn is too small to be true if it is less than expected by more than this many
# standard deviations, and by more than this share.
_LOW_DEVIATIONS, _LOW_SHARE = 4.0, 0.04
# Unless the prompt has grown by at least this share of the new text's expected tokens.
_NEW_SHARE = 0.4
# A report agrees with an earlier one, or with the estimate of a gateway that reports only parts, if it is
# within this many standard deviations, or this share.
_CLOSE_DEVIATIONS, _CLOSE_SHARE = 3.0, 0.01
# A report agrees with the estimate without the measured prefix if it is within this share.
_INDEPENDENT_SHARE = 0.03
# What is left of a prompt after the server has removed old messages, at least.
_CLEARED_SHARE = 0.2
# A gateway reports only parts after this many such reports in a row, until as many complete ones.
_PARTIAL_REPORTS = 3
# Reports within this share of each other are the same number: where the server cuts the prompt.
_SAME_SHARE = 0.01
# The new text of a prompt cannot be in the cache. If less than this share of it was not read from the cache,
# the tokens that were written to the cache are missing.
_UNCACHED_SHARE, _UNCACHED_TOKENS = 0.5, 50


def prompt_tokens(usage: Usage, expected: float) -> int | None:
    """Return the size of the prompt according to the reported usage; `None` if it was not reported.

    Tokens read from and written to the cache are part of the input tokens, but some providers exclude the
    ones, the others, or both. `expected` is the estimate.
    """
    tokens = usage.input_tokens
    if not tokens or tokens < 0:
        return None
    read, written = max(0, usage.cached_tokens or 0), max(0, usage.cache_write_tokens or 0)
    if read > tokens or written > tokens:
        # Both are excluded together, or only the larger.
        sums = [tokens + read + written, tokens + max(read, written)]
    else:
        sums = [tokens, tokens + read, tokens + written, tokens + read + written]
    return next((total for total in sums if _within(total, expected, CLOSE_BOUNDS)), sums[0])


def _within(tokens: float, expected: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] * expected <= tokens <= bounds[1] * expected


class Report(msgspec.Struct, frozen=True):
    """A reported prompt, and what was expected.

    Attributes:
        deviation: The standard deviation of the estimate.
        reports: How many reports of the model were used before.
        cached: How many of the tokens were read from the cache, if that was reported.
        previous: The tokens of the conversation's previous request, as measured or estimated; `None` if this
            is the first.
        previous_report: What was reported for it, if that report was not used.
        is_edited: Whether the request asks the server to remove old messages.
        independent: The tokens of the prompt, estimated without the measured prefix; `None` if unknown.
    """

    scope: str
    tokens: int
    expected: float
    deviation: float
    reports: int
    cached: int = 0
    previous: float | None = None
    previous_report: int | None = None
    is_edited: bool = False
    independent: float | None = None


class Verdict(Enum):
    # The prompt has this size.
    ACCEPTED = "accepted"
    # The prompt has this size, though more was expected: the server has removed something from it, or the
    # prompt that it continues was reported too large.
    CONFIRMED = "confirmed"
    # Several refused reports agree, so the learned weights must be wrong.
    RESET = "reset"
    # The number is the size of the conversation's previous prompt: tokens written to the cache are missing.
    LAGGING = "without cache writes"
    # Only the tokens that were not read from a cache.
    PARTIAL = "partial"
    # The server cuts prompts that are too long for it.
    CUT = "cut by the server"
    IMPLAUSIBLE = "implausible"


class _Pattern(msgspec.Struct):
    """The latest reports of one scope."""

    refused: list[Report] = []
    partial: int = 0  # partial reports in a row
    complete: int = 0  # complete reports of later turns in a row
    is_partial: bool = False
    is_clearing: bool = False  # the server was seen to remove old messages


class UsageFilter:
    """Decides, model by model, which reports are used."""

    def __init__(self) -> None:
        self._patterns: dict[str, _Pattern] = {}

    def accepts(self, tokens: int, expected: float, reports: int) -> bool:
        """Whether a number is close enough to the expected one, after this many reports of the model."""
        return _within(tokens, expected, NEW_MODEL_BOUNDS if reports < NEW_MODEL_REPORTS else USUAL_BOUNDS)

    def judge(self, report: Report) -> Verdict:
        """Decide about a report, and remember it if it is refused."""
        pattern = self._patterns.setdefault(report.scope, _Pattern())
        verdict = self._judge(report, pattern)
        pattern.is_clearing |= verdict is Verdict.CONFIRMED and report.is_edited
        if verdict in (Verdict.ACCEPTED, Verdict.CONFIRMED, Verdict.RESET):
            pattern.refused.clear()
            pattern.partial = 0
            pattern.complete += report.previous is not None
            if pattern.complete >= _PARTIAL_REPORTS:
                pattern.is_partial = False
            return verdict
        pattern.refused = [*pattern.refused, report][-AGREEING_REPORTS:]
        pattern.complete = 0
        pattern.partial += verdict in (Verdict.PARTIAL, Verdict.LAGGING)
        if pattern.partial >= _PARTIAL_REPORTS:
            pattern.is_partial = True
        return verdict

    def _judge(self, report: Report, pattern: _Pattern) -> Verdict:
        plausible = self.accepts(report.tokens, report.expected, report.reports)
        if _is_lagging(report):
            return Verdict.LAGGING
        if plausible and not _is_too_low(report, pattern):
            return Verdict.ACCEPTED
        if _is_independent(report, pattern) or _is_cleared(report, pattern):
            return Verdict.CONFIRMED
        latest = [*pattern.refused, report][-AGREEING_REPORTS:]
        if len(latest) == AGREEING_REPORTS:
            if _is_cut(latest):
                return Verdict.CUT
            if not pattern.is_partial and _agree(latest):
                return Verdict.RESET
        if report.previous is not None and report.tokens < report.expected:
            return Verdict.PARTIAL
        return Verdict.PARTIAL if plausible else Verdict.IMPLAUSIBLE


def _is_lagging(report: Report) -> bool:
    if report.previous is None or not report.cached or report.cached > report.tokens:
        return False
    new = report.expected - report.previous
    return report.tokens - report.cached < _UNCACHED_SHARE * new - _UNCACHED_TOKENS


def _is_too_low(report: Report, pattern: _Pattern) -> bool:
    """Whether a report that is not impossible is less than a prompt of known size can have."""
    missing = report.expected - report.tokens
    if pattern.is_partial:
        return missing > max(_CLOSE_DEVIATIONS * report.deviation, _CLOSE_SHARE * report.expected)
    if report.previous is None:
        return False
    if report.previous_report is None:
        new = report.expected - report.previous
        if new < report.previous and report.tokens - report.previous >= _NEW_SHARE * new:
            return False  # nothing is missing, and the new text has fewer tokens than expected
    return missing > max(_LOW_DEVIATIONS * report.deviation, _LOW_SHARE * report.expected)


def _is_independent(report: Report, pattern: _Pattern) -> bool:
    """Whether a report is what the messages alone have: then the measured prefix was too large."""
    if report.independent is None or pattern.is_partial:
        return False
    return abs(report.tokens - report.independent) <= _INDEPENDENT_SHARE * report.expected


def _is_cleared(report: Report, pattern: _Pattern) -> bool:
    """Whether the server has removed old messages, as requested.

    The first time, the next report must agree: what is missing there is missing here. If the server was not
    asked to remove anything, it has left out the part that was read from its cache.
    """
    if not report.is_edited or pattern.is_partial or report.previous is None:
        return False
    if not _CLEARED_SHARE * report.expected <= report.tokens < report.expected:
        return False
    if pattern.is_clearing:
        return True
    if report.previous_report is None:
        return False
    expected = report.previous_report + report.expected - report.previous
    tolerance = max(_CLOSE_DEVIATIONS * report.deviation, _CLOSE_SHARE * report.tokens)
    return abs(report.tokens - expected) <= tolerance


def _is_cut(reports: list[Report]) -> bool:
    tokens, expected = [report.tokens for report in reports], [report.expected for report in reports]
    same = max(tokens) <= min(tokens) * (1 + _SAME_SHARE)
    return same and max(tokens) < min(expected) and max(expected) > min(expected) * (1 + 2 * _SAME_SHARE)


def _agree(reports: list[Report]) -> bool:
    """Whether reports deviate by the same factor, and not because they are parts of later turns."""
    ratios = [report.tokens / max(report.expected, 1.0) for report in reports]
    low, high = NEW_MODEL_BOUNDS
    if not low <= min(ratios) <= max(ratios) <= min(high, min(ratios) * (1 + AGREEMENT_TOLERANCE)):
        return False
    return min(ratios) > 1 or any(report.previous is None for report in reports)


# --- Accuracy ---

# An estimate with a relative error up to this is a hit. The share of hits is the confidence of the next one.
HIT = 0.02


class ErrorSummary(msgspec.Struct, frozen=True):
    """The errors of some estimates, relative to the reported tokens. Negative means too low."""

    requests: int = 0
    median: float = 0.0
    p95: float = 0.0
    worst_under: float = 0.0

    @classmethod
    def of(cls, errors: Sequence[float]) -> ErrorSummary:
        if not errors:
            return cls()
        sizes = [abs(error) for error in errors]
        return cls(len(errors), median(sizes), percentile(sizes, 0.95), min(0.0, *errors))


class Accuracy(msgspec.Struct, frozen=True):
    """The errors of one model's estimates, relative to the reported tokens. Negative means too low.

    The errors of all requests mix three kinds, which are therefore also summarized apart.

    Attributes:
        model: The model.
        requests: Requests whose report was used.
        exact: Estimates without error.
        hits: Estimates within 2 %.
        median: The median error of all requests, as an amount.
        p95: The 95th percentile.
        worst_under: The largest error of an estimate that was too low.
        plain_median: The median of the same requests without learning and without known prefixes.
        plain_p95: The 95th percentile of these.
        recent: The latest errors with their sign, oldest first, for a plot.
        openings: First requests of conversations.
        later: Later requests, whose beginning was counted before.
        repeats: Requests that were counted before.
        refused: How many reports were not used, by reason.
        recent_kinds: For each of `recent`: `opening`, `later`, `repeat`, or `refused`, whose error is that of
            the estimate if the report were true.
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
    openings: ErrorSummary = ErrorSummary()
    later: ErrorSummary = ErrorSummary()
    repeats: ErrorSummary = ErrorSummary()
    refused: dict[str, int] = {}
    recent_kinds: tuple[str, ...] = ()


def relative_error(estimate: int, actual: int) -> float:
    return (estimate - actual) / actual


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def summarize(outcomes: Iterable[EstimateOutcome], recent: int = 60) -> list[Accuracy]:
    """Summarise the errors by model, the most used model first.

    `outcomes` begin with the oldest. Each summary includes the latest `recent` errors.
    """
    by_model: dict[str, list[EstimateOutcome]] = {}
    for outcome in outcomes:
        by_model.setdefault(outcome[0], []).append(outcome)
    summaries = [_summarize_model(model, rows, recent) for model, rows in by_model.items()]
    return sorted(summaries, key=lambda summary: -summary.requests)


# The kind of a request, by the method of its estimate.
_KINDS = {"estimated": "opening", "hybrid": "later", "actual": "repeat"}


def _summarize_model(model: str, rows: Sequence[EstimateOutcome], recent: int) -> Accuracy:
    used = [row for row in rows if not row[5]]
    errors = [relative_error(estimate, actual) for _, _, _, estimate, actual, _ in used]
    plain = ErrorSummary.of([relative_error(plain, actual) for _, _, plain, _, actual, _ in used])
    total = ErrorSummary.of(errors)
    by_kind: dict[str, list[float]] = {kind: [] for kind in _KINDS.values()}
    for row, error in zip(used, errors, strict=True):
        by_kind[_KINDS[row[1]]].append(error)
    latest = rows[-recent:]
    return Accuracy(
        model=model,
        requests=total.requests,
        exact=sum(error == 0 for error in errors),
        hits=sum(abs(error) <= HIT for error in errors),
        median=total.median,
        p95=total.p95,
        worst_under=total.worst_under,
        plain_median=plain.median,
        plain_p95=plain.p95,
        recent=tuple(relative_error(row[3], row[4]) for row in latest),
        openings=ErrorSummary.of(by_kind["opening"]),
        later=ErrorSummary.of(by_kind["later"]),
        repeats=ErrorSummary.of(by_kind["repeat"]),
        refused=dict(Counter(row[5] for row in rows if row[5])),
        recent_kinds=tuple("refused" if row[5] else _KINDS[row[1]] for row in latest),
    )


class HitRates:
    """Counts hits by model and method. A model without records gets the method's rate over all models."""

    def __init__(self, outcomes: Iterable[EstimateOutcome] = ()) -> None:
        self._counts: dict[tuple[str | None, str], tuple[int, int]] = {}
        self._requests: dict[str, int] = {}
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: EstimateOutcome) -> None:
        model, method, _, estimate, actual, refused = outcome
        if refused:
            return
        self._requests[model] = self.count(model) + 1
        is_hit = abs(relative_error(estimate, actual)) <= HIT
        for key in ((model, method), (None, method)):
            hits, total = self._counts.get(key, (0, 0))
            self._counts[key] = hits + is_hit, total + 1

    def count(self, model: str) -> int:
        """Return how many outcomes of a model were added."""
        return self._requests.get(model, 0)

    def rate(self, model: str, method: str) -> float:
        """Return the share of hits, with Laplace smoothing: 0.5 if there are no outcomes."""
        hits, total = self._counts.get((model, method)) or self._counts.get((None, method), (0, 0))
        return (hits + 1) / (total + 2)
