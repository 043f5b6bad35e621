"""The SDKs of OpenAI and Anthropic and the providers of the AI SDK, from npm, with `tollbridge serve`.

Each is used with a gateway that speaks its protocol, where requests are forwarded, and with gateways of the
other protocols, where they are translated. Node takes a second to start, so that one script does everything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.interop.node import run_script
from tests.interop.serving import MODEL, PROTOCOLS, Served, count_tokens, serving

from tollbridge.protocols import Backend

HERE = Path(__file__).parent
GATEWAYS = pytest.mark.parametrize("backend", PROTOCOLS)
THOUGHT = "The user said “Think, then get the weather in Rome”."
TOOL_ANSWER = "The tool get_weather answered: “Sunny”."


async def run(name: str, served: Served, folder: Path, **task: Any) -> dict[str, Any]:
    script = (HERE / name).read_bytes()
    result: dict[str, Any] = await run_script(script, {"url": served.url, "model": MODEL, **task}, folder)
    return result


async def find_tokens(served: Served, prompt: str) -> list[int]:
    """Return the tokens that the gateway counts for the request with a prompt."""
    indexes = [index for index, request in enumerate(served.gateway.requests) if prompt in str(request.body)]
    return list(await count_tokens(served.gateway, indexes[0]))


def check_city(value: Any) -> None:
    """Check a value of the schema that the scripts ask for."""
    assert set(value) == {"name", "population"}
    assert isinstance(value["name"], str)
    assert isinstance(value["population"], int | float)


@GATEWAYS
async def test_openai(node_modules: Path, backend: Backend) -> None:
    async with serving(backend) as served:
        report = await run("serve_openai.mjs", served, node_modules)
        assert {MODEL, "tollbridge/plain"} <= set(report["models"])
        hello, special = [await find_tokens(served, prompt) for prompt in ("Hello", "Grüße")]
    for api in ("responses", "completions"):
        result = report[api]
        assert result["whole"]["text"].startswith("You said “Hello”.")
        assert result["whole"]["usage"] == hello
        assert result["streamed"]["text"] == result["streamed"]["deltas"]
        assert result["streamed"]["text"].startswith("You said “Grüße 🌉”.")
        assert result["streamed"]["usage"] == special
        assert result["call"] == {"name": "get_weather", "arguments": '{"location":"Rome"}'}
        assert result["reasoning"].startswith(THOUGHT)
        assert result["answer"].startswith(TOOL_ANSWER)
        check_city(result["parsed"])
        assert result["broken"]["text"].startswith("You said “Hi”.")
        for name, error, status in (
            ("refused", "AuthenticationError", 401),
            ("missing", "NotFoundError", 404),
        ):
            assert (result[name]["name"], result[name]["status"]) == (error, status)
            assert result[name]["code"]
            assert result[name]["requestId"].startswith("req_")
    assert "stopped working" in report["responses"]["broken"]["error"]
    assert report["completions"]["broken"]["error"] == "APIError"


@GATEWAYS
async def test_anthropic(node_modules: Path, backend: Backend) -> None:
    async with serving(backend) as served:
        result = await run("serve_anthropic.mjs", served, node_modules)
        hello, special = [await find_tokens(served, prompt) for prompt in ("Hello", "Grüße")]
    assert {MODEL, "tollbridge/plain"} <= set(result["models"])
    assert result["whole"]["text"].startswith("You said “Hello”.")
    assert result["whole"]["usage"] == hello
    assert result["streamed"]["text"] == result["streamed"]["deltas"]
    assert result["streamed"]["text"].startswith("You said “Grüße 🌉”.")
    assert result["streamed"]["usage"] == special
    assert result["call"] == {"name": "get_weather", "input": {"location": "Rome"}, "stop": "tool_use"}
    assert result["reasoning"].startswith(THOUGHT)
    assert result["answer"].startswith(TOOL_ANSWER)
    check_city(result["parsed"])
    assert result["counted"] == hello[0]
    assert result["broken"]["text"].startswith("You said “Hi”.")
    assert "stopped working" in result["broken"]["error"]["message"]
    for name, error, status in (("refused", "AuthenticationError", 401), ("missing", "NotFoundError", 404)):
        assert (result[name]["name"], result[name]["status"]) == (error, status)
        assert result[name]["requestId"].startswith("req_")


@GATEWAYS
@pytest.mark.parametrize("provider", ["openai-responses", "openai-chat", "anthropic", "openai-compatible"])
async def test_ai_sdk(node_modules: Path, provider: str, backend: Backend) -> None:
    async with serving(backend) as served:
        result = await run("serve_ai_sdk.mjs", served, node_modules, provider=provider)
        hello, special = [await find_tokens(served, prompt) for prompt in ("Hello", "Grüße")]
    assert result["streamed"]["text"].startswith("You said “Grüße 🌉”.")
    assert result["streamed"]["usage"] == special
    assert result["streamed"]["finish"] == "stop"
    assert result["whole"]["text"].startswith("You said “Hello”.")
    assert result["whole"]["usage"] == hello
    tools = result["tools"]
    assert tools["calls"] == [["get_weather", {"location": "Rome"}]]
    assert tools["results"] == ["Sunny"]
    assert TOOL_ANSWER in tools["text"]
    if provider != "openai-chat":  # OpenAI's own Chat Completions has no reasoning to show
        assert tools["reasoning"].startswith(THOUGHT)
    check_city(result["output"])
    [refused] = result["refused"]["errors"]
    assert refused["status"] == 401
    assert result["broken"]["text"].startswith("You said “Hi”.")
    assert any("stopped working" in error["message"] for error in result["broken"]["errors"])
