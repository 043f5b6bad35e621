"""Sums over the usage table, for `tollbridge usage` and the usage page.

SQLite adds up: tokens and costs are integers there, so sums are exact. `sum_usage` groups attempts by any
dimensions; `UsageReader` reads the document that the usage page shows, `UsageReport`. Encoded as JSON:

    revision    changes with the data; a reader that sends it back gets only `revision` if nothing changed
    since       the first day, "2026-10-19"; days are local
    until       the last day
    generated   when the report was made, seconds since the epoch
    total       the sums of all attempts: a `UsageTotals`
    days        one object per day with usage, oldest first: `day` and the fields of `UsageTotals`
    models      the same by `model`, the most expensive first
    series      one object per day and model: `day`, `model`, `cost`, `tokens`
    conversations  the most expensive ones: `conversation`, the fields of `UsageTotals`, `last` (when the
                   last request began)
    accuracy    how close the estimates of each model were: `tollbridge.tokens.records.Accuracy`
    budgets     the state of each budget: `BudgetState`; left out if budgets are not known
    misses      the latest prompts that missed the cache: `CacheMiss`; left out if they are not known

Costs are US dollars as decimal text. A cost or a count that is not known is null, never 0.
"""

from __future__ import annotations

import json
import time
import uuid
from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from hashlib import blake2s
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar, get_args

import msgspec

from tollbridge.storage.budgets import BudgetStatus
from tollbridge.storage.cache_tracker import CacheTable, StoredReport
from tollbridge.storage.database import Database, StoreUnusable
from tollbridge.storage.tables import COST_UNIT, REFUSALS, UsageTable
from tollbridge.tokens.records import Accuracy
from tollbridge.types.events import Usage
from tollbridge.types.models import Prices

