"""Responses over a WebSocket: what the acceptance cases of the specification do not check."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.frontends.http.servers import LocalServer, local_server
from tests.testing.client import WEATHER, calls, output_text, result, user

from tollbridge.protocols import BACKENDS, Backend
from tollbridge.testing.server import Gateway

MODEL = "tollbridge/demo"
ENDS = ("response.completed", "response.failed", "error")


async def create(socket: aiohttp.ClientWebSocketResponse, input_value: Any, **fields: Any) -> dict[str, Any]:
    """Send a request, and return the event that ends the response."""
    await socket.send_json({"type": "response.create", "model": MODEL, "input": input_value, **fields})
    while True:
        event: dict[str, Any] = await socket.receive_json(timeout=10)
        if event["type"] in ENDS:
            return event


def connect(server: LocalServer) -> Any:
    return server.http.ws_connect(f"{server.url}/v1/responses")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_tool_round_continues_a_response(backend: Backend) -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url, backend) as server,
        connect(server) as socket,
    ):
        first = await create(socket, [user("The weather in Rome?")], tools=[WEATHER], store=False)
        [call] = calls(first["response"])
        assert call["arguments"] == '{"location":"Rome"}'
        answered = await create(
            socket,
            [result(call["call_id"], "Sunny")],
            tools=[WEATHER],
            store=False,
            previous_response_id=first["response"]["id"],
        )
        assert output_text(answered["response"]).startswith("The tool get_weather answered: “Sunny”.")
        records = server.engine.usage.records
        for _ in range(500):  # the last event is sent before the gateway's response has ended
            if len(records) == 2:
                break
            await asyncio.sleep(0.01)
        assert [record.outcome for record in records] == ["completed", "completed"]
        assert records[-1].usage is not None
        assert records[-1].usage.input_tokens == answered["response"]["usage"]["input_tokens"]


@pytest.mark.parametrize("backend", ["openresponses", "chat-completions"])
async def test_an_error_has_the_status_and_code_of_the_gateway(backend: Backend) -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url, backend) as server,
        connect(server) as socket,
    ):
        event = await create(socket, "Hi fault:unauthorized")
        assert (event["type"], event["status"]) == ("error", 401)
        assert event["error"]["code"]
        assert event["error"]["message"]
        failed = await create(socket, "Hi fault:failed")
        assert failed["type"] == "response.failed"
        # The connection can still be used.
        assert (await create(socket, "Hi"))["type"] == "response.completed"


@pytest.mark.parametrize("fault", ["html-error", "empty-error", "html-page"])
async def test_a_response_that_is_not_a_stream_is_an_error(fault: str) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server, connect(server) as socket:
        event = await create(socket, f"Hi fault:{fault}")
        assert event["type"] == "error"
        assert event["status"] >= 500
        assert event["error"]["message"]


@pytest.mark.parametrize(
    "message", ["", "{", "[]", "null", '{"type": "response.cancel"}', '{"type": "response.create"}', b"{}"]
)
async def test_an_invalid_message_is_answered_with_an_error(message: str | bytes) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server, connect(server) as socket:
        if isinstance(message, bytes):
            await socket.send_bytes(message)
        else:
            await socket.send_str(message)
        event = await socket.receive_json(timeout=10)
        assert (event["type"], event["status"]) == ("error", 400)
        assert (await create(socket, "Hi"))["type"] == "response.completed"


async def test_a_caller_that_disconnects_stops_the_request_at_the_gateway() -> None:
    async with Gateway(scenario="stall") as gateway, local_server(gateway.url) as server:
        async with connect(server) as socket:
            await socket.send_json({"type": "response.create", "model": MODEL, "input": "Hi"})
            await socket.receive_json(timeout=10)
        await gateway.wait_for_disconnect(5.0)
        for _ in range(500):
            if server.engine.usage.records:
                break
            await asyncio.sleep(0.01)
        assert server.engine.usage.records[0].outcome == "cancelled"


async def test_a_request_without_an_upgrade_is_refused() -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url) as server,
        server.http.get(f"{server.url}/v1/responses") as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["message"]


async def test_a_compaction_is_recorded_and_needs_a_gateway_of_the_same_protocol() -> None:
    body = {"model": MODEL, "input": [user("Remember the word heron.")]}
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses/compact", json=body) as response:
            usage = (await response.json())["usage"]
        [record] = server.engine.usage.records
        assert record.outcome == "completed"
        assert record.usage is not None
        assert record.usage.input_tokens == usage["input_tokens"]
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        async with server.http.post(f"{server.url}/v1/responses/compact", json=body) as response:
            assert response.status == 404
            assert "compaction" in (await response.json())["error"]["message"]
        assert not gateway.requests
