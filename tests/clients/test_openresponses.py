"""The client against the embedded gateway: answers, retries, keys and errors."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from email.utils import formatdate
from types import MappingProxyType
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.recorded_streams import openresponses

from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.protocols.errors import MESSAGE_LIMIT
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    Disconnected,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    Overloaded,
    RateLimited,
    RequestError,
    ServerFailed,
    StreamError,
    TimedOut,
)
from tollbridge.types.events import Event, Finished, TextDelta
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import Quirks

MODEL = "tollbridge/demo"
KEY = "sk-planted-0123456789abcdef"
QUICK = RetryPolicy(attempts=3, first=0.01)
NEVER = RetryPolicy(attempts=1)
RECORDED = openresponses()["llamacpp.text-stream"].body
WEATHER = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(model=MODEL, messages=(Message(Role.USER, (TextPart(text),)),), **fields)


def client_of(
    server: Any, key: str | None = None, retries: RetryPolicy = QUICK, **more: Any
) -> OpenResponsesClient:
    return OpenResponsesClient(server.url, key, retries=retries, **more)


async def streamed(
    client: OpenResponsesClient, request: Any, **more: Any
) -> tuple[list[Event], BridgeError | None]:
    """Return the events of an answer, and the error after them."""
    events: list[Event] = []
    try:
        async for event in client.stream(request, **more):
            events.append(event)  # noqa: PERF401 - the events before a failure are needed
    except BridgeError as error:
        return events, error
    return events, None


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# --- answers -----------------------------------------------------------------------------------------------


async def test_a_streamed_answer_and_a_complete_answer_are_equal() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        events, error = await streamed(client, ask("Say hello"))
        answer = await client.create(ask("Say hello"))
    assert error is None
    assert text_of(events) == answer.text
    assert answer.text
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == answer.finish_reason == "stop"
    assert finished.usage is not None
    assert answer.usage is not None
    assert finished.usage.known
    assert finished.usage.total_tokens == answer.usage.total_tokens
    assert answer.response_id
    assert [arrival.body["stream"] for arrival in gateway.requests] == [True, False]


async def test_a_complete_answer_has_tool_calls_and_reasoning() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        request = ask("Use the tool for Oslo", tools=(WEATHER,), reasoning_effort="low")
        answer = await client.create(request)
    assert [call.name for call in answer.tool_calls] == ["weather"]
    assert answer.reasoning
    assert answer.finish_reason == "tool-calls"
    assert [type(part) for part in answer.parts] == [ThinkingPart, ToolCallPart]
    assert answer.message == Message(Role.ASSISTANT, answer.parts)


async def test_the_message_of_an_answer_continues_a_tool_loop() -> None:
    messages = [Message(Role.USER, "Use the tool for Oslo")]
    async with Gateway(strict=True) as gateway, client_of(gateway) as client:
        for _ in range(2):
            request = ChatRequest(model=MODEL, messages=messages, tools=[WEATHER], reasoning_effort="low")
            answer = await client.create(request)
            results = [ToolResultPart(call.call_id, "sunny") for call in answer.tool_calls]
            messages += [answer.message, Message(Role.USER, results)]
    assert [arrival.status for arrival in gateway.requests] == [200, 200]
    sent = [item["type"] for item in gateway.requests[1].body["input"]]
    assert sent == ["message", "reasoning", "function_call", "function_call_output"]
    assert answer.tool_calls == ()
    assert answer.parts[-1] == TextPart(answer.text)


async def test_an_answer_converts_to_a_json_dict() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        answer = await client.create(ask("Use the tool for Oslo", tools=[WEATHER]))
    [call] = answer.tool_calls
    assert answer.usage is not None
    value = answer.to_dict()
    assert json.loads(json.dumps(value)) == value
    weather: dict[str, object] = {
        "type": "tool_call",
        "call_id": call.call_id,
        "name": "weather",
        "input": {},
        "metadata": None,
    }
    expected = {
        "outcome": "completed",
        "text": "",
        "reasoning": "",
        "tool_calls": [weather],
        "parts": [weather],
        "files": [],
        "usage": answer.usage.to_dict(),
        "finish_reason": "tool-calls",
        "response_id": answer.response_id,
        "error": None,
    }
    assert {name: value[name] for name in expected} == expected


async def test_create_accepts_a_streamed_response() -> None:
    async with Gateway(scenario="streams-anyway") as gateway, client_of(gateway) as client:
        assert (await client.create(ask("Say hello"))).text


async def test_a_request_can_be_a_body_in_the_format_of_the_protocol() -> None:
    raw = MappingProxyType({"model": MODEL, "input": "Say hello", "metadata": MappingProxyType({"a": "b"})})
    async with Gateway() as gateway, client_of(gateway) as client:
        answer = await client.create(raw)
        events, error = await streamed(client, raw)
        assert await client.input_tokens(raw) > 0
    assert (text_of(events), error) == (answer.text, None)
    assert gateway.requests[0].body == {**raw, "metadata": {"a": "b"}, "stream": False}
    assert gateway.requests[2].body == {"model": MODEL, "input": "Say hello"}


async def test_a_body_that_is_not_serializable_is_not_sent() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        with pytest.raises(RequestError, match="cannot be encoded"):
            await client.create({"model": MODEL, "input": object()})
        assert not gateway.requests


async def test_the_models_are_listed() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        assert MODEL in [model.id for model in await client.models()]


async def test_the_gateway_counts_a_request_as_it_bills_it() -> None:
    request = ask("Say hello", tools=(WEATHER,), temperature=0.5, max_output_tokens=100)
    async with Gateway() as gateway, client_of(gateway) as client:
        counted = await client.input_tokens(request)
        usage = (await client.create(request)).usage
    assert usage is not None
    assert counted == usage.input_tokens
    assert not {"stream", "store", "temperature", "max_output_tokens"} & set(gateway.requests[0].body)


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>", b'{"input_tokens": "many"}', b""])
async def test_an_invalid_token_count_is_an_error(body: bytes) -> None:
    async with answering(http(200, body)) as server, client_of(server) as client:
        with pytest.raises(StreamError, match="The gateway"):
            await client.input_tokens(ask("Hi"))


async def test_an_html_page_is_an_error() -> None:
    async with Gateway(scenario="html-page") as gateway, client_of(gateway) as client:
        for call in (client.create(ask("Hi")), client.models()):
            with pytest.raises(StreamError, match="The gateway"):
                await call
        events, error = await streamed(client, ask("Hi"))
    assert (events, type(error)) == ([], StreamError)


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "kind", "status", "code"),
    [
        ("unauthorized", NotAuthenticated, 401, "invalid_api_key"),
        ("not-found", NotFound, 404, "model_not_found"),
        ("overloaded", Overloaded, 503, "overloaded"),
        ("context-too-long", ContextTooLong, 400, "context_length_exceeded"),
        ("detail-error", InvalidRequest, 422, "missing"),
        ("failed-at-once", ServerFailed, None, "server_error"),
    ],
)
async def test_an_error_has_kind_status_code_and_request_id(
    scenario: str, kind: type[BridgeError], status: int | None, code: str
) -> None:
    async with Gateway(scenario=scenario) as gateway, client_of(gateway, retries=NEVER) as client:
        events, error = await streamed(client, ask("Hi"))
        assert events == []
        assert error is not None
        assert (type(error), error.status, error.code) == (kind, status, code)
        assert error.request_id == gateway.requests[0].id


async def test_a_failure_in_a_complete_answer_has_the_request_id() -> None:
    body = json.dumps(
        {"object": "response", "status": "failed", "error": {"code": "server_error", "message": "No."}}
    )
    answer = http(200, body.encode(), {"x-request-id": "req_7", "content-type": "application/json"})
    async with answering(answer) as server, client_of(server, KEY) as client:
        with pytest.raises(ServerFailed, match="No") as caught:
            await client.create(ask("Hi"))
    assert caught.value.request_id == "req_7"
    assert len(server.heads) == QUICK.attempts


# --- retries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["server-error-once", "hang-up-once", "rate-limit-once"])
async def test_a_request_that_fails_once_is_retried(scenario: str) -> None:
    async with Gateway(scenario=scenario) as gateway, client_of(gateway) as client:
        started = time.monotonic()
        events, error = await streamed(client, ask("Hi"))
        waited = time.monotonic() - started
    assert error is None
    assert text_of(events)
    assert len(gateway.requests) == 2
    if scenario == "rate-limit-once":
        assert waited >= 1.0  # as its Retry-After requires


async def test_calls_without_streaming_are_retried() -> None:
    async with Gateway(scenario="server-error-once") as gateway, client_of(gateway) as client:
        assert (await client.create(ask("Hi"))).text
        assert await client.models()
    assert [arrival.status for arrival in gateway.requests] == [500, 200, 500, 200]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (408, {}),
        (409, {}),
        (429, {"retry-after": "0"}),
        (429, {"retry-after-ms": "20"}),
        (429, {"retry-after": formatdate(0, usegmt=True)}),
        (500, {}),
        (502, {}),
        (503, {}),
        (504, {}),
        (529, {}),
    ],
)
async def test_transient_statuses_are_retried(status: int, headers: dict[str, str]) -> None:
    async with (
        answering(http(status, b"", headers), http(200, RECORDED)) as server,
        client_of(server) as client,
    ):
        events, error = await streamed(client, ask("Hi"))
    assert error is None
    assert text_of(events)
    assert len(server.heads) == 2


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_permanent_statuses_are_not_retried(status: int) -> None:
    async with answering(http(status, b""), http(200, RECORDED)) as server, client_of(server) as client:
        events, error = await streamed(client, ask("Hi"))
    assert events == []
    assert error is not None
    assert error.status == status
    assert len(server.heads) == 1


async def test_the_number_of_attempts_is_limited() -> None:
    async with Gateway(scenario="server-error") as gateway, client_of(gateway) as client:
        _, error = await streamed(client, ask("Hi"))
        assert isinstance(error, ServerFailed)
        assert len(gateway.requests) == QUICK.attempts


async def test_a_too_long_retry_delay_is_raised_at_once() -> None:
    async with answering(http(429, b"", {"retry-after": "3600"})) as server, client_of(server) as client:
        _, error = await streamed(client, ask("Hi"))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 3600
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("disconnect", Disconnected),
        ("reset", Disconnected),
        ("failed", ServerFailed),
        ("error-event", ServerFailed),
        ("error-event-flat", ServerFailed),
        ("no-terminal", Disconnected),
        ("garbage", StreamError),
        ("stall", TimedOut),
    ],
)
async def test_a_request_is_not_retried_after_the_first_event(scenario: str, kind: type[BridgeError]) -> None:
    settings = FaultSettings(stall_seconds=2)
    async with Gateway(scenario=scenario, settings=settings) as gateway:
        async with client_of(gateway, timeouts=Timeouts(idle=0.3)) as client:
            events, error = await streamed(client, ask("Say hello to everybody in the house"))
        assert isinstance(error, kind), error
        assert text_of(events)
        assert len(gateway.requests) == 1


async def test_leaving_the_stream_closes_the_connection() -> None:
    async with Gateway(scenario="slow") as gateway, client_of(gateway) as client:
        async with aclosing(client.stream(ask("Say hello"))) as events:
            await anext(events)
        await gateway.wait_for_disconnect(2)


# --- keys --------------------------------------------------------------------------------------------------


async def test_the_key_of_a_call_overrides_the_key_of_the_client() -> None:
    async with Gateway() as gateway, client_of(gateway, "client-key") as client:
        await client.create(ask("Hi"))
        await client.create(ask("Hi"), api_key="call-key")
        await client.models(api_key="call-key")
        await client.input_tokens(ask("Hi"), api_key="call-key")
        await streamed(client, ask("Hi"), api_key="call-key")
        await client.create(ask("Hi"), api_key="")
        await client.create(ask("Hi"))
    assert [arrival.bearer for arrival in gateway.requests] == [
        *("client-key", "call-key", "call-key", "call-key", "call-key", None, "client-key")
    ]


async def test_concurrent_calls_use_their_own_keys() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:

        async def call(number: int) -> Answer:
            return await client.create({"model": MODEL, "input": f"number {number}"}, api_key=f"key-{number}")

        await asyncio.gather(*map(call, range(20)))
    assert {arrival.body["input"].split()[1]: arrival.bearer for arrival in gateway.requests} == {
        str(number): f"key-{number}" for number in range(20)
    }


@pytest.mark.parametrize("key", [" sk-1", "sk-1\n", "sk 1", "sk-1\r\nx: y", "sk-é", "sk-\x00"])
async def test_a_key_with_invalid_characters_is_not_sent(key: str) -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        with pytest.raises(RequestError, match="API key") as caught:
            await client.create(ask("Hi"), api_key=key)
        _, error = await streamed(client, ask("Hi"), api_key=key)
        assert isinstance(error, RequestError)
        assert not gateway.requests
    assert key.strip() not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        {"message": f"The key {KEY} is wrong ({KEY}).", "code": "invalid_api_key"},
        {"message": "No.", "code": KEY},
        {"message": "No.", "request_id": KEY},
        *({"message": "x" * (MESSAGE_LIMIT - kept) + KEY} for kept in (0, 9, 15, len(KEY) - 1, len(KEY))),
    ],
)
async def test_a_key_quoted_by_the_server_is_redacted(error: dict[str, str]) -> None:
    body = json.dumps({"error": error}).encode()
    async with answering(http(401, body)) as server, client_of(server, KEY) as client:
        _, failure = await streamed(client, ask("Hi"))
        with pytest.raises(NotAuthenticated) as caught:
            await client.models()
    for each in (failure, caught.value):
        assert each is not None
        assert KEY[:9] not in f"{each} {each!r} {each.args} {vars(each)}"


async def test_the_repr_of_a_client_does_not_contain_the_key() -> None:
    client = OpenResponsesClient("http://127.0.0.1:1/v1", KEY)
    assert KEY not in f"{client} {client!r}"


async def test_custom_headers_are_sent_once_and_do_not_override_the_key() -> None:
    headers = {"X-Team": "blue", "User-Agent": "mine", "Authorization": "Bearer other"}
    async with (
        answering(http(200, b'{"data": []}')) as server,
        client_of(server, KEY, headers=headers) as client,
    ):
        await client.models()
    head = server.heads[0].lower()
    assert "\r\nx-team: blue\r\n" in head
    assert head.count("\r\nuser-agent: ") == head.count("\r\nauthorization: ") == 1
    assert f"authorization: bearer {KEY}" in head
    assert "user-agent: mine" in head


async def test_a_closed_client_raises_an_error() -> None:
    async with Gateway() as gateway:
        async with client_of(gateway) as client:
            await client.models()
        with pytest.raises(RequestError, match="closed"):
            await client.models()


async def test_an_unused_client_can_be_closed() -> None:
    await OpenResponsesClient().aclose()


@pytest.mark.parametrize("base_url", ["", "  ", "https://host/v1?key=1", "https://host/v1#here"])
def test_an_empty_base_url_or_one_with_a_query_is_refused(base_url: str) -> None:
    with pytest.raises(RequestError, match="base URL"):
        OpenResponsesClient(base_url)


async def test_tokens_are_not_counted_if_the_quirks_exclude_it() -> None:
    request = ChatRequest(
        model="tollbridge/demo", messages=(Message(Role.USER, "Hi"),), quirks=Quirks(input_tokens=False)
    )
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        with pytest.raises(BridgeError, match="does not count tokens") as caught:
            await client.input_tokens(request)
        assert len(gateway.requests) == 0
    assert caught.value.kind == "not_found"


async def test_the_reported_proxy_has_no_password() -> None:
    async with OpenResponsesClient(
        "https://gateway.test/v1", proxy="http://me:secret@proxy.test:3128"
    ) as client:
        assert client.proxy() == "proxy.test:3128"
    async with OpenResponsesClient("http://127.0.0.1:1/v1", proxy="http://proxy.test:3128") as client:
        assert client.proxy() is None


async def test_an_endless_response_fails_at_the_limit_and_is_not_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tollbridge.transport.http.STREAM_LIMIT", 2_000_000)
    events: list[Event] = []

    async def read(client: OpenResponsesClient) -> None:
        async for batch in client.batches({"model": "tollbridge/demo", "input": "long 60000"}):
            events.extend(batch)

    async with Gateway() as gateway, client_of(gateway) as client:
        with pytest.raises(StreamError, match="larger than 2,000,000 bytes"):
            await read(client)
        assert len(gateway.requests) == 1
    assert any(isinstance(event, TextDelta) for event in events)


async def test_the_answer_of_a_server_that_always_streams_has_its_corrections() -> None:
    """The text of a part in its `.done` event replaces the text of the deltas."""
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.output_text.delta", **place, "delta": "Hello wrold"},
        {"type": "response.output_text.done", **place, "text": "Hello world"},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    async with (
        answering(http(200, body, {"content-type": "text/event-stream"})) as server,
        OpenResponsesClient(server.url) as client,
    ):
        answer = await client.create(ask("Hi"))
    assert answer.text == "Hello world"
    assert answer.message == Message(Role.ASSISTANT, (TextPart("Hello world"),))
    assert answer.to_dict()["parts"] == [{"type": "text", "text": "Hello world"}]
