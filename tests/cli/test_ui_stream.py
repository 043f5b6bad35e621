"""`--ui-stream`: a chat endpoint that chooses its own model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.canned_server import answering, http
from tests.cli.cli_process import terminal, tollbridge

RECORDED = Path(__file__).parent.parent / "recordings" / "aisdk" / "7.0.169" / "plain-text.ui.sse"
ANSWER = http(200, RECORDED.read_bytes(), {"content-type": "text/event-stream"})


@pytest.mark.parametrize(
    ("option", "value"), [("--model", "openai/gpt-5"), ("--reasoning", "low"), ("--backend", "ai-sdk")]
)
async def test_options_that_the_endpoint_does_not_receive_are_rejected(option: str, value: str) -> None:
    for command in (("ask", "hi"), ("chat",)):
        result = await tollbridge(*command, "--ui-stream", "http://127.0.0.1:9/chat", option, value)
        assert result.code == 2
        assert f"Error: {option} cannot be used with --ui-stream" in result.err


async def test_the_model_of_the_environment_is_ignored_for_an_endpoint(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_MODEL": "openai/gpt-5", "TOLLBRIDGE_DATA_DIR": str(tmp_path), "TERM": "dumb"}
    async with (
        answering(ANSWER) as endpoint,
        terminal("chat", "--ui-stream", endpoint.url, env=env) as chat,
    ):
        await chat.expect("the endpoint's model on http")
        await chat.expect("> ")
        chat.type("/model other\n")
        await chat.expect("This endpoint does not support switching models.")
        chat.type("Hello\n")
        await chat.expect("first token")
        chat.type("/quit\n")
        assert await chat.ended() == 0
    measured = await tollbridge("accuracy", env=env)
    assert "No data yet" in measured.err  # the model behind the endpoint is unknown


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (401, b'{"error": "no"}', "Set TOLLBRIDGE_API_KEY to a key that this endpoint accepts; other keys"),
        (404, b"<html>no</html>", "Check the --ui-stream URL."),
        (
            200,
            b"<html>hello</html>",
            "Check that --ui-stream is an endpoint that returns an AI SDK UI",
        ),
        (400, b'{"error": "bad"}', "Check the URL and the options; this endpoint may not support images."),
    ],
)
async def test_the_advice_is_for_an_endpoint(status: int, body: bytes, advice: str) -> None:
    async with answering(http(status, body, {"content-type": "text/html"})) as endpoint:
        result = await tollbridge("ask", "hi", "--ui-stream", endpoint.url)
    assert result.code == 1
    assert advice in result.err
    assert "AI_GATEWAY_API_KEY" not in result.err
    assert "--base-url" not in result.err


async def test_the_advice_is_for_the_ai_sdk_protocol() -> None:
    page = http(200, b"<html>hello</html>", {"content-type": "text/html"})
    async with answering(page) as server:
        result = await tollbridge("models", "--base-url", server.url, "--backend", "ai-sdk")
    assert result.code == 1
    assert "Check that --base-url supports the AI SDK gateway protocol" in result.err
    assert "OpenResponses" not in result.err


async def test_the_usage_before_a_failure_is_reported(tmp_path: Path) -> None:
    recorded = (RECORDED.parent.parent / "4.3.19" / "multi-step.ui.ds.txt").read_bytes()
    first_step = recorded[: recorded.index(b"\n", recorded.index(b"\ne:") + 1) + 1]
    counted = json.loads(first_step.splitlines()[-1][2:])["usage"]
    async with answering(http(200, first_step, {"content-type": "text/plain"})) as endpoint:
        env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
        result = await tollbridge("ask", "hi", "--json", "--ui-stream", endpoint.url, env=env)
    output = json.loads(result.out)
    assert (result.code, output["ended"]) == (1, "cut")
    assert output["usage"]["input"] == counted["promptTokens"] > 0
    assert output["usage"]["output"] == counted["completionTokens"]
