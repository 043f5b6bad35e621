"""A client for every gateway the editor has an account at, and what is learned of each. No keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tollbridge.clients.choice import open_client
from tollbridge.clients.gateway import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.core.places import config_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.settings import Settings, load
from tollbridge.settings.network import http_timeouts
from tollbridge.sidecar import wire
from tollbridge.sidecar.told import editor_layer
from tollbridge.toll import Toll


class Gateway(msgspec.Struct, frozen=True):
    """`asking` also asks the gateway itself how long a conversation is, where that may be asked."""

    client: GatewayClient
    toll: Toll
    asking: Toll | None = None

    async def aclose(self) -> None:
        await self.toll.aclose()
        if self.asking is not None:
            await self.asking.aclose()
        await self.client.aclose()


class Clients:
    """Made when they are first needed, with the settings of that moment; anew when the file has changed."""

    def __init__(self, settings: wire.Settings, estimator: HybridTokenEstimator) -> None:
        self._told = settings
        self._loaded: Settings | None = None  # once they could be read
        self._stamp: tuple[int, int] | None = None  # of the file, as it was then
        self._estimator = estimator
        self._gateways: dict[tuple[str, str], Gateway] = {}
        self._retired: list[Gateway] = []
        self._users = 0

    @property
    def settings(self) -> Settings:
        """Those in force. Read again while they cannot be: a file that is mended counts at once."""
        if self._loaded is None:
            self._stamp = _stamp()
            self._loaded = load(editor=editor_layer(self._told)).settings
        return self._loaded

    @asynccontextmanager
    async def using(self, account: wire.Account) -> AsyncIterator[Gateway]:
        """What is used is not closed, whatever settings come meanwhile."""
        self._users += 1
        try:
            if self._loaded is not None and self._stamp != _stamp():
                self._begin_anew()
            yield self._gateway(account)
        finally:
            self._users -= 1
            await self._close_retired()

    async def change_settings(self, settings: wire.Settings) -> None:
        """For the requests that come after; those under way end as they began."""
        self._told = settings
        self._begin_anew()
        await self._close_retired()

    async def aclose(self) -> None:
        for gateway in (*self._gateways.values(), *self._retired):
            await gateway.aclose()

    def _begin_anew(self) -> None:
        self._loaded = None
        self._retired += self._gateways.values()
        self._gateways = {}

    def _gateway(self, account: wire.Account) -> Gateway:
        name = account.backend, account.base_url
        if name not in self._gateways:
            settings = self.settings
            client = open_client(
                account.backend,
                account.base_url,
                timeouts=http_timeouts(settings),
                proxy=settings.proxy,
                allow_http=settings.allow_http,
            )
            asking = None
            if settings.count_at_gateway and isinstance(client, OpenResponsesClient):
                asking = Toll(self._estimator, client)
            self._gateways[name] = Gateway(client, Toll(self._estimator), asking)
        return self._gateways[name]

    async def _close_retired(self) -> None:
        if self._users == 0:
            retired, self._retired = self._retired, []
            for gateway in retired:
                await gateway.aclose()


def _stamp() -> tuple[int, int] | None:
    """By what a settings file is known to be another than before; `None` where there is none."""
    try:
        found = config_file().stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
