"""Every caller protocol in front of every gateway protocol: a conversation survives there and back."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontends.http.servers import local_server
from tests.protocols.openresponses.test_caller import PNG, conversations

from tollbridge.config.schema import Account, Settings
from tollbridge.engine import Engine
from tollbridge.protocols import BACKENDS, Backend
from tollbridge.protocols.anthropic_messages.caller import CODEC as MESSAGES_CALLER
from tollbridge.protocols.chat_completions.caller import CODEC as COMPLETIONS_CALLER
from tollbridge.protocols.openresponses.caller import CODEC as RESPONSES_CALLER
from tollbridge.testing import Call
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Say, ScriptedAnswer, Think
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

CALLERS: tuple[Backend, ...] = ("openresponses", "chat-completions", "anthropic-messages")
DECODERS: Mapping[Backend, Callable[[Any], Any]] = {
    "openresponses": RESPONSES_CALLER.decode,
    "chat-completions": COMPLETIONS_CALLER.decode,
    "anthropic-messages": MESSAGES_CALLER.decode,
}


def decode_ai_sdk(body: Any) -> ChatRequest:
    """Decode the call options of the AI SDK, as its specification describes them."""
    messages = []
    for message in body["prompt"]:
        content = message["content"]
        parts = [TextPart(content)] if isinstance(content, str) else [_decode_part(part) for part in content]
        messages.append(Message(Role.USER if message["role"] == "tool" else Role(message["role"]), parts))
    tools = [Tool(tool["name"], tool["description"], tool["inputSchema"]) for tool in body["tools"]]
    return ChatRequest(
        model=MODEL,
        messages=tuple(messages),
        tools=tuple(tools),
        max_output_tokens=body["maxOutputTokens"],
        temperature=body["temperature"],
    )


def _decode_part(part: Any) -> Any:
    match part["type"]:
        case "text":
            return TextPart(part["text"])
        case "tool-call":
            return ToolCallPart(part["toolCallId"], part["toolName"], part["input"])
        case "tool-result":
            assert part["output"]["type"] == "text"
            return ToolResultPart(part["toolCallId"], part["output"]["value"])
        case "file":
            data = part["data"]
            return DataPart(b64decode(data if isinstance(data, str) else data["data"]), part["mediaType"])
        case kind:
            raise AssertionError(f"unexpected part {kind}")


LOOK = Tool("look", "Looks.", {"type": "object", "properties": {"path": {"type": "string"}}})
MODEL = "tollbridge/demo"
# Texts with a visible character: others are left out, because some providers refuse them.
WORDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)


@asynccontextmanager
async def calling(server_url: str, caller: Backend) -> AsyncIterator[Engine]:
    """An engine that calls the local server in the caller's protocol."""
    account = Account("caller", f"{server_url}/v1", caller, "none")
    async with Engine.open(Settings(), account=account, persistent=False) as engine:
        yield engine


def contents(request: ChatRequest) -> list[tuple[str, list[Any]]]:
    """What a model sees of a conversation, however it is divided into messages."""
    seen: list[tuple[str, list[Any]]] = []
    for message in request.messages:
        parts = [content for part in message.parts for content in _content(part)]
        if seen and seen[-1][0] == message.role:
            seen[-1][1].extend(parts)
        elif parts:
            seen.append((message.role, parts))
    return [(role, _join_texts(parts)) for role, parts in seen]


def _content(part: Any) -> list[Any]:
    match part:
        case TextPart(text):
            return [text] if text else []
        case ToolCallPart():
            return [(part.call_id, part.name, msgspec.json.encode(part.input, order="sorted"))]
        case ToolResultPart():
            return [(part.call_id, *(content for item in part.parts for content in _content(item)))]
        case DataPart():
            return [part.data]
        case _:
            return []


def _join_texts(parts: list[Any]) -> list[Any]:
    """Join adjacent texts: protocols differ in whether they keep the parts of a text apart."""
    joined: list[Any] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] = f"{joined[-1]}\n{part}"
        else:
            joined.append(part)
    return joined


@pytest.mark.io
@pytest.mark.parametrize("gateway_protocol", BACKENDS)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_conversation_reaches_the_gateway(caller: Backend, gateway_protocol: Backend) -> None:
    @settings(max_examples=8, deadline=None)
    @given(conversations(WORDS))
    def check(messages: tuple[Message, ...]) -> None:
        asyncio.run(check_request(messages, caller, gateway_protocol))

    check()


async def check_request(messages: tuple[Message, ...], caller: Backend, gateway_protocol: Backend) -> None:
    question = Message(Role.USER, ("And this?", DataPart(PNG, "image/png")))
    request = ChatRequest(
        model=MODEL, messages=(*messages, question), tools=(LOOK,), max_output_tokens=500, temperature=0.5
    )
    async with (
        Gateway() as gateway,
        local_server(gateway.url, gateway_protocol) as server,
        calling(server.url, caller) as engine,
    ):
        result = await engine.create(request)
        body = gateway.requests[-1].body
        received = (
            decode_ai_sdk(body) if gateway_protocol == "ai-sdk" else DECODERS[gateway_protocol](body).request
        )
        assert contents(received) == contents(request)
        assert received.tools == request.tools
        assert (received.max_output_tokens, received.temperature) == (500, 0.5)
        [record] = server.engine.usage.records
        assert result.usage is not None
        assert record.usage is not None
        assert result.usage.input_tokens == record.usage.input_tokens
        assert result.usage.output_tokens == record.usage.output_tokens


