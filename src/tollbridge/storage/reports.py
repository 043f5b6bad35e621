"""Sums over the usage table, for `tollbridge usage` and the usage page.

A store adds up (`UsageStore.sums`): tokens and costs are integers there, so sums are exact. `UsageReports`
makes the document that the usage page shows, `UsageReport`. Encoded as JSON:

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

import asyncio
import time
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tollbridge.storage.budgets import BudgetStatus
from tollbridge.storage.rows import StoredReport
from tollbridge.tokens.records import Accuracy
from tollbridge.types.events import Usage, add_known

if TYPE_CHECKING:
    from tollbridge.storage.store import FindPrices, Store

# The calling program is the row's initiator.
Dimension = Literal["day", "month", "model", "conversation", "account", "provider", "caller"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

# Conversations in a report.
CONVERSATION_LIMIT = 10
# Days over which the requests of one conversation are added up.
CONVERSATION_DAYS = 30
# Cache misses in a report.
MISS_LIMIT = 20


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
        sums: dict[str, Any] = {
            name: add_known(getattr(self, name), getattr(other, name))
            for name in UsageTotals.__struct_fields__
            if name != "outcomes"
        }
        return UsageTotals(**sums, outcomes=dict(Counter(self.outcomes) + Counter(other.outcomes)))


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


def start_of_day(now: float, days_ago: int = 0) -> float:
    """Return the local midnight with which a day began. Days can have 23 or 25 hours."""
    year, month, day = time.localtime(now)[:3]
    return time.mktime((year, month, day - days_ago, 0, 0, 0, 0, 0, -1))


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a budget is used, in US dollars.

    Attributes:
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
    if period == "month":
        today = today.replace(day=monthrange(today.year, today.month)[1])
    return today.isoformat() if period in ("day", "month") else None


class CacheMiss(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that should have been in the provider's cache and was not, or only in part.

    Attributes:
        started: When the request began, in seconds since the epoch.
        reason: A sentence.
        expected: The tokens that should have been read from the cache.
        cached: The tokens that were.
        cost: What the miss cost in US dollars.
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


class UsageReports:
    """Makes reports from a store.

    The last report is kept and returned again while the store does not change, because a page asks every few
    seconds.

    Args:
        store: The store. One that does not exist yet is not created: reports are then empty.
        load_prices: Loads the current prices, for attempts that were stored without any.
        find_accuracy: Returns how close token estimates were. It is called on another thread.
    """

    def __init__(
        self,
        store: Store,
        load_prices: Callable[[], FindPrices],
        find_accuracy: Callable[[], Sequence[Accuracy]],
    ) -> None:
        self._store = store
        self._load_prices = load_prices
        self._find_accuracy = find_accuracy
        self._report: UsageReport | None = None
        self._lock = asyncio.Lock()

    async def read(self, days: int) -> UsageReport:
        """Return the report of this many days, counting today.

        Raises:
            StoreUnusable: The store cannot be read.
        """
        async with self._lock:
            now = time.time()
            starts = (time.localtime(start_of_day(now, back)) for back in (days - 1, 0))
            since, until = (time.strftime("%Y-%m-%d", start) for start in starts)
            revision = f"{await self._store.usage.revision()}-{since}-{until}"
            if self._report is None or self._report.revision != revision:
                empty = UsageReport(revision=revision, since=since, until=until, generated=now)
                self._report = await self._compute(empty, days)
            return self._report

    async def spending(self, conversation: str | None) -> tuple[UsageTotals, UsageTotals | None]:
        """Return the sums of today, and those of a conversation in the last days.

        Raises:
            StoreUnusable: The store cannot be read.
        """
        now, usage = time.time(), self._store.usage
        end = start_of_day(now, -1)
        today = add_up(await usage.sums((), start_of_day(now), end))
        if conversation is None:
            return today, None
        since = start_of_day(now, CONVERSATION_DAYS)
        return today, add_up(await usage.sums((), since, end, conversation=conversation))

    async def _compute(self, empty: UsageReport, days: int) -> UsageReport:
        now, usage = empty.generated, self._store.usage
        period = start_of_day(now, days - 1), start_of_day(now, -1)
        prices = self._load_prices()
        cells = await usage.sums(("day", "model"), *period, prices)
        conversations = await usage.sums(("conversation",), *period, prices, limit=CONVERSATION_LIMIT)
        misses = await self._store.prompts.misses(period[0], MISS_LIMIT)
        by_day, by_model = _regroup(cells, 0), _regroup(cells, 1).items()
        by_cost = sorted(by_model, key=lambda item: (item[1].cost or 0, item[1].tokens), reverse=True)
        return msgspec.structs.replace(
            empty,
            total=add_up(cells),
            days=[{"day": day, **_fields(by_day[day])} for day in sorted(by_day)],
            models=[{"model": model, **_fields(totals)} for model, totals in by_cost],
            series=[
                {"day": cell.key[0], "model": cell.key[1], "cost": cell.cost, "tokens": cell.tokens}
                for cell in cells
            ],
            conversations=[
                {"conversation": group.key[0], **_fields(group), "last": group.last}
                for group in conversations
            ],
            accuracy=await asyncio.to_thread(self._find_accuracy),
            misses=[_describe_miss(miss) for miss in misses],
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


def _fields(totals: UsageTotals) -> dict[str, Any]:
    return {name: getattr(totals, name) for name in UsageTotals.__struct_fields__}
