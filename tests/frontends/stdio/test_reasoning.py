"""Reasoning through the sidecar: what the host keeps of an answer comes back whole and in place.

This is what VS Code's agent mode does between two rounds of tools. A test inside VS Code can use the same
gateway (`tollbridge gateway --strict`): it refuses a call whose reasoning is missing or changed.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import Editor

from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Call, ScriptedAnswer
from tollbridge.testing.server import Gateway

LIST_DIR = {
    "name": "list_dir",
    "description": "Lists a folder.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
QUESTION = {"role": 1, "content": [{"type": "text", "value": "Think, then use the tool for `/tmp`"}]}


async def talk(
    editor: Editor, gateway: Gateway, messages: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    params = {"account": {"baseUrl": gateway.url}, "model": "tollbridge/demo"}
    token, answer = editor.ask("chat", {**params, "messages": messages, "tools": [LIST_DIR]})
    async with asyncio.timeout(20):
        result = await answer
    return editor.parts(token), result


def kept(parts: list[dict[str, Any]], *, marker: bool, thinking: bool) -> dict[str, Any]:
    """An assistant's message as the host gives it back: thoughts run together, no usage."""
    thoughts = [part for part in parts if part["type"] == "thinking"]
    metadata: dict[str, Any] = {}
    for thought in thoughts:
        metadata |= thought.get("metadata") or {}
    together = {
        "type": "thinking",
        "value": "".join(part["value"] for part in thoughts),
        "metadata": metadata,
    }
    others = [part for part in parts if part["type"] in ("text", "toolCall")]
    markers = [part for part in parts if part.get("mimeType") == "stateful_marker"]
    return {"role": 2, "content": [*([together] if thinking else []), *others, *(markers if marker else [])]}


def results(parts: list[dict[str, Any]]) -> dict[str, Any]:
    content = [{"type": "text", "value": "a.txt"}]
    calls = [part["callId"] for part in parts if part["type"] == "toolCall"]
    return {
        "role": 1,
        "content": [{"type": "toolResult", "callId": id_, "content": content} for id_ in calls],
    }


@pytest.mark.parametrize(("marker", "thinking"), [(True, True), (True, False), (False, True)])
async def test_sealed_reasoning_survives_a_round_of_tools(marker: bool, thinking: bool) -> None:
    async with Gateway(strict=True) as gateway, Editor() as editor:
        await editor.initialize()
        await editor.request("models", {"account": {"baseUrl": gateway.url}})  # so that it is known to reason
        parts, _ = await talk(editor, gateway, [QUESTION])
        assert [part["name"] for part in parts if part["type"] == "toolCall"] == ["list_dir"]
        messages = [QUESTION, kept(parts, marker=marker, thinking=thinking), results(parts)]
        _, result = await talk(editor, gateway, messages)
        statuses = [arrival.status for arrival in gateway.requests if arrival.path.endswith("/responses")]
    assert statuses == [200, 200]
    assert "changes" not in result
    assert "dropped" not in result
    assert result["finishReason"] == "stop"


async def test_the_marker_is_what_the_host_can_read() -> None:
    async with Gateway(strict=True) as gateway, Editor() as editor:
        await editor.initialize()
        await editor.request("models", {"account": {"baseUrl": gateway.url}})
        parts, _ = await talk(editor, gateway, [QUESTION])
    [marker] = [part for part in parts if part.get("mimeType") == "stateful_marker"]
    pieces = base64.b64decode(marker["data"]).decode().split("\\")
    assert pieces[0] == "tollbridge/demo"
    assert len(pieces) == 2, "the host keeps two pieces and drops the rest"
    payload = json.loads(base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)))
    assert payload["blocks"][0]["proof"]["encrypted_content"]


async def test_a_marker_of_somebody_else_is_dropped_and_counted() -> None:
    foreign = {
        "type": "data",
        "mimeType": "stateful_marker",
        "data": base64.b64encode(b"gpt\\resp_1").decode(),
    }
    history = [QUESTION, {"role": 2, "content": [{"type": "text", "value": "Hi"}, foreign]}, QUESTION]
    async with Gateway(strict=True) as gateway, Editor() as editor:
        await editor.initialize()
        _, result = await talk(editor, gateway, history)
    assert result["dropped"] == {"stateful_marker": 1}


async def test_a_call_with_broken_arguments_is_one_the_editors_loop_can_answer() -> None:
    def model(request: AcceptedRequest) -> ScriptedAnswer | None:
        if any(item["type"] == "function_call" for item in request.items):
            return None
        return ScriptedAnswer(blocks=(Call("list_dir", '{"path": "/tmp'),))

    async with Gateway(strict=True, model=model) as gateway, Editor() as editor:
        await editor.initialize()
        parts, result = await talk(editor, gateway, [QUESTION])
        [call] = [part for part in parts if part["type"] == "toolCall"]
        assert call["input"] == {"_invalid_arguments": '{"path": "/tmp'}
        assert result["finishReason"] == "tool-calls"
        assert result["changes"]
        error = {"type": "text", "value": "must have required property 'path'"}
        refused = {
            "role": 1,
            "content": [{"type": "toolResult", "callId": call["callId"], "content": [error]}],
        }
        parts, result = await talk(editor, gateway, [QUESTION, {"role": 2, "content": [call]}, refused])
        assert [arrival.status for arrival in gateway.requests] == [200, 200]
    assert "must have required property" in "".join(part["value"] for part in parts if part["type"] == "text")