# What a model answers: reasoning, a text, and calls with any arguments.
ARGUMENTS = st.dictionaries(st.sampled_from(("path", "depth")), WORDS | st.integers(0, 9))
ANSWERS = st.tuples(WORDS, WORDS, st.lists(ARGUMENTS, max_size=3))


@pytest.mark.io
@pytest.mark.parametrize("gateway_protocol", BACKENDS)
@pytest.mark.parametrize("caller", CALLERS)
def test_an_answer_reaches_the_caller(caller: Backend, gateway_protocol: Backend) -> None:
    @settings(max_examples=8, deadline=None)
    @given(ANSWERS)
    def check(answer: tuple[str, str, list[dict[str, Any]]]) -> None:
        asyncio.run(check_answer(*answer, caller, gateway_protocol))

    check()


async def check_answer(
    reasoning: str, text: str, calls: list[dict[str, Any]], caller: Backend, gateway_protocol: Backend
) -> None:
    blocks = [Call("look", msgspec.json.encode(call).decode()) for call in calls]
    script = ScriptedAnswer(blocks=(Think(reasoning), Say(text), *blocks))
    question = Message(Role.USER, "What is in a.txt?")
    request = ChatRequest(model=MODEL, messages=(question,), tools=(LOOK,), reasoning_effort="low")
    async with (
        Gateway(model=lambda _: script) as gateway,
        local_server(gateway.url, gateway_protocol) as server,
        calling(server.url, caller) as engine,
    ):
        result = await engine.create(request)
        assert (result.text, result.reasoning) == (text, reasoning)
        assert [(call.name, call.input) for call in result.tool_calls] == [("look", call) for call in calls]
        assert result.finish_reason == ("tool-calls" if calls else "stop")
        [counted] = gateway.counted
        assert counted.usage is not None
        assert result.usage is not None
        assert (result.usage.input_tokens, result.usage.output_tokens) == (
            counted.usage.input_tokens,
            counted.usage.output_tokens,
        )


def received_reasoning(gateway: Gateway, protocol: Backend) -> list[str]:
    """The texts of the reasoning in the last request that the gateway received."""
    body = gateway.requests[-1].body
    if protocol == "ai-sdk":
        parts = [part for message in body["prompt"] for part in message["content"] if "type" in part]
        return [part["text"] for part in parts if part["type"] == "reasoning"]
    messages = DECODERS[protocol](body).request.messages
    return [part.text for message in messages for part in message.parts if isinstance(part, ThinkingPart)]


def answer(request: AcceptedRequest) -> ScriptedAnswer:
    if any(item["type"] == "function_call_output" for item in request.items):
        return ScriptedAnswer(blocks=(Say("The file is empty."),))
    blocks = (Think("I should look."), Say("Let me look."), Call("look", '{"path": "a.txt"}'))
    return ScriptedAnswer(blocks=blocks)


@pytest.mark.parametrize("gateway_protocol", BACKENDS)
@pytest.mark.parametrize("caller", CALLERS)
async def test_an_answer_returns_with_text_reasoning_and_calls(
    caller: Backend, gateway_protocol: Backend
) -> None:
    question = Message(Role.USER, "What is in a.txt?")
    request = ChatRequest(model=MODEL, messages=(question,), tools=(LOOK,), reasoning_effort="low")
    async with (
        Gateway(model=answer) as gateway,
        local_server(gateway.url, gateway_protocol) as server,
        calling(server.url, caller) as engine,
    ):
        first = await engine.create(request)
        assert first.text == "Let me look."
        assert first.reasoning == "I should look."
        [call] = first.tool_calls
        assert (call.name, call.input) == ("look", {"path": "a.txt"})
        assert first.finish_reason == "tool-calls"
        result = Message(Role.USER, (ToolResultPart(call.call_id, "(empty)"),))
        second = await engine.create(
            msgspec.structs.replace(request, messages=(question, first.message, result))
        )
        assert second.text == "The file is empty."
        assert received_reasoning(gateway, gateway_protocol) == ["I should look."]


@pytest.mark.parametrize("gateway_protocol", BACKENDS)
async def test_reasoning_survives_a_caller_that_does_not_return_it(gateway_protocol: Backend) -> None:
    question = Message(Role.USER, "What is in a.txt?")
    request = ChatRequest(model=MODEL, messages=(question,), tools=(LOOK,), reasoning_effort="low")
    async with (
        Gateway(model=answer) as gateway,
        local_server(gateway.url, gateway_protocol) as server,
        calling(
            server.url, "chat-completions" if gateway_protocol != "chat-completions" else "openresponses"
        ) as engine,
    ):
        first = await engine.create(request)
        parts = [part for part in first.parts if not isinstance(part, ThinkingPart)]
        [call] = first.tool_calls
        result = Message(Role.USER, (ToolResultPart(call.call_id, "(empty)"),))
        messages = (question, Message(Role.ASSISTANT, parts), result)
        await engine.create(msgspec.structs.replace(request, messages=messages))
        assert received_reasoning(gateway, gateway_protocol) == ["I should look."]
