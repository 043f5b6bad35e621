"""The store: one object for everything that outlives a request.

`Store` is grouped by topic. `open_store` chooses the implementation from a URL, such as `sqlite.py`. Nothing
outside of this package depends on which one is used.

Topics that processes can share over a network (`usage`, `budgets`, `lessons`) are asynchronous: their methods
return a `Pending`, which a coroutine awaits and a thread waits for, or are coroutines. A call that returns a
`Pending` takes effect in the order of the calls, also if nobody waits for it.

The topics `tokens` and `prompts` are read while the caller waits: on the thread that counts tokens for an
editor, in the preparation of a request. They hold digests of prompts, which stay on this machine. Their
readers return at once and never wait for another process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tollbridge.tokens.records import LedgerStore
from tollbridge.transport.files import database_file
from tollbridge.types.errors import BridgeError

if TYPE_CHECKING:
    from tollbridge.storage.budgets import Budget, BudgetStatus, CostEstimate
    from tollbridge.storage.reports import Dimension, UsageGroup
    from tollbridge.storage.rows import CacheEntry, Scope, StoredReport, UsageRow
    from tollbridge.storage.worker import Pending
    from tollbridge.tokens.prompt_cache import SentPrompt
    from tollbridge.types.models import Prices
    from tollbridge.types.quirks import Lesson

    # Returns the current prices of a model, by base URL, account and model.
    FindPrices = Callable[[str, str, str], Prices | None]


class StoreUnusable(BridgeError):
    """Raised when the store cannot be read or written: disk full, no permission, I/O error."""

    advice = (
        "Check permissions and disk space of the data directory, or choose another with TOLLBRIDGE_DATA_DIR."
    )


class StoreBusy(StoreUnusable):
    """Raised when another process holds the write lock. Trying again later can succeed."""

    advice = "Another process is using the database. Try again."


class UsageStore(Protocol):
    """The attempts of requests: one row each, from the moment it starts."""

    def put(self, row: UsageRow, delay: float = 0.0) -> Pending[None]:
        """Insert a row, or update the one with the same key.

        A row that has ended stays as it is, except that a bill can be added: so a row can be written again
        if it is not certain that it was written. Nothing is raised if it cannot be written. It is then kept
        in memory and written later.

        Args:
            delay: Seconds that it may wait, to be written together with others.

        Returns:
            Is done when the row is written or kept.
        """

    async def has_account(self, account: str) -> bool:
        """Return whether there is an attempt of the account with this name or base URL."""

    async def revision(self) -> str:
        """Return a text that changes when anything in the store may have changed."""

    async def sums(
        self,
        by: Sequence[Dimension],
        since: float,
        until: float,
        find_prices: FindPrices | None = None,
        *,
        conversation: str | None = None,
        limit: int | None = None,
    ) -> list[UsageGroup]:
        """Add up the attempts of all requests that began in a period.

        Attempts that are `running` and whose process is gone are first marked as `interrupted`.

        Args:
            by: The dimensions to group by; none gives one group.
            since: The start of the period, in seconds since the epoch.
            until: Its end, not included.
            find_prices: Returns prices for attempts that were stored without any.
            conversation: Add up this conversation only.
            limit: Add up only this many conversations, those with the highest cost.

        Returns:
            The groups: the latest days or months first, then the most expensive ones, then by their tokens.
        """


class BudgetStore(Protocol):
    """What is reserved for the attempts that are running, and what was spent."""

    def reserve(
        self,
        row: UsageRow,
        estimate: CostEstimate,
        budgets: Sequence[Budget],
        requests_per_minute: int = 0,
        *,
        over_budget: bool = False,
    ) -> Pending[int]:
        """Reserve the cost of an attempt in all budgets, or in none, and write its row.

        Args:
            budgets: The budgets that it falls under.
            requests_per_minute: The limit of attempts within a minute; 0 is no limit.
            over_budget: Reserve it even if a limit is exceeded.

        Returns:
            The number of output tokens that the budgets allow, at most those of the estimate.

        Raises:
            BudgetExceeded: A budget does not allow the attempt.
        """

    def settle(self, key: str, cost: Decimal) -> Pending[None]:
        """Replace the reservation of an attempt by its cost. An attempt without one is left as it is."""

    def status(self, budgets: Sequence[Budget]) -> Pending[list[BudgetStatus]]:
        """Return what is spent and reserved, without the reservations of processes that have died."""


class LessonStore(Protocol):
    """What was learned about servers from rejected requests."""

    def load(self) -> Pending[list[Lesson]]:
        """Return all lessons, in the order of their confirmation, after writing those that are kept."""

    def change(self, confirmed: Sequence[Lesson], deleted: Sequence[Lesson]) -> Pending[None]:
        """Add or replace lessons and delete others, by their keys.

        If that fails, the change is kept in memory and made with the next call of any method.
        """


class PromptStore(Protocol):
    """The last prompts of conversations, as digests, and what the prompt cache did for each turn."""

    def find(self, scope: Scope) -> list[SentPrompt]:
        """Return the newest prompts of a conversation; without an id, those of the account without one."""

    def put(self, entry: CacheEntry) -> Pending[None]:
        """Add a prompt and its report. Nothing is raised if they cannot be written: they are then lost."""

    async def report(self, turn: str | None = None) -> StoredReport | None:
        """Return the report of a turn by the start of its id, or the last report."""

    async def misses(self, since: float = 0.0, limit: int = 5_000) -> list[StoredReport]:
        """Return the newest misses, the newest first."""


class Store(Protocol):
    """Everything that is stored. All methods of all topics raise `StoreUnusable` if that is not possible.

    Threads can share a store. It opens what it needs on first use.
    """

    usage: UsageStore
    budgets: BudgetStore
    tokens: LedgerStore
    lessons: LessonStore
    prompts: PromptStore

    @staticmethod
    async def open(url: str) -> Store:
        """Return a store that can be used. See `open_store`, which does not wait until it can.

        Raises:
            StoreUnusable: It cannot be opened.
        """
        store = open_store(url)
        await store.lessons.change((), ())  # a change of nothing, which opens the store
        return store

    async def aclose(self) -> None:
        """Write what is pending, for a limited time, and close."""

    def close(self) -> None:
        """The same as `aclose`, for programs without an event loop."""


def open_store(url: str | None = None) -> Store:
    """Return the store at a URL. It is opened by its first use, so this does not fail.

    Args:
        url: `sqlite:///` and the path of a file; or `:memory:`, which is gone when it is closed. By default
            the database of the user.
    """
    if url is None:
        url = f"sqlite:///{database_file()}"
    scheme, separator, path = url.partition(":///")
    if url != ":memory:" and (scheme, separator) != ("sqlite", ":///"):
        raise ValueError(f"Invalid store URL {url!r}. Expected sqlite:///path or :memory:.")
    from tollbridge.storage.sqlite import SqliteStore  # here: each store has imports of its own

    return SqliteStore(Path(path) if separator else None)
