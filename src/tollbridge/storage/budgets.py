"""Budgets in the database: what was spent, and what is reserved for the requests that are running.

The cost of an attempt is in its row of the table `usage`: what was billed, or else computed, or else
`reserved_cost`. So a budget also counts the requests of programs that have no budget. Before an attempt is
sent, `BudgetTable.reserve` adds up the rows of each budget and writes the row with the most that the attempt
can cost, in one transaction: concurrent requests of several processes cannot exceed a budget together. The
table `reservation` lists the attempts that are running. The reservations of a process that has died expire:
the next reservation of any process replaces them by an estimate of what was used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

import msgspec

from tollbridge.storage.database import Database, StoreUnusable, WorkerThread
from tollbridge.storage.tables import COST_UNIT, ProcessLock, UsageRow, encode_text, is_alive, write_rows
from tollbridge.types.errors import BudgetExceeded

# The cost of an answer that was cut, if the gateway does not report it, is that of as many tokens as a fast
# model writes until then, and in the seconds until the gateway notices.
TOKENS_PER_SECOND = 200
SECONDS_AFTER_CUT = 5.0
# The most output tokens of a request whose output is limited because the budget does not allow more. A part
# of the budget is left for other requests.
LIMITED_OUTPUT = 16_000
# Seconds between two notes that a process with reservations is alive.
HEARTBEAT = 2.0
# Seconds, when closing: how long writes wait for another process, and how long `close` takes at most.
_CLOSING_BUSY_TIMEOUT, _CLOSING_TIMEOUT = 1.0, 1.5
_MINUTE = 60.0
# A higher cost of one attempt (US dollars) is an error of a price list, and could overflow a sum.
_MOST = Decimal(100_000)


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
        prompt: The cost of the prompt.
        output_token: The cost of one output token.
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


class BudgetTable:
    """Checks budgets and keeps reservations. Closes the given database when it is closed.

    All methods wait for other processes that write, up to the database's timeout.

    Raises:
        StoreUnusable: The database cannot be used.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process_lock: ProcessLock | None = None

    def reserve(
        self,
        row: UsageRow,
        estimate: CostEstimate,
        budgets: Sequence[Budget],
        requests_per_minute: int = 0,
        *,
        over_budget: bool = False,
    ) -> int:
        """Reserve the cost of an attempt in all budgets, or in none.

        Args:
            row: The attempt.
            estimate: What it can cost.
            budgets: The budgets that it falls under.
            requests_per_minute: The limit of attempts within a minute; 0 is no limit.
            over_budget: Reserve it even if a limit is exceeded.

        Returns:
            The number of output tokens that the budgets allow, at most those of the estimate.

        Raises:
            BudgetExceeded: A budget does not allow the attempt.
        """
        return self._database.retry_while_busy(
            lambda: self._reserve(row, estimate, budgets, requests_per_minute, over_budget)
        )

    def settle(self, key: str, cost: Decimal) -> None:
        """Replace the reservation of an attempt by its cost."""
        self._database.retry_while_busy(lambda: self._settle([(_to_units(cost), key)]))

    def status(self, budgets: Sequence[Budget]) -> list[BudgetStatus]:
        """Return what is spent and reserved, without the reservations of processes that have died."""

        def read() -> list[BudgetStatus]:
            with self._database.transaction():
                self._release_reservations_of_dead_processes()
                return [self._add_up(budget) for budget in budgets]

        return self._database.retry_while_busy(read)

    def has_usage(self, account: str) -> bool:
        """Return whether there is an attempt of the account with this name or base URL."""
        query = "SELECT 1 FROM usage WHERE account = ? OR base_url = ? LIMIT 1"
        return bool(self._database.query(query, (account, account)))

    def note_alive(self) -> None:
        """Note that the process is alive: if it dies, its reservations are valued by the last such note."""
        if self._process_lock is not None:
            values = time.time(), self._process_lock.name
            statement = "UPDATE reservation SET seen = ? WHERE session = ?"
            self._database.retry_while_busy(lambda: self._database.execute(statement, values))

    def set_timeout(self, seconds: float) -> None:
        """Limit the waiting of all further calls to this many seconds from now."""
        self._database.set_timeout(seconds)

    def close(self) -> None:
        self._database.close()
        if self._process_lock is not None:
            self._process_lock.release()

    def _reserve(
        self,
        row: UsageRow,
        estimate: CostEstimate,
        budgets: Sequence[Budget],
        requests_per_minute: int,
        over_budget: bool,
    ) -> int:
        with self._database.transaction():
            session = self._lock_process()
            self._release_reservations_of_dead_processes()
            tokens = estimate.output_tokens
            if not over_budget:
                self._check_rate(row, requests_per_minute)
                tokens = min((_allow(estimate, self._add_up(budget)) for budget in budgets), default=tokens)
            cost = estimate.prompt + tokens * estimate.output_token
            write_rows(self._database, session, [row])
            self._database.execute(
                "UPDATE usage SET reserved_cost = ? WHERE key = ?", (_to_units(cost), row.key)
            )
            self._database.execute(
                "INSERT INTO reservation (key, session, seen, prompt_cost, token_cost, tokens) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(row.key, session, time.time()),
                    *(_to_units(estimate.prompt), _to_units(estimate.output_token), tokens),
                ),
            )
        return tokens

    def _check_rate(self, row: UsageRow, limit: int) -> None:
        """Raise if too many attempts were sent within a minute. Refused ones were not sent."""
        if not limit:
            return
        [(count,)] = self._database.query(
            "SELECT COUNT(*) FROM usage WHERE started > ? AND key <> ? AND "
            "(reserved_cost IS NOT NULL OR (outcome <> 'running' AND COALESCE(error, '') <> ?))",
            (row.started - _MINUTE, row.key, BudgetExceeded.kind),
        )
        if count >= limit:
            raise BudgetExceeded(
                f"{count:,} requests were sent within a minute; budgets.requests_per_minute is {limit:,}. "
                "A program may be repeating requests without end.",
                budget="requests_per_minute",
                limit=Decimal(limit),
                spent=Decimal(count),
            )

    def _add_up(self, budget: Budget) -> BudgetStatus:
        conditions, values = ["usage.started >= ?"], list[object]([budget.since])
        if budget.account is not None:
            conditions.append("(account = ? OR base_url = ?)")
            values += [budget.account, budget.account]
        if budget.conversation is not None:
            conditions.append("conversation = ?")
            values.append(encode_text(budget.conversation))
        total = self._sum_costs("usage", conditions, values)
        # A cross join, so that SQLite begins with the few rows of `reservation`.
        rows = "reservation CROSS JOIN usage"
        reserved = self._sum_costs(rows, ["usage.key = reservation.key", *conditions], values)
        return BudgetStatus(budget, total - reserved, reserved)

    def _sum_costs(self, rows: str, conditions: Sequence[str], values: Sequence[object]) -> Decimal:
        [(units,)] = self._database.query(
            "SELECT COALESCE(SUM(COALESCE(billed_cost, computed_cost, reserved_cost)), 0) "  # noqa: S608
            f"FROM {rows} WHERE {' AND '.join(conditions)}",
            values,
        )
        return COST_UNIT * int(units)

    def _lock_process(self) -> str:
        if self._process_lock is not None and not self._process_lock.exists():
            self._process_lock.release()
            self._process_lock = None
        if self._process_lock is None:
            self._process_lock = ProcessLock(self._database.path)
        return self._process_lock.name

    def _release_reservations_of_dead_processes(self) -> None:
        own = None if self._process_lock is None else self._process_lock.name
        for (session,) in self._database.query("SELECT DISTINCT session FROM reservation"):
            if session == own or is_alive(self._database.path, session):
                continue
            rows = self._database.query(
                "SELECT seen - started, prompt_cost, token_cost, tokens, usage.key "
                "FROM reservation JOIN usage ON usage.key = reservation.key WHERE reservation.session = ?",
                (session,),
            )
            self._write_costs([(_lapsed_cost(*figures), key) for *figures, key in rows])
            self._database.execute("DELETE FROM reservation WHERE session = ?", (session,))

    def _settle(self, costs: Sequence[tuple[int, str]]) -> None:
        with self._database.transaction():
            self._write_costs(costs)
            self._database.execute_many("DELETE FROM reservation WHERE key = ?", [(key,) for _, key in costs])

    def _write_costs(self, costs: Sequence[tuple[int, str]]) -> None:
        self._database.execute_many("UPDATE usage SET reserved_cost = ? WHERE key = ?", costs)


