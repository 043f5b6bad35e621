"""The budgets of a request: reserve what each attempt can cost before it is sent, and settle it later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from decimal import Decimal

import msgspec

from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.config.schema import DEFAULT_REQUESTS_PER_MINUTE, AccountBudgets, BudgetSettings
from tollbridge.observers.usage import UsageObserver
from tollbridge.storage.budgets import (
    Budget,
    BudgetStatus,
    CostEstimate,
    format_dollars,
    start_of_period,
)
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.store import BudgetStore, StoreUnusable
from tollbridge.storage.worker import wait_for_write
from tollbridge.tokens.ledger import EstimationResult
from tollbridge.types.errors import BudgetExceeded
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Prices

log = logging.getLogger(__name__)

# The most output tokens of a model whose limit is not known.
_UNKNOWN_OUTPUT = 32_000
# An answer is not limited to fewer output tokens because of a budget: the request is refused instead. Models
# that reason need some tokens before they answer.
LEAST_OUTPUT = 1_024
# An estimate of a prompt that was never counted can be too low. This much is added to it.
_PROMPT_MARGIN = Decimal("1.1")
# A budget of which this share is spent causes a warning.
WARNING_SHARE = 0.8


def list_budgets(
    settings: BudgetSettings,
    *,
    account: str | None = None,
    base_url: str | None = None,
    conversation: str | None = None,
    now: float | None = None,
) -> list[Budget]:
    """Return the budgets that a request falls under; those of all accounts if `account` is `None`."""
    now = time.time() if now is None else now
    tables: list[tuple[str, str | None, BudgetSettings | AccountBudgets]] = [("", None, settings)]
    for name, limits in settings.accounts.items():
        if account is None or name in (account, base_url):
            tables.append((f"accounts.{name}.", name, limits))
    budgets = [
        Budget(name=prefix + period, limit=limit, since=start_of_period(period, now), account=name)
        for prefix, name, limits in tables
        for period in ("day", "month")
        if (limit := getattr(limits, period)) is not None
    ]
    if settings.cost_per_hour is not None:
        since = start_of_period("hour", now)
        budgets.append(Budget(name="cost_per_hour", limit=settings.cost_per_hour, since=since))
    if settings.conversation is not None and conversation is not None:
        limit = settings.conversation
        budgets.append(Budget(name="conversation", limit=limit, conversation=conversation))
    return budgets


def describe_status(status: BudgetStatus) -> str | None:
    """Return a warning if most of a budget is spent, or `None`."""
    if status.share < WARNING_SHARE:
        return None
    amounts = f"{format_dollars(status.spent)} of {format_dollars(status.budget.limit)}"
    return f"{status.budget.title} is {100 * status.share:.0f} % spent: {amounts}."


class BudgetRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the budgets of a request depend on.

    Attributes:
        model_output: The most output tokens of the model, for a request that sets no limit; `None` if
            unknown.
        over_budget: Whether the user permits this request to exceed the budgets.
        warned: The budgets whose warning was logged, by name and start; it is added to.
    """

    store: BudgetStore
    settings: BudgetSettings
    prices: Prices | None
    model_output: int | None
    estimate: Callable[[ChatRequest], EstimationResult]
    over_budget: bool = False
    warned: set[tuple[str, float]] = set()


