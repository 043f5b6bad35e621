"""Requests of callers that speak another protocol than the gateway are translated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.frontends.http.servers import LocalServer, local_server
from tests.testing.client import read_events
from tests.testing.protocol import check_event_shapes, check_stream

from tollbridge.testing.server import Gateway

QUESTION = [{"role": "user", "content": "Hello"}]
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Returns the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]


async def stream(server: LocalServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with server.http.post(f"{server.url}/v1/responses", json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"].startswith("text/event-stream")
        return read_events(await response.read())


async def test_a_response_is_translated_from_an_ai_sdk_gateway() -> None:
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        events = await stream(server, {"model": "tollbridge/demo", "input": "What is a bridge?"})
        check_event_shapes(events)
        response = check_stream(events)
        assert response["status"] == "completed"
        [record] = server.engine.usage.records
        assert record.usage is not None
        assert response["usage"]["input_tokens"] == record.usage.input_tokens
        assert response["usage"]["output_tokens"] == record.usage.output_tokens


async def test_a_tool_round_with_reasoning_is_translated() -> None:
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        question = {"role": "user", "content": "Think, then: what is the weather in Paris?"}
        body = {"model": "tollbridge/demo", "input": [question], "tools": TOOLS}
        first = check_stream(await stream(server, body))
        kinds = [item["type"] for item in first["output"]]
        assert "function_call" in kinds
        call = first["output"][kinds.index("function_call")]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees, sunny"}
        body["input"] = [question, *first["output"], result]
        second = check_stream(await stream(server, body))
        assert second["status"] == "completed"
        text = "".join(p["text"] for i in second["output"] for p in i.get("content", ()) if "text" in p)
        assert "18 degrees" in text


async def test_a_response_that_is_not_streamed_is_one_object() -> None:
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        body = {"model": "tollbridge/demo", "input": "What is a bridge?"}
        async with server.http.post(f"{server.url}/v1/responses", json=body) as response:
            answer = await response.json()
        assert answer["object"] == "response"
        assert answer["status"] == "completed"
        assert answer["output"][0]["content"][0]["text"]


async def test_an_error_before_the_answer_has_its_status() -> None:
    async with Gateway(scenario="unauthorized") as gateway, local_server(gateway.url, "ai-sdk") as server:
        body = {"model": "tollbridge/demo", "input": "Hi", "stream": True}
        async with server.http.post(f"{server.url}/v1/responses", json=body) as response:
            assert response.status == 401
            assert (await response.json())["error"]["message"]


async def test_an_alias_names_a_model_of_the_gateway() -> None:
    aliases = {"gpt-5": "tollbridge/demo"}
    async with Gateway() as gateway, local_server(gateway.url, aliases=aliases) as server:
        body = b'{"model":"gpt-5", "input":"Say \\u0068i", "vendor_field": [1.0, 2e3]}'
        async with server.http.post(f"{server.url}/v1/responses", data=body) as response:
            assert response.status == 200
        assert json.loads(gateway.requests[-1].raw) == {**json.loads(body), "model": "tollbridge/demo"}
        assert b'"vendor_field":[1.0, 2e3]' in gateway.requests[-1].raw
        assert b'"Say \\u0068i"' in gateway.requests[-1].raw


async def test_an_alias_is_translated_too() -> None:
    aliases = {"gpt-5": "tollbridge/demo"}
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk", aliases=aliases) as server:
        assert check_stream(await stream(server, {"model": "gpt-5", "input": "Hi"}))["status"] == "completed"


async def test_a_repaired_request_keeps_the_fields_of_its_protocol() -> None:
    items = [{"role": "user", "content": "Hi"}]
    fields = {"user": "u", "service_tier": "flex", "store": True, "text": {"verbosity": "low"}}
    async with Gateway(strict=True) as gateway, local_server(gateway.url) as server:
        body = {"model": "tollbridge/demo", "input": items, "tools": TOOLS, **fields}
        assert check_stream(await stream(server, body))["status"] == "completed"
        assert len(gateway.requests) == 2  # the message without a type was refused
        received = gateway.requests[-1].body
        assert {name: received[name] for name in fields} == fields
        assert received["tools"] == TOOLS


async def test_a_request_without_a_message_is_not_completed() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        body = {"model": "tollbridge/demo", "input": []}
        async with server.http.post(f"{server.url}/v1/responses", json=body) as response:
            assert response.status == 400
        assert all(received.status == 400 for received in gateway.requests)


async def test_a_refused_history_is_repaired() -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
        {"role": "user", "content": "Never mind. Say hello."},
    ]
    body = {"model": "tollbridge/demo", "input": items, "tools": TOOLS}
    async with Gateway(strict=True) as gateway, local_server(gateway.url) as server:
        response = check_stream(await stream(server, body))
        assert response["status"] == "completed"
        assert len(gateway.requests) > 1


async def test_a_refusal_that_cannot_be_repaired_passes_unchanged() -> None:
    body = b'{"error": {"message": "Not today.", "code": "vendor_code", "vendor": 1}}'
    canned = http(400, body, {"content-type": "application/json"})
    async with answering(canned) as gateway, local_server(gateway.url) as server:
        question = {"model": "tollbridge/demo", "input": "Hi"}
        async with server.http.post(f"{server.url}/v1/responses", json=question) as response:
            assert response.status == 400
            assert await response.read() == body
        assert len(gateway.heads) == 2


@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("chat/completions", "max_tokens", {"messages": QUESTION}),
        ("chat/completions", "max_completion_tokens", {"messages": QUESTION}),
        ("messages", "max_tokens", {"messages": QUESTION}),
        ("responses", "max_output_tokens", {"input": QUESTION}),
    ],
)
async def test_an_output_limit_below_1_is_refused(path: str, field: str, body: dict[str, Any]) -> None:
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        body = {"model": "tollbridge/demo", field: -1, **body}
        async with server.http.post(f"{server.url}/v1/{path}", json=body) as response:
            assert response.status == 400, await response.text()
            error = (await response.json())["error"]
        assert not gateway.requests
    assert error["message"] == f"{field} must be at least 1, not -1."


async def test_messages_that_are_no_list_are_named() -> None:
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        body = {"model": "tollbridge/demo", "max_tokens": 20, "messages": 3}
        async with server.http.post(f"{server.url}/v1/messages", json=body) as response:
            assert response.status == 400
            message = (await response.json())["error"]["message"]
    assert message == "messages: Input should be a list of messages, not a number."


async def test_an_input_that_is_no_list_is_named() -> None:
    async with Gateway() as gateway, local_server(gateway.url, "ai-sdk") as server:
        body = {"model": "tollbridge/demo", "input": 3}
        async with server.http.post(f"{server.url}/v1/responses", json=body) as response:
            assert response.status == 400
            error = (await response.json())["error"]
    assert (error["message"], error["param"]) == (
        "input must be a string or an array, not a number.",
        "input",
    )


async def test_a_get_that_opens_no_websocket_says_what_to_do() -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url) as server,
        server.http.get(f"{server.url}/v1/responses") as response,
    ):
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["message"] == "GET /v1/responses needs a WebSocket. Send POST, or open a WebSocket."
