"""Known errors are repaired, reported, and remembered."""

from __future__ import annotations

import msgspec
import pytest
from tests.canned_server import answering, http
from tests.turns import Runner

from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
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
from tollbridge.types.quirks import Quirks

MODEL = "tollbridge/demo"
TOOL = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PICTURE = DataPart(draw_png(), "image/png")
FILE = DataPart(b"%PDF-1.7 hello", "application/pdf")
# The first change that is reported for each error.
CHANGES = {
    "reject-array-content": "Removed images and files: this server accepts only text.",
    "reject-array-output": "Sent images of tool results in a separate message.",
    "reject-calls": "Sent tool calls and their results as text: the gateway rejected this history.",
    "reject-developer": "Sent the system prompt in another role.",
    "reject-effort": "Removed reasoning: not supported by this server.",
    "reject-files": "Removed files: not accepted by this model.",
    "reject-images": "Removed images: not accepted by this model.",
    "reject-include": "Removed include: not supported by this server.",
    "reject-metadata": "Removed metadata: not supported by this server.",
    "reject-output-limit": (
        "Removed max_output_tokens: not supported by this server. Answers can be longer."
    ),
    "reject-parallel": "Removed parallel_tool_calls: not supported by this server.",
    "reject-reasoning": "Removed reasoning that the gateway could not verify.",
    "reject-reasoning-ids": "Sent reasoning without its IDs: the server does not store items.",
    "reject-store": "Removed store=false: not supported by this server. It may keep prompts and answers.",
    "reject-string-content": "Sent text as a list: required by this server.",
    "reject-temperature": "Removed temperature: not supported by this server.",
    "reject-this-image": "Removed images and files that the gateway could not read.",
    "reject-tool-choice": (
        "Removed tool_choice: not supported by this server. The model may call any tool or none."
    ),
    "reject-top-p": "Removed top_p: not supported by this server.",
    "reject-unsigned-calls": "Sent earlier tool calls as text: they lack the model's signature.",
}


def everything(base_url: str) -> ChatRequest:
    """A request with everything that a server may reject."""
    proof = {"id": "rs_1", "encrypted_content": "sealed"}
    thought = ThinkingPart("Hm.", "rs_1", add_origin(Origin.of(MODEL, base_url), proof))
    return ChatRequest(
        model=MODEL,
        messages=(
            Message(Role.SYSTEM, "Be brief."),
            Message(Role.USER, (TextPart("Hello there"), PICTURE, FILE)),
            Message(Role.ASSISTANT, (thought, ToolCallPart("c1", "weather", {"city": "Oslo"}))),
            Message(Role.USER, (ToolResultPart("c1", (TextPart("sunny"), PICTURE)),)),
        ),
        tools=(TOOL,),
        tool_choice="auto",
        parallel_tool_calls=True,
        max_output_tokens=500,
        reasoning_effort="low",
        temperature=0.5,
        top_p=0.5,
        metadata={"a": "b"},
    )


async def answer(
    gateway: Gateway, memory: CompatMemory, request: ChatRequest | None = None
) -> tuple[Answer, list[Part]]:
    parts: list[Part] = []
    async with OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1)) as client:
        runner = Runner(client, compat=memory)
        turn = await runner.run(request or everything(gateway.url), parts.extend)
    return turn, parts


@pytest.mark.parametrize(("scenario", "change"), CHANGES.items())
async def test_an_error_is_repaired_once_and_the_next_request_succeeds_at_once(
    scenario: str, change: str
) -> None:
    memory = CompatMemory()
    async with Gateway(scenario=scenario) as gateway:
        turn, parts = await answer(gateway, memory)
        assert [arrival.status for arrival in gateway.requests][-1] == 200
        assert len(gateway.requests) == 2
        assert turn.changes[0] == change
        assert any(isinstance(part, TextPart | ToolCallPart) for part in parts)
        again, _ = await answer(gateway, memory)
        assert len(gateway.requests) == 3
    assert again.finish_reason in ("stop", "tool-calls")


async def test_an_accepted_request_is_not_changed() -> None:
    async with Gateway() as gateway:
        turn, _ = await answer(gateway, CompatMemory())
    assert turn.changes == ()


async def test_quirks_of_one_model_do_not_affect_others() -> None:
    memory = CompatMemory()
    async with Gateway(scenario="reject-temperature") as gateway:
        await answer(gateway, memory)
        assert "temperature" in memory.recall(gateway.url, MODEL).quirks.without
        assert memory.recall(gateway.url, "another/model").quirks == Quirks()
        assert memory.recall("http://elsewhere/v1", MODEL).quirks == Quirks()


async def test_an_unknown_error_is_reported_unchanged_and_nothing_is_learned() -> None:
    memory = CompatMemory()
    async with Gateway(scenario="string-error") as gateway:
        with pytest.raises(BridgeError, match="The request is not right"):
            await answer(gateway, memory)
        assert len(gateway.requests) == 1
        assert memory.recall(gateway.url, MODEL).quirks == Quirks()


async def test_there_is_one_repair_attempt_and_a_useless_repair_is_not_remembered() -> None:
    # The server rejects every request: the second error is reported.
    memory = CompatMemory()
    body = b'{"error": {"message": "Unsupported parameter: \'temperature\'", "param": "temperature"}}'
    async with answering(http(400, body, {"content-type": "application/json"})) as server:
        async with OpenResponsesClient(server.url, retries=RetryPolicy(attempts=1)) as client:
            with pytest.raises(BridgeError, match="temperature"):
                await Runner(client, compat=memory).run(everything(server.url), lambda parts: None)
        assert len(server.heads) == 2
        assert memory.recall(server.url, MODEL).quirks == Quirks()


@pytest.mark.parametrize("scenario", ["unauthorized", "rate-limit", "context-too-long", "failed"])
async def test_errors_that_the_request_did_not_cause_are_not_repaired(scenario: str) -> None:
    async with Gateway(scenario=scenario) as gateway:
        with pytest.raises(BridgeError):
            await answer(gateway, CompatMemory())
        assert len(gateway.requests) == 1


async def test_a_profile_prevents_the_first_error() -> None:
    quirks = Quirks(without=frozenset({"temperature"}))
    memory = CompatMemory(lambda base_url, model: quirks if model == MODEL else None)
    async with Gateway(scenario="reject-temperature") as gateway:
        await answer(gateway, memory)
        assert len(gateway.requests) == 1


async def test_new_reasoning_is_sent_after_earlier_reasoning_was_rejected() -> None:
    memory = CompatMemory()
    async with Gateway(scenario="reject-reasoning") as gateway:
        await answer(gateway, memory)
        assert memory.recall(gateway.url, MODEL).quirks.reasoning
        fresh = ThinkingPart(
            "New.", "rs_2", add_origin(Origin.of(MODEL, gateway.url), {"encrypted_content": "new"})
        )
        before = everything(gateway.url)
        messages = (
            *before.messages,
            Message(Role.ASSISTANT, (fresh, TextPart("Sunny."))),
            Message(Role.USER, "Hi"),
        )
        await answer(gateway, memory, msgspec.structs.replace(before, messages=messages))
        assert len(gateway.requests) == 4  # the new proof was sent, rejected and left out


def test_every_reject_scenario_has_an_expected_repair() -> None:
    assert {name for name in SCENARIOS if name.startswith("reject-")} == set(CHANGES)
