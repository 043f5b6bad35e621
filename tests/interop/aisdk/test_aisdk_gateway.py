"""The SDK's real gateway client with the embedded gateway, compared with our client."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Literal

import pytest

from tollbridge.clients.protocols import AiSdkClient
from tollbridge.protocols.ai_sdk import PATHS
from tollbridge.protocols.ai_sdk.requests import convert_messages
from tollbridge.testing.server import Gateway
from tollbridge.types.events import Event, Finished, ReasoningDelta, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.messages import Tool as OurTool

RunNode = Callable[..., str]
Major = Literal[5, 6, 7]
SPECS: dict[Major, Literal[2, 3, 4]] = {5: 2, 6: 3, 7: 4}
majors = pytest.mark.parametrize("major", [5, 6, 7])

READ = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": "read_file", "description": "Reads a file.", "inputSchema": READ}]


async def ask(run_node: RunNode, gateway: Gateway, major: Major, *asks: dict[str, Any]) -> list[Any]:
    task = {"origin": gateway.url.removesuffix("/v1"), "major": major, "asks": asks}
    printed = await asyncio.to_thread(run_node, "ask_gateway.mjs", stdin=json.dumps(task))
    return [json.loads(line) for line in printed.strip().split("\n")]


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


@majors
async def test_the_real_client_reads_text_reasoning_tools_files_and_sources(
    run_node: RunNode, major: Major
) -> None:
    async with Gateway() as gateway:
        text, thought, called, drawn, cited, cut = await ask(
            run_node,
            gateway,
            major,
            says("Hello there", instructions="Be brief."),
            says("Think about it"),
            says("Use the tool read_file please", tools=TOOLS),
            says("Draw an image"),
            says("Cite your sources"),
            says("Stop at incomplete"),
        )
    assert "Hello there" in text["text"]
    assert (text["reason"], text["errors"]) == ("stop", [])
    assert text["usage"]["inputTokens"] > 0
    assert text["usage"]["outputTokens"] > 0
    assert thought["reasoning"]
    assert thought["text"]
    assert [(call["name"], list(call["input"])) for call in called["calls"]] == [("read_file", ["path"])]
    assert called["reason"] == "tool-calls"
    assert [file["mediaType"] for file in drawn["files"]] == ["image/png"]
    assert b64decode(drawn["files"][0]["base64"]).startswith(b"\x89PNG")
    assert len(cited["sources"]) == 2
    assert cut["reason"] == "length"


@majors
async def test_the_real_client_recognises_the_kinds_of_errors(run_node: RunNode, major: Major) -> None:
    async with Gateway(api_key="right") as gateway:
        unknown, limited, broken, failed = await ask(
            run_node,
            gateway,
            major,
            says("Hi", key="wrong"),
            says("Hi", key="right", scenario="rate-limit"),
            says("Hi", key="right", scenario="server-error"),
            says("Hi", key="right", scenario="failed"),
        )
    assert [error["name"] for error in unknown["errors"]] == ["GatewayAuthenticationError"]
    assert [error["name"] for error in limited["errors"]] == ["GatewayRateLimitError"]
    assert [error["name"] for error in broken["errors"]] == ["GatewayInternalServerError"]
    assert len(failed["errors"]) == 1, "a failure in mid-stream"


@majors
async def test_the_real_client_reads_the_list_of_models(run_node: RunNode, major: Major) -> None:
    async with Gateway() as gateway:
        [listed] = await ask(run_node, gateway, major, {"name": "models"})
        async with AiSdkClient(gateway.url.removesuffix("/v1") + PATHS[SPECS[major]]) as client:
            ours = await client.models()
    assert "tollbridge/demo" in [model["id"] for model in listed["models"]]
    assert [model.id for model in ours if model.type == "language"] == [
        model["id"] for model in listed["models"] if model["modelType"] == "language"
    ]


PICTURE = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
HISTORY = (
    Message(Role.SYSTEM, (TextPart("Be brief."),)),
    Message(Role.USER, (TextPart("Read a and look"), DataPart(PICTURE, "image/png"))),
    Message(Role.ASSISTANT, (ThinkingPart("Hm.", None, {"anthropic": {"signature": "s"}}), TextPart("Yes."))),
    Message(Role.ASSISTANT, (ToolCallPart("call_1", "read_file", {"path": "a"}),)),
    Message(Role.USER, (ToolResultPart("call_1", (TextPart("Seen:"), DataPart(PICTURE, "image/png"))),)),
    Message(Role.USER, (TextPart("And now?"),)),
)


@majors
async def test_our_client_sends_the_same_request_as_the_real_client(run_node: RunNode, major: Major) -> None:
    """The gateway receives the same body and the same headers from both clients."""
    request = ChatRequest(
        model="tollbridge/demo",
        messages=HISTORY,
        tools=(OurTool("read_file", "Reads a file.", READ),),
        tool_choice="auto",
        max_output_tokens=100,
        temperature=0.5,
        top_p=0.9,
    )
    options = {"maxOutputTokens": 100, "temperature": 0.5, "topP": 0.9}
    converted = convert_messages(HISTORY, target=major)
    messages = [message for message in converted if message["role"] != "system"]
    async with Gateway() as gateway:
        task = {"messages": messages, "instructions": "Be brief.", "tools": TOOLS, "options": options}
        [theirs] = await ask(run_node, gateway, major, task)
        base = gateway.url.removesuffix("/v1") + PATHS[SPECS[major]]
        async with AiSdkClient(base, "key", spec=SPECS[major]) as client:
            events = [event async for event in client.stream(request)]
        real, ours = gateway.requests
    assert theirs["errors"] == []
    assert _comparable(ours.body) == _comparable(real.body)
    assert ours.path == real.path
    named = [name for name in real.headers if name.startswith("ai-") and name != "ai-o11y-request-id"]
    assert {name: ours.headers[name] for name in named} == {name: real.headers[name] for name in named}
    assert _text(events) == theirs["text"]


def _comparable(body: Any) -> Any:
    """Remove the names of the client, and the dialect of the schema."""
    if isinstance(body, dict):
        return {
            key: _comparable(value)
            for key, value in body.items()
            if key not in ("headers", "includeRawChunks", "$schema", "additionalProperties")
        }
    return [_comparable(value) for value in body] if isinstance(body, list) else body


def _text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("spec", [2, 3, 4])
async def test_our_client_reads_text_reasoning_and_calls_and_sends_reasoning_back(
    spec: Literal[2, 3, 4],
) -> None:
    tools = (OurTool("read_file", "Reads a file.", READ),)
    async with (
        Gateway() as gateway,
        AiSdkClient(gateway.url.removesuffix("/v1") + PATHS[spec], spec=spec) as client,
    ):
        question = Message(Role.USER, (TextPart("Think, then use the tool read_file"),))
        chat_request = ChatRequest(model="tollbridge/demo", messages=(question,), tools=tools)
        events = [event async for event in client.stream(chat_request)]
        [call] = [event for event in events if isinstance(event, ToolCall)]
        [ended] = [event for event in events if isinstance(event, ReasoningEnded)]
        thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        answer = Message(
            Role.ASSISTANT,
            (ThinkingPart(thought, None, ended.metadata), ToolCallPart(call.call_id, call.name, call.input)),
        )
        result = Message(Role.USER, (ToolResultPart(call.call_id, (TextPart("content"),)),))
        again = ChatRequest(model="tollbridge/demo", messages=(question, answer, result), tools=tools)
        last = [event async for event in client.stream(again)]
        sent = gateway.requests[-1].body["prompt"]
    assert thought
    assert call.offered
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "tool-calls"
    assert finished.usage is not None
    assert finished.usage.known
    [reasoning] = [part for part in sent[1]["content"] if part["type"] == "reasoning"]
    assert reasoning["providerOptions"] == ended.metadata
    assert _text(last)
