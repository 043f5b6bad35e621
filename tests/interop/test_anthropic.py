"""Anthropic's client, from PyPI, with the gateway."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png

MODEL = "tollbridge/demo"
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a place",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
TIME: Any = {"name": "get_time", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    url = gateway.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="tb-interop-key", max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def test_text_and_usage_arrive(client: anthropic.AsyncAnthropic) -> None:
    message = await client.messages.create(
        model=MODEL, max_tokens=200, system="Be kind.", messages=[user("Hello")]
    )
    [block] = message.content
    assert block.type == "text"
    assert block.text.startswith("You said “Hello”.")
    assert "“Be kind.”" in block.text
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0


async def test_a_stream_adds_up_to_the_final_message(client: anthropic.AsyncAnthropic) -> None:
    request: Any = {"model": MODEL, "max_tokens": 200, "messages": [user("Grüße 🌉\u2028")]}
    async with client.messages.stream(**request) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()
    assert text.startswith("You said “Grüße 🌉")
    assert message.content[0].to_dict()["text"] == text
    whole = await client.messages.create(**request)
    assert whole.content[0].to_dict()["text"] == text
    cached = whole.usage.cache_read_input_tokens
    assert cached
    # The whole prompt was in the cache, and the protocol counts that apart.
    assert (whole.usage.input_tokens, cached) == (0, message.usage.input_tokens)


async def test_a_tool_is_called_with_thinking_and_its_result_is_answered(
    client: anthropic.AsyncAnthropic,
) -> None:
    messages: list[Any] = [user("Think about the weather in Rome, and get it")]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    async with client.messages.stream(
        model=MODEL, max_tokens=2000, tools=[WEATHER], thinking=thinking, messages=messages
    ) as stream:
        kinds = [event.type async for event in stream]
        message = await stream.get_final_message()
    assert {"thinking", "signature", "input_json"} <= set(kinds)
    thought, call = message.content
    assert thought.type == "thinking"
    assert thought.signature
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("get_weather", {"location": "Rome"})
    assert message.stop_reason == "tool_use"
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(draw_png(3, 2)).decode()}
    content = [{"type": "text", "text": "Sunny"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    messages += [message.to_param(), {"role": "user", "content": [result]}]
    answer = await client.messages.create(model=MODEL, max_tokens=2000, tools=[WEATHER], messages=messages)
    text = "".join(block.text for block in answer.content if block.type == "text")
    assert text.startswith("The tool get_weather answered: “Sunny”.")
    assert "image/png, 3 × 2 pixels" in text
    assert "4 items" in text  # the question, the thinking, the call and the result


async def test_parallel_calls_arrive_unless_they_are_disabled(client: anthropic.AsyncAnthropic) -> None:
    request: Any = {
        "model": MODEL,
        "max_tokens": 500,
        "messages": [user("In parallel")],
        "tools": [WEATHER, TIME],
    }
    message = await client.messages.create(**request)
    assert [block.to_dict()["name"] for block in message.content] == ["get_weather", "get_time"]
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    message = await client.messages.create(**request, tool_choice=choice)
    assert len(message.content) == 1


async def test_tools_and_fields_that_the_gateway_does_not_know_do_not_matter(
    client: anthropic.AsyncAnthropic,
) -> None:
    message = await client.beta.messages.create(
        model=MODEL,
        max_tokens=500,
        messages=[user("Hello")],
        tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}],
        betas=["context-management-2025-06-27"],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        metadata={"user_id": "u"},
        stop_sequences=["END"],
        extra_body={"top_k": 5, "invented_later": True},
    )
    assert message.stop_reason == "end_turn"


async def test_tokens_are_counted_and_models_listed(client: anthropic.AsyncAnthropic) -> None:
    counted = await client.messages.count_tokens(model=MODEL, messages=[user("Hello")])
    used = await client.messages.create(model=MODEL, max_tokens=200, messages=[user("Hello")])
    assert counted.input_tokens == used.usage.input_tokens
    first = await client.models.list(limit=1)
    assert first.has_more
    assert [model.id async for model in client.models.list(limit=1)][:2] == [MODEL, "tollbridge/plain"]


async def test_an_incomplete_answer_is_marked(client: anthropic.AsyncAnthropic) -> None:
    message = await client.messages.create(model=MODEL, max_tokens=20, messages=[user("long")])
    assert message.stop_reason == "max_tokens"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("fault", "kind", "status"),
    [
        ("unauthorized", anthropic.AuthenticationError, 401),
        ("forbidden", anthropic.PermissionDeniedError, 403),
        ("not-found", anthropic.NotFoundError, 404),
        ("rate-limit", anthropic.RateLimitError, 429),
        ("server-error", anthropic.InternalServerError, 500),
        ("overloaded", anthropic.APIStatusError, 529),
        ("context-too-long", anthropic.BadRequestError, 400),
    ],
)
async def test_errors_have_their_kind_and_request_id(
    client: anthropic.AsyncAnthropic,
    gateway: Gateway,
    fault: str,
    kind: type[anthropic.APIStatusError],
    status: int,
    stream: bool,
) -> None:
    with pytest.raises(kind) as caught:
        await client.messages.create(
            model=MODEL, max_tokens=20, messages=[user(f"Hi fault:{fault}")], stream=stream
        )
    assert caught.value.status_code == status
    assert caught.value.request_id == gateway.requests[0].id


async def test_a_wrong_key_is_reported(gateway: Gateway) -> None:
    url = gateway.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="The API key is wrong"):
            await client.models.list()


async def test_an_error_mid_stream_is_raised_after_the_output_before_it(
    client: anthropic.AsyncAnthropic,
) -> None:
    text = ""
    messages = [user("Hi fault:error-event")]
    stream = await client.messages.create(model=MODEL, max_tokens=200, messages=messages, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="stopped working"):  # noqa: PT012
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                text += event.delta.text
    assert text.startswith("You said “Hi”.")


async def test_the_clients_retries_honour_retry_after(gateway: Gateway) -> None:
    url = gateway.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="tb-interop-key", max_retries=2) as client:
        messages = [user("Hi fault:rate-limit-once")]
        message = await client.messages.create(model=MODEL, max_tokens=200, messages=messages)
    assert message.stop_reason == "end_turn"
    one, other = gateway.requests
    assert other.received_at - one.received_at >= 1
