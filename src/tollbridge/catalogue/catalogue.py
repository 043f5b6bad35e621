"""The models of every gateway one talks to: served at once, refreshed behind, never emptied by a failure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tollbridge.catalogue.disk import Kept, Shelf, Source
from tollbridge.catalogue.enrichment import fill_gaps
from tollbridge.core.errors import BridgeError, StreamError
from tollbridge.core.models import Model

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


class Catalogue:
    """Shared by all requests; tells keys apart and keeps none. One for each event loop.

    `on_change` is called with the base URL when a list that was fetched behind differs from the one served.
    """

    def __init__(self, folder: Path | None = None, on_change: Callable[[str], object] | None = None) -> None:
        self._shelf = Shelf(folder) if folder else None
        self._on_change = on_change
        self._kept: dict[int, Kept] = {}
        # For whom the list on disk was read. A second key of the same account may be someone else's.
        self._readers: dict[tuple[str, str], int] = {}
        self._fetches: dict[int, asyncio.Task[Kept]] = {}
        self._failed: dict[int, tuple[float, BridgeError]] = {}

    async def models(
        self,
        source: Source,
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
        self, source: Source, model_id: str, *, api_key: str | None = None, account: str = ""
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

    def _known(self, name: int, base_url: str, account: str) -> Kept | None:
        """What is remembered for this key, or else what the account was told when it last asked."""
        found = self._kept.get(name)
        first = self._readers.setdefault((base_url, account), name)
        if found is None and first == name and self._shelf and (found := self._shelf.get(base_url, account)):
            self._remember(name, found)
        return found

    def _remember(self, name: int, kept: Kept) -> None:
        self._kept.pop(name, None)
        while len(self._kept) >= LIST_LIMIT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[name] = kept

    def _fetch(
        self, name: int, source: Source, account: str, key: str | None, kept: Kept | None
    ) -> asyncio.Task[Kept]:
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = asyncio.ensure_future(_fetched(source, key, kept))
            self._fetches[name] = fetch
            fetch.add_done_callback(lambda done: self._keep(name, account, kept, done))
        return fetch

    def _keep(self, name: int, account: str, before: Kept | None, fetch: asyncio.Task[Kept]) -> None:
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


async def _fetched(source: Source, key: str | None, before: Kept | None) -> Kept:
    models = await source.models(api_key=key)
    if not models and before and before.models:
        raise StreamError("The gateway lists no models, and did before.")
    return await fill_gaps(source, key, models, before)


def _listing(kept: Kept) -> Listing:
    return Listing(kept.models, kept.fetched)


def _name(source: Source, account: str, key: str | None) -> int:
    """Tells accounts apart without keeping their keys; salted anew in every process."""
    return hash((source.base_url, account, key))
