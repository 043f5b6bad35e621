"""Start `tollbridge serve` in this process, in front of a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from tollbridge.config.schema import Account, BudgetSettings, Settings
from tollbridge.engine import Engine
from tollbridge.frontends.http.access import ServerOptions
from tollbridge.frontends.http.server import run_server
from tollbridge.protocols import Backend


class LocalServer(msgspec.Struct, frozen=True):
    url: str
    engine: Engine
    http: aiohttp.ClientSession


@asynccontextmanager
async def local_server(
    gateway_url: str,
    backend: Backend = "openresponses",
    *,
    token: str | None = None,
    aliases: Mapping[str, str] | None = None,
    api_key: str | None = "key-of-the-gateway",
    budgets: BudgetSettings | None = None,
    persistent: bool = False,
) -> AsyncIterator[LocalServer]:
    """Start a server. One with budgets always stores its usage, in `TOLLBRIDGE_DATA_DIR`."""
    account = Account("test", gateway_url, backend, "none", api_key=api_key)
    options = ServerOptions(token=token)
    settings = Settings(aliases=aliases or {}, budgets=budgets or BudgetSettings())
    async with (
        Engine.open(settings, account=account, persistent=persistent or budgets is not None) as engine,
        run_server(engine, options) as url,
        aiohttp.ClientSession() as http,
    ):
        yield LocalServer(url, engine, http)
