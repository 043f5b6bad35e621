"""The Python SDKs of OpenAI and Anthropic, from PyPI, with `tollbridge serve`.

Each SDK is used with a gateway that speaks its protocol, where requests are forwarded, and with gateways of
the other protocols, where they are translated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel
from tests.interop.serving import MODEL, PROTOCOLS, Served, count_tokens, serving

from tollbridge.protocols import Backend

PARAMETERS = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
WEATHER_FUNCTION: Any = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
WEATHER_TOOL: Any = {"name": "get_weather", "input_schema": PARAMETERS}
# Scenarios of the gateway, with the status of the error. Those that are retried are in tests of their own.
FAULTS = [("unauthorized", 401), ("forbidden", 403), ("not-found", 404), ("context-too-long", 400)]
RETRIED = ("rate-limit", "overloaded", "server-error")
FAILURE = "stopped working"
# A text whose answer has characters of several bytes, and some that Python, but not the protocol, counts as
# the end of a line.
SPECIAL = "Grüße 🌉 fault:line-separators"


def check_special(text: str) -> None:
    assert text.startswith("You said “Grüße 🌉")
    assert {"\u2028", "\u2029", "\u0085"} <= set(text)


class City(BaseModel):
    name: str
    population: int


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


@pytest.fixture(params=PROTOCOLS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    backend: Backend = request.param
    async with serving(backend) as served:
        yield served


@pytest.fixture
async def client(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(served: Served) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=served.url, api_key="any", max_retries=0) as client:
        yield client


def check_counts(served: Served, before: int, used: int, after: int) -> None:
    """Check the counts of a prompt before and after it was answered with `used` input tokens."""
    assert after == used
    if served.backend == "chat-completions":  # a protocol that does not count
        assert used / 2 < before < used * 2
    else:
        assert before == used


# --- OpenAI: Responses ---


async def test_responses_text_and_usage(client: openai.AsyncOpenAI, served: Served) -> None:
    response = await client.responses.create(model=MODEL, input="Hello", instructions="Be kind.")
    assert response.status == "completed"
    assert response.output_text.startswith("You said “Hello”.")
    assert "“Be kind.”" in response.output_text
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == await count_tokens(served.gateway)


async def test_responses_stream(client: openai.AsyncOpenAI, served: Served) -> None:
    text = ""
    async with client.responses.stream(model=MODEL, input=SPECIAL) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
        response = await stream.get_final_response()
    check_special(text)
    assert response.output_text == text
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == await count_tokens(served.gateway)


async def test_responses_tools_and_reasoning(client: openai.AsyncOpenAI, served: Served) -> None:
    items: list[Any] = [user("Think, then get the weather in Rome")]
    async with client.responses.stream(model=MODEL, input=items, tools=[WEATHER]) as stream:
        kinds = [event.type async for event in stream]
        first = await stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    thought, call = first.output
    assert thought.type == "reasoning"
    assert thought.summary[0].text.startswith("The user said “Think, then get the weather in Rome”.")
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", '{"location":"Rome"}')
    items += [item.to_dict(mode="json") for item in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"})
    second = await client.responses.create(model=MODEL, input=items, tools=[WEATHER])
    assert second.output_text.startswith("The tool get_weather answered: “Sunny”.")
    assert "4 items" in second.output_text  # the question, the reasoning, the call and the result


async def test_responses_structured_output(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.parse(model=MODEL, input="Describe Rome", text_format=City)
    assert isinstance(response.output_parsed, City)
    async with client.responses.stream(model=MODEL, input="Describe Rome", text_format=City) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == response.output_parsed


async def test_responses_limit(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model=MODEL, input="long", max_output_tokens=20)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_responses_count_and_models(client: openai.AsyncOpenAI, served: Served) -> None:
    assert {MODEL, "tollbridge/plain"} <= {model.id async for model in client.models.list()}
    assert (await client.models.retrieve(MODEL)).id == MODEL
    request: Any = {"model": MODEL, "input": "What is a bridge?"}
    before = await client.responses.input_tokens.count(**request)
    used = await client.responses.create(**request)
    after = await client.responses.input_tokens.count(**request)
    assert used.usage is not None
    check_counts(served, before.input_tokens, used.usage.input_tokens, after.input_tokens)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("fault", "status"), FAULTS)
async def test_responses_errors(client: openai.AsyncOpenAI, fault: str, status: int, stream: bool) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.responses.create(model=MODEL, input=f"Hi fault:{fault}", stream=stream)
    check_error(caught.value, fault, status)


async def test_responses_error_in_the_middle(client: openai.AsyncOpenAI) -> None:
    text = ""
    stream = await client.responses.create(model=MODEL, input="Hi fault:failed", stream=True)
    failure = None
    async for event in stream:
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.failed":
            failure = event.response.error
    assert text.startswith("You said “Hi”.")
    assert failure is not None
    assert FAILURE in failure.message


# --- OpenAI: Chat Completions ---


async def test_completions_text_and_usage(client: openai.AsyncOpenAI, served: Served) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be kind."}, user("Hello")]
    completion = await client.chat.completions.create(model=MODEL, messages=messages)
    [choice] = completion.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content is not None
    assert choice.message.content.startswith("You said “Hello”.")
    assert "“Be kind.”" in choice.message.content
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == await count_tokens(served.gateway)


async def test_completions_stream(client: openai.AsyncOpenAI, served: Served) -> None:
    text = ""
    async with client.chat.completions.stream(
        model=MODEL, messages=[user(SPECIAL)], stream_options={"include_usage": True}
    ) as stream:
        async for event in stream:
            if event.type == "content.delta":
                text += event.delta
        completion = await stream.get_final_completion()
    check_special(text)
    assert completion.choices[0].message.content == text
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == await count_tokens(served.gateway)


async def test_completions_tools_and_reasoning(client: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [user("Think, then get the weather in Rome")]
    tools = [WEATHER_FUNCTION]
    async with client.chat.completions.stream(model=MODEL, messages=messages, tools=tools) as stream:
        async for _ in stream:
            pass
        [choice] = (await stream.get_final_completion()).choices
    assert choice.finish_reason == "tool_calls"
    message = choice.message
    extra = message.model_extra or {}
    assert extra["reasoning_content"].startswith("The user said “Think, then get the weather in Rome”.")
    [call] = message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"location":"Rome"}')
    # A caller that knows only the fields of the SDK: the server remembers the reasoning.
    fields = {"role", "content", "tool_calls"}
    messages += [
        message.model_dump(
            include=fields, exclude={"tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}
        ),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny"},
    ]
    completion = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    text = completion.choices[0].message.content
    assert text is not None
    assert text.startswith("The tool get_weather answered: “Sunny”.")


async def test_completions_parallel_calls(client: openai.AsyncOpenAI) -> None:
    time: Any = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
    completion = await client.chat.completions.create(
        model=MODEL, messages=[user("In parallel")], tools=[WEATHER_FUNCTION, time]
    )
    calls = completion.choices[0].message.tool_calls or []
    assert [call.function.name for call in calls if call.type == "function"] == ["get_weather", "get_time"]


async def test_completions_structured_output(client: openai.AsyncOpenAI) -> None:
    messages = [user("Describe Rome")]
    completion = await client.chat.completions.parse(model=MODEL, messages=messages, response_format=City)
    assert isinstance(completion.choices[0].message.parsed, City)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("fault", "status"), FAULTS)
async def test_completions_errors(client: openai.AsyncOpenAI, fault: str, status: int, stream: bool) -> None:
    messages = [user(f"Hi fault:{fault}")]
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(model=MODEL, messages=messages, stream=stream)
    check_error(caught.value, fault, status)


async def test_completions_error_in_the_middle(client: openai.AsyncOpenAI) -> None:
    text = ""
    stream = await client.chat.completions.create(
        model=MODEL, messages=[user("Hi fault:failed")], stream=True
    )
    with pytest.raises(openai.APIError, match=FAILURE):  # noqa: PT012
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text.startswith("You said “Hi”.")


async def test_openai_errors_that_were_retried(client: openai.AsyncOpenAI, served: Served) -> None:
    async def ask(fault: str) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model=MODEL, messages=[user(f"Hi fault:{fault}")])
        return caught.value

    limited, overloaded, failed = await asyncio.gather(*map(ask, RETRIED))
    assert type(limited) is openai.RateLimitError
    assert int(limited.response.headers["retry-after"]) >= 1
    assert overloaded.status_code in (503, 529)
    assert type(failed) is openai.InternalServerError
    assert len(served.gateway.requests) == 3 * len(RETRIED)


OPENAI_ERRORS: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
}


def check_error(error: openai.APIStatusError, fault: str, status: int) -> None:
    assert type(error) is OPENAI_ERRORS[status]
    assert error.code
    assert error.request_id
    assert "length" in str(error) if fault == "context-too-long" else len(str(error).split()) > 4


# --- Anthropic: Messages ---


async def test_messages_text_and_usage(claude: anthropic.AsyncAnthropic, served: Served) -> None:
    message = await claude.messages.create(
        model=MODEL, max_tokens=200, system="Be kind.", messages=[user("Hello")]
    )
    [block] = message.content
    assert block.type == "text"
    assert block.text.startswith("You said “Hello”.")
    assert "“Be kind.”" in block.text
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == await count_tokens(served.gateway)


async def test_messages_stream(claude: anthropic.AsyncAnthropic, served: Served) -> None:
    messages = [user(SPECIAL)]
    async with claude.messages.stream(model=MODEL, max_tokens=200, messages=messages) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()
    check_special(text)
    assert message.content[0].to_dict()["text"] == text
    assert (message.usage.input_tokens, message.usage.output_tokens) == await count_tokens(served.gateway)


async def test_messages_tools_and_thinking(claude: anthropic.AsyncAnthropic) -> None:
    messages: list[Any] = [user("Think about the weather in Rome, and get it")]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    request: Any = {"model": MODEL, "max_tokens": 2000, "tools": [WEATHER_TOOL]}
    async with claude.messages.stream(**request, thinking=thinking, messages=messages) as stream:
        kinds = {event.type async for event in stream}
        message = await stream.get_final_message()
    assert {"thinking", "input_json"} <= kinds
    thought, call = message.content
    assert thought.type == "thinking"
    assert thought.thinking.startswith("The user said “Think about the weather in Rome, and get it”.")
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("get_weather", {"location": "Rome"})
    assert message.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny"}
    messages += [message.to_param(), user([result])]
    answer = await claude.messages.create(**request, messages=messages)
    text = "".join(block.text for block in answer.content if block.type == "text")
    assert text.startswith("The tool get_weather answered: “Sunny”.")
    assert "4 items" in text  # the question, the thinking, the call and the result


async def test_messages_structured_output(claude: anthropic.AsyncAnthropic) -> None:
    messages = [user("Describe Rome")]
    message = await claude.messages.parse(model=MODEL, max_tokens=500, messages=messages, output_format=City)
    assert isinstance(message.parsed_output, City)


async def test_messages_limit(claude: anthropic.AsyncAnthropic) -> None:
    message = await claude.messages.create(model=MODEL, max_tokens=20, messages=[user("long")])
    assert message.stop_reason == "max_tokens"


async def test_messages_count_and_models(claude: anthropic.AsyncAnthropic, served: Served) -> None:
    models = [model async for model in claude.models.list(limit=1)]
    assert {MODEL, "tollbridge/plain"} <= {model.id for model in models}
    assert all(model.type == "model" and model.display_name for model in models)
    assert (await claude.models.retrieve(MODEL)).id == MODEL
    request: Any = {"model": MODEL, "messages": [user("What is a bridge?")]}
    before = await claude.messages.count_tokens(**request)
    used = await claude.messages.create(**request, max_tokens=200)
    after = await claude.messages.count_tokens(**request)
    check_counts(served, before.input_tokens, used.usage.input_tokens, after.input_tokens)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("fault", "status"), FAULTS)
async def test_messages_errors(
    claude: anthropic.AsyncAnthropic, fault: str, status: int, stream: bool
) -> None:
    messages = [user(f"Hi fault:{fault}")]
    with pytest.raises(anthropic.APIStatusError) as caught:
        await claude.messages.create(model=MODEL, max_tokens=20, messages=messages, stream=stream)
    assert type(caught.value) is ANTHROPIC_ERRORS[status]
    assert caught.value.request_id
    if fault == "context-too-long":
        assert "prompt is too long" in str(caught.value) or "length" in str(caught.value)


ANTHROPIC_ERRORS: dict[int, type[anthropic.APIStatusError]] = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
}


async def test_messages_errors_that_were_retried(claude: anthropic.AsyncAnthropic, served: Served) -> None:
    async def ask(fault: str) -> anthropic.APIStatusError:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await claude.messages.create(model=MODEL, max_tokens=20, messages=[user(f"Hi fault:{fault}")])
        return caught.value

    limited, overloaded, failed = await asyncio.gather(*map(ask, RETRIED))
    assert type(limited) is anthropic.RateLimitError
    assert int(limited.response.headers["retry-after"]) >= 1
    assert overloaded.status_code == 529
    assert overloaded.type == "overloaded_error"
    assert type(failed) is anthropic.InternalServerError
    assert len(served.gateway.requests) == 3 * len(RETRIED)


async def test_messages_error_in_the_middle(claude: anthropic.AsyncAnthropic) -> None:
    text = ""
    messages = [user("Hi fault:failed")]
    stream = await claude.messages.create(model=MODEL, max_tokens=200, messages=messages, stream=True)
    with pytest.raises(anthropic.APIStatusError, match=FAILURE):  # noqa: PT012
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                text += event.delta.text
    assert text.startswith("You said “Hi”.")
