"""A client for every gateway the editor has an account at, and what is learned of each. No keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tollbridge.client import GatewayClient, OpenResponsesClient
from tollbridge.client_aisdk import open_client
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.io.http import Timeouts
from tollbridge.sidecar import wire
from tollbridge.toll import Toll


class Gateway(msgspec.Struct, frozen=True):
    client: GatewayClient
    toll: Toll

    async def aclose(self) -> None:
        await self.toll.aclose()
        await self.client.aclose()


class Clients:
    """Made when they are first needed, with the settings of that moment."""

    def __init__(self, settings: wire.Settings, estimator: HybridTokenEstimator) -> None:
        self._settings = settings
        self._estimator = estimator
        self._gateways: dict[tuple[str, str], Gateway] = {}
        self._retired: list[Gateway] = []
        self._users = 0

    @asynccontextmanager
    async def using(self, account: wire.Account) -> AsyncIterator[Gateway]:
        """What is used is not closed, whatever settings come meanwhile."""
        self._users += 1
        try:
            yield self._gateway(account)
        finally:
            self._users -= 1
            await self._close_retired()

    async def change_settings(self, settings: wire.Settings) -> None:
        """For the requests that come after; those under way end as they began."""
        self._settings = settings
        self._retired += self._gateways.values()
        self._gateways = {}
        await self._close_retired()

    async def aclose(self) -> None:
        for gateway in (*self._gateways.values(), *self._retired):
            await gateway.aclose()

    def _gateway(self, account: wire.Account) -> Gateway:
        name = account.backend, account.base_url
        if name not in self._gateways:
            settings = self._settings
            client = open_client(
                account.backend,
                account.base_url,
                timeouts=_timeouts(settings.timeouts),
                proxy=settings.proxy,
                allow_http=settings.allow_http,
            )
            toll = Toll(self._estimator)
            if settings.count_at_gateway and isinstance(client, OpenResponsesClient):
                toll = Toll(self._estimator, client)
            self._gateways[name] = Gateway(client, toll)
        return self._gateways[name]

    async def _close_retired(self) -> None:
        if self._users == 0:
            retired, self._retired = self._retired, []
            for gateway in retired:
                await gateway.aclose()


def _timeouts(asked: wire.Timeouts) -> Timeouts:
    given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    return Timeouts(**given)
