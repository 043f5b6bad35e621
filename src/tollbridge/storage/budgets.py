"""The rules of budgets: what counts, what an attempt can cost, and how much of its output is allowed.

They are the same for every store. How a reservation is made is described in `sqlite.py`.
"""

from __future__ import annotations

import time
from decimal import Decimal

import msgspec

from tollbridge.types.errors import BudgetExceeded

# The cost of an answer that was cut, if the gateway does not report it, is that of as many tokens as a fast
# model writes until then, and in the seconds until the gateway notices.
TOKENS_PER_SECOND = 200
SECONDS_AFTER_CUT = 5.0
# The most output tokens of a request whose output is limited because the budget does not allow more. A part
# of the budget is left for other requests.
LIMITED_OUTPUT = 16_000


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of the cost of some attempts.

    Attributes:
        name: The setting, without `budgets.`: `day`, `accounts.work.month`…
        limit: US dollars.
        since: Attempts that started earlier do not count (seconds since the epoch).
        account: Only the attempts of the account with this name or base URL count.
        conversation: Only the attempts of this conversation count.
    """

    name: str
    limit: Decimal
    since: float = 0.0
    account: str | None = None
    conversation: str | None = None

    @property
    def title(self) -> str:
        """The budget in words: `The daily budget of the account work (budgets.accounts.work.day)`."""
        return f"The {self.label} (budgets.{self.name})"

    @property
    def label(self) -> str:
        """The budget in words, without its setting: `daily budget of the account work`."""
        account = "" if self.account is None else f" of the account {self.account}"
        return f"{_TITLES[self.name.rpartition('.')[2]]}{account}"


_TITLES = {
    "day": "daily budget",
    "month": "monthly budget",
    "conversation": "budget of the conversation",
    "cost_per_hour": "hourly budget",
}


class BudgetStatus(msgspec.Struct, frozen=True):
    """What is spent of a budget, and reserved for requests that are running, in US dollars."""

    budget: Budget
    spent: Decimal
    reserved: Decimal

    @property
    def left(self) -> Decimal:
        return max(Decimal(), self.budget.limit - self.spent - self.reserved)

    @property
    def share(self) -> float:
        """The share that is spent: 1.0 is all of it."""
        return float(self.spent / self.budget.limit) if self.budget.limit else 1.0


class CostEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt can cost, in US dollars.

    Attributes:
        output_tokens: The most output tokens.
        least_tokens: The fewest output tokens that the request can be limited to; `output_tokens` if it
            cannot be limited.
    """

    prompt: Decimal = Decimal()
    output_token: Decimal = Decimal()
    output_tokens: int = 0
    least_tokens: int = 0

    @property
    def total(self) -> Decimal:
        return self.prompt + self.output_tokens * self.output_token

    def cost_if_interrupted(self, seconds: float) -> Decimal:
        """Return an estimate of what an attempt costs that was interrupted after this many seconds."""
        tokens = int(TOKENS_PER_SECOND * (max(0.0, seconds) + SECONDS_AFTER_CUT))
        return self.prompt + min(self.output_tokens, tokens) * self.output_token


def allow_output(estimate: CostEstimate, status: BudgetStatus) -> int:
    """Return the number of output tokens that a budget allows.

    Raises:
        BudgetExceeded: They are fewer than the request needs.
    """
    left = status.budget.limit - status.spent - status.reserved
    if estimate.total <= left:
        return estimate.output_tokens
    tokens = int((left - estimate.prompt) / estimate.output_token) if estimate.output_token else 0
    if tokens < estimate.least_tokens or left < estimate.prompt:
        least = estimate.prompt + estimate.least_tokens * estimate.output_token
        raise BudgetExceeded(
            f"{status.budget.title} is {format_dollars(status.budget.limit)} and does not allow this "
            f"request: {format_dollars(status.spent)} is spent, {format_dollars(status.reserved)} reserved "
            f"for running requests, and this request can cost {format_dollars(least)}.",
            budget=status.budget.name,
            limit=status.budget.limit,
            spent=status.spent,
            reserved=status.reserved,
            estimate=least,
        )
    return min(tokens, max(LIMITED_OUTPUT, estimate.least_tokens))


def check_rate(attempts: int, limit: int) -> None:
    """Raise `BudgetExceeded` if this many attempts within a minute leave no room for another."""
    if limit and attempts >= limit:
        raise BudgetExceeded(
            f"{attempts:,} requests were sent within a minute; budgets.requests_per_minute is {limit:,}. "
            "A program may be repeating requests without end.",
            budget="requests_per_minute",
            limit=Decimal(limit),
            spent=Decimal(attempts),
        )


def format_dollars(amount: Decimal) -> str:
    """Return an amount with cents; with up to four digits below one dollar, and more if it is tiny."""
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    if amount and abs(amount) < Decimal("0.0001"):
        return f"${round(amount, 1 - amount.adjusted()).normalize():f}"
    whole, _, digits = f"{amount:.4f}".partition(".")
    return f"${whole}.{digits[:2]}{digits[2:].rstrip('0')}"


def start_of_period(period: str, now: float) -> float:
    """Return when the current `day`, `month` or `hour` began. Days and months begin at local midnight."""
    year, month, day = time.localtime(now)[:3]
    match period:
        case "day":
            return time.mktime((year, month, day, 0, 0, 0, 0, 0, -1))
        case "month":
            return time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
        case _:
            return now - 3600
