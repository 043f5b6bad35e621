"""The models of the gateways: fetched, cached, filtered by the settings, and completed.

`Catalog` returns the cached list at once and refreshes it in the background; a failed fetch never empties it.
`fill_gaps` completes models whose listing has missing fields from their endpoints, some in every refresh.
`filter_models` applies the user's settings. `PriceLookup` knows prices that a gateway does not list.
`collect_facts` combines all of this for the model of a request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tollbridge.catalog.cache import CachedEndpoints, CachedModels, CatalogCache, ModelSource
from tollbridge.catalog.limits import LIMITS
from tollbridge.config.patterns import any_matches, matching
from tollbridge.config.schema import Settings
from tollbridge.protocols.model_list import fill_from_endpoints, has_gaps
from tollbridge.types.errors import BridgeError, InvalidRequest, NotFound, StreamError
from tollbridge.types.models import Capabilities, Model, Prices, PriceTier, identify
from tollbridge.types.urls import is_loopback

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

log = logging.getLogger(__name__)

# Assumed of a model that neither the gateway nor the settings describe: content is sent, and a rejection
# shows what the model does not accept.
_UNKNOWN_MODEL = {"tools": True, "images": True, "files": True, "reasoning": False}


# --- Settings ---


def filter_models(models: Iterable[Model], settings: Settings) -> list[Model]:
    """Return the allowed models with the settings applied: favourites first, then in the gateway's order."""
    allowed = [apply_model_settings(model, settings) for model in models if is_allowed(model.id, settings)]

    def rank(model: Model) -> int:
        """Return the position of the first matching pattern in `favourites`; its length if none matches."""
        matches = [any_matches([pattern], model.id) for pattern in settings.favourites]
        return [*matches, True].index(True)

    return sorted(allowed, key=rank)


def is_allowed(model_id: str, settings: Settings) -> bool:
    """Whether a model matches `allow` (or `allow` is empty) and does not match `deny`."""
    allowed = not settings.allow or any_matches(settings.allow, model_id)
    return allowed and not any_matches(settings.deny, model_id)


def is_favourite(model_id: str, settings: Settings) -> bool:
    return any_matches(settings.favourites, model_id)


def apply_model_settings(model: Model, settings: Settings) -> Model:
    """Return the model with all matching settings applied, the most specific pattern last."""
    for overrides in matching(settings.models, model.id):
        capabilities = msgspec.structs.asdict(overrides.capabilities)
        explicit = {name: value for name, value in capabilities.items() if value is not None}
        model = msgspec.structs.replace(
            model,
            name=overrides.name or model.name,
            context_window=overrides.context_window or model.context_window,
            max_output_tokens=overrides.max_output_tokens or model.max_output_tokens,
            context_size=overrides.context_size or model.context_size,
            # Sent with every request, so prompts must leave room for it.
            output_reserve=overrides.parameters.get("max_output_tokens") or model.output_reserve,
            overrides={**model.overrides, **explicit},
        )
    return model


# --- Missing fields ---


async def fill_gaps(
    source: ModelSource, key: str | None, models: Sequence[Model], previous: CachedModels | None
) -> CachedModels:
    """Complete models with missing fields from their endpoints.

    Uses the cached endpoints of the previous list, and fetches at most `LIMITS.details` more.
    """
    now = time.time()
    endpoints = dict(previous.endpoints) if previous else {}
    no_endpoints = previous.no_endpoints if previous else None
    if no_endpoints is None or not 0 <= now - no_endpoints < LIMITS.details_valid:
        due = _models_to_fetch(models, endpoints, now)
        fetched, supported = await _fetch_endpoints(source, key, due, now) if due else ({}, True)
        endpoints |= fetched
        no_endpoints = None if supported else now
    listed = {model.id for model in models}
    endpoints = {name: answer for name, answer in endpoints.items() if name in listed}
    known = {name: answer.endpoints for name, answer in endpoints.items() if answer.endpoints}
    return CachedModels(
        base_url=source.base_url,
        fetched=now,
        models=tuple(
            fill_from_endpoints(model, known[model.id]) if model.id in known else model for model in models
        ),
        no_endpoints=no_endpoints,
        endpoints=endpoints,
    )


