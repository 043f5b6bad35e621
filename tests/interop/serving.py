"""`tollbridge serve` in front of the embedded gateway, and the tokens that the gateway itself counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from tests.frontends.http.servers import local_server

from tollbridge.engine import Engine
from tollbridge.protocols import Backend
from tollbridge.testing.server import Gateway

MODEL = "tollbridge/demo"
PROTOCOLS: tuple[Backend, ...] = ("openresponses", "chat-completions", "anthropic-messages")


class Served(msgspec.Struct, frozen=True):
    """A running local server.

    Attributes:
        url: Its URL, without `/v1`.
        gateway: The gateway behind it.
        backend: The protocol in which the gateway is used.
        engine: Its engine, with the recorded usage.
    """

    url: str
    gateway: Gateway
    backend: Backend
    engine: Engine

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"


@asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[Served]:
    """Run the server in front of a gateway that is used with the protocol `backend`."""
    async with Gateway() as gateway, local_server(gateway.url, backend) as server:
        yield Served(server.url, gateway, backend, server.engine)


async def count_tokens(gateway: Gateway, index: int = -1) -> tuple[int, int]:
    """Return the input and output tokens that the gateway counts for a request that it received.

    The same request is sent to a new gateway, without anything in between.
    """
    request = gateway.requests[index]
    body = {name: value for name, value in request.body.items() if name not in ("stream", "stream_options")}
    async with (
        Gateway() as other,
        aiohttp.ClientSession() as http,
        http.post(f"http://127.0.0.1:{other.port}{request.path}", json=body) as response,
    ):
        usage: Mapping[str, Any] = (await response.json())["usage"]
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["completion_tokens"]
    return usage["input_tokens"], usage["output_tokens"]