def _allow(estimate: CostEstimate, status: BudgetStatus) -> int:
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


def _lapsed_cost(seconds: float, prompt_cost: int, token_cost: int, tokens: int) -> int:
    estimate = CostEstimate(
        prompt=COST_UNIT * prompt_cost, output_token=COST_UNIT * token_cost, output_tokens=tokens
    )
    return _to_units(estimate.cost_if_interrupted(seconds + HEARTBEAT))


def _to_units(cost: Decimal) -> int:
    return int((min(cost, _MOST) / COST_UNIT).to_integral_value(ROUND_CEILING))


def format_dollars(amount: Decimal) -> str:
    """Return an amount with cents; with up to four digits below one dollar, and more if it is tiny."""
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    if amount and abs(amount) < Decimal("0.0001"):
        return f"${round(amount, 1 - amount.adjusted()).normalize():f}"
    whole, _, digits = f"{amount:.4f}".partition(".")
    return f"${whole}.{digits[:2]}{digits[2:].rstrip('0')}"


# --- Periods ---


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


# --- Access from an event loop ---


class BudgetStore:
    """A `BudgetTable` on a thread of its own: calls return futures, and run in the order of the calls.

    While attempts are reserved, the thread notes every `HEARTBEAT` seconds that the process is alive.

    Args:
        path: The database file. It is opened by the first call.
    """

    def __init__(self, path: Path) -> None:
        self.warned: set[tuple[str, float]] = set()  # budgets whose warning was logged: name and start
        self._path = path
        self._table: BudgetTable | None = None
        self._reserved: set[str | None] = set()
        self._timer: threading.Timer | None = None
        self._worker = WorkerThread("budgets")

    def reserve(
        self,
        row: UsageRow,
        estimate: CostEstimate,
        budgets: Sequence[Budget],
        requests_per_minute: int = 0,
        *,
        over_budget: bool = False,
    ) -> Future[int]:
        """See `BudgetTable.reserve`."""

        def reserve() -> int:
            table = self._open()
            tokens = table.reserve(row, estimate, budgets, requests_per_minute, over_budget=over_budget)
            self._reserved.add(row.key)
            self._start_timer()
            return tokens

        return self._worker.submit(reserve)

    def settle(self, key: str, cost: Decimal) -> Future[None]:
        """Replace the reservation of an attempt by its cost. An attempt without one is left as it is."""

        def settle() -> None:
            if key in self._reserved:
                self._reserved.discard(key)
                self._open().settle(key, cost)

        return self._worker.submit(settle)

    def status(self, budgets: Sequence[Budget]) -> Future[list[BudgetStatus]]:
        """See `BudgetTable.status`."""
        return self._worker.submit(lambda: self._open().status(budgets))

    def close(self) -> None:
        """Write what is pending, at most `_CLOSING_TIMEOUT` seconds, and close the database."""
        if (table := self._table) is not None:
            table.set_timeout(_CLOSING_BUSY_TIMEOUT)
        self._worker.submit(self._finish)
        self._worker.close(_CLOSING_TIMEOUT)

    def _open(self) -> BudgetTable:
        if self._table is None:
            self._table = BudgetTable(Database(self._path))
        return self._table

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(HEARTBEAT, lambda: self._worker.submit(self._beat))
            self._timer.daemon = True
            self._timer.start()

    def _beat(self) -> None:
        self._timer = None
        if self._reserved:
            with suppress(StoreUnusable):
                self._open().note_alive()
            self._start_timer()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._table is not None:
            self._table.close()
