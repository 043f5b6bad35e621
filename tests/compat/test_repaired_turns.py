"""Every refusal of the known family is healed once, told, and remembered."""

from __future__ import annotations

import msgspec
import pytest
from tests.canned_server import answering, http

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.turn import Bridge, TurnResult
from tollbridge.types.errors import BridgeError
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.reasoning import Origin, bind

MODEL = "tollbridge/demo"
TOOL = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PICTURE = DataPart(draw_png(), "image/png")
FILE = DataPart(b"%PDF-1.7 hello", "application/pdf")
# What is said of each refusal, first of all.
HEALED = {
    "reject-array-content": "Images and files were left out: the server takes text alone.",
    "reject-array-output": "Images of tool results were sent after them.",
    "reject-calls": "Tool calls and their results were sent as text: the server takes none back.",
    "reject-developer": "The system prompt was sent in another role.",
    "reject-effort": "Sent without reasoning: the server does not take it.",
    "reject-files": "Files were left out: the model takes none.",
    "reject-images": "Images were left out: the model takes none.",
    "reject-include": "Sent without include: the server does not take it.",
    "reject-metadata": "Sent without metadata: the server does not take it.",
    "reject-parallel": "Sent without parallel_tool_calls: the server does not take it.",
    "reject-reasoning": "Reasoning that the gateway could not verify was left out.",
    "reject-reasoning-ids": "Reasoning was sent without its ids: the server keeps no items.",
    "reject-string-content": "Text was sent in a list: the server wants it so.",
    "reject-temperature": "Sent without temperature: the server does not take it.",
    "reject-this-image": "Images and files that the gateway could not read were left out.",
    "reject-top-p": "Sent without top_p: the server does not take it.",
    "reject-unsigned-calls": "Earlier tool calls were sent as text: they lack the model's signature.",
}


def everything(base_url: str) -> ChatRequest:
    """A request with all that any server may refuse."""
    proof = {"id": "rs_1", "encrypted_content": "sealed"}
    thought = ThinkingPart("Hm.", "rs_1", bind(Origin.of(MODEL, base_url), proof))
    return ChatRequest(
        model=MODEL,
        messages=(
            Message(Role.SYSTEM, "Be brief."),
            Message(Role.USER, (TextPart("Hello there"), PICTURE, FILE)),
            Message(Role.ASSISTANT, (thought, ToolCallPart("c1", "weather", {"city": "Oslo"}))),
            Message(Role.USER, (ToolResultPart("c1", (TextPart("sunny"), PICTURE)),)),
        ),
        tools=(TOOL,),
        parallel_tool_calls=True,
        reasoning_effort="low",
        temperature=0.5,
        top_p=0.5,
        metadata={"a": "b"},
    )


async def answer(
    gateway: Gateway, lessons: CompatMemory, request: ChatRequest | None = None
) -> tuple[TurnResult, list[Part]]:
    parts: list[Part] = []
    async with OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1)) as client:
        bridge = Bridge(client, lessons=lessons)
        turn = await bridge.answer(request or everything(gateway.url), parts.extend)
    return turn, parts


@pytest.mark.parametrize(("scenario", "said"), HEALED.items())
async def test_a_refusal_is_healed_once_and_the_next_request_is_right_at_once(
    scenario: str, said: str
) -> None:
    lessons = CompatMemory()
    async with Gateway(scenario=scenario) as gateway:
        turn, parts = await answer(gateway, lessons)
        assert [arrival.status for arrival in gateway.requests][-1] == 200
        assert len(gateway.requests) == 2
        assert turn.changes[0] == said
        assert any(isinstance(part, TextPart | ToolCallPart) for part in parts)
        again, _ = await answer(gateway, lessons)
        assert len(gateway.requests) == 3
    assert again.finish_reason in ("stop", "tool-calls")


async def test_a_request_that_is_fine_is_not_changed() -> None:
    async with Gateway() as gateway:
        turn, _ = await answer(gateway, CompatMemory())
    assert turn.changes == ()


async def test_what_one_model_does_not_take_another_is_still_sent() -> None:
    lessons = CompatMemory()
    async with Gateway(scenario="reject-temperature") as gateway:
        await answer(gateway, lessons)
        assert "temperature" in lessons.recall(gateway.url, MODEL).quirks.without
        assert lessons.recall(gateway.url, "another/model").quirks == Quirks()
        assert lessons.recall("http://elsewhere/v1", MODEL).quirks == Quirks()


async def test_a_refusal_nobody_knows_is_told_as_it_is_and_nothing_is_learned() -> None:
    lessons = CompatMemory()
    async with Gateway(scenario="string-error") as gateway:
        with pytest.raises(BridgeError, match="The request is not right"):
            await answer(gateway, lessons)
        assert len(gateway.requests) == 1
        assert lessons.recall(gateway.url, MODEL).quirks == Quirks()


async def test_there_is_one_healing_round_and_what_did_not_help_is_forgotten() -> None:
    # A server that refuses whatever is changed: the second refusal is told.
    lessons = CompatMemory()
    body = b'{"error": {"message": "Unsupported parameter: \'temperature\'", "param": "temperature"}}'
    async with answering(http(400, body, {"content-type": "application/json"})) as server:
        async with OpenResponsesClient(server.url, retries=RetryPolicy(attempts=1)) as client:
            with pytest.raises(BridgeError, match="temperature"):
                await Bridge(client, lessons=lessons).answer(everything(server.url), lambda parts: None)
        assert len(server.heads) == 2
        assert lessons.recall(server.url, MODEL).quirks == Quirks()


@pytest.mark.parametrize("scenario", ["unauthorized", "rate-limit", "context-too-long", "failed"])
async def test_refusals_that_are_not_the_requests_fault_are_not_healed(scenario: str) -> None:
    async with Gateway(scenario=scenario) as gateway:
        with pytest.raises(BridgeError):
            await answer(gateway, CompatMemory())
        assert len(gateway.requests) == 1


async def test_a_profile_feeds_what_is_known() -> None:
    known = Quirks(without=frozenset({"temperature"}))
    lessons = CompatMemory(lambda base_url, model: known if model == MODEL else None)
    async with Gateway(scenario="reject-temperature") as gateway:
        await answer(gateway, lessons)
        assert len(gateway.requests) == 1


async def test_new_reasoning_is_tried_again_after_old_was_refused() -> None:
    lessons = CompatMemory()
    async with Gateway(scenario="reject-reasoning") as gateway:
        await answer(gateway, lessons)
        assert lessons.recall(gateway.url, MODEL).quirks.reasoning
        fresh = ThinkingPart(
            "New.", "rs_2", bind(Origin.of(MODEL, gateway.url), {"encrypted_content": "new"})
        )
        before = everything(gateway.url)
        messages = (
            *before.messages,
            Message(Role.ASSISTANT, (fresh, TextPart("Sunny."))),
            Message(Role.USER, "Hi"),
        )
        await answer(gateway, lessons, msgspec.structs.replace(before, messages=messages))
        assert len(gateway.requests) == 4  # the new proof was tried, refused and left out


def test_every_reject_of_the_gateway_is_healed_here() -> None:
    assert {name for name in SCENARIOS if name.startswith("reject-")} == set(HEALED)
