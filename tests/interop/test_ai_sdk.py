"""The AI SDK's Open Responses provider, from npm, with the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.interop.node import run_script

from tollbridge.testing.server import Gateway

SCRIPT = Path(__file__).with_name("ai_sdk.mjs").read_bytes()
WEATHER = {
    "name": "get_weather",
    "description": "The weather at a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
TIME = {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


class Sdk:
    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self._gateway = gateway
        self._folder = folder

    async def ask(self, prompt: str, **task: Any) -> dict[str, Any]:
        whole = {"url": self._gateway.url, "apiKey": "tb-interop-key", "prompt": prompt, **task}
        result: dict[str, Any] = await run_script(SCRIPT, whole, self._folder)
        return result


@pytest.fixture
def sdk(gateway: Gateway, node_modules: Path) -> Sdk:
    return Sdk(gateway, node_modules)


@STREAMED
async def test_text_and_usage_arrive(sdk: Sdk, stream: bool) -> None:
    result = await sdk.ask("Hello, Grüße 🌉", stream=stream, system="Be kind.")
    assert result["text"] == (
        "You said “Hello, Grüße 🌉”. I was given 1 item and the system prompt “Be kind.” of 8 characters, "
        "with no tools."
    )
    assert result["finish"] == "stop"
    usage = result["usage"]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"]


@STREAMED
async def test_reasoning_arrives(sdk: Sdk, stream: bool) -> None:
    result = await sdk.ask("Think about it", stream=stream)
    assert result["reasoning"].startswith("The user said “Think about it”.")
    assert result["usage"]["outputTokenDetails"]["reasoningTokens"] > 0


@STREAMED
async def test_a_tool_is_called_and_its_result_is_answered(sdk: Sdk, gateway: Gateway, stream: bool) -> None:
    tools = [{**WEATHER, "result": "Sunny"}]
    result = await sdk.ask("The weather in Rome?", stream=stream, tools=tools, steps=3)
    assert [call["input"] for call in result["calls"]] == [{"location": "Rome"}]
    assert "The tool get_weather answered: “Sunny”." in result["text"]
    assert len(gateway.requests) == 2


@STREAMED
async def test_both_parallel_calls_arrive(sdk: Sdk, stream: bool) -> None:
    result = await sdk.ask("Both in parallel", stream=stream, tools=[WEATHER, TIME])
    assert [call["toolName"] for call in result["calls"]] == ["get_weather", "get_time"]
    assert result["finish"] == "tool-calls"


@STREAMED
@pytest.mark.parametrize(
    ("fault", "status", "retryable"),
    [("not-found", 404, False), ("rate-limit", 429, True), ("server-error", 500, True)],
)
async def test_an_error_has_its_message(
    sdk: Sdk, fault: str, status: int, retryable: bool, stream: bool
) -> None:
    [error] = (await sdk.ask(f"Hello fault:{fault}", stream=stream))["errors"]
    assert (error["status"], error["retryable"]) == (status, retryable)
    assert len(error["message"].split()) >= 4  # the message of the gateway, not the name of the status


async def test_a_wrong_key_is_reported(sdk: Sdk) -> None:
    [error] = (await sdk.ask("Hello", apiKey="wrong"))["errors"]
    assert (error["status"], error["message"]) == (401, "The API key is wrong.")


async def test_a_rejected_request_has_an_error_message(sdk: Sdk) -> None:
    [error] = (await sdk.ask("Hello", model="acme/none"))["errors"]
    assert error["message"].startswith("The model 'acme/none' does not exist.")


@pytest.mark.parametrize("fault", ["error-event", "failed", "disconnect"])
async def test_the_output_before_a_failure_is_kept(sdk: Sdk, fault: str) -> None:
    result = await sdk.ask(f"Hello fault:{fault}", stream=True)
    assert result["text"].startswith("You said “Hello”.")
    assert result["errors"]


async def test_an_incomplete_answer_has_the_finish_reason_length(sdk: Sdk) -> None:
    assert (await sdk.ask("Be incomplete", stream=True))["finish"] == "length"
