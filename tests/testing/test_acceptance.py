"""The seventeen acceptance cases of the specification."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from tests.testing.client import DEMO, WEATHER, Answer, Client, assistant, user
from tests.testing.protocol import check_event_shapes, check_shape, check_stream

from tollbridge.types.media import draw_png

PNG = "data:image/png;base64," + base64.b64encode(draw_png(3, 2)).decode()


def completed(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.data
    assert answer.headers["content-type"].startswith("application/json")
    response = answer.json
    assert isinstance(response, dict)
    check_shape(response, "ResponseResource")
    assert response["status"] == "completed"
    assert response["output"]
    return response


async def test_basic_response(client: Client) -> None:
    completed(await client.ask([user("Say hello in exactly 3 words.")]))


async def test_assistant_phase(client: Client) -> None:
    items = [
        assistant("Let me look.", phase="commentary"),
        assistant("It is four.", phase="final_answer"),
        user("Thank you. And twice that?"),
    ]
    completed(await client.ask(items))


def test_response_output_phase_schema() -> None:
    message = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        "phase": "final_answer",
    }
    check_shape(message, "Message")


async def test_streaming_response(client: Client) -> None:
    answer = await client.stream([user("Count from 1 to 5.")])
    assert answer.headers["content-type"] == "text/event-stream"
    check_event_shapes(answer.events)
    assert check_stream(answer.events)["status"] == "completed"


async def test_system_prompt(client: Client) -> None:
    system = {"type": "message", "role": "system", "content": "You are a pirate."}
    response = completed(await client.ask([system, user("Say hello.")]))
    assert "You are a pirate." in str(response["output"])


async def test_tool_calling(client: Client) -> None:
    items = [user("What's the weather like in San Francisco?")]
    response = completed(await client.ask(items, tools=[WEATHER]))
    [call] = [item for item in response["output"] if item["type"] == "function_call"]
    assert call["name"] == "get_weather"
    assert call["arguments"] == '{"location":"San Francisco"}'


async def test_image_input(client: Client) -> None:
    content = [
        {"type": "input_text", "text": "What do you see?"},
        {"type": "input_image", "image_url": PNG},
    ]
    response = completed(await client.ask([user(content)]))
    assert "image/png, 3 × 2 pixels" in str(response["output"])


async def test_multi_turn(client: Client) -> None:
    completed(
        await client.ask([user("My name is Alice."), assistant("Hello Alice!"), user("What is my name?")])
    )


async def test_compact_response(client: Client) -> None:
    body = {"model": DEMO, "input": [user("Remember the word heron.")], "prompt_cache_key": "a"}
    answer = await client.post("/responses/compact", body)
    assert answer.status == 200
    check_shape(answer.json, "CompactResource")
    assert answer.json["object"] == "response.compaction"
    assert [item["type"] for item in answer.json["output"]] == ["compaction"]


async def test_compact_missing_model(client: Client) -> None:
    answer = await client.post("/responses/compact", {"input": [user("Hello")]})
    assert answer.status == 400
    assert answer.error["param"] == "model"


class Socket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def create(self, input_value: Any, **fields: Any) -> list[dict[str, Any]]:
        """Send a request and return every event until the response ends or fails."""
        await self._socket.send_json(
            {"type": "response.create", "model": DEMO, "input": input_value, **fields}
        )
        events: list[dict[str, Any]] = []
        while True:
            events.append(await self._socket.receive_json(timeout=5))
            if events[-1]["type"] in ("response.completed", "response.failed", "error"):
                return events

    async def completed(self, input_value: Any, **fields: Any) -> dict[str, Any]:
        events = await self.create(input_value, **fields)
        check_event_shapes(events)
        response = check_stream(events)
        check_shape(response, "ResponseResource")
        assert response["status"] == "completed"
        return response

    async def refused(self, input_value: Any, **fields: Any) -> str:
        [event] = await self.create(input_value, **fields)
        check_shape(event, "WebSocketErrorEvent")
        assert event["status"] == 400
        code: str = event["error"]["code"]
        return code


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Socket]:
    async with client.session.ws_connect(f"{client.url}/responses") as socket:
        yield Socket(socket)


async def test_websocket_response(client: Client) -> None:
    async with connected(client) as socket:
        await socket.completed([user("Count from 1 to 3.")])


async def test_websocket_sequential_responses(client: Client) -> None:
    async with connected(client) as socket:
        one = await socket.completed("Say one.", store=False)
        two = await socket.completed("Say two.", store=False)
    assert one["id"] != two["id"]


async def test_websocket_continuation(client: Client) -> None:
    async with connected(client) as socket:
        first = await socket.completed("Remember the word heron.", store=False)
        second = await socket.completed("Which word?", store=False, previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    # The first user message, the answer, and the new user message.
    assert "I was given 3 items" in str(second["output"])


async def test_websocket_reconnect_store_false_recovery(client: Client) -> None:
    async with connected(client) as socket:
        first = await socket.completed("Hello", store=False)
    async with connected(client) as socket:
        code = await socket.refused("Again", store=False, previous_response_id=first["id"])
        assert code == "previous_response_not_found"
        await socket.completed("Then from the start", store=False)


async def test_websocket_previous_response_not_found(client: Client) -> None:
    async with connected(client) as socket:
        code = await socket.refused("Hello", store=False, previous_response_id="resp_never")
    assert code == "previous_response_not_found"


async def test_websocket_failed_continuation_evicts_cache(client: Client) -> None:
    orphan = {"type": "function_call_output", "call_id": "call_never", "output": "42"}
    async with connected(client) as socket:
        first = await socket.completed("Hello", store=False)
        code = await socket.refused([orphan], store=False, previous_response_id=first["id"])
        assert code == "no_tool_call_found"
        code = await socket.refused("Again", store=False, previous_response_id=first["id"])
        assert code == "previous_response_not_found"


async def test_websocket_compact_new_chain(client: Client) -> None:
    body = {"model": DEMO, "input": [user("Remember the word heron.")]}
    window = (await client.post("/responses/compact", body)).json["output"]
    async with connected(client) as socket:
        response = await socket.completed([*window, user("Which word?")], store=False)
    assert "Remember the word heron." in str(response["output"])
