"""The Chat Completions client against the embedded gateway and canned servers, over real sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.interop.upstream import THOUGHT, Upstream
from tests.recorded_streams import chat_completions

from tollbridge.clients.protocols import ChatCompletionsClient
from tollbridge.connections import open_client
from tollbridge.engine import Engine
from tollbridge.local.process import LocalModel
from tollbridge.protocols.chat_completions import CHAT_COMPLETIONS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError, ContextTooLong, InvalidRequest, NotAuthenticated, NotFound
from tollbridge.types.events import Event, Finished, ReasoningDelta, TextDelta
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    OutputFormat,
    Role,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

MODEL = "tollbridge/demo"
KEY = "sk-planted-0123456789abcdef"
QUICK = RetryPolicy(attempts=2, first=0.01)
WEATHER = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(model=MODEL, messages=[Message(Role.USER, text)], **fields)


def client_of(gateway: Gateway, key: str | None = None) -> ChatCompletionsClient:
    return ChatCompletionsClient(gateway.url, key, retries=QUICK)


async def stream(client: ChatCompletionsClient, request: Any) -> list[Event]:
    return [event async for event in client.stream(request)]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_streamed_answer_and_a_complete_answer_are_equal() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        events = await stream(client, ask("Think, then say hello"))
        answer = await client.create(ask("Think, then say hello"))
        assert [request.path for request in gateway.requests] == ["/v1/chat/completions"] * 2
        assert [request.body["stream"] for request in gateway.requests] == [True, False]
        assert "stream_options" not in gateway.requests[1].body
    assert answer.text == text_of(events)
    assert answer.reasoning == "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    end = events[-1]
    assert isinstance(end, Finished)
    assert answer.usage is not None
    assert end.usage is not None
    assert answer.usage.output_tokens == end.usage.output_tokens
    assert answer.finish_reason == "stop"


async def test_a_tool_loop_with_parallel_calls_and_reasoning() -> None:
    async with Gateway(strict=True) as gateway, client_of(gateway) as client:
        question = Message(Role.USER, "Think and use the tool weather, parallel")
        request = ChatRequest(model=MODEL, messages=[question], tools=[WEATHER])
        first = await client.create(request)
        assert len(first.tool_calls) == 2
        results = [ToolResultPart(call.call_id, "Sunny") for call in first.tool_calls]
        history = [question, first.message, Message(Role.USER, results)]
        second = await client.create(ChatRequest(model=MODEL, messages=history, tools=[WEATHER]))
    assert second.text.startswith("The tool weather answered: “Sunny”.")


async def test_images_and_structured_output_reach_the_model() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        picture = Message(Role.USER, ["What is this?", DataPart(draw_png(3, 2), "image/jpeg")])
        seen = await client.create(ChatRequest(model=MODEL, messages=[picture]))
        assert "image/png, 3 × 2 pixels" in seen.text
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        formatted = await client.create(ask("Name a city", output_format=OutputFormat("answer", schema)))
    assert formatted.text.startswith("{")


async def test_models_are_listed() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        assert MODEL in [model.id for model in await client.models()]


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [("unauthorized", NotAuthenticated), ("context-too-long", ContextTooLong), ("not-found", NotFound)],
)
async def test_a_refusal_is_the_error_of_its_kind(scenario: str, kind: type[BridgeError]) -> None:
    async with Gateway(scenario=scenario) as gateway, client_of(gateway, KEY) as client:
        for answer in (stream(client, ask("x")), client.create(ask("x"))):
            with pytest.raises(kind) as caught:
                await answer
            assert KEY not in str(caught.value)


async def test_an_invalid_body_is_refused_by_the_gateway_with_the_name_of_the_field() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        with pytest.raises(InvalidRequest) as caught:
            await client.create({"model": MODEL, "messages": [{"role": "king", "content": "x"}]})
    assert caught.value.param == "messages[0].role"


async def test_a_recorded_stream_arrives_over_a_socket() -> None:
    recording = chat_completions()["litellm.reasoning-stream"]
    reply = http(200, recording.body, {"content-type": "text/event-stream"})
    async with answering(reply) as server, ChatCompletionsClient(server.url) as client:
        events = await stream(client, ask("x"))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)).startswith("The user")
    assert isinstance(events[-1], Finished)


async def test_the_engine_opens_this_client_for_the_backend() -> None:
    async with Gateway() as gateway, open_client("chat-completions", gateway.url) as client:
        assert client.protocol is CHAT_COMPLETIONS
        async with Engine.open(client=client, persistent=False) as engine:
            async with engine.turn(ask("Hello")) as turn:
                events = [event async for event in turn]
            assert turn.result is not None
            assert turn.result.text == text_of(events)
        assert gateway.requests[-1].path == "/v1/chat/completions"


async def test_plain_reasoning_returns_in_its_field_until_the_next_question() -> None:
    async with (
        Upstream() as server,
        ChatCompletionsClient(server.url) as client,
        Engine.open(client=client, persistent=False) as engine,
    ):

        async def answer(*messages: Message) -> Message:
            request = ChatRequest(model="m", messages=messages, tools=[WEATHER])
            async with engine.turn(request) as turn:
                async for _ in turn:
                    pass
            assert turn.result is not None
            return turn.result.message

        question = Message(Role.USER, "Think and use the tool")
        called = await answer(question)
        [call] = [part for part in called.parts if isinstance(part, ToolCallPart)]
        loop = [question, called, Message(Role.USER, [ToolResultPart(call.call_id, "Sunny")])]
        final = await answer(*loop)
        await answer(*loop, final, Message(Role.USER, "Thanks"))
    _, within_loop, afterwards = server.requests
    assert within_loop["messages"][1]["reasoning_content"].strip() == THOUGHT
    assert "reasoning_content" not in afterwards["messages"][1]


async def test_a_server_that_does_not_know_stream_options_is_asked_without_them() -> None:
    refusal = {"error": {"message": "Unrecognized request argument supplied: stream_options", "code": None}}
    recording = chat_completions()["llamacpp.nousage-stream"]
    stream_headers = {"content-type": "text/event-stream"}
    replies = [http(400, json.dumps(refusal).encode()), http(200, recording.body, stream_headers)]
    async with answering(*replies) as server, ChatCompletionsClient(server.url) as client:
        async with Engine.open(client=client, persistent=False) as engine:
            for _ in range(2):
                async with engine.turn(ask("Hello")) as turn:
                    assert [event async for event in turn]
        assert turn.result is not None
        assert turn.result.changes == ()  # remembered, and of no interest to users
    assert len(server.heads) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_real_llamacpp_answers_with_text_json_and_usage() -> None:
    colour = {"type": "string", "enum": ["red", "green", "blue"]}  # so that any answer is short enough
    schema = {"type": "object", "properties": {"colour": colour}, "required": ["colour"]}
    async with LocalModel(context=2048) as local, ChatCompletionsClient(local.url) as client:
        history = [
            Message(Role.SYSTEM, "Be brief."),
            Message(Role.USER, "Say hello."),
            Message(Role.ASSISTANT, "Hello."),
            Message(Role.USER, "Again."),
        ]
        request = ChatRequest(model=local.model_id, messages=history, max_output_tokens=16)
        events = await stream(client, request)
        question = [Message(Role.USER, "Name a colour.")]
        coloured = await client.create(
            ChatRequest(
                model=local.model_id,
                messages=question,
                max_output_tokens=40,
                output_format=OutputFormat("c", schema),
            )
        )
        too_long = ChatRequest(model=local.model_id, messages=[Message(Role.USER, "word " * 4000)])
        with pytest.raises(ContextTooLong) as caught:
            await stream(client, too_long)
    assert text_of(events)
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.usage is not None
    assert end.usage.input_tokens
    assert end.usage.output_tokens
    assert end.usage.output_tokens <= 16
    assert set(json.loads(coloured.text)) == {"colour"}
    assert caught.value.limit == 2048