Number = TypeVar("Number", int, Decimal)
# The calling program is the row's initiator.
Dimension = Literal["day", "month", "model", "conversation", "account", "provider", "caller"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
# Returns the current prices of a model, by base URL, account and model.
PriceLookup = Callable[[str, str, str], Prices | None]

# Conversations in a report.
CONVERSATION_LIMIT = 10
# Days over which the requests of one conversation are added up.
CONVERSATION_DAYS = 30
# Cache misses in a report.
MISS_LIMIT = 20


# --- The sums ---


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of some attempts. Two of them can be added.

    Attributes:
        requests: The number of requests. A request counts where its last attempt does.
        attempts: How often requests were sent, with retries.
        outcomes: How the requests ended, with their numbers.
        usage: The reported tokens of all attempts.
        cacheable: The input tokens of the attempts that reported how many of them were cached.
        incomplete: How many attempts may have used tokens that were not reported.
        cost: What the attempts cost in US dollars: the billed amount, or else the computed one.
        billed: What the gateways say they charged.
        computed: The cost at the prices of the time.
        difference: The billed amount minus the computed one, of the attempts that have both.
        unbilled: How many attempts are in `cost` without a billed amount.
        unpriced: How many attempts have reported tokens and no known cost.
    """

    requests: int = 0
    attempts: int = 0
    outcomes: dict[str, int] = {}
    usage: Usage = Usage()
    cacheable: int | None = None
    incomplete: int = 0
    cost: Decimal | None = None
    billed: Decimal | None = None
    computed: Decimal | None = None
    difference: Decimal | None = None
    unbilled: int = 0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        """All tokens: the reported total, or else input and output."""
        usage = self.usage
        return usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of the input tokens that were read from the prompt cache, where gateways report it."""
        if not self.cacheable or self.usage.cached_tokens is None:
            return None
        return self.usage.cached_tokens / self.cacheable

    def __add__(self, other: UsageTotals) -> UsageTotals:
        outcomes = dict(self.outcomes)
        for name, count in other.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + count
        return UsageTotals(
            requests=self.requests + other.requests,
            attempts=self.attempts + other.attempts,
            outcomes=outcomes,
            usage=self.usage + other.usage,
            cacheable=_add(self.cacheable, other.cacheable),
            incomplete=self.incomplete + other.incomplete,
            cost=_add(self.cost, other.cost),
            billed=_add(self.billed, other.billed),
            computed=_add(self.computed, other.computed),
            difference=_add(self.difference, other.difference),
            unbilled=self.unbilled + other.unbilled,
            unpriced=self.unpriced + other.unpriced,
        )


class UsageGroup(UsageTotals, frozen=True, kw_only=True):
    """The attempts with the same values of the dimensions.

    Attributes:
        key: The values of the dimensions, in the order in which they were requested.
        seconds: The mean duration of a request.
        first_seconds: The mean time to the first token.
        last: When the last request began, in seconds since the epoch.
    """

    key: tuple[str | None, ...]
    seconds: float | None
    first_seconds: float | None
    last: float


def add_up(groups: Iterable[UsageTotals]) -> UsageTotals:
    return sum(groups, UsageTotals())


def _add(left: Number | None, right: Number | None) -> Number | None:
    if left is None:
        return right
    return left if right is None else left + right


# --- Reading them ---

# An attempt, with when its request began and whether it is the last one of its request. Only a failed attempt
# can have a later one. The key of attempt n is that of its turn and n, see `RequestAccounting`.
_ATTEMPTS = """(
    SELECT
        CASE WHEN u.attempt > 1
            THEN coalesce((SELECT f.started FROM usage f WHERE f.key = u.turn), u.started)
            ELSE u.started
        END AS began,
        CASE WHEN u.outcome = 'failed'
            THEN NOT EXISTS (SELECT 1 FROM usage n WHERE n.key = u.turn || '-' || (u.attempt + 1))
            ELSE 1
        END AS is_last,
        coalesce(u.input, 0) + coalesce(u.output, 0) + coalesce(u.total, 0) > 0 AS known,
        u.*
    FROM usage u WHERE u.started >= :since
) WHERE began >= :since AND began < :until"""
_EXPRESSIONS: dict[Dimension, str] = {
    "day": "date(began, 'unixepoch', 'localtime')",
    "month": "strftime('%Y-%m', began, 'unixepoch', 'localtime')",
    "model": "model",
    "conversation": "conversation",
    "account": "account",
    "provider": "provider",
    "caller": "initiator",
}
_OUTCOMES = ("completed", "failed", "cancelled", "interrupted", "running")
# Rows of the first release do not say whether their usage is complete: see `is_incomplete` in tables.py.
_INCOMPLETE = (
    "coalesce(incomplete, NOT (known OR (outcome = 'failed' AND first IS NULL AND coalesce(error, '') IN ("
    + ", ".join(f"'{kind}'" for kind in sorted(REFUSALS))
    + "))))"
)
_UNPRICED = "known AND computed_cost IS NULL AND billed_cost IS NULL"
_COUNTS = (
    "count(*)",
    "sum(is_last)",
    *(f"sum(is_last AND outcome = '{outcome}')" for outcome in _OUTCOMES),
    f"sum({_INCOMPLETE})",
    "sum(billed_cost IS NULL AND computed_cost IS NOT NULL)",
    f"sum({_UNPRICED})",
    "avg(CASE WHEN is_last THEN started - began + duration END)",
    "avg(first)",
    "max(began)",
)
# Expressions of 64-bit integers: tokens, and costs in units of `COST_UNIT`.
_AMOUNTS = (
    *("input", "output", "coalesce(total, input + output)", "cached", "reasoning", "cache_write"),
    "CASE WHEN cached IS NOT NULL THEN input END",
    "coalesce(billed_cost, computed_cost)",
    *("billed_cost", "computed_cost", "billed_cost - computed_cost"),
)
# The number of low bits that are added up on their own if a sum needs more than 64 bits.
_LOW_BITS = 20


def sum_usage(
    database: Database,
    by: Sequence[Dimension],
    since: float,
    until: float,
    find_prices: PriceLookup | None = None,
    *,
    conversations: Sequence[str] | None = None,
) -> list[UsageGroup]:
    """Add up the attempts of all requests that began in a period.

    Args:
        database: The database with the usage table.
        by: The dimensions to group by; none gives one group.
        since: The start of the period, in seconds since the epoch.
        until: Its end, not included.
        find_prices: Returns prices for attempts that were stored without any.
        conversations: Add up these conversations only.

    Returns:
        The groups: the latest days or months first, then the most expensive ones, then by their tokens.
    """
    keys = [_EXPRESSIONS[dimension] for dimension in by]
    values: dict[str, Any] = {"since": since, "until": until}
    where = ""
    if conversations is not None:
        where = "AND conversation IN (SELECT value FROM json_each(:conversations))"
        values["conversations"] = json.dumps(conversations)
    with database.snapshot():
        groups = _read_groups(database, keys, where, values)
        if find_prices is not None and any(group.unpriced for group in groups):
            groups = _price_now(database, keys, where, values, groups, find_prices)
    groups.sort(key=lambda group: (group.cost or 0, group.tokens), reverse=True)
    times = [index for index, dimension in enumerate(by) if dimension in ("day", "month")]
    groups.sort(key=lambda group: [group.key[index] or "" for index in times], reverse=True)
    return groups


def _read_groups(
    database: Database, keys: Sequence[str], where: str, values: Mapping[str, Any]
) -> list[UsageGroup]:
    split = False
    sums = [f"sum({amount})" for amount in _AMOUNTS]
    try:
        rows = database.query(_select(keys, [*_COUNTS, *sums], where), values)
    except StoreUnusable as error:
        if "integer overflow" not in str(error):
            raise
        split = True
        low = (1 << _LOW_BITS) - 1
        sums = [f"sum(({amount}) >> {_LOW_BITS}), sum(({amount}) & {low})" for amount in _AMOUNTS]
        rows = database.query(_select(keys, [*_COUNTS, *sums], where), values)
    # Without keys there is one row, also if there are no attempts.
    return [_decode_group(row, len(keys), split) for row in rows if row[len(keys)]]


def _select(keys: Sequence[str], sums: Sequence[str], condition: str = "") -> str:
    """Return a query of sums, one row for each combination of the keys."""
    numbers = ", ".join(str(number + 1) for number in range(len(keys)))
    grouping = f"GROUP BY {numbers}" if keys else ""
    return f"SELECT {', '.join([*keys, *sums])} FROM {_ATTEMPTS} {condition} {grouping}"  # noqa: S608


def _decode_group(row: Sequence[Any], keys: int, split: bool) -> UsageGroup:
    attempts, requests, *counts = row[keys : keys + len(_COUNTS)]
    outcomes, (incomplete, unbilled, unpriced, seconds, first_seconds, last) = counts[:5], counts[5:]
    amounts = list(row[keys + len(_COUNTS) :])
    if split:
        pairs = zip(amounts[::2], amounts[1::2], strict=True)
        amounts = [None if high is None else (high << _LOW_BITS) + low for high, low in pairs]
    cost, billed, computed, difference = (
        None if amount is None else amount * COST_UNIT for amount in amounts[7:]
    )
    return UsageGroup(
        key=tuple(row[:keys]),
        requests=requests,
        attempts=attempts,
        outcomes={name: count for name, count in zip(_OUTCOMES, outcomes, strict=True) if count},
        usage=Usage(*amounts[:6]),
        cacheable=amounts[6],
        incomplete=incomplete,
        cost=cost,
        billed=billed,
        computed=computed,
        difference=difference,
        unbilled=unbilled,
        unpriced=unpriced,
        seconds=seconds,
        first_seconds=first_seconds,
        last=last,
    )


def _price_now(
    database: Database,
    keys: Sequence[str],
    where: str,
    values: Mapping[str, Any],
    groups: list[UsageGroup],
    find_prices: PriceLookup,
) -> list[UsageGroup]:
    """Add the cost of attempts that were stored without prices, at the current ones."""
    where += f" AND {_UNPRICED} AND input_price IS NULL AND output_price IS NULL"
    by_key = {group.key: group for group in groups}
    models = ["base_url", "account", "model"]
    for model in database.query(_select(models, [], where), values):
        prices = find_prices(*model)
        if prices is None:
            continue
        names = {f"m{index}": name for index, name in enumerate(model)}
        one_model = f"{where} AND (base_url, account, model) = (:m0, :m1, :m2)"
        usage = ["input", "output", "total", "cached", "reasoning", "cache_write"]
        rows = database.query(_select([*keys, *usage], ["count(*)"], one_model), {**values, **names})
        for row in rows:
            key, count = tuple(row[: len(keys)]), row[-1]
            cost = prices.cost(Usage(*row[len(keys) : -1]))
            if cost is not None:
                group = by_key[key]
                by_key[key] = msgspec.structs.replace(
                    group,
                    cost=_add(group.cost, count * cost),
                    computed=_add(group.computed, count * cost),
                    unbilled=group.unbilled + count,
                    unpriced=group.unpriced - count,
                )
    return list(by_key.values())


def find_expensive_conversations(database: Database, since: float, until: float, limit: int) -> list[str]:
    """Return the conversations with the highest known cost, or the most tokens where no cost is known."""
    # `total` adds up floats, which cannot overflow and are good enough to compare.
    order = "total(coalesce(billed_cost, computed_cost)) DESC, total(coalesce(total, input + output)) DESC"
    query = _select(["conversation"], [], "AND conversation IS NOT NULL")
    values = {"since": since, "until": until, "limit": limit}
    return [name for (name,) in database.query(f"{query} ORDER BY {order} LIMIT :limit", values)]


def start_of_day(now: float, days_ago: int = 0) -> float:
    """Return the local midnight with which a day began. Days can have 23 or 25 hours."""
    year, month, day = time.localtime(now)[:3]
    return time.mktime((year, month, day - days_ago, 0, 0, 0, 0, 0, -1))


# --- The report of the usage page ---


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a budget is used, in US dollars.

    Attributes:
        name: The budget in words.
        limit: The budget.
        spent: The cost of the requests that have ended.
        reserved: What running requests may cost.
        ends: The last day of the current period, if it ends.
    """

    name: str
    limit: Decimal
    spent: Decimal
    reserved: Decimal = Decimal()
    ends: str | None = None

    @classmethod
    def of(cls, status: BudgetStatus) -> BudgetState:
        budget = status.budget
        return cls(
            name=budget.label,
            limit=budget.limit,
            spent=status.spent,
            reserved=status.reserved,
            ends=_last_day(budget.name.rpartition(".")[2]),
        )


def _last_day(period: str) -> str | None:
    """Return the last day of the current day or month; `None` for other periods."""
    today = date.today()
    if period == "day":
        return today.isoformat()
    return (
        today.replace(day=monthrange(today.year, today.month)[1]).isoformat() if period == "month" else None
    )


class CacheMiss(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that should have been in the provider's cache and was not, or only in part.

    Attributes:
        started: When the request began, in seconds since the epoch.
        model: The model.
        reason: A sentence.
        expected: The tokens that should have been read from the cache.
        cached: The tokens that were.
        cost: What the miss cost in US dollars.
        conversation: The conversation.
    """

    started: float
    model: str
    reason: str
    expected: int | None = None
    cached: int | None = None
    cost: Decimal | None = None
    conversation: str | None = None


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the usage page shows; see the top of this module."""

    revision: str
    since: str
    until: str
    generated: float
    total: UsageTotals = UsageTotals()
    days: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    series: list[dict[str, Any]] = []
    conversations: list[dict[str, Any]] = []
    accuracy: Sequence[Accuracy] = ()
    budgets: Sequence[BudgetState] | msgspec.UnsetType = msgspec.UNSET
    misses: Sequence[CacheMiss] | msgspec.UnsetType = msgspec.UNSET

    def with_budgets(self, budgets: Sequence[BudgetState]) -> UsageReport:
        """Add the budgets. They are part of the revision, because settings can change them."""
        digest = blake2s(msgspec.json.encode(budgets), digest_size=4).hexdigest()
        return msgspec.structs.replace(self, revision=f"{self.revision}-{digest}", budgets=budgets)


class UsageReader:
    """Reads reports from a database. Threads can share it.

    The last report is kept and returned again while the database does not change, because a page asks every
    few seconds.

    Args:
        path: The database. It is not created; without one, reports are empty.
        load_prices: Loads the current prices, for attempts that were stored without any.
        find_accuracy: Returns how close token estimates were.
    """

    def __init__(
        self,
        path: Path | None,
        load_prices: Callable[[], PriceLookup],
        find_accuracy: Callable[[], Sequence[Accuracy]],
    ) -> None:
        self._path = path
        self._load_prices = load_prices
        self._find_accuracy = find_accuracy
        self._name = uuid.uuid4().hex[:8]  # the data version is valid for one connection only
        self._database: Database | None = None
        self._report: UsageReport | None = None
        self._lock = Lock()

    def read(self, days: int) -> UsageReport:
        """Return the report of this many days, counting today.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        with self._lock:
            now = time.time()
            since, until = (_day_name(start_of_day(now, back)) for back in (days - 1, 0))
            database = self._open()
            version = 0 if database is None else database.data_version()
            revision = f"{self._name}-{version}-{since}-{until}"
            if self._report is None or self._report.revision != revision:
                empty = UsageReport(revision=revision, since=since, until=until, generated=now)
                self._report = empty if database is None else self._compute(database, empty, days)
            return self._report

    def spending(self, conversation: str | None) -> tuple[UsageTotals, UsageTotals | None]:
        """Return the sums of today, and those of a conversation in the last days.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        with self._lock:
            database, now = self._open(), time.time()
            if database is None:
                return UsageTotals(), UsageTotals() if conversation else None
            end = start_of_day(now, -1)
            today = add_up(sum_usage(database, (), start_of_day(now), end))
            if conversation is None:
                return today, None
            since = start_of_day(now, CONVERSATION_DAYS)
            return today, add_up(sum_usage(database, (), since, end, conversations=[conversation]))

    def close(self) -> None:
        with self._lock:
            if self._database is not None:
                self._database.close()

    def _open(self) -> Database | None:
        if self._database is not None and not self._database.is_current():
            self._database.close()
            self._database = None
        if self._database is None and self._path is not None and self._path.exists():
            self._database = Database(self._path)
            self._name = uuid.uuid4().hex[:8]
        return self._database

    def _compute(self, database: Database, empty: UsageReport, days: int) -> UsageReport:
        UsageTable(database).mark_interrupted()
        now = empty.generated
        period = start_of_day(now, days - 1), start_of_day(now, -1)
        prices = self._load_prices()
        with database.snapshot():
            cells = sum_usage(database, ("day", "model"), *period, prices)
            names = find_expensive_conversations(database, *period, CONVERSATION_LIMIT)
            conversations = sum_usage(database, ("conversation",), *period, prices, conversations=names)
        by_day, by_model = _regroup(cells, 0), _regroup(cells, 1)
        return msgspec.structs.replace(
            empty,
            total=add_up(cells),
            days=[{"day": day, **_fields(by_day[day])} for day in sorted(by_day)],
            models=[
                {"model": model, **_fields(totals)}
                for model, totals in sorted(by_model.items(), key=_expense, reverse=True)
            ],
            series=[
                {"day": cell.key[0], "model": cell.key[1], "cost": cell.cost, "tokens": cell.tokens}
                for cell in cells
            ],
            conversations=[
                {"conversation": group.key[0], **_fields(group), "last": group.last}
                for group in conversations
            ],
            accuracy=self._find_accuracy(),
            misses=[_describe_miss(miss) for miss in CacheTable(database).misses(period[0], MISS_LIMIT)],
        )


def _describe_miss(stored: StoredReport) -> CacheMiss:
    report = stored.report
    return CacheMiss(
        started=stored.started,
        model=stored.model,
        reason=report.reason,
        expected=report.expected,
        cached=report.actual,
        cost=report.cost,
        conversation=stored.conversation,
    )


def _regroup(cells: Iterable[UsageGroup], index: int) -> dict[str, UsageTotals]:
    totals: dict[str, UsageTotals] = {}
    for cell in cells:
        name = cell.key[index] or ""
        totals[name] = totals.get(name, UsageTotals()) + cell
    return totals


def _expense(entry: tuple[str, UsageTotals]) -> tuple[Decimal | int, int]:
    return entry[1].cost or 0, entry[1].tokens


def _fields(totals: UsageTotals) -> dict[str, Any]:
    return {name: getattr(totals, name) for name in UsageTotals.__struct_fields__}


def _day_name(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