class BudgetObserver(Observer):
    """Keeps the attempts of one request within the budgets.

    Args:
        usage: The accounting of the request, whose attempts are reserved and settled.
        warns: Whether the answer gets a warning if most of a budget is spent.
    """

    def __init__(self, rules: BudgetRules, usage: UsageObserver, *, warns: bool = True) -> None:
        self._rules = rules
        self._usage = usage
        self._warns = warns
        self._request: ChatRequest | None = None  # as it was reserved last
        self._estimate = CostEstimate()
        usage.listeners.append(self._settle)

    async def reserve(
        self,
        request: ChatRequest,
        prompt: EstimationResult | None = None,
        *,
        may_limit: bool = False,
    ) -> int | None:
        """Reserve what the current attempt can cost.

        Args:
            prompt: The estimate of the prompt, if there is one already.
            may_limit: Whether the output may be limited to what the budgets allow: the user set no limit.

        Returns:
            The number of output tokens that the request must be limited to; `None` if it is not limited.

        Raises:
            BudgetExceeded: A budget does not allow the request, or the budgets cannot be checked.
        """
        rules, row = self._rules, self._usage.row
        self._request = request
        budgets = self._budgets(row)
        limit = DEFAULT_REQUESTS_PER_MINUTE
        if rules.settings.requests_per_minute is not None:
            limit = rules.settings.requests_per_minute
        self._estimate = self._estimate_cost(request, prompt, may_limit) if budgets else CostEstimate()
        try:
            tokens = await rules.store.reserve(
                row, self._estimate, budgets, limit, over_budget=rules.over_budget
            )
        except StoreUnusable as error:
            if rules.over_budget:
                log.warning("%s; the request is not counted in the budgets", error.message)
                return None
            message = f"The budgets cannot be checked, so the request was not sent. {error.message}."
            raise BudgetExceeded(message) from error
        return tokens if tokens < self._estimate.output_tokens else None

    async def resend(self) -> None:
        if self._request is not None:
            await self.reserve(self._request)

    async def end(self, answer: Answer) -> None:
        if not self._warns or answer.outcome != "completed":
            return
        budgets = self._budgets(self._usage.row)
        if not budgets:
            return
        store = self._rules.store
        status = store.status(budgets)
        try:
            await wait_for_write(status)
        except StoreUnusable:
            return
        for each in status.result() if status.done() else ():
            if (warning := describe_status(each)) is None:
                continue
            answer.warnings.append(warning)
            # Each budget is logged once per period.
            key = each.budget.name, each.budget.since if each.budget.name != "cost_per_hour" else 0.0
            if key not in self._rules.warned:
                self._rules.warned.add(key)
                log.warning("%s", warning)

    def _settle(self, row: UsageRow) -> None:
        if row.key is not None:
            self._rules.store.settle(row.key, self._final_cost(row))

    def _budgets(self, row: UsageRow) -> list[Budget]:
        return list_budgets(
            self._rules.settings,
            account=row.account,
            base_url=row.base_url,
            conversation=row.conversation,
            now=row.started,
        )

    def _estimate_cost(
        self, request: ChatRequest, prompt: EstimationResult | None, may_limit: bool
    ) -> CostEstimate:
        prompt = prompt or self._rules.estimate(request)
        margin = Decimal(1) if prompt.method == "actual" else _PROMPT_MARGIN
        tokens = int(prompt.tokens * margin)
        output = self._permitted_output(request)
        can_limit = may_limit and _accepts_limit(request)
        prices = self._rules.prices or Prices()
        prompt_cost = prices.cost(Usage(tokens, 0, cache_write_tokens=0))
        # A prompt can be written to the cache, which costs more than input.
        cached_cost = prices.cost(Usage(tokens, 0, cache_write_tokens=tokens))
        cost_with_one_token = prices.cost(Usage(tokens, 1))
        if (
            prompt_cost is None
            or cached_cost is None
            or cost_with_one_token is None
            or not 0 <= prompt_cost <= cost_with_one_token
        ):
            if self._rules.over_budget or self._rules.settings.unknown_prices == "allow":
                return CostEstimate()
            raise BudgetExceeded(
                f"The price of {request.model} is not known, so the budgets cannot be checked. Set "
                'budgets.unknown_prices to "allow" to send such requests without counting their cost.'
            )
        return CostEstimate(
            prompt=max(prompt_cost, cached_cost),
            output_token=cost_with_one_token - prompt_cost,
            output_tokens=output,
            least_tokens=min(output, LEAST_OUTPUT) if can_limit else output,
        )

    def _permitted_output(self, request: ChatRequest) -> int:
        limit = request.max_output_tokens if _accepts_limit(request) else None
        choices = (request.extra or {}).get("n")
        times = choices if isinstance(choices, int) and choices > 1 else 1
        return times * (limit or self._rules.model_output or _UNKNOWN_OUTPUT)

    def _final_cost(self, row: UsageRow) -> Decimal:
        """Return what an attempt counts: its charge, or an estimate until the charge is known."""
        if row.charge is not None:
            return row.charge
        if not (row.incomplete or row.usage.known):
            return Decimal()  # not sent, or refused
        return self._estimate.cost_if_interrupted(row.duration or 0.0)


def _accepts_limit(request: ChatRequest) -> bool:
    return request.quirks is None or "max_output_tokens" not in request.quirks.without
