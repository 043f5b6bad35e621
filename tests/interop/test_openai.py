"""OpenAI's client, from PyPI, with the gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tollbridge.testing.server import Gateway

MODEL = "tollbridge/demo"


def tool(name: str, *fields: str) -> Any:
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return {"type": "function", "name": name, "parameters": parameters, "strict": False}


WEATHER, TIME = tool("get_weather", "location"), tool("get_time")


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway.url, api_key="tb-interop-key", max_retries=0) as client:
        yield client


async def test_text_and_usage_arrive(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model=MODEL, input="Hello", instructions="Be kind.")
    assert response.status == "completed"
    assert response.output_text.startswith("You said “Hello”.")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


async def test_the_deltas_of_a_stream_add_up_to_the_final_text(client: openai.AsyncOpenAI) -> None:
    text = ""
    async for event in await client.responses.create(model=MODEL, input="Grüße 🌉\u2028", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.completed":
            assert event.response.output_text == text
    assert text.startswith("You said “Grüße 🌉")


async def test_the_strict_stream_helper_raises_nothing(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL, input="Think, then cite", tools=[WEATHER]) as stream:
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert "response.output_text.annotation.added" in kinds
    assert [item.type for item in response.output] == ["reasoning", "message"]


async def test_reasoning_arrives(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model=MODEL, input="Hello", reasoning={"effort": "low"})
    item = response.output[0]
    assert item.type == "reasoning"
    assert item.summary[0].text.startswith("The user said “Hello”.")
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


async def test_a_tool_is_called_and_its_result_is_answered(client: openai.AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "The weather in Rome?"}]
    response = await client.responses.create(model=MODEL, input=messages, tools=[WEATHER])
    [call] = response.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", '{"location":"Rome"}')
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
    history: Any = [*messages, call.to_dict(), result]
    answer = await client.responses.create(model=MODEL, input=history, tools=[WEATHER])
    assert answer.output_text.startswith("The tool get_weather answered: “Sunny”.")
    # The same with the history stored on the server.
    answer = await client.responses.create(
        model=MODEL, input=[result], tools=[WEATHER], previous_response_id=response.id
    )
    assert answer.output_text.startswith("The tool get_weather answered: “Sunny”.")


async def test_both_parallel_calls_are_streamed(client: openai.AsyncOpenAI) -> None:
    request = client.responses.create(model=MODEL, input="In parallel", tools=[WEATHER, TIME], stream=True)
    done = [event.item async for event in await request if event.type == "response.output_item.done"]
    assert [item.name for item in done if item.type == "function_call"] == ["get_weather", "get_time"]


async def test_a_refusal_and_an_image_arrive(client: openai.AsyncOpenAI) -> None:
    refused = await client.responses.create(model=MODEL, input="Please refuse")
    message = refused.output[0]
    assert message.type == "message"
    assert message.content[0].type == "refusal"
    drawn = (await client.responses.create(model=MODEL, input="Draw a bridge")).output[0]
    assert drawn.type == "image_generation_call"
    assert drawn.result is not None


async def test_an_incomplete_answer_is_marked(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model=MODEL, input="long", max_output_tokens=20)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("unauthorized", openai.AuthenticationError),
        ("forbidden", openai.PermissionDeniedError),
        ("not-found", openai.NotFoundError),
        ("rate-limit", openai.RateLimitError),
        ("server-error", openai.InternalServerError),
        ("context-too-long", openai.BadRequestError),
    ],
)
async def test_errors_have_their_kind_code_and_request_id(
    client: openai.AsyncOpenAI, gateway: Gateway, fault: str, kind: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        await client.responses.create(model=MODEL, input=f"Hi fault:{fault}", stream=stream)
    assert caught.value.code
    assert caught.value.request_id == gateway.requests[0].id


async def test_a_wrong_key_is_reported(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="The API key is wrong"):
            await client.models.list()


async def test_an_error_mid_stream_is_raised_after_the_output_before_it(client: openai.AsyncOpenAI) -> None:
    text = ""
    stream = await client.responses.create(model=MODEL, input="Hi fault:error-event", stream=True)
    with pytest.raises(openai.APIError, match="stopped working"):  # noqa: PT012
        async for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
    assert text.startswith("You said “Hi”.")


async def test_the_clients_retries_honour_retry_after(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url, api_key="tb-interop-key", max_retries=2) as client:
        response = await client.responses.create(model=MODEL, input="Hi fault:rate-limit-once")
    assert response.status == "completed"
    one, other = gateway.requests
    assert other.received_at - one.received_at >= 1


async def test_models_and_token_counts_are_read(client: openai.AsyncOpenAI) -> None:
    assert MODEL in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve(MODEL)).owned_by == "tollbridge"
    counted = await client.responses.input_tokens.count(model=MODEL, input="Hello")
    used = await client.responses.create(model=MODEL, input="Hello")
    assert used.usage is not None
    assert counted.input_tokens == used.usage.input_tokens


async def test_the_clients_own_events_can_be_adapted_to_parts() -> None:
    from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter
    from tollbridge.types.messages import Part, TextPart

    parts: list[Part] = []
    async with Gateway() as gateway, openai.AsyncOpenAI(base_url=gateway.url, api_key="none") as client:
        stream = await client.responses.create(model="tollbridge/demo", input="Hello", stream=True)
        result = await OpenResponsesStreamAdapter().process_stream(stream, parts.append)
    assert "Hello" in "".join(part.text for part in parts if isinstance(part, TextPart))
    assert result.usage is not None


# --- Chat Completions ---

CHAT_WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": WEATHER["parameters"]},
}
CHAT_TIME: Any = {"type": "function", "function": {"name": "get_time", "parameters": TIME["parameters"]}}


async def test_a_completion_has_text_and_usage(client: openai.AsyncOpenAI) -> None:
    messages: Any = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    completion = await client.chat.completions.create(model=MODEL, messages=messages)
    [choice] = completion.choices
    assert choice.message.content is not None
    assert choice.message.content.startswith("You said “Hello”.")
    assert "Be kind." in choice.message.content
    assert choice.finish_reason == "stop"
    assert completion.usage is not None
    assert (
        completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    )


async def test_the_chunks_of_a_completion_add_up_and_end_with_the_usage(client: openai.AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Think: Grüße 🌉\u2028"}]
    options: Any = {"include_usage": True}
    stream = await client.chat.completions.create(
        model=MODEL, messages=messages, stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in stream]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas).startswith("You said “Think: Grüße 🌉")
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert "".join(thoughts).startswith("The user said")
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


async def test_the_strict_helper_accepts_a_completion_with_parallel_calls(client: openai.AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Use the tools get_weather and get_time, parallel"}]
    async with client.chat.completions.stream(
        model=MODEL, messages=messages, tools=[CHAT_WEATHER, CHAT_TIME]
    ) as stream:
        kinds = {event.type async for event in stream}
        completion = await stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls or []
    assert sorted(call.function.name for call in calls) == ["get_time", "get_weather"]
    # The whole message returns, with the fields that the client does not know.
    results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "Sunny"} for call in calls]
    history: Any = [*messages, choice.message.to_dict(), *results]
    answer = await client.chat.completions.create(
        model=MODEL, messages=history, tools=[CHAT_WEATHER, CHAT_TIME]
    )
    assert answer.choices[0].message.content is not None
    assert "answered: “Sunny”." in answer.choices[0].message.content


async def test_structured_output_of_a_completion_is_parsed(client: openai.AsyncOpenAI) -> None:
    schema: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    messages: Any = [{"role": "user", "content": "Name a city"}]
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    completion = await client.chat.completions.create(model=MODEL, messages=messages, response_format=form)
    assert set(json.loads(completion.choices[0].message.content or "")) == {"city"}


@pytest.mark.parametrize("stream", [True, False])
async def test_the_errors_of_completions_have_their_classes(client: openai.AsyncOpenAI, stream: bool) -> None:
    async def ask(text: str, model: str = MODEL) -> None:
        messages: Any = [{"role": "user", "content": text}]
        answer: Any = await client.chat.completions.create(model=model, messages=messages, stream=stream)
        if stream:
            async for _ in answer:
                pass

    with pytest.raises(openai.NotFoundError):
        await ask("Hello", model="nothing")
    with pytest.raises(openai.RateLimitError):
        await ask("fault:rate-limit")
    with pytest.raises(openai.BadRequestError) as caught:
        await ask("fault:context-too-long")
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.APIError) as broken:
        await ask("fault:error-event")
    assert "the scenario requires it" in str(broken.value)