def _models_to_fetch(
    models: Sequence[Model], endpoints: Mapping[str, CachedEndpoints], now: float
) -> list[Model]:
    """Return the models with missing fields and no valid endpoints: first the new ones, then the oldest."""
    times = {name: answer.fetched for name, answer in endpoints.items() if now - answer.fetched >= 0}
    incomplete = [model for model in models if has_gaps(model)]
    due = [model for model in incomplete if now - times.get(model.id, 0.0) > LIMITS.details_valid]
    return sorted(due, key=lambda model: times.get(model.id, 0.0))[: LIMITS.details]


async def _fetch_endpoints(
    source: ModelSource, key: str | None, models: list[Model], now: float
) -> tuple[dict[str, CachedEndpoints], bool]:
    """Fetch the endpoints of models by model id, and find out whether the server has an endpoints resource.

    The first request is sent alone, so that a server without that resource gets only one.
    """
    semaphore = asyncio.Semaphore(LIMITS.concurrency)

    async def fetch(model: Model) -> CachedEndpoints | None:
        async with semaphore:
            try:
                return CachedEndpoints(now, await source.endpoints(model.id, api_key=key))
            except (NotFound, InvalidRequest, StreamError):
                return CachedEndpoints(now)
            except BridgeError:
                return None  # a temporary failure: the next refresh tries again

    first = await fetch(models[0])
    if first is None or first.endpoints is None:
        return {}, first is None
    answers = [first, *await asyncio.gather(*(fetch(model) for model in models[1:]))]
    return {model.id: answer for model, answer in zip(models, answers, strict=True) if answer}, True


# --- The catalog ---


class Listing(msgspec.Struct, frozen=True):
    """The models of a gateway, of every type. `error` is the failure of the latest fetch, if it failed."""

    models: tuple[Model, ...]
    fetched: float
    error: BridgeError | None = None


