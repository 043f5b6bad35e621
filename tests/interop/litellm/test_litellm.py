"""A real litellm proxy for a chat server: doctor passes, and a turn with tools works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from tests.interop.litellm import priced, proxy
from tests.interop.litellm.proxy import PRICED_MODEL, PRICES, Proxy
from tests.interop.turns import examine, join_reasoning, join_text, run_turn
from tests.interop.upstream import CACHED, THOUGHT, Upstream, count_prompt
from tests.recorded_streams import recordings_in
from tests.turns import Runner

from tollbridge.answer import Answer
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.protocols import AnthropicMessagesClient, ChatCompletionsClient, OpenResponsesClient
from tollbridge.compat.known_servers import known_quirks
from tollbridge.compat.profiles import save_profile
from tollbridge.doctor import content_checks as samples
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.protocols.detect import decoder_for
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Finished, ReasoningDelta, ToolCall, Usage
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

# The first run installs the proxy, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def litellm(upstream: Upstream) -> AsyncIterator[Proxy]:
    async with (
        Gateway(cache=priced.CACHE) as gateway,
        proxy.running(upstream.url, priced=gateway.url.removesuffix("/v1")) as running,
    ):
        yield running


async def answer(litellm: Proxy, *messages: Message, folder: Path | None = None) -> tuple[Answer, list[Part]]:
    return await run_turn(litellm.url, litellm.model, *messages, key=litellm.key, folder=folder)


async def test_doctor_passes_and_a_turn_with_tools_works_with_the_profile_it_writes(
    litellm: Proxy, upstream: Upstream, tmp_path: Path
) -> None:
    examination = await examine(litellm.url, litellm.key)
    assert [step.title for step in examination.steps if step.finding and step.finding.verdict != "well"] == []
    assert examination.requests <= 22
    assert examination.server is not None
    assert examination.server.name == "litellm"
    assert examination.quirks == known_quirks("litellm")  # the shipped profile equals the measured one
    save_profile(litellm.url, litellm.model, examination.quirks, folder=tmp_path)

    question = Message(Role.USER, (TextPart("Call the tool for Paris."), samples.make_image()))
    opening = (Message(Role.SYSTEM, "Be a bridge."), question)
    turn, parts = await answer(litellm, *opening, folder=tmp_path)
    assert turn.finish_reason == "tool-calls"
    (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    result = ToolResultPart(call.call_id, (TextPart("Sunny"), samples.make_image()))
    messages = (*opening, Message(Role.ASSISTANT, (call,)), Message(Role.USER, (result,)))
    turn, parts = await answer(litellm, *messages, folder=tmp_path)
    assert turn.finish_reason == "stop"
    assert "Sunny" in join_text(parts)
    assert "Be a bridge." in join_text(parts)
    assert turn.usage is not None
    assert turn.usage.input_tokens == count_prompt(upstream.requests[-1])
    assert turn.usage.cached_tokens == CACHED
    assert str(upstream.requests[-1]["messages"]).count("data:image/png") == 2  # no image was lost


async def test_two_calls_and_reasoning_arrive(litellm: Proxy) -> None:
    _, parts = await answer(litellm, Message(Role.USER, "Call the tool twice, in parallel."))
    cities = [part.input["city"] for part in parts if isinstance(part, ToolCallPart)]
    assert cities == ["Paris", "Rome"]
    _, parts = await answer(litellm, Message(Role.USER, "Think, then speak."))
    assert join_reasoning(parts).strip() == THOUGHT
    turn, _ = await answer(litellm, Message(Role.USER, "Speak at length."))
    assert turn.finish_reason == "length"


async def test_a_turn_with_tools_images_and_reasoning_works_over_chat_completions(
    litellm: Proxy, upstream: Upstream
) -> None:
    opening = [
        Message(Role.SYSTEM, "Be a bridge."),
        Message(Role.USER, ("Call the tool", samples.make_image())),
    ]
    async with ChatCompletionsClient(litellm.url, litellm.key, retries=RetryPolicy(attempts=1)) as client:
        chat_request = ChatRequest(model=litellm.model, messages=opening, tools=(WEATHER,))
        events = [event async for event in client.stream(chat_request)]
        first = await client.create(chat_request)
        calls = [event for event in events if isinstance(event, ToolCall)]
        assert [(call.call_id, call.input) for call in calls] == [
            (call.call_id, call.input) for call in first.tool_calls
        ]
        (call,) = first.tool_calls
        assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
        result = ToolResultPart(call.call_id, (TextPart("Sunny"), samples.make_image()))
        messages = [*opening, first.message, Message(Role.USER, (result,))]
        second = await client.create(ChatRequest(model=litellm.model, messages=messages, tools=(WEATHER,)))
        thinking = ChatRequest(model=litellm.model, messages=[Message(Role.USER, "Think, then speak.")])
        thoughts = [event async for event in client.stream(thinking) if isinstance(event, ReasoningDelta)]
        assert litellm.model in [model.id for model in await client.models()]
    assert "Sunny" in second.text
    assert "Be a bridge." in second.text
    assert "".join(event.text for event in thoughts).strip() == THOUGHT
    sent = [body for body in upstream.requests if "Sunny" in str(body["messages"])][-1]
    prompt = count_prompt(sent)
    assert second.usage == Usage(prompt, 9, prompt + 9, CACHED, 0)
    assert str(sent["messages"]).count("data:image/png") == 2  # no image was lost


async def test_a_failure_of_the_upstream_has_its_kind(litellm: Proxy) -> None:
    kinds = {"fail-400": "invalid_request", "fail-429": "rate_limited", "fail-500": "server"}
    for word, kind in kinds.items():
        with pytest.raises(BridgeError) as caught:
            await answer(litellm, Message(Role.USER, word))
        assert caught.value.kind == kind


async def test_a_wrong_key_is_rejected_and_never_shown(litellm: Proxy) -> None:
    wrong = "sk-wrong-0123456789abcdef"
    examination = await examine(litellm.url, wrong)
    assert not examination.can_chat
    assert wrong not in str(examination.steps)


async def test_a_round_of_tools_works_over_the_messages_api(litellm: Proxy, upstream: Upstream) -> None:
    question = Message(Role.USER, (TextPart("Call the tool for Paris."), samples.make_image()))
    opening = (Message(Role.SYSTEM, "Be a bridge."), question)
    async with AnthropicMessagesClient(litellm.url, litellm.key) as client:
        assert [model.id for model in await client.models()] == [litellm.model, PRICED_MODEL]
        request = ChatRequest(model=litellm.model, messages=opening, tools=(WEATHER,))
        assert await client.input_tokens(request) > 0
        async with Runner(client).turn(request) as turn:
            streamed = [event async for event in turn]
        whole = await client.create(request)
        for events in (streamed, whole.events):
            [call] = [event for event in events if isinstance(event, ToolCall)]
            assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
            assert isinstance(finished := events[-1], Finished)
            assert finished.reason == "tool-calls"
            assert finished.usage is not None
            assert finished.usage.input_tokens == count_prompt(upstream.requests[-1])
            assert finished.usage.cached_tokens == CACHED
        result = ToolResultPart(call.call_id, (TextPart("Sunny"), samples.make_image()))
        history = (*opening, whole.message, Message(Role.USER, (result,)))
        answer = await client.create(ChatRequest(model=litellm.model, messages=history, tools=(WEATHER,)))
        assert "Sunny" in answer.text
        assert "Be a bridge." in answer.text
        assert str(upstream.requests[-1]["messages"]).count("data:image/png") == 2  # no image was lost
        request = ChatRequest(model=litellm.model, messages=(Message(Role.USER, "Think, then speak."),))
        async with Runner(client).turn(request) as turn:
            async for _ in turn:
                pass
        assert turn.result.reasoning.strip() == THOUGHT


async def test_failures_over_the_messages_api_have_their_kind(litellm: Proxy) -> None:
    kinds = {"fail-400": "invalid_request", "fail-429": "rate_limited", "fail-500": "server"}
    async with AnthropicMessagesClient(litellm.url, litellm.key, retries=RetryPolicy(attempts=1)) as client:
        for word, kind in kinds.items():
            request = ChatRequest(model=litellm.model, messages=(Message(Role.USER, word),))
            with pytest.raises(BridgeError) as caught:
                await client.create(request)
            assert caught.value.kind == kind


CLIENTS: dict[str, Callable[..., GatewayClient]] = {
    "chat-completions": ChatCompletionsClient,
    "anthropic-messages": AnthropicMessagesClient,
    "openresponses": OpenResponsesClient,
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
@pytest.mark.parametrize("protocol", CLIENTS)
async def test_the_proxy_still_reports_the_cost_as_recorded(
    litellm: Proxy, protocol: str, stream: bool
) -> None:
    """The recordings are those of `tests/test_cost.py`."""
    live = await priced.ask(litellm, protocol, stream=stream)
    folder, _, _ = priced.ROUTES[protocol]
    recorded = recordings_in(folder)[live.name]
    assert list(live.headers) == list(recorded.headers)
    ends = []
    for recording in (live, recorded):
        decoder = decoder_for(protocol, recording.status, recording.headers)
        [end] = [
            event for event in decoder.feed(recording.body) + decoder.close() if isinstance(event, Finished)
        ]
        ends.append((end.usage, end.billing, recording.headers.get("x-litellm-response-cost")))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("protocol", CLIENTS)
async def test_the_bill_of_the_proxy_is_the_cost_of_a_turn(litellm: Proxy, protocol: str) -> None:
    prices = {name: Decimal(str(price)) for name, price in PRICES.items()}
    request = ChatRequest(model=PRICED_MODEL, messages=(Message(Role.USER, f"Hello over {protocol}."),))
    async with CLIENTS[protocol](litellm.url, litellm.key) as client, Runner(client).turn(request) as turn:
        async for _ in turn:
            pass
    usage = turn.result.usage
    assert usage is not None
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    assert turn.result.cost.billed == (
        ((usage.input_tokens or 0) - cached - written) * prices["input_cost_per_token"]
        + cached * prices["cache_read_input_token_cost"]
        + written * prices["cache_creation_input_token_cost"]
        + (usage.output_tokens or 0) * prices["output_cost_per_token"]
    )
