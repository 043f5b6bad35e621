"""Reasoning passes through an editor and is returned to the model that produced it, and to no other.

The strict gateway rejects a call that is sent without the encrypted reasoning that preceded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.turns import Runner
from tollbridge.answer import Answer
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.protocols import AiSdkClient, ChatCompletionsClient, OpenResponsesClient
from tollbridge.history.reasoning import DUPLICATE
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Call, ScriptedAnswer, Think
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    Origin,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
)
from tollbridge.types.models import Capabilities
from tollbridge.types.text import write_json

MODEL, OTHER = "tollbridge/demo", "tollbridge/plain"
WEATHER = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
QUESTION = Message(Role.USER, "Think, then use the tool for Oslo")
REASONS = Capabilities(tools=True, images=True, files=True, reasoning=True)
RETRIES = RetryPolicy(attempts=1)


def openresponses(gateway: Gateway) -> GatewayClient:
    return OpenResponsesClient(gateway.url, retries=RETRIES)


def ai_sdk(gateway: Gateway) -> GatewayClient:
    return AiSdkClient(gateway.url.removesuffix("/v1") + "/v4/ai", retries=RETRIES)


def chat_completions(gateway: Gateway) -> GatewayClient:
    return ChatCompletionsClient(gateway.url, retries=RETRIES)


async def turn(
    client: GatewayClient, *messages: Message, model: str = MODEL, capabilities: Capabilities | None = REASONS
) -> tuple[Answer, list[Part]]:
    parts: list[Part] = []
    request = ChatRequest(model=model, messages=messages, tools=(WEATHER,) if model == MODEL else ())
    return await Runner(client).run(request, parts.extend, capabilities=capabilities), parts


def as_they_came(parts: Sequence[Part]) -> list[Part]:
    return list(parts)


def as_an_editor_keeps_them(parts: Sequence[Part]) -> list[Part]:
    """All thoughts of the answer run together, under the last id, with metadata put over each other."""
    thoughts = [part for part in parts if isinstance(part, ThinkingPart)]
    metadata: dict[str, Any] = {}
    for thought in thoughts:
        metadata |= thought.metadata or {}
    together = ThinkingPart("".join(part.text for part in thoughts), thoughts[-1].id, metadata)
    return [together, *(part for part in parts if not isinstance(part, ThinkingPart))]


def marker_alone(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if not isinstance(part, ThinkingPart)]


def thoughts_alone(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if not isinstance(part, DataPart)]


def sent(gateway: Gateway) -> str:
    return write_json(gateway.requests[-1].body)


def results_for(parts: Sequence[Part]) -> Message:
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    return Message(Role.USER, tuple(ToolResultPart(call.call_id, "sunny") for call in calls))


@pytest.mark.parametrize("client_for", [openresponses, ai_sdk, chat_completions])
@pytest.mark.parametrize("keep", [as_they_came, as_an_editor_keeps_them, marker_alone, thoughts_alone])
async def test_encrypted_reasoning_is_returned_before_its_call(
    client_for: Callable[[Gateway], GatewayClient], keep: Callable[[Sequence[Part]], list[Part]]
) -> None:
    async with Gateway(strict=True) as gateway, client_for(gateway) as client:
        _, parts = await turn(client, QUESTION)
        assert any(isinstance(part, DataPart) and part.mime == PACK_MIME for part in parts)
        history = [QUESTION, Message(Role.ASSISTANT, keep(parts)), results_for(parts)]
        ended, answered = await turn(client, *history)
        assert [arrival.status for arrival in gateway.requests] == [200, 200]
        assert ended.changes == ()
        # And on: the next question carries all of it again.
        more = [*history, Message(Role.ASSISTANT, keep(answered) if len(answered) > 1 else answered)]
        ended, _ = await turn(client, *more, Message(Role.USER, "Thanks"))
        assert [arrival.status for arrival in gateway.requests] == [200] * 3
    assert ended.finish_reason == "stop"


async def test_a_call_whose_reasoning_was_lost_is_sent_as_text() -> None:
    async with Gateway(strict=True) as gateway, openresponses(gateway) as client:
        _, parts = await turn(client, QUESTION)
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        ended, _ = await turn(client, QUESTION, Message(Role.ASSISTANT, calls), results_for(parts))
        assert [arrival.status for arrival in gateway.requests] == [200, 400, 200]
    assert ended.changes


@pytest.mark.parametrize("keep", [as_they_came, as_an_editor_keeps_them, marker_alone])
async def test_a_switch_of_model_drops_reasoning_cleanly(
    keep: Callable[[Sequence[Part]], list[Part]],
) -> None:
    async with Gateway(strict=True) as gateway, openresponses(gateway) as client:
        _, parts = await turn(client, QUESTION)
        history = [QUESTION, Message(Role.ASSISTANT, keep(parts)), results_for(parts)]
        await turn(client, *history, model=OTHER)
        assert [arrival.status for arrival in gateway.requests] == [200, 200]
        assert '"encrypted_content"' not in sent(gateway)


async def test_an_answer_that_an_editor_kept_twice_is_sent_with_its_reasoning_once() -> None:
    async with Gateway(strict=True) as gateway, openresponses(gateway) as client:
        _, parts = await turn(client, QUESTION)
        answer, results = Message(Role.ASSISTANT, parts), results_for(parts)
        ended, _ = await turn(client, QUESTION, answer, results, answer, results)
        assert [arrival.status for arrival in gateway.requests] == [200, 200]
    assert DUPLICATE in ended.changes


async def test_two_reasoning_items_with_one_id_are_sent_without_ids() -> None:
    async with Gateway(strict=True) as gateway, openresponses(gateway) as client:
        thoughts = [
            ThinkingPart(
                text, "rs_1", add_origin(Origin.of(OTHER, gateway.url), {"id": "rs_1", "format": text})
            )
            for text in ("One.", "Two.")
        ]
        answers = [Message(Role.ASSISTANT, (thought, TextPart("Well."))) for thought in thoughts]
        ended, _ = await turn(client, QUESTION, answers[0], QUESTION, answers[1], QUESTION, model=OTHER)
        assert [arrival.status for arrival in gateway.requests] == [400, 200]
    assert any("without its IDs" in change for change in ended.changes)


async def test_a_switch_of_gateway_drops_reasoning_cleanly() -> None:
    async with Gateway(strict=True) as here, Gateway(strict=True) as there:
        async with openresponses(here) as client:
            _, parts = await turn(client, QUESTION)
        async with openresponses(there) as client:
            history = [QUESTION, Message(Role.ASSISTANT, as_they_came(parts)), results_for(parts)]
            ended, _ = await turn(client, *history)
        assert [arrival.status for arrival in there.requests] == [200]
    assert "Dropped reasoning from another model." in ended.changes


async def test_each_reasoning_item_of_an_answer_is_returned_before_its_call() -> None:
    def model(request: AcceptedRequest) -> ScriptedAnswer | None:
        if any(item["type"] == "function_call_output" for item in request.items):
            return None
        calls = Call("weather", '{"city": "Oslo"}'), Call("weather", '{"city": "Rome"}')
        return ScriptedAnswer(blocks=(Think("First Oslo."), calls[0], Think("Then Rome."), calls[1]))

    async with Gateway(strict=True, model=model) as gateway, openresponses(gateway) as client:
        _, parts = await turn(client, QUESTION)
        assert len([part for part in parts if isinstance(part, ToolCallPart)]) == 2
        history = [QUESTION, Message(Role.ASSISTANT, as_an_editor_keeps_them(parts)), results_for(parts)]
        await turn(client, *history)
        assert [arrival.status for arrival in gateway.requests] == [200, 200]


async def test_unsigned_reasoning_is_returned_only_until_the_next_question() -> None:
    # A server that does not sign reasoning: it is returned while the model calls tools.
    async with Gateway() as gateway, openresponses(gateway) as client:
        _, parts = await turn(client, QUESTION, capabilities=None)
        thought = "".join(part.text for part in parts if isinstance(part, ThinkingPart))
        history = [QUESTION, Message(Role.ASSISTANT, as_they_came(parts)), results_for(parts)]
        await turn(client, *history, capabilities=None)
        assert thought[:40] in sent(gateway)
        assert '"reasoning"' in sent(gateway)
        done = Message(Role.ASSISTANT, "Sunny.")
        ended, _ = await turn(client, *history, done, Message(Role.USER, "Thanks"), capabilities=None)
        assert '"type":"reasoning"' not in sent(gateway)
    assert len(ended.changes) == 1


async def test_signatures_are_requested_if_the_model_reasons() -> None:
    async with Gateway() as gateway, openresponses(gateway) as client:
        await turn(client, Message(Role.USER, "Hi"))
        assert "reasoning.encrypted_content" in sent(gateway)
        await turn(client, Message(Role.USER, "Hi"), capabilities=None)
        assert "reasoning.encrypted_content" not in sent(gateway)
