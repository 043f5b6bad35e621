"""The models of every gateway one talks to: served at once, refreshed behind, never emptied by a failure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from tollbridge.catalogue.disk import Kept, Shelf
from tollbridge.core.errors import BridgeError, InvalidRequest, NotFound, StreamError
from tollbridge.core.models import Model
from tollbridge.gateways.endpoints import Endpoints, enriched, has_gaps

log = logging.getLogger(__name__)

# A list younger than this (seconds) is not fetched again unless someone insists.
FRESH = 300.0
# Where a gateway cannot be reached, this long until it is tried again unless someone insists.
RETRY = 30.0
# Lists remembered at once, one for each gateway and key.
LIST_LIMIT = 64
# Models whose gaps are filled in one refresh, and how many are asked about at once.
ENRICH_LIMIT = 50
ENRICH_TOGETHER = 8
# A server that knows nothing of endpoints is asked again after this long.
ENRICH_RETRY = 86_400.0


class Source(Protocol):
    """What the catalogue needs of a client."""

    base_url: str

    async def models(self, *, api_key: str | None = None) -> list[Model]: ...

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None: ...


class Listing(msgspec.Struct, frozen=True):
    """The models of a gateway, of every type. `error` is why they are older than they should be."""

    models: tuple[Model, ...]
    fetched: float
    error: BridgeError | None = None


class Catalogue:
    """Shared by all requests; tells keys apart and keeps none. One for each event loop.

    `on_change` is called with the base URL when a list that was fetched behind differs from the one served.
    """

    def __init__(self, folder: Path | None = None, on_change: Callable[[str], object] | None = None) -> None:
        self._shelf = Shelf(folder) if folder else None
        self._on_change = on_change
        self._kept: dict[int, Kept] = {}
        self._fetches: dict[int, asyncio.Task[Kept]] = {}
        self._failed: dict[int, tuple[float, BridgeError]] = {}

    async def models(
        self,
        source: Source,
        *,
        api_key: str | None = None,
        refresh: bool = False,
        patience: float | None = 0.0,
    ) -> Listing:
        """The list. One that is stale is served at once and fetched again behind; with `patience`, that many
        seconds are given to the fetch first. A failure is raised only where there is nothing to serve."""
        name = _name(source, api_key)
        kept = self._known(name, source.base_url)
        if kept is not None and kept.age < FRESH and not refresh:
            return Listing(kept.models, kept.fetched)
        failed, error = self._failed.get(name, (0.0, None))
        if kept is not None and not refresh and error and time.monotonic() - failed < RETRY:
            return Listing(kept.models, kept.fetched, error)
        fetch = self._fetch(name, source, api_key, kept)
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

    def find(self, source: Source, model_id: str, *, api_key: str | None = None) -> Model | None:
        """A model of a list that was served before."""
        kept = self._known(_name(source, api_key), source.base_url)
        return next((model for model in kept.models if model.id == model_id), None) if kept else None

    async def aclose(self) -> None:
        """Give up what is being fetched. Before the clients are closed."""
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def _known(self, name: int, base_url: str) -> Kept | None:
        """What is remembered for this key, or else what the last one who asked this gateway was told."""
        found = self._kept.get(name)
        if found is None and self._shelf and (found := self._shelf.get(base_url)):
            self._remember(name, found)
        return found

    def _remember(self, name: int, kept: Kept) -> None:
        self._kept.pop(name, None)
        while len(self._kept) >= LIST_LIMIT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[name] = kept

    def _fetch(self, name: int, source: Source, key: str | None, kept: Kept | None) -> asyncio.Task[Kept]:
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = asyncio.ensure_future(_fetched(source, key, kept))
            self._fetches[name] = fetch
            fetch.add_done_callback(lambda done: self._keep(name, kept, done))
        return fetch

    def _keep(self, name: int, before: Kept | None, fetch: asyncio.Task[Kept]) -> None:
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
            self._shelf.put(kept)
        if self._on_change and before and before.models != kept.models:
            self._on_change(kept.base_url)


async def _fetched(source: Source, key: str | None, before: Kept | None) -> Kept:
    models = await source.models(api_key=key)
    if not models and before and before.models:
        raise StreamError("The gateway lists no models, and did before.")
    now = time.time()
    refused = before.no_endpoints if before else None
    asks = refused is None or not 0 <= now - refused < ENRICH_RETRY
    gaps = [model for model in models if has_gaps(model)][:ENRICH_LIMIT] if asks else []
    if gaps:
        filled, knows = await _filled(source, key, gaps)
        models = [filled.get(model.id, model) for model in models]
        refused = None if knows else now
    return Kept(base_url=source.base_url, fetched=now, models=tuple(models), no_endpoints=refused)


async def _filled(source: Source, key: str | None, models: list[Model]) -> tuple[dict[str, Model], bool]:
    """The models with their gaps filled, and whether the server knows of endpoints at all.

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

    async def ask(model: Model) -> Model:
        async with gate:
            try:
                found = await source.endpoints(model.id, api_key=key)
            except BridgeError:
                return model  # the list is good without it
        return enriched(model, found) if found else model

    others = await asyncio.gather(*(ask(model) for model in models[1:]))
    return {model.id: model for model in (enriched(models[0], first), *others)}, True


def _listing(kept: Kept) -> Listing:
    return Listing(kept.models, kept.fetched)


def _name(source: Source, key: str | None) -> int:
    """Tells accounts apart without keeping their keys; salted anew in every process."""
    return hash((source.base_url, key))
