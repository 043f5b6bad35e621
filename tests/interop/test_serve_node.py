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
    found: dict[str, Any] = await run_script(script, {"url": served.url, "model": MODEL, **task}, folder)
    return found


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
        found = await run("serve_openai.mjs", served, node_modules)
        assert {MODEL, "tollbridge/plain"} <= set(found["models"])
        hello, special = [await find_tokens(served, prompt) for prompt in ("Hello", "Grüße")]
    for api in ("responses", "completions"):
        result = found[api]
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
    assert "stopped working" in found["responses"]["broken"]["error"]
    assert found["completions"]["broken"]["error"] == "APIError"


@GATEWAYS
async def test_anthropic(node_modules: Path, backend: Backend) -> None:
    async with serving(backend) as served:
        found = await run("serve_anthropic.mjs", served, node_modules)
        hello, special = [await find_tokens(served, prompt) for prompt in ("Hello", "Grüße")]
    assert {MODEL, "tollbridge/plain"} <= set(found["models"])
    assert found["whole"]["text"].startswith("You said “Hello”.")
    assert found["whole"]["usage"] == hello
    assert found["streamed"]["text"] == found["streamed"]["deltas"]
    assert found["streamed"]["text"].startswith("You said “Grüße 🌉”.")
    assert found["streamed"]["usage"] == special
    assert found["call"] == {"name": "get_weather", "input": {"location": "Rome"}, "stop": "tool_use"}
    assert found["reasoning"].startswith(THOUGHT)
    assert found["answer"].startswith(TOOL_ANSWER)
    check_city(found["parsed"])
    assert found["counted"] == hello[0]
    assert found["broken"]["text"].startswith("You said “Hi”.")
    assert "stopped working" in found["broken"]["error"]["message"]
    for name, error, status in (("refused", "AuthenticationError", 401), ("missing", "NotFoundError", 404)):
        assert (found[name]["name"], found[name]["status"]) == (error, status)
        assert found[name]["requestId"].startswith("req_")


@GATEWAYS
@pytest.mark.parametrize("provider", ["openai-responses", "openai-chat", "anthropic", "openai-compatible"])
async def test_ai_sdk(node_modules: Path, provider: str, backend: Backend) -> None:
    async with serving(backend) as served:
        found = await run("serve_ai_sdk.mjs", served, node_modules, provider=provider)
        hello, special = [await find_tokens(served, prompt) for prompt in ("Hello", "Grüße")]
    assert found["streamed"]["text"].startswith("You said “Grüße 🌉”.")
    assert found["streamed"]["usage"] == special
    assert found["streamed"]["finish"] == "stop"
    assert found["whole"]["text"].startswith("You said “Hello”.")
    assert found["whole"]["usage"] == hello
    tools = found["tools"]
    assert tools["calls"] == [["get_weather", {"location": "Rome"}]]
    assert tools["results"] == ["Sunny"]
    assert TOOL_ANSWER in tools["text"]
    if provider != "openai-chat":  # OpenAI's own Chat Completions has no reasoning to show
        assert tools["reasoning"].startswith(THOUGHT)
    check_city(found["output"])
    [refused] = found["refused"]["errors"]
    assert refused["status"] == 401
    assert found["broken"]["text"].startswith("You said “Hi”.")
    assert any("stopped working" in error["message"] for error in found["broken"]["errors"])
