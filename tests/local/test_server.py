"""The public port of a local model: requests of web pages are rejected, all others are passed on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from tollbridge.local.process import LocalModel
from tollbridge.local.server import forward_requests

KEY = "key-of-the-server"
FOREIGN = [
    {"Host": "attacker.example"},
    {"Host": "attacker.example:8080"},
    {"Host": "127.0.0.1.attacker.example"},
    {"Host": "[broken"},
    {"Origin": "https://attacker.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
]


@contextlib.asynccontextmanager
async def forwarding(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    """Run a server, and a forwarder in front of it; yield the address of the forwarder."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with forward_requests(f"http://127.0.0.1:{runner.addresses[0][1]}", KEY, 0) as address:
            yield address
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_request_of_a_web_page_does_not_reach_the_server(headers: dict[str, str]) -> None:
    requests = []

    async def handle(request: web.Request) -> web.Response:
        requests.append(request)
        return web.Response()

    async with (
        forwarding(handle) as address,
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/responses", headers=headers, json={}) as reply,
    ):
        assert reply.status == 403
        assert (await reply.json())["error"]["code"] == "foreign_request"
        assert not [name for name in reply.headers if name.lower().startswith("access-control-")]
    assert requests == []


async def test_a_request_without_an_origin_or_of_the_same_origin_is_passed_on_with_the_key() -> None:
    async def echo(request: web.Request) -> web.Response:
        body = {"path": request.path_qs, "body": await request.text(), "method": request.method}
        headers = {"Access-Control-Allow-Origin": "*", "Server": "llama.cpp"}
        body["key"] = request.headers["Authorization"]
        return web.json_response(body, status=201, headers=headers)

    async with forwarding(echo) as address, aiohttp.ClientSession() as session:
        port = address.rpartition(":")[2]
        for headers in ({}, {"Origin": address}, {"Host": f"localhost:{port}"}, {"Host": f"[::1]:{port}"}):
            async with session.put(f"{address}/v1/a%2Fb?c=1", headers=headers, data="text") as reply:
                assert reply.status == 201
                assert reply.headers["Server"] == "llama.cpp"
                assert "Access-Control-Allow-Origin" not in reply.headers
                assert await reply.json() == {
                    "path": "/v1/a%2Fb?c=1",
                    "body": "text",
                    "method": "PUT",
                    "key": f"Bearer {KEY}",
                }


async def test_a_stream_is_passed_on_as_it_arrives_and_ends_with_its_client() -> None:
    disconnected = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        try:
            await asyncio.sleep(60)
        finally:
            disconnected.set()
        return response

    async with forwarding(stream) as address, aiohttp.ClientSession() as session:
        async with asyncio.timeout(10), session.get(address) as reply:
            assert await reply.content.readany() == b"data: 1\n\n"
            reply.close()
        async with asyncio.timeout(10):
            await disconnected.wait()


@pytest.mark.slow
async def test_llama_cpp_is_only_reachable_without_a_web_page() -> None:
    async with LocalModel(context=512) as local, aiohttp.ClientSession() as session:
        for headers in FOREIGN:
            async with session.get(f"{local.url}/models", headers=headers) as reply:
                assert reply.status == 403, headers
                assert "Access-Control-Allow-Origin" not in reply.headers
        async with session.get(f"{local.url}/models") as reply:
            assert reply.status == 200
