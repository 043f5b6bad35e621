"""A chat endpoint made with the real SDK answers our client and the CLI with a UI message stream."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tollbridge.clients.protocols import UiStreamClient
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event, Finished, ReasoningDelta, TextDelta
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

StartNode = Callable[..., AbstractContextManager[str]]
majors = pytest.mark.parametrize("major", ["5", "6", "7"])

PICTURE = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
HISTORY = (
    Message(Role.SYSTEM, (TextPart("Be brief."),)),
    Message(Role.USER, (TextPart("Read a and look"), DataPart(PICTURE, "image/png", "x.png"))),
    Message(
        Role.ASSISTANT,
        (
            ThinkingPart("Hm.", None, {"anthropic": {"signature": "sig"}}),
            TextPart("Yes."),
            ToolCallPart("call_1", "read_file", {"path": "a"}),
            ToolCallPart("call_2", "read_file", {"path": "b"}),
            ToolCallPart("call_3", "read_file", {"path": "c"}),
        ),
    ),
    Message(
        Role.USER,
        (
            ToolResultPart("call_1", (TextPart("content of a"),)),
            ToolResultPart("call_2", (TextPart("no such file"),), is_error=True),
            ToolResultPart("gone", (TextPart("content of nothing"),)),
        ),
    ),
    Message(Role.USER, (TextPart("And now?"),)),
)


def question(*messages: Message) -> ChatRequest:
    return ChatRequest(model="", messages=messages)


async def answer(url: str, request: ChatRequest) -> list[Event]:
    async with UiStreamClient(url) as client:
        return [event async for event in client.stream(request)]


def _text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@majors
async def test_a_whole_conversation_reaches_the_model_of_the_endpoint(
    start_node: StartNode, major: str
) -> None:
    with start_node("serve_chat.mjs", major) as port:
        events = await answer(f"http://127.0.0.1:{port}/api/chat", question(*HISTORY))
    prompt: list[dict[str, Any]] = json.loads(_text(events))["prompt"]
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "hm"
    assert isinstance(events[-1], Finished)
    assert prompt[0] == {"role": "system", "content": "Be brief."}
    received = json.dumps(prompt)
    messages = [
        "Read a and look",
        "Yes.",
        "content of a",
        "no such file",
        "content of nothing",
        "And now?",
        "sig",
    ]
    assert [text for text in messages if text not in received] == []
    assert b64encode(PICTURE).decode() in received
    calls = [part for message in prompt for part in message["content"] if "tool-call" in part]
    assert all(part["input"] for part in calls)


@majors
async def test_a_failure_of_the_endpoint_is_raised_after_the_output_before_it(
    start_node: StartNode, major: str
) -> None:
    events: list[Event] = []
    failure = ""
    with start_node("serve_chat.mjs", major) as port:
        async with UiStreamClient(f"http://127.0.0.1:{port}/api/chat") as client:
            try:
                async for batch in client.batches(question(Message(Role.USER, (TextPart("fail"),)))):
                    events += batch
            except BridgeError as error:
                failure = error.message
    assert failure == "it broke"
    assert "fail" in _text(events)


async def test_the_command_line_can_use_an_endpoint(start_node: StartNode) -> None:
    with start_node("serve_chat.mjs", "7") as port:
        url = f"http://127.0.0.1:{port}/api/chat"
        environment = {
            **os.environ,
            "AI_GATEWAY_API_KEY": "secret-key",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tollbridge", "chat", "--ui-stream", url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        out, err = await process.communicate(b"Is anybody there?\nAnd now?\n")
    assert process.returncode == 0, err.decode()
    assert b"Is anybody there?" in out
    assert b"And now?" in out
    assert b'"authorization":null' in out, "the key of a gateway is nobody else's business"
    assert b"secret-key" not in out + err