class Catalog:
    """The model lists of all gateways, accounts and keys. Keeps no keys. Belongs to one event loop.

    Args:
        folder: Directory of the cache on disk; without it, lists are kept in memory only.
        on_change: Called with the base URL when a list fetched in the background differs from the one before.
    """

    def __init__(self, folder: Path | None = None, on_change: Callable[[str], object] | None = None) -> None:
        self._cache = CatalogCache(folder) if folder else None
        self._on_change = on_change
        self._lists: dict[int, CachedModels] = {}
        # The keys whose list on disk was looked up. Later lists come from a fetch, which remembers them.
        self._read_from_disk: set[int] = set()
        self._fetches: dict[int, asyncio.Task[CachedModels]] = {}
        self._failures: dict[int, tuple[float, BridgeError]] = {}

    async def models(
        self,
        source: ModelSource,
        *,
        api_key: str | None = None,
        account: str | None = "",
        refresh: bool = False,
        timeout: float | None = 0.0,  # noqa: ASYNC109
    ) -> Listing:
        """Return the models of a gateway, as listed for an account and key.

        A stale list is returned at once and fetched again in the background.

        Args:
            account: The account's name; `None` to keep the list in memory only.
            refresh: Fetch the list now, and wait for it.
            timeout: If the list is stale, wait this many seconds for the fetch first; `None`: without limit.

        Raises:
            BridgeError: The fetch failed, and there is no earlier list.
        """
        key, cached = self._find_list(source, account, api_key)
        if cached is not None and cached.age < LIMITS.fresh and not refresh:
            return Listing(cached.models, cached.fetched)
        failed, error = self._failures.get(key, (0.0, None))
        if cached is not None and not refresh and error and time.monotonic() - failed < LIMITS.retry:
            return Listing(cached.models, cached.fetched, error)
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = asyncio.ensure_future(self._fetch(source, account, api_key, cached))
            self._fetches[key] = fetch
            fetch.add_done_callback(lambda task: self._store(key, cached, task))
        if cached is None:
            # Shielded: other callers may be waiting for the same fetch when this one is cancelled.
            fetched = await asyncio.shield(fetch)
            return Listing(fetched.models, fetched.fetched)
        await asyncio.wait([fetch], timeout=None if refresh else timeout)
        if not fetch.done() or fetch.cancelled():
            return Listing(cached.models, cached.fetched)
        failure = fetch.exception()
        if isinstance(failure, BridgeError):
            return Listing(cached.models, cached.fetched, failure)
        fetched = fetch.result()
        return Listing(fetched.models, fetched.fetched)

    def find(
        self, source: ModelSource, model_id: str, *, api_key: str | None = None, account: str | None = ""
    ) -> Model | None:
        """Return a model of the cached list."""
        _, cached = self._find_list(source, account, api_key)
        return next((model for model in cached.models if model.id == model_id), None) if cached else None

    def owners(self, base_url: str, account: str = "") -> frozenset[str]:
        """Return the owners of the models in a gateway's cached lists. Some servers name themselves there."""
        lists = [cached for cached in self._lists.values() if cached.base_url == base_url]
        if not lists and self._cache and (stored := self._cache.get(base_url, account)):
            lists = [stored]
        return frozenset(model.owner for cached in lists for model in cached.models if model.owner)

    async def aclose(self) -> None:
        """Cancel running fetches. Call it before the clients are closed."""
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def _find_list(
        self, source: ModelSource, account: str | None, api_key: str | None
    ) -> tuple[int, CachedModels | None]:
        """Return the list of an API key in memory, or else the account's list on disk if it is of this key.

        The first value is the place of the list in memory. It does not reveal the API key.
        """
        key = hash((source.base_url, account, api_key))
        cached = self._lists.get(key)
        if cached is None and account is not None and self._cache and key not in self._read_from_disk:
            self._read_from_disk.add(key)
            stored = self._cache.get(source.base_url, account)
            if stored is not None and stored.belongs_to(api_key):
                cached = stored
                self._remember(key, cached)
        return key, cached

    def _remember(self, key: int, models: CachedModels) -> None:
        self._lists.pop(key, None)
        while len(self._lists) >= LIMITS.lists:
            oldest = next(iter(self._lists))
            self._lists.pop(oldest)
            self._read_from_disk.discard(oldest)
        self._lists[key] = models

    async def _fetch(
        self, source: ModelSource, account: str | None, api_key: str | None, previous: CachedModels | None
    ) -> CachedModels:
        models = await source.models(api_key=api_key)
        if not models and previous and previous.models:
            raise StreamError("The gateway returned an empty list of models; the previous list is kept.")
        fetched = await fill_gaps(source, api_key, models, previous)
        if self._cache and account is not None:
            stored = msgspec.structs.replace(fetched, account=account)
            # On another thread: encoding and writing a long list would delay all chats.
            await asyncio.to_thread(self._cache.put, stored, api_key)
        return fetched

    def _store(self, key: int, previous: CachedModels | None, fetch: asyncio.Task[CachedModels]) -> None:
        self._fetches.pop(key, None)
        error = None if fetch.cancelled() else fetch.exception()
        if isinstance(error, BridgeError):
            self._failures[key] = (time.monotonic(), error)
            log.info("cannot fetch the list of models: %s", error.message)
        if fetch.cancelled() or error is not None:
            return  # another error is a bug in Tollbridge: raised to the caller that waits for the fetch
        models = fetch.result()
        self._failures.pop(key, None)
        self._remember(key, models)
        if self._on_change and previous and previous.models != models.models:
            self._on_change(models.base_url)


# --- Prices of models that their gateway lists without any ---
#
# The optional package `genai-prices` is large (pydantic, and the prices of thousands of models), so a thread
# imports it when a price is needed for the first time, never at start-up. See docs/decisions/genai-prices.md.

_PACKAGE = "genai_prices"
# The package's names of creators, where they differ from those in model ids.
_PROVIDERS = {"xai": "x-ai", "mistralai": "mistral", "meta-llama": "meta", "moonshot": "moonshotai"}
_MILLION, _THOUSAND = Decimal(1_000_000), Decimal(1_000)
# The package's names of the prices that depend on the length of the prompt.
_TOKEN_PRICES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_long": "cache_write_1h_mtok",
}


