"""The models of every gateway one talks to: served at once, refreshed behind, never emptied by a failure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tollbridge.catalog.cache import Asked, CachedModels, CatalogCache, ModelSource
from tollbridge.config.schema import ModelSettings, Settings, any_matches, matching
from tollbridge.protocols.model_list import fill_from_endpoints, has_gaps
from tollbridge.types.errors import BridgeError, InvalidRequest, NotFound, StreamError
from tollbridge.types.models import Model

# SECTION Which models are offered, and what a person knows better of them than the gateway does.


def filter_models(models: Iterable[Model], settings: Settings) -> list[Model]:
    """The models that are allowed and not denied, corrected: favourites first, then as the gateway has it."""
    found = [apply_model_settings(model, settings) for model in models if is_allowed(model.id, settings)]
    return sorted(found, key=lambda model: _place(model.id, settings))


def is_allowed(model_id: str, settings: Settings) -> bool:
    """Where nothing is allowed by name everything is; what is denied stays denied."""
    allowed = not settings.allow or any_matches(settings.allow, model_id)
    return allowed and not any_matches(settings.deny, model_id)


def is_favourite(model_id: str, settings: Settings) -> bool:
    return any_matches(settings.favourites, model_id)


def apply_model_settings(model: Model, settings: Settings) -> Model:
    """The model with what the settings say of it, the closest pattern last."""
    for told in matching(settings.models, model.id):
        model = _corrected(model, told)
    return model


def _corrected(model: Model, told: ModelSettings) -> Model:
    abilities = msgspec.structs.asdict(told.capabilities)
    said = {name: value for name, value in abilities.items() if value is not None}
    return msgspec.structs.replace(
        model,
        name=told.name or model.name,
        context_window=told.context_window or model.context_window,
        max_output_tokens=told.max_output_tokens or model.max_output_tokens,
        told={**model.told, **said},
    )


def _place(model_id: str, settings: Settings) -> int:
    """Favourites in the order in which they were written down."""
    for place, pattern in enumerate(settings.favourites):
        if any_matches([pattern], model_id):
            return place
    return len(settings.favourites)


# SECTION Gaps that a list of models leaves, filled from the endpoints behind each: some now, the rest next time.

# Models that are asked about in one refresh, and how many at once.
ENRICH_LIMIT = 50
ENRICH_TOGETHER = 8
# What was answered holds for this long (seconds); that a server knows nothing of endpoints, too.
ENRICH_RETRY = 86_400.0


async def fill_gaps(
    source: ModelSource, key: str | None, models: Sequence[Model], before: CachedModels | None
) -> CachedModels:
    """The list as it is kept: with what was known before, and with the answers about those asked now."""
    now = time.time()
    asked = dict(before.asked) if before else {}
    refused = before.no_endpoints if before else None
    if refused is None or not 0 <= now - refused < ENRICH_RETRY:
        due = _due(models, asked, now)
        found, knows = await _answers(source, key, due, now) if due else ({}, True)
        asked |= found
        refused = None if knows else now
    listed = {model.id for model in models}
    return CachedModels(
        base_url=source.base_url,
        fetched=now,
        models=tuple(_filled(model, asked) for model in models),
        no_endpoints=refused,
        asked={name: answer for name, answer in asked.items() if name in listed},
    )


def _due(models: Sequence[Model], asked: Mapping[str, Asked], now: float) -> list[Model]:
    """Those with gaps that nobody asked about yet, then those whose answers are the oldest."""
    times = {name: answer.at for name, answer in asked.items() if now - answer.at >= 0}
    gaps = [model for model in models if has_gaps(model)]
    due = [model for model in gaps if now - times.get(model.id, 0.0) > ENRICH_RETRY]
    return sorted(due, key=lambda model: times.get(model.id, 0.0))[:ENRICH_LIMIT]


def _filled(model: Model, asked: Mapping[str, Asked]) -> Model:
    found = asked[model.id].found if model.id in asked else None
    return fill_from_endpoints(model, found) if found else model


async def _answers(
    source: ModelSource, key: str | None, models: list[Model], now: float
) -> tuple[dict[str, Asked], bool]:
    """What is known of each model, and whether the server knows of endpoints at all.

    The first is asked about alone: a server that knows nothing of endpoints is not asked fifty times.
    """
    try:
        first = await source.endpoints(models[0].id, api_key=key)
    except (NotFound, InvalidRequest, StreamError):
        first = None
    except BridgeError:
        return {}, True
    if first is None:
        return {}, False
    gate = asyncio.Semaphore(ENRICH_TOGETHER)

    async def ask(model: Model) -> Asked | None:
        async with gate:
            try:
                return Asked(now, await source.endpoints(model.id, api_key=key))
            except (NotFound, InvalidRequest, StreamError):
                return Asked(now)
            except BridgeError:
                return None  # it may go better next time, and the list is good without it

    others = await asyncio.gather(*(ask(model) for model in models[1:]))
    found = {model.id: answer for model, answer in zip(models[1:], others, strict=True) if answer}
    return {models[0].id: Asked(now, first), **found}, True


# SECTION The models of every gateway one talks to: served at once, refreshed behind, never emptied by a failure.

log = logging.getLogger(__name__)

# A list younger than this (seconds) is not fetched again unless someone insists.
FRESH = 300.0
# Where a gateway cannot be reached, this long until it is tried again unless someone insists.
RETRY = 30.0
# Lists remembered at once, one for each gateway and key.
LIST_LIMIT = 64


class Listing(msgspec.Struct, frozen=True):
    """The models of a gateway, of every type. `error` is why they are older than they should be."""

    models: tuple[Model, ...]
    fetched: float
    error: BridgeError | None = None


class Catalog:
    """Shared by all requests; tells keys apart and keeps none. One for each event loop.

    `on_change` is called with the base URL when a list that was fetched behind differs from the one served.
    """

    def __init__(self, folder: Path | None = None, on_change: Callable[[str], object] | None = None) -> None:
        self._shelf = CatalogCache(folder) if folder else None
        self._on_change = on_change
        self._kept: dict[int, CachedModels] = {}
        # For whom the list on disk was read. A second key of the same account may be someone else's.
        self._readers: dict[tuple[str, str], int] = {}
        self._fetches: dict[int, asyncio.Task[CachedModels]] = {}
        self._failed: dict[int, tuple[float, BridgeError]] = {}

    async def models(
        self,
        source: ModelSource,
        *,
        api_key: str | None = None,
        account: str = "",
        refresh: bool = False,
        patience: float | None = 0.0,
    ) -> Listing:
        """The list, by account: which models there are may depend on whose key asks.

        One that is stale is served at once and fetched again behind; with `patience`, that many seconds are
        given to the fetch first. A failure is raised only where there is nothing to serve."""
        name = _name(source, account, api_key)
        kept = self._known(name, source.base_url, account)
        if kept is not None and kept.age < FRESH and not refresh:
            return Listing(kept.models, kept.fetched)
        failed, error = self._failed.get(name, (0.0, None))
        if kept is not None and not refresh and error and time.monotonic() - failed < RETRY:
            return Listing(kept.models, kept.fetched, error)
        fetch = self._fetch(name, source, account, api_key, kept)
        if kept is None:
            return _listing(await asyncio.shield(fetch))
        # Shielded: one who stops waiting does not take the list from the others.
        await asyncio.wait([fetch], timeout=None if refresh else patience)
        if not fetch.done() or fetch.cancelled():
            return Listing(kept.models, kept.fetched)
        failure = fetch.exception()
        if isinstance(failure, BridgeError):
            return Listing(kept.models, kept.fetched, failure)
        return _listing(fetch.result())

    def find(
        self, source: ModelSource, model_id: str, *, api_key: str | None = None, account: str = ""
    ) -> Model | None:
        """A model of a list that was served before."""
        kept = self._known(_name(source, account, api_key), source.base_url, account)
        return next((model for model in kept.models if model.id == model_id), None) if kept else None

    def owners(self, base_url: str, account: str = "") -> frozenset[str]:
        """Whom the last list of a gateway names as the owners of its models: some servers name themselves."""
        lists = [kept for kept in self._kept.values() if kept.base_url == base_url]
        if not lists and self._shelf and (found := self._shelf.get(base_url, account)):
            lists = [found]
        return frozenset(model.owner for kept in lists for model in kept.models if model.owner)

    async def aclose(self) -> None:
        """Give up what is being fetched. Before the clients are closed."""
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def _known(self, name: int, base_url: str, account: str) -> CachedModels | None:
        """What is remembered for this key, or else what the account was told when it last asked."""
        found = self._kept.get(name)
        first = self._readers.setdefault((base_url, account), name)
        if found is None and first == name and self._shelf and (found := self._shelf.get(base_url, account)):
            self._remember(name, found)
        return found

    def _remember(self, name: int, kept: CachedModels) -> None:
        self._kept.pop(name, None)
        while len(self._kept) >= LIST_LIMIT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[name] = kept

    def _fetch(
        self, name: int, source: ModelSource, account: str, key: str | None, kept: CachedModels | None
    ) -> asyncio.Task[CachedModels]:
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = asyncio.ensure_future(_fetched(source, key, kept))
            self._fetches[name] = fetch
            fetch.add_done_callback(lambda done: self._keep(name, account, kept, done))
        return fetch

    def _keep(
        self, name: int, account: str, before: CachedModels | None, fetch: asyncio.Task[CachedModels]
    ) -> None:
        self._fetches.pop(name, None)
        if fetch.cancelled():
            return
        error = fetch.exception()
        if isinstance(error, BridgeError):
            self._failed[name] = (time.monotonic(), error)
            log.info("the list of models could not be fetched: %s", error.message)
            return
        if error is not None:
            return  # a mistake of ours, which whoever waits for the fetch is told
        kept = fetch.result()
        self._failed.pop(name, None)
        self._remember(name, kept)
        if self._shelf:
            self._shelf.put(msgspec.structs.replace(kept, account=account))
        if self._on_change and before and before.models != kept.models:
            self._on_change(kept.base_url)


async def _fetched(source: ModelSource, key: str | None, before: CachedModels | None) -> CachedModels:
    models = await source.models(api_key=key)
    if not models and before and before.models:
        raise StreamError("The gateway lists no models, and did before.")
    return await fill_gaps(source, key, models, before)


def _listing(kept: CachedModels) -> Listing:
    return Listing(kept.models, kept.fetched)


def _name(source: ModelSource, account: str, key: str | None) -> int:
    """Tells accounts apart without keeping their keys; salted anew in every process."""
    return hash((source.base_url, account, key))
