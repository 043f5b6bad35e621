"""The three methods of the provider facade."""

from __future__ import annotations

import threading
from pathlib import Path

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.profiles import find_quirks, save_profile
from tollbridge.frontends.vscode.provider import ChatModelProvider
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import Message, Part, Role, TextPart, Tool, ToolCallPart
from tollbridge.types.quirks import Quirks


async def test_a_provider_lists_models_answers_and_counts_tokens() -> None:
    parts: list[Part] = []
    async with (
        Gateway() as gateway,
        OpenResponsesClient(gateway.url) as client,
        ChatModelProvider(client) as provider,
    ):
        models = {model.id for model in await provider.provide_models()}
        turn = await provider.provide_response(
            "tollbridge/demo", [Message(Role.USER, "Hello")], parts.append, reasoning_effort="low"
        )
        body = gateway.requests[-1].body
    assert "tollbridge/demo" in models
    assert not any("embed" in model for model in models)
    assert "Hello" in "".join(part.text for part in parts if isinstance(part, TextPart))
    assert turn.usage is not None
    assert provider.usage.total().input_tokens == turn.usage.input_tokens
    assert isinstance(body, dict)
    assert body["reasoning"]["effort"] == "low"


async def test_an_offered_tool_is_called() -> None:
    parts: list[Part] = []
    tool = Tool("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
    async with (
        Gateway() as gateway,
        OpenResponsesClient(gateway.url) as client,
        ChatModelProvider(client) as provider,
    ):
        await provider.provide_response("tollbridge/demo", [Message(Role.USER, "tool")], parts.append, [tool])
    assert [part.name for part in parts if isinstance(part, ToolCallPart)] == ["weather"]


async def test_texts_and_messages_have_the_same_count() -> None:
    async with (
        OpenResponsesClient("http://127.0.0.1:9/v1") as client,
        ChatModelProvider(client) as provider,
    ):
        text = provider.provide_token_count("openai/gpt-5", "one two three")
        message = provider.provide_token_count("openai/gpt-5", Message(Role.USER, "one two three"))
    assert text == message == 3


async def test_closing_the_provider_ends_its_threads() -> None:
    before = set(threading.enumerate())
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        async with ChatModelProvider(client) as provider:
            await provider.provide_response("tollbridge/demo", [Message(Role.USER, "Hello")], repr)
            learners = [each for each in set(threading.enumerate()) - before if each.name == "background"]
        for learner in learners:
            learner.join(timeout=30)
    assert [learner.is_alive() for learner in learners] == [False]


async def test_the_profile_of_the_server_is_used(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        save_profile(gateway.url, "tollbridge/demo", Quirks(system="instructions"), folder=tmp_path)
        lessons = CompatMemory(lambda url, model: find_quirks(url, model, tmp_path))
        async with ChatModelProvider(client, lessons=lessons) as provider:
            messages = [Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hello")]
            await provider.provide_response("tollbridge/demo", messages, repr)
        body = gateway.requests[-1].body
    assert body["instructions"] == "Be brief."
