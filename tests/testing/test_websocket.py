"""The WebSocket transport beyond the acceptance cases."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from tests.testing.client import DEMO, Client
from tests.testing.protocol import check_shape, check_stream

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway


async def _refused(client: Client, message: str | bytes | dict[str, Any]) -> dict[str, Any]:
    async with client.session.ws_connect(f"{client.url}/responses") as socket:
        match message:
            case str():
                await socket.send_str(message)
            case bytes():
                await socket.send_bytes(message)
            case _:
                await socket.send_json(message)
        event: dict[str, Any] = await socket.receive_json(timeout=5)
        check_shape(event, "WebSocketErrorEvent")
        # The connection stays open.
        await socket.send_json({"type": "response.create", "model": DEMO, "input": "Hi"})
        assert (await socket.receive_json(timeout=5))["type"] == "response.created"
    return event


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "invalid_json"),
        (b"\x00", "invalid_json"),
        ({"type": "response.cancel"}, "invalid_value"),
        ({"type": "response.create", "model": DEMO, "input": "Hi", "stream": True}, "unsupported_parameter"),
        ({"type": "response.create", "model": "acme/none", "input": "Hi"}, "model_not_found"),
        ({"type": "response.create", "model": DEMO}, "missing_required_parameter"),
        ({"type": "response.create", "model": DEMO, "input": "Hi fault:rate-limit"}, "rate_limit_exceeded"),
        ({"type": "response.create", "model": DEMO, "input": "Hi fault:html-error"}, "server_error"),
    ],
)
async def test_an_error_leaves_the_connection_open(
    client: Client, message: str | bytes | dict[str, Any], code: str
) -> None:
    assert (await _refused(client, message))["error"]["code"] == code


async def test_messages_that_are_sent_together_are_answered_in_order(client: Client) -> None:
    async with client.session.ws_connect(f"{client.url}/responses") as socket:
        for word in ("one", "two"):
            await socket.send_json({"type": "response.create", "model": DEMO, "input": word})
        for word in ("one", "two"):
            events: list[dict[str, Any]] = []
            while not events or events[-1]["type"] != "response.completed":
                events.append(await socket.receive_json(timeout=5))
            assert f"“{word}”" in str(check_stream(events)["output"])


async def test_a_stored_response_can_be_continued_from_http(client: Client) -> None:
    async with client.session.ws_connect(f"{client.url}/responses") as socket:
        await socket.send_json({"type": "response.create", "model": DEMO, "input": "Hi", "store": True})
        event = {"type": ""}
        while event["type"] != "response.completed":
            event = await socket.receive_json(timeout=5)
    answer = await client.ask("Again", previous_response_id=event["response"]["id"])  # type: ignore[index]
    assert answer.status == 200


async def test_a_fault_mid_stream_closes_the_socket(client: Client) -> None:
    async with client.session.ws_connect(f"{client.url}/responses") as socket:
        await socket.send_json({"type": "response.create", "model": DEMO, "input": "Hi fault:disconnect"})
        messages = [message async for message in socket]
    assert messages
    assert all(message.type is aiohttp.WSMsgType.TEXT for message in messages)
    assert "response.completed" not in str(messages)


async def test_a_disconnect_of_the_client_is_noticed(client: Client, gateway: Gateway) -> None:
    socket = await client.session.ws_connect(f"{client.url}/responses")
    await socket.send_json({"type": "response.create", "model": DEMO, "input": "long slow"})
    await socket.receive_json(timeout=5)
    await socket.close()
    await gateway.wait_for_disconnect(timeout=3)


async def test_messages_are_recorded_as_requests(client: Client, gateway: Gateway) -> None:
    message = {"type": "response.create", "model": DEMO, "input": "Hi"}
    async with client.session.ws_connect(f"{client.url}/responses") as socket:
        await socket.send_json(message)
        await socket.receive_json(timeout=5)
    assert [(one.method, one.body) for one in gateway.requests] == [("GET", None), ("WEBSOCKET", message)]


async def test_a_connection_ends_at_its_maximum_duration(session: aiohttp.ClientSession) -> None:
    async with Gateway(settings=FaultSettings(websocket_seconds=0.1)) as gateway:
        socket = await session.ws_connect(f"{gateway.url}/responses")
        event = await socket.receive_json(timeout=5)
        assert event["error"]["code"] == "websocket_connection_limit_reached"
        assert (await socket.receive(timeout=5)).type is aiohttp.WSMsgType.CLOSE
        await socket.close()
