"""Start `tollbridge serve` in this process, in front of a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from tollbridge.config.accounts import Account
from tollbridge.config.schema import Settings
from tollbridge.engine import Engine
from tollbridge.frontends.http.server import ServerOptions, run_server
from tollbridge.types.urls import Backend


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
) -> AsyncIterator[LocalServer]:
    account = Account("test", gateway_url, backend, "none", api_key=api_key)
    options = ServerOptions(token=token)
    async with (
        Engine.open(Settings(aliases=aliases or {}), account=account, persistent=False) as engine,
        run_server(engine, options) as url,
        aiohttp.ClientSession() as http,
    ):
        yield LocalServer(url, engine, http)
