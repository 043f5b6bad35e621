"""The whole context window can be used: what a gateway counts, and what it rejects, decides."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import splintr
from aiohttp import web

from tests.turns import Runner
from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.config.schema import Account, ModelSettings, Settings
from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.protocols import Backend, find_protocol
from tollbridge.recorder.recording import read_recording
from tollbridge.recorder.replay import replay_recording
from tollbridge.storage.worker import WorkerThread
from tollbridge.testing.refusals import CannedReply
from tollbridge.testing.requests import PromptSettings
from tollbridge.testing.server import Gateway
from tollbridge.token_accounting import TokenAccounting
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.messages import ChatRequest, Message, Role, Tool
from tollbridge.types.models import OUTPUT_RESERVE
from tollbridge.types.quirks import Quirks

MODEL = "tollbridge/demo"
REPOSITORY = Path(__file__).parents[1]
TOOLS = [
    Tool(name, f"Use {name} for a file of the project.", {"type": "object", "properties": {"path": {}}})
    for name in ("read_file", "write_file", "search_files", "list_folder")
]


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(model=MODEL, messages=(Message(Role.USER, text),), **fields)


def agent_request() -> ChatRequest:
    """Return a request with instructions, tools and source code, as an agent sends."""
    instructions = (REPOSITORY / "CONTRIBUTING.md").read_text()
    code = (REPOSITORY / "src/tollbridge/engine.py").read_text()
    messages = [Message(Role.SYSTEM, instructions), Message(Role.USER, f"What does this do?\n{code}")]
    return ChatRequest(model=MODEL, messages=messages, tools=TOOLS)


def response_bodies(gateway: Gateway, path: str = "/v1/responses") -> list[dict[str, Any]]:
    return [request.body for request in gateway.requests if request.path == path]


def open_engine(gateway: Gateway, backend: Backend = "openresponses", **settings: Any) -> Engine:
    account = Account("a", gateway.url, backend, "none")
    return Engine.open(Settings(**settings), account=account, persistent=False)


# --- The gateway counts ---


@pytest.mark.parametrize("vocabulary", ["llama2", "mistral_v2", "deepseek_v3"])
async def test_the_first_request_of_an_unknown_model_is_counted_by_the_gateway(
    vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tollbridge.token_accounting.COUNT_WAIT", 30.0
    )  # this test is not about the speed of the machine
    tokenizer = splintr.Tokenizer.from_pretrained(vocabulary)
    prompts = PromptSettings(count_text=lambda text: len(tokenizer.encode(text)))
    errors = {}
    for counts in (True, False):
        async with Gateway(prompts=prompts) as gateway:
            account = Account("a", gateway.url, "openresponses", "none")
            compat = CompatMemory(lambda _url, _model: Quirks())
            async with Engine.open(
                Settings(count_at_gateway=counts), account=account, compat=compat, persistent=False
            ) as engine:
                result = await engine.create(agent_request())
        assert result.preflight is not None
        assert result.usage is not None
        assert result.usage.input_tokens is not None
        errors[counts] = result.preflight.estimate.tokens / result.usage.input_tokens - 1
    assert abs(errors[True]) <= 0.02
    assert abs(errors[False]) > abs(errors[True])


async def test_only_the_first_request_of_an_unknown_model_waits_for_the_count() -> None:
    """The gateway counts only after the turn has ended, so a turn that waited longer would not end."""
    turn_ended, tokens = asyncio.Event(), 1_234

    async def count(_request: web.Request) -> web.Response:
        await turn_ended.wait()
        return web.json_response({"object": "response.input_tokens", "input_tokens": tokens})

    app = web.Application()
    app.router.add_post("/v1/responses/input_tokens", count)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    estimator, request = HybridTokenEstimator(), ask("word " * 1_000)
    try:
        async with (
            Gateway() as gateway,
            OpenResponsesClient(gateway.url) as client,
            OpenResponsesClient(f"http://127.0.0.1:{port}/v1") as counter,
        ):
            accounting = TokenAccounting(estimator, WorkerThread("background"), counter)
            assert not estimator.is_calibrated(MODEL)
            result = await Runner(client, tokens=accounting).run(request, list)
            assert result.preflight is not None
            assert result.preflight.estimate.method == "estimated"
            assert estimator.is_calibrated(MODEL)  # by the reported usage
            other = ask("Another conversation. " * 500)
            preflight = await accounting.measure(other, None)
            assert preflight is not None
            assert preflight.estimate.method == "estimated"
            turn_ended.set()
            await asyncio.gather(*accounting._count_requests)
            await accounting.aclose()
    finally:
        await runner.cleanup()
    assert estimator.estimate_request(other).tokens == tokens


def test_a_bundled_vocabulary_needs_no_count() -> None:
    assert HybridTokenEstimator().is_calibrated("openai/gpt-5.4")
    assert not HybridTokenEstimator().is_calibrated("anthropic/claude-sonnet-4.5")


# --- Prompt and answer share the window ---

WINDOW = 20_000
SHARED = PromptSettings(window=WINDOW, shared=True)
# About 15,000 tokens at the embedded gateway: the rest of the window is less than the model's output limit.
LONG = "Many words fill most of the window. " * 1_850


async def create_long(
    gateway: Gateway, backend: Backend, **fields: Any
) -> tuple[Answer, list[dict[str, Any]]]:
    path = {"openresponses": "/v1/responses", "anthropic-messages": "/v1/messages"}[backend]
    async with open_engine(gateway, backend) as engine:
        await engine.models()
        result = await engine.create(ask(LONG, **fields))
    return result, response_bodies(gateway, path)


async def test_a_required_limit_is_what_the_prompt_leaves_of_the_window() -> None:
    async with Gateway(prompts=SHARED) as gateway:
        result, bodies = await create_long(gateway, "anthropic-messages")
    assert result.finish_reason == "stop"
    assert result.usage is not None
    assert result.usage.input_tokens is not None
    assert result.usage.input_tokens > WINDOW * 0.7
    assert result.usage.input_tokens + bodies[-1]["max_tokens"] <= WINDOW
    # The estimate can leave too little room for an answer. Then the gateway's numbers are used, once.
    assert len(bodies) <= 2


async def test_a_limit_that_the_gateway_assumed_is_replaced_by_one_that_fits() -> None:
    async with Gateway(prompts=SHARED) as gateway:
        result, (first, second) = await create_long(gateway, "openresponses")
    assert result.finish_reason == "stop"
    assert result.usage is not None
    tokens = result.usage.input_tokens
    assert tokens is not None
    assert "max_output_tokens" not in first
    assert second["max_output_tokens"] == WINDOW - tokens
    assert second["input"] == first["input"]
    note = f"Limited the answer to {WINDOW - tokens:,} tokens: the prompt takes {tokens:,} of the 20,000 "
    assert result.changes == (f"{note}tokens of the context window.",)


async def test_a_limit_of_the_user_is_lowered_only_if_the_gateway_rejects_it() -> None:
    async with Gateway(prompts=SHARED) as gateway:
        short, (accepted,) = await create_long(gateway, "openresponses", max_output_tokens=1_000)
        result, (_, first, second) = await create_long(gateway, "openresponses", max_output_tokens=10_000)
    assert result.finish_reason == short.finish_reason == "stop"
    assert accepted["max_output_tokens"] == 1_000
    assert first["max_output_tokens"] == 10_000
    assert second["max_output_tokens"] < 10_000


async def test_a_prompt_that_does_not_fit_is_an_error_with_the_numbers() -> None:
    prompts = PromptSettings(window=1_000, shared=True)
    async with Gateway(prompts=prompts) as gateway, open_engine(gateway) as engine:
        with pytest.raises(ContextTooLong) as refusal:
            await engine.create(ask(LONG))
        assert len(response_bodies(gateway)) == 1
    assert refusal.value.limit == 1_000
    assert refusal.value.tokens is not None
    assert str(refusal.value.tokens) in refusal.value.message


@pytest.mark.parametrize("window", [None, 2_000])
async def test_an_error_without_numbers_gets_the_estimate_and_the_window(window: int | None) -> None:
    body = json.dumps({"error": {"message": "Input is too long for requested model."}}).encode()
    models = {MODEL: ModelSettings(context_window=window)}
    reply = CannedReply(status=400, body=body)
    async with Gateway(reply=reply) as gateway, open_engine(gateway, models=models) as engine:
        with pytest.raises(ContextTooLong) as refusal:
            await engine.create(ask("word " * 5_000))
    error = refusal.value
    assert error.tokens == pytest.approx(5_000, rel=0.1)
    assert error.limit == window
    accepts = f"; the model accepts {window:,}." if window else "."
    numbers = f"The prompt has about {error.tokens:,} tokens{accepts}"
    assert error.message == f"Input is too long for requested model. {numbers}"


async def test_a_prompt_that_was_rejected_with_its_length_is_not_sent_again() -> None:
    async with Gateway(scenario="context-too-long") as gateway, open_engine(gateway) as engine:
        with pytest.raises(ContextTooLong):
            await engine.create(ask("Hello"))
        with pytest.raises(ContextTooLong) as known:
            await engine.create(ask("Hello"))
        assert len(response_bodies(gateway)) == 1
        assert (known.value.tokens, known.value.limit) == (131_072, 128_000)
        assert "131,072 tokens" in known.value.message
        # Options can enlarge the window, and nothing is known about another prompt.
        for other in (ask("Hello", extra={"betas": ["context-1m"]}), ask("Hello, you.")):
            with pytest.raises(ContextTooLong):
                await engine.create(other)
        assert len(response_bodies(gateway)) == 3


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (1, None),
        (9_000, "the rest"),
        # An estimate that leaves less than a usual answer needs may be wrong: the gateway decides.
        (18_000, OUTPUT_RESERVE),
    ],
)
async def test_a_gateway_that_assumes_the_largest_limit_of_claude_gets_one_that_fits(
    words: int, limit: int | str | None
) -> None:
    """Gateways add the limit that the Messages API requires: the largest of the model."""
    model, text = "anthropic/claude-sonnet-4", "word " * words
    models = {model: ModelSettings(context_window=WINDOW, max_output_tokens=16_000)}
    stream = (REPOSITORY / "tests/recordings/openresponses/litellm.text-stream.sse").read_bytes()
    reply = CannedReply(status=200, body=stream, content_type="text/event-stream")
    request = ChatRequest(model=model, messages=[Message(Role.USER, text)])
    async with Gateway(reply=reply) as gateway, open_engine(gateway, models=models) as engine:
        result = await engine.create(request)
        (body,) = response_bodies(gateway)
    assert result.preflight is not None
    rest = WINDOW - result.preflight.estimate.tokens
    assert body.get("max_output_tokens") == (rest if limit == "the rest" else limit)


@pytest.mark.parametrize("backend", ["openresponses", "anthropic-messages"])
async def test_a_chosen_limit_is_replayed_as_it_was_recorded(backend: Backend, tmp_path: Path) -> None:
    async with (
        Gateway(prompts=SHARED) as gateway,
        open_engine(gateway, backend, record=str(tmp_path)) as engine,
    ):
        await engine.models()
        await engine.create(ask(LONG))
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    recording = read_recording(path)
    replay = await replay_recording(recording)
    assert replay.answer.error is None
    assert replay.requests == [[] for _ in recording.attempts]


@pytest.mark.parametrize(("backend", "sent"), [("openresponses", 16), ("anthropic-messages", 5)])
async def test_a_very_low_limit_is_raised_only_where_the_protocol_forbids_it(
    backend: Backend, sent: int
) -> None:
    name = {"openresponses": "max_output_tokens", "anthropic-messages": "max_tokens"}[backend]
    async with Gateway() as gateway, open_engine(gateway, backend) as engine:
        result = await engine.create(ask("Hello", max_output_tokens=5))
        body = gateway.requests[-1].body
    assert body[name] == sent
    assert bool(result.changes) == (sent != 5)
    assert find_protocol(backend).min_output_tokens == {"openresponses": 16}.get(backend, 1)