class PriceLookup:
    """Finds prices once the package is loaded. Nothing waits for that: until then, prices are unknown."""

    def __init__(self) -> None:
        self._snapshot: DataSnapshot | None = None
        self._thread: Thread | None = None
        self._is_tried = False
        self._prices: dict[tuple[str, str], Prices | None] = {}

    def load(self) -> Thread | None:
        """Load the package in the background. Return its thread; `None` if it is not installed."""
        if not self._is_tried:
            self._is_tried = True
            if find_spec(_PACKAGE) is not None:
                self._thread = Thread(target=self._load, name="prices", daemon=True)
                self._thread.start()
        return self._thread

    def add_prices(self, models: Sequence[Model], base_url: str) -> tuple[Model, ...]:
        """Return the models of a list without prices with those that are known. It can take seconds."""
        return tuple(msgspec.structs.replace(model, prices=self.find(model.id, base_url)) for model in models)

    def find(self, model: str, base_url: str) -> Prices | None:
        """Return the prices of a model; `None` if they are unknown or not loaded yet.

        Models of this machine have no price, whatever others charge for a model of that name.
        """
        if is_loopback(urlsplit(base_url).hostname or ""):
            return None
        self.load()
        if self._snapshot is None:
            return None
        key = model, base_url
        if key not in self._prices:
            if len(self._prices) >= LIMITS.prices:
                self._prices.clear()
            self._prices[key] = _find_prices(self._snapshot, model, base_url)
        return self._prices[key]

    def _load(self) -> None:
        try:
            from genai_prices.data_snapshot import get_snapshot

            self._snapshot = get_snapshot()
        except Exception as error:  # noqa: BLE001 - an optional package must not break anything
            log.warning("The prices of genai-prices cannot be read: %r", error)


def _find_prices(snapshot: DataSnapshot, model: str, base_url: str) -> Prices | None:
    """Look a model up at its gateway, then at its creator, then at a reseller with its full id."""
    identity = identify(model)
    creator = (identity.creator or "").lower()
    # The name of the model, and the provider or the URL.
    places: list[tuple[str, str | None, str | None]]
    places = [(model, None, base_url), (identity.name, None, base_url)]
    if creator:
        places += [(identity.name, _PROVIDERS.get(creator, creator), None), (model, "openrouter", None)]
    else:
        places.append((model, None, None))
    for name, provider, url in places:
        try:
            _, info = snapshot.find_provider_model(name, None, provider, url)
            return _convert(info.get_prices(datetime.now(UTC)))
        except LookupError:
            continue
    return None


def _convert(price: Any) -> Prices | None:
    """Convert the package's prices per million tokens and per thousand searches."""
    fields: dict[str, Decimal] = {}
    tiers: dict[int, dict[str, Decimal]] = {}
    for field, name in _TOKEN_PRICES.items():
        value = getattr(price, name, None)
        if value is None:
            continue
        fields[field] = getattr(value, "base", value) / _MILLION
        for tier in getattr(value, "tiers", ()):
            if field in PriceTier.__struct_fields__:
                # A tier of the package begins above its start.
                tiers.setdefault(tier.start + 1, {})[field] = tier.price / _MILLION
    searches = getattr(price, "web_searches_kcount", None)
    if isinstance(searches, Decimal):
        fields["web_search"] = searches / _THOUSAND
    if "input" not in fields or "output" not in fields:
        return None
    ordered = tuple(PriceTier(start, **prices) for start, prices in sorted(tiers.items()))
    return Prices(**fields, tiers=ordered, source="genai-prices")


# --- Everything about one model ---


class ModelFacts(msgspec.Struct, frozen=True):
    """What is known about the model of a request, with the user's settings applied.

    A model that the gateway does not list has only its id and what the settings say.
    """

    model: Model
    is_listed: bool
    capabilities: Capabilities | None
    prices: Prices | None


def collect_facts(
    listed: Model | None, model_id: str, settings: Settings, prices: PriceLookup, base_url: str
) -> ModelFacts:
    """Return what is known about a model. `listed` is the model as the gateway lists it, if it does."""
    source = listed or Model(id=model_id)
    model = apply_model_settings(source, settings)
    capabilities: Capabilities | None = model.capabilities
    if not source.tags | source.parameters:
        assumed = {**_UNKNOWN_MODEL, **model.overrides}
        capabilities = Capabilities(**assumed) if assumed != _UNKNOWN_MODEL else None
    return ModelFacts(
        model, listed is not None, capabilities, source.prices or prices.find(model_id, base_url)
    )
