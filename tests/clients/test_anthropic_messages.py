"""The Messages client against the embedded gateway: answers, tools, reasoning, keys, lists and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.canned_server import answering, http

from tollbridge.clients.protocols import AnthropicMessagesClient
from tollbridge.config.schema import Account, Settings
from tollbridge.connections import open_client
from tollbridge.engine import Engine
from tollbridge.local.process import LocalModel
from tollbridge.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    Disconnected,
    NotAuthenticated,
    Overloaded,
    RateLimited,
    ServerFailed,
    StreamError,
)
from tollbridge.types.events import Finished, ReasoningEnded, TextDelta
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Origin,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
)

MODEL = "tollbridge/demo"
KEY = "sk-planted-0123456789abcdef"
NEVER = RetryPolicy(attempts=1)
WEATHER = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(model=MODEL, messages=[Message("user", text)], **fields)


async def test_text_and_usage_arrive_streamed_and_whole() -> None:
    async with Gateway(api_key=KEY) as gateway, AnthropicMessagesClient(gateway.url, KEY) as client:
        events = [event async for event in client.stream(ask("Hello"))]
        answer = await client.create(ask("Hello"))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text.startswith("You said “Hello”.")
    assert answer.text == text
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.usage is not None
    assert answer.usage is not None
    assert answer.usage.total_tokens == finished.usage.total_tokens
    # The second request is equal, so the gateway had all of its prompt in the cache.
    assert answer.usage.cached_tokens == answer.usage.input_tokens == finished.usage.input_tokens
    body = gateway.requests[0].body
    assert body["stream"] is True
    assert gateway.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_a_round_of_tools_with_reasoning_is_accepted_by_a_strict_gateway() -> None:
    question = Message("user", ["Think, then call the tool get_weather", DataPart(draw_png(), "image/png")])
    async with Gateway(strict=True) as gateway, AnthropicMessagesClient(gateway.url) as client:
        request = ChatRequest(model=MODEL, messages=[question], tools=[WEATHER], reasoning_effort="low")
        answer = await client.create(request)
        assert answer.finish_reason == "tool-calls"
        [call] = answer.tool_calls
        [proof] = [event for event in answer.events if isinstance(event, ReasoningEnded)]
        assert proof.metadata is not None
        result = Message("user", [ToolResultPart(call.call_id, ["Sunny", DataPart(draw_png(), "image/png")])])
        history = [question, answer.message, result]
        second = await client.create(ChatRequest(model=MODEL, messages=history, tools=[WEATHER]))
        assert "answered: “Sunny”" in second.text
        assert "I see" in second.text
        sent = gateway.requests[-1].body["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["thinking", "tool_use"]
    assert sent[0]["signature"] == proof.metadata["signature"]


async def test_the_key_is_sent_as_the_account_says_and_never_elsewhere(tmp_path: Path) -> None:
    async with Gateway(api_key=KEY) as gateway:
        for auth, header in ((None, "x-api-key"), ("bearer", "authorization")):
            account = Account("a", gateway.url, "anthropic-messages", "none", auth=auth, api_key=KEY)
            settings = Settings(record=str(tmp_path))
            async with Engine.open(settings, account=account, persistent=False) as engine:
                result = await engine.create("Hello", model=MODEL)
            assert result.text.startswith("You said “Hello”.")
            request = gateway.requests[-1]
            assert request.bearer == KEY
            assert {"x-api-key", "authorization"} & request.headers.keys() == {header}
        async with AnthropicMessagesClient(gateway.url, "sk-wrong-0123456789", retries=NEVER) as client:
            with pytest.raises(NotAuthenticated) as caught:
                await client.create(ask("Hello"))
    assert "sk-wrong" not in str(caught.value)
    recordings = list(tmp_path.rglob("*"))
    assert recordings
    for file in recordings:
        if file.is_file():
            assert KEY.encode() not in file.read_bytes()


async def test_models_are_listed_over_all_pages() -> None:
    pages = {
        None: {"data": [{"type": "model", "id": "a", "display_name": "A"}], "has_more": True, "last_id": "a"},
        "a": {
            "data": [
                {
                    "type": "model",
                    "id": "b",
                    "display_name": "B",
                    "created_at": "2025-02-19T00:00:00Z",
                    "max_input_tokens": 200_000,
                    "max_tokens": 64_000,
                    "capabilities": {
                        "image_input": {"supported": True},
                        "pdf_input": {"supported": False},
                        "thinking": {"supported": True, "types": {}},
                        "effort": {
                            "supported": True,
                            "low": {"supported": True},
                            "max": {"supported": False},
                        },
                    },
                }
            ],
            "has_more": False,
            "last_id": "b",
        },
    }

    async def serve(request: web.Request) -> web.Response:
        return web.json_response(pages[request.query.get("after_id")])

    app = web.Application()
    app.router.add_get("/v1/models", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        async with AnthropicMessagesClient(f"http://{host}:{port}") as client:  # `/v1` is added
            one, other = await client.models()
    finally:
        await runner.cleanup()
    assert (one.id, one.name) == ("a", "A")
    assert other.created == 1_739_923_200
    assert (other.context_window, other.max_output_tokens) == (200_000, 64_000)
    assert other.capabilities.images
    assert not other.capabilities.files
    assert other.capabilities.tools
    assert other.efforts == ("low",)
    assert other.is_chat_model


async def test_a_list_that_repeats_itself_is_not_read_forever() -> None:
    body = json.dumps({"data": [{"id": "a"}], "has_more": True, "last_id": "a"}).encode()
    async with answering(http(200, body)) as server, AnthropicMessagesClient(server.url) as client:
        assert [model.id for model in await client.models()] == ["a"]
        assert len(server.heads) == 2


async def test_tokens_are_counted_as_the_answer_reports_them() -> None:
    request = ask("Hello", tools=[WEATHER], max_output_tokens=100, extra={"betas": ["counting-2026"]})
    async with Gateway() as gateway, AnthropicMessagesClient(gateway.url) as client:
        tokens = await client.input_tokens(request)
        answer = await client.create(request)
        counted = gateway.requests[0]
    assert answer.usage is not None
    assert tokens == answer.usage.input_tokens
    assert "max_tokens" not in counted.body
    assert counted.headers["anthropic-beta"] == "counting-2026"


@pytest.mark.parametrize(
    ("fault", "kind", "status"),
    [
        ("overloaded", Overloaded, 529),
        ("rate-limit", RateLimited, 429),
        ("context-too-long", ContextTooLong, 400),
        ("error-event", ServerFailed, None),
        ("failed-at-once", ServerFailed, None),
        ("disconnect", Disconnected, None),
        ("no-terminal", Disconnected, None),
        ("garbage", StreamError, None),
        ("html-error", ServerFailed, 502),
    ],
)
async def test_faults_have_their_kind(fault: str, kind: type[BridgeError], status: int | None) -> None:
    async with Gateway() as gateway, AnthropicMessagesClient(gateway.url, retries=NEVER) as client:
        text = ""
        with pytest.raises(kind) as caught:  # noqa: PT012
            async for event in client.stream(ask(f"Hi fault:{fault}")):
                text += event.text if isinstance(event, TextDelta) else ""
        assert caught.value.status == status
        if status in (429, 529):
            assert caught.value.request_id == gateway.requests[0].id
    assert "You said “Hi”. I was given".startswith(text[:20])


@pytest.mark.parametrize(
    "scenario",
    ["cut-frames", "one-write", "crlf", "no-event-lines", "multi-line", "keep-alive", "gzip", "slow"],
)
async def test_streams_arrive_in_any_form(scenario: str) -> None:
    settings = FaultSettings(pace=0.001)
    async with (
        Gateway(scenario=scenario, settings=settings) as gateway,
        AnthropicMessagesClient(gateway.url) as client,
    ):
        events = [event async for event in client.stream(ask("Grüße 🌉\u2028"))]
    assert "Grüße 🌉" in "".join(event.text for event in events if isinstance(event, TextDelta))
    assert isinstance(events[-1], Finished)


async def test_an_engine_uses_the_protocol_and_keeps_the_output_limit_of_the_model() -> None:
    async with Gateway() as gateway:
        account = Account("a", gateway.url, "anthropic-messages", "none")
        async with Engine.open(Settings(), account=account, persistent=False) as engine:
            demo, plain, *_ = await engine.models()
            assert (demo.id, plain.id) == (MODEL, "tollbridge/plain")
            assert demo.capabilities.reasoning
            assert not plain.capabilities.reasoning
            await engine.create("Hello", model="tollbridge/plain")
            await engine.create("Hello", model=MODEL)
        limits = [request.body["max_tokens"] for request in gateway.requests if request.body]
    assert limits == [1_024, 64_000]


async def test_reasoning_of_another_model_is_not_sent() -> None:
    async with Gateway() as gateway:
        account = Account("a", gateway.url, "anthropic-messages", "none")
        foreign = add_origin(Origin.of("other", gateway.url), {"signature": "x"})
        own = add_origin(Origin.of(MODEL, gateway.url), {"redacted_data": "tollbridge:x"})
        call = ToolCallPart("call_1", "get_weather", {})
        messages = [
            Message(Role.USER, "Hi"),
            Message(Role.ASSISTANT, [ThinkingPart("a", None, foreign), ThinkingPart("", None, own), call]),
            Message(Role.USER, [ToolResultPart("call_1", "Sunny")]),
        ]
        request = ChatRequest(model=MODEL, messages=messages, tools=[WEATHER])
        async with Engine.open(Settings(), account=account, persistent=False) as engine:
            await engine.create(request)
        sent = gateway.requests[-1].body["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["redacted_thinking", "tool_use"]


async def test_an_authorization_header_of_the_caller_is_sent_next_to_the_key() -> None:
    login = {"authorization": "Basic dGVhbTpzZWNyZXQ="}
    async with Gateway() as gateway:
        async with AnthropicMessagesClient(gateway.url, "key", secret_headers=login) as client:
            await client.models()
        (arrival,) = gateway.requests
    assert {"authorization", "x-api-key"} <= arrival.headers.keys()


async def test_the_client_is_opened_by_its_name() -> None:
    async with open_client("anthropic-messages", "https://api.anthropic.com") as client:
        assert client.protocol is ANTHROPIC_MESSAGES
        assert client.base_url == AnthropicMessagesClient().base_url == "https://api.anthropic.com/v1"


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_llama_cpp_server_answers_and_counts_as_it_reports() -> None:
    async with LocalModel(context=2048) as local, AnthropicMessagesClient(local.url) as client:
        call = ToolCallPart("call_1", WEATHER.name, {"city": "Paris"})
        messages = [
            Message("system", "Be brief."),
            Message("user", "What is the weather in Paris?"),
            Message("assistant", [call]),
            Message("user", [ToolResultPart("call_1", "Sunny"), TextPart("In one word?")]),
        ]
        request = ChatRequest(model=local.model_id, messages=messages, tools=[WEATHER], max_output_tokens=16)
        events = [event async for event in client.stream(request)]
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert finished.usage is not None
        assert any(isinstance(event, TextDelta) for event in events)
        assert await client.input_tokens(request) == finished.usage.input_tokens
        assert [model.id for model in await client.models()] == [local.model_id]
