"""The composition root: one object that assembles settings, clients, catalog, compat, tokens and storage.

Every front end, the command line and library users hold an `Engine`; nothing else assembles these parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import msgspec

from tollbridge.answer import Answer
from tollbridge.catalog.cache import CachedPrices
from tollbridge.catalog.models import (
    Catalog,
    Listing,
    ModelFacts,
    PriceLookup,
    collect_facts,
    filter_models,
)
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.observer import Observer
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.profiles import UnreadableProfile, find_quirks, profile_folder
from tollbridge.config.accounts import named_account, resolve_account
from tollbridge.config.headers import find_secret_headers, plain_headers
from tollbridge.config.keys import find_key
from tollbridge.config.loading import LoadedSettings, load_settings
from tollbridge.config.oidc import TokenRefresher
from tollbridge.config.parameters import apply_settings
from tollbridge.config.schema import Account, Settings, http_timeouts
from tollbridge.connections import Connection, ConnectionPool, open_client
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.observers.bills import BillLookup
from tollbridge.observers.budget import BudgetRules, list_budgets
from tollbridge.policy.limits import OutputLimit
from tollbridge.protocols.billing import Credits, Generation
from tollbridge.recorder.writer import RecordingWriter
from tollbridge.request_context import RequestContext
from tollbridge.storage.budgets import BudgetStatus
from tollbridge.storage.cache_tracker import CacheTracker
from tollbridge.storage.reports import (
    BudgetState,
    Dimension,
    UsageGroup,
    UsageReport,
    UsageReports,
    UsageTotals,
)
from tollbridge.storage.rows import StoredReport, UsageRow
from tollbridge.storage.store import BudgetStore, Store, open_store
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.storage.worker import WorkerThread
from tollbridge.transport.files import catalog_folder, config_file
from tollbridge.transport.retry import RetryPolicy
from tollbridge.turn import Turn
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.messages import ChatRequest, Message, Role
from tollbridge.types.models import Model
from tollbridge.types.quirks import LearnedQuirks, Lesson, Quirks

log = logging.getLogger(__name__)

# Seconds that learning in a short-lived program waits for another process that writes to the database.
_SHORT_LIVED_WAIT = 1.0
# Seconds that a turn waits for the stored lessons about servers, if they are read. Without them, it may be
# rejected and repaired again.
_LESSONS_TIMEOUT = 0.1
# Seconds that a request with budgets waits until the package of prices is loaded, once.
_PRICES_TIMEOUT = 5.0
# Seconds that closing waits until the background thread has made its explanations.
_WORKER_TIMEOUT = 1.0

# The account name that is used for a client the caller passed in.
CLIENT_ACCOUNT = "client"


class Engine:
    """Models, turns, token counts and usage of all gateways a program talks to.

        async with Engine.open() as engine:
            result = await engine.create("What is a bridge?", model="openai/gpt-5.4")
            print(result.text)

    Requests share clients, catalog, learned data and storage. Keys come with the account of
    each request; none is stored except that of an account passed to `open`. Use one engine per event loop.
    """

    def __init__(
        self,
        load: Callable[[], LoadedSettings | Settings],
        *,
        store: Store | None = None,
        client: GatewayClient | None = None,
        account: Account | None = None,
        catalog: Catalog | None = None,
        compat: CompatMemory | None = None,
        estimator: HybridTokenEstimator | None = None,
        usage: UsageTracker | None = None,
        retries: RetryPolicy | None = None,
        short_lived: bool = False,
    ) -> None:
        """Use `Engine.open`, which describes the arguments, and opens the store and the catalog."""
        self._load = load
        self._retries = retries
        self._loaded: LoadedSettings | Settings | None = None  # set once they could be read
        self._settings_file = Path()
        self._file_stamp: tuple[int, int] | None = None  # of the settings file, when it was read
        # Without a store, nothing is written, and there is nothing to read.
        self._is_persistent = store is not None
        self._store = open_store(":memory:") if store is None else store
        self._client = client
        self._default_account = account
        self._profile_folder = profile_folder()
        self.catalog = catalog or Catalog()
        self.compat = compat or CompatMemory(self._find_quirks, store.lessons if store else None)
        self._estimator = estimator
        self._usage = usage
        self._cache_tracker: CacheTracker | None = None
        self._warned_budgets: set[tuple[str, float]] = set()  # whose warning was logged: name and start
        self._worker = WorkerThread("background")  # learns from usage, and explains cache misses
        self._short_lived = short_lived
        self._closing = AsyncExitStack()
        self._connections = ConnectionPool(
            self.open_client, lambda: self.estimator, self._worker, client=client, short_lived=short_lived
        )
        self._reported: set[str] = set()
        self._token_refresher = TokenRefresher()
        self._bills: BillLookup | None = None
        self._prices = PriceLookup()
        self._closed = False

    @classmethod
    def open(
        cls,
        config: Mapping[str, Any] | Settings | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        editor: Mapping[str, Any] | None = None,
        client: GatewayClient | None = None,
        account: Account | None = None,
        catalog: Catalog | None = None,
        compat: CompatMemory | None = None,
        estimator: HybridTokenEstimator | None = None,
        usage: UsageTracker | None = None,
        on_models_changed: Callable[[str], object] | None = None,
        retries: RetryPolicy | None = None,
        persistent: bool = True,
        store: Store | None = None,
        short_lived: bool = False,
    ) -> Engine:
        """Return an engine, to be used in `async with`.

        Args:
            config: Settings that take precedence over the environment and the settings file, named as in
                that file; or a complete `Settings`, and then nothing else is read.
            options: The same as `config`, from the options of a command line; errors name the option.
            editor: Settings of the editor, which the environment and the settings file override.
            client: Use this client for all requests, instead of one per account. It is not closed.
            account: The account to use where a request names none; by default the settings decide.
            catalog: Use this model catalog; by default one whose lists are cached on disk.
            compat: What is known about servers; by default their profiles, and what is learned from errors.
            estimator: Use this token estimator. It is not closed.
            usage: Use this usage tracker. It is not closed.
            on_models_changed: Called with a base URL when its model list, refreshed in the background,
                differs from the one that was returned.
            retries: When failed requests are sent again; by default as `RetryPolicy()` says.
            persistent: Whether usage, learned data and model lists are stored on disk. Budgets need it: if
                the settings have one and this is false, requests raise `RequestError`.
            store: Use this store, whatever `persistent` is. It is not closed.
            short_lived: For programs that run a few turns and exit: loading and learning delay no turn.
        """

        def load() -> LoadedSettings | Settings:
            if isinstance(config, Settings):
                return config
            return load_settings(options, config=config, editor=editor)

        own_store = open_store() if persistent and store is None else None
        engine = cls(
            load,
            store=own_store or store,
            client=client,
            account=account,
            catalog=catalog or Catalog(catalog_folder() if persistent else None, on_models_changed),
            compat=compat,
            estimator=estimator,
            usage=usage,
            retries=retries,
            short_lived=short_lived,
        )
        if own_store is not None:
            engine._closing.push_async_callback(own_store.aclose)
        return engine

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections and store everything that was learned."""
        self._closed = True
        try:
            if self._bills is not None:
                await self._bills.aclose()
            await self.catalog.aclose()
            await self._connections.aclose()
            if self._cache_tracker is not None:
                self._cache_tracker.finish()
                await asyncio.to_thread(self._worker.close, _WORKER_TIMEOUT)
            self._worker.close(0)
        finally:
            await self._closing.aclose()

    # --- Settings and accounts ---

    @property
    def settings(self) -> Settings:
        """The current settings. While the settings file is invalid, each access tries to read it again."""
        loaded = self._load_settings()
        return loaded if isinstance(loaded, Settings) else loaded.settings

    async def change_settings(self, editor: Mapping[str, Any]) -> None:
        """Use other editor settings for the requests from now on; running requests are not affected."""
        self._load = lambda: load_settings(editor=editor)
        self._forget_settings()
        await self._connections.close_retired()

    async def account(self, name: str | None = None) -> Account:
        """Return an account with its key: by name, or the one that the settings select.

        Raises:
            SettingsUnusable: There is no such account, or several exist and the settings select none.
        """
        if name is None and self._default_account is not None:
            return self._default_account
        if name is None and self._client is not None:
            return Account(CLIENT_ACCOUNT, self._client.base_url, self._client.protocol.name, "none")
        loaded = self._load_settings()
        if isinstance(loaded, Settings):
            loaded = LoadedSettings(loaded, {}, config_file())
        account = resolve_account(loaded) if name is None else named_account(loaded, name)
        key = await self._token_refresher.refresh(find_key(account))
        return msgspec.structs.replace(account, api_key=key.value if key else None)

    async def _resolve(self, account: Account | str | None) -> Account:
        return account if isinstance(account, Account) else await self.account(account)

    # --- Models ---

    async def models(self, account: Account | str | None = None, *, refresh: bool = False) -> list[Model]:
        """Return the chat models that the settings allow, favourites first.

        A stale list is returned at once and refreshed in the background.

        Args:
            account: The account whose models to list; by default the one that the settings select.
            refresh: Fetch the list now.

        Raises:
            BridgeError: There is no list, or it could not be refreshed although `refresh` was set.
        """
        listing = await self.list_models(account, refresh=refresh)
        if listing.error is not None and refresh:
            raise listing.error
        return [model for model in filter_models(listing.models, self.settings) if model.is_chat_model]

    async def list_models(
        self, account: Account | str | None = None, *, refresh: bool = False, wait: float = 0.0
    ) -> Listing:
        """Return the unfiltered model list of a gateway, with its age and the error that made it stale.

        Args:
            account: The account whose models to list; by default the one that the settings select.
            refresh: Fetch the list now, however old it is.
            wait: Seconds to wait for a new list before a stale one is returned.
        """
        account = await self._resolve(account)
        async with self._connect(account) as connection:
            listing = await self.catalog.models(
                connection.client,
                api_key=account.api_key,
                account=account.list_name,
                refresh=refresh,
                timeout=wait,
            )
            if any(model.prices is not None for model in listing.models):
                return listing
            priced = partial(self._prices.add_prices, listing.models, connection.client.base_url)
            return msgspec.structs.replace(listing, models=await asyncio.to_thread(priced))

    # --- Turns ---

    @asynccontextmanager
    async def turn(
        self,
        request: ChatRequest | str,
        account: Account | str | None = None,
        *,
        model: str | None = None,
        observers: Sequence[Observer] = (),
        source: object = None,
        initiator: str | None = None,
        over_budget: bool = False,
    ) -> AsyncIterator[Turn]:
        """Run one turn, as an asynchronous context manager.

        Args:
            request: What to send: a request, or the text of a single user message. The settings add to it
                what the caller left out.
            account: The gateway and the key, or the name of an account in the settings; by default the
                account that the settings select.
            model: The model, if `request` is a text; by default that of the settings. A `ChatRequest` has
                its own.
            observers: Called with everything that happens in the turn.
            source: The request in the caller's own format, for the recording of the turn.
            initiator: The name of the program that uses the local server, for the usage records.
            over_budget: Send the request even if it exceeds a budget.
        """
        request = self._make_request(request, model)
        account = await self._resolve(account)
        async with self._connect(account) as connection:
            client = connection.client
            request = apply_settings(request, self.settings, client.base_url)
            facts = await self._wait_for_facts(request.model, client, account)
            await self.compat.refresh(_LESSONS_TIMEOUT)
            learned = self.compat.recall(client.base_url, request.model, request)
            recording = self._start_recording(request, client, account, facts, source, learned)
            context = self._make_context(
                connection,
                account,
                facts,
                window=facts.model.context_window,
                output_limit=OutputLimit.for_model(facts.model, client.protocol.default_output_limit),
                capabilities=facts.capabilities,
                conversation=request.conversation,
                compat=self.compat,
                learned=learned,
                may_count=self._may_count(client.base_url, request.model),
                initiator=initiator,
                over_budget=over_budget,
                observers=(*observers, *recording),
            )
            async with Turn(request, context) as turn:
                yield turn

    def _make_context(
        self,
        connection: Connection,
        account: Account,
        facts: ModelFacts,
        *,
        initiator: str | None,
        over_budget: bool = False,
        **fields: Any,
    ) -> RequestContext:
        """Return what a request needs besides its content; `fields` are those of its own mode."""
        client, model, settings = connection.client, facts.model.id, self.settings
        budgets = None
        if settings.budgets.is_set:
            budgets = BudgetRules(
                store=self._budget_store(),
                settings=settings.budgets,
                prices=facts.prices,
                model_output=facts.model.max_output_tokens,
                estimate=self.estimator.estimate_request,
                over_budget=over_budget,
                warned=self._warned_budgets,
            )
        return RequestContext(
            client=client,
            model=model,
            api_key=account.api_key,
            account=BillingAccount(account.name, client.base_url, initiator),
            prices=facts.prices,
            find_prices=lambda: self._find_facts(model, client, account).prices,
            usage=self.usage,
            on_record=partial(self._look_up_bill, account),
            budgets=budgets,
            tokens=connection.tokens,
            cache=self.cache_tracker,
            **fields,
        )

    async def create(
        self,
        request: ChatRequest | str,
        account: Account | str | None = None,
        *,
        model: str | None = None,
    ) -> Answer:
        """Run one turn and return its answer when it is complete.

        Args:
            request: The request, or the text of a single user message.
            account: The gateway and the key, or the name of an account in the settings; by default the
                account that the settings select.
            model: The model, if `request` is a text; by default that of the settings. A `ChatRequest` has
                its own.

        Raises:
            BridgeError: The turn failed.
        """
        async with self.turn(request, account, model=model) as turn:
            async for _ in turn.batches():
                pass
        return turn.result

    # --- Tokens and usage ---

    @property
    def estimator(self) -> HybridTokenEstimator:
        """The token estimator, opened on first use."""
        if self._estimator is None:
            timeout = _SHORT_LIVED_WAIT if self._short_lived else None
            tokens = self._store.tokens if self._is_persistent else None
            self._estimator = HybridTokenEstimator(tokens, timeout=timeout)
        return self._estimator

    def count(self, model: str, items: Iterable[str | Message]) -> list[int]:
        """Return the tokens of each text or message, as the model counts them.

        A single text counts as one item. This does not wait for the network.
        """
        estimator = self.estimator
        items = [items] if isinstance(items, str) else items
        return [
            estimator.estimate_text(model, item)
            if isinstance(item, str)
            else estimator.estimate_message(model, item)
            for item in items
        ]

    @property
    def usage(self) -> UsageTracker:
        """The usage of all requests of this engine, opened on first use."""
        if self._usage is None:
            self._usage = UsageTracker(self._store.usage if self._is_persistent else None)
        return self._usage

    async def usage_sums(self, by: Sequence[Dimension], since: float, until: float) -> list[UsageGroup]:
        """Add up the recorded usage of all programs in a period.

        Attempts whose prices were not known at the time have the current ones of the stored model lists.

        Args:
            by: The dimensions to group by, such as `day` and `model`.
            since: The start of the period, in seconds since the epoch.
            until: Its end, not included.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        return await self._store.usage.sums(by, since, until, CachedPrices(catalog_folder()))

    async def has_usage(self, account: str) -> bool:
        """Return whether a request of the account with this name or base URL is recorded."""
        return await self._store.usage.has_account(account)

    async def usage_report(self, days: int = 30) -> UsageReport:
        """Return the recorded usage of all programs, as sums by day, model and conversation.

        Args:
            days: The number of days, counting today.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        report = await self._reports.read(days)
        budgets = [BudgetState.of(status) for status in await self.budgets()]
        return report.with_budgets(budgets) if budgets else report

    async def spending(self, conversation: str | None = None) -> tuple[UsageTotals, UsageTotals | None]:
        """Return the recorded usage of all programs today, and that of a conversation.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        return await self._reports.spending(conversation)

    @cached_property
    def _reports(self) -> UsageReports:
        return UsageReports(self._store, partial(CachedPrices, catalog_folder()), self.estimator.accuracy)

    async def credits(self, account: Account | str | None = None) -> Credits:
        """Return the balance of an account at a gateway that sells credits.

        Raises:
            NotFound: The gateway does not report a balance.
            BridgeError: The request failed.
        """
        account = await self._resolve(account)
        async with self._connect(account) as connection:
            return await connection.client.credits(api_key=account.api_key)

    def _look_up_bill(self, account: Account, row: UsageRow) -> None:
        """Ask the gateway in the background for the cost of an attempt, if the stream did not contain it."""
        if self._closed or row.billed is not None or row.generation_id is None:
            return

        async def fetch(generation_id: str) -> Generation:
            async with self._connect(account) as connection:
                return await connection.client.generation(generation_id, api_key=account.api_key)

        if self._bills is None:
            self._bills = BillLookup(self.usage)
        self._bills.submit(row, fetch)

    @property
    def cache_tracker(self) -> CacheTracker:
        """Explains what prompt caches did for the requests of this engine. Opened on first use."""
        if self._cache_tracker is None:
            prompts = self._store.prompts if self._is_persistent else None
            self._cache_tracker = CacheTracker(prompts, self._worker)
        return self._cache_tracker

    async def cache_report(self, turn: str | None = None) -> StoredReport | None:
        """Return what the prompt cache did for a turn, by the start of its id; by default the last one.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        return await self._store.prompts.report(turn)

    async def cache_misses(self, limit: int) -> list[StoredReport]:
        """Return the latest requests that missed the prompt cache, the newest first.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        return await self._store.prompts.misses(limit=limit)

    async def lessons(self) -> list[Lesson]:
        """Return what was learned from rejected requests, by all programs, in order of its confirmation.

        Raises:
            StoreUnusable: The database cannot be read.
        """
        return await self._store.lessons.load()

    async def forget_lessons(self, selects: Callable[[Lesson], bool]) -> list[Lesson]:
        """Delete the stored lessons that a function selects, and return them.

        Raises:
            StoreUnusable: The database cannot be written.
        """
        lessons = [lesson for lesson in await self.lessons() if selects(lesson)]
        if lessons:
            await self._store.lessons.change((), lessons)
        return lessons

    async def budgets(self) -> list[BudgetStatus]:
        """Return what is spent and reserved of each budget, except those of single conversations."""
        budgets = list_budgets(self.settings.budgets)
        return await self._budget_store().status(budgets) if budgets else []

    def _budget_store(self) -> BudgetStore:
        if not self._is_persistent:
            raise RequestError(
                "Budgets need the database. Remove `budgets` from the settings, or open the engine with "
                "persistent=True."
            )
        return self._store.budgets

    # --- Clients ---

    def open_client(self, account: Account) -> GatewayClient:
        """Return a new client for an account, with its key. The caller closes it."""
        settings = self.settings
        return open_client(
            account.backend,
            account.base_url,
            account.api_key,
            timeouts=http_timeouts(settings),
            retries=self._retries,
            proxy=settings.proxy,
            allow_http=settings.allow_http,
            headers=plain_headers(account.headers),
            secret_headers=find_secret_headers(account.headers),
            auth=account.auth,
        )

    def _connect(self, account: Account) -> AbstractAsyncContextManager[Connection]:
        """Return a context manager for the connection of an account."""
        if self._closed:
            raise RequestError("The engine is closed. Open a new one with Engine.open().")
        if self._loaded is not None and self._file_stamp != _file_stamp(self._settings_file):
            self._forget_settings()
        return self._connections.use(account)

    # --- What is known about servers and models ---

    def _load_settings(self) -> LoadedSettings | Settings:
        if self._loaded is None:
            self._settings_file = config_file()
            self._file_stamp = _file_stamp(self._settings_file)
            self._loaded = self._load()
        return self._loaded

    def _forget_settings(self) -> None:
        """Read the settings again, and open new connections with them."""
        self._loaded = None
        self._connections.retire()

    def _find_quirks(self, base_url: str, model: str) -> Quirks | None:
        """Return the quirks of a server from its profile. An invalid profile is reported once and ignored."""
        owners = self.catalog.owners(base_url, self._connections.account_name(base_url))
        try:
            return find_quirks(base_url, model, self._profile_folder, owners=owners)
        except UnreadableProfile as error:
            if error.message not in self._reported:
                self._reported.add(error.message)
                log.warning("%s", error.message)
            return None

    def _may_count(self, base_url: str, model: str) -> bool:
        """Return whether the gateway is known to count tokens and may be asked to."""
        profile = self.compat.profile(base_url, model)
        return self.settings.count_at_gateway and profile is not None and profile.input_tokens

    def _find_facts(self, model_id: str, client: GatewayClient, account: Account) -> ModelFacts:
        listed = self.catalog.find(client, model_id, api_key=account.api_key, account=account.list_name)
        return collect_facts(listed, model_id, self.settings, self._prices, client.base_url)

    async def _wait_for_facts(self, model_id: str, client: GatewayClient, account: Account) -> ModelFacts:
        """Return the facts about a model. Wait for its prices if there are budgets, which need them."""
        facts = self._find_facts(model_id, client, account)
        if not self.settings.budgets.is_set:
            return facts
        if facts.prices is None and not facts.is_listed:
            with suppress(BridgeError):
                await self.list_models(account)
            facts = self._find_facts(model_id, client, account)
        if facts.prices is None and (loading := self._prices.load()) is not None:
            await asyncio.to_thread(loading.join, _PRICES_TIMEOUT)
            facts = self._find_facts(model_id, client, account)
        return facts

    def _start_recording(
        self,
        request: ChatRequest,
        client: GatewayClient,
        account: Account,
        facts: ModelFacts,
        source: object = None,
        learned: LearnedQuirks | None = None,
    ) -> list[Observer]:
        """Start the recording of a request, if the settings ask for one."""
        folder = self.settings.record_folder
        if folder is None:
            return []
        recording = RecordingWriter(
            folder,
            request,
            redacted=self.settings.record_redact,
            editor_request=source,
            keys=(account.api_key or "", *client.secrets),
            learned=learned,
            capabilities=facts.capabilities,
        )
        return [recording]

    def _make_request(self, request: ChatRequest | str, model: str | None) -> ChatRequest:
        """Return a request as it is, and a text as a request with one user message."""
        if isinstance(request, ChatRequest):
            return request
        if not isinstance(request, str):
            raise RequestError(f"A request is a string or a ChatRequest, not {type(request).__name__}.")
        model = model or self.settings.model
        if model is None:
            raise RequestError('No model is set. Pass model="…", or set `model` in the settings.')
        return ChatRequest(model=model, messages=(Message(Role.USER, request),))


def _file_stamp(path: Path) -> tuple[int, int] | None:
    """Return the modification time and size of a file, to notice a change."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
