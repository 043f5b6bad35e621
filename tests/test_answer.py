"""The answer of a request exists however the request ends, translated or forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path

import pytest

from tests.canned_server import answering, http
from tests.transport.servers import serving
from tollbridge import Account, Answer, BridgeError, ChatRequest, Engine, Message, Role, Settings, Usage
from tollbridge.front_end_engine import FrontEndEngine
from tollbridge.testing.server import Gateway

RECORDINGS = Path(__file__).parent / "recordings" / "anthropic_messages"
STREAM = (RECORDINGS / "llamacpp.text-stream.sse").read_bytes()
# The recording up to the end of its second delta.
START = STREAM[: STREAM.index(b"event: content_block_delta", STREAM.index(b'"text":"!"'))]
REFUSAL = (RECORDINGS / "llamacpp.toolong-stream.json").read_bytes()
EVENT_STREAM = {"content-type": "text/event-stream"}
BODY = (
    b'{"model": "smollm2", "max_tokens": 50, "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
)
REQUEST = ChatRequest(model="smollm2", messages=(Message(Role.USER, "Hi"),), max_output_tokens=50)


async def translate(engine: Engine, account: Account, *, leaves: bool = False) -> Answer:
    """Run a turn, to its end or only until its first event."""
    answer: list[Answer] = []
    with suppress(BridgeError):
        async with engine.turn(REQUEST, account) as turn:
            answer.append(turn.result)
            async for _ in turn:
                if leaves:
                    break
    return answer[0]


async def forward(engine: Engine, account: Account, *, leaves: bool = False) -> Answer:
    """Forward a body, and read the response to its end or only its first bytes."""
    answer: list[Answer] = []
    with suppress(BridgeError):
        async with FrontEndEngine(engine).forward("smollm2", "/messages", BODY, account) as turn:
            answer.append(turn.result)
            async for _ in turn.chunks():
                if leaves:
                    await asyncio.sleep(0)
                    break
    return answer[0]


Send = Callable[..., Awaitable[Answer]]
MODES = pytest.mark.parametrize("send", [translate, forward])


@asynccontextmanager
async def engine_for(url: str) -> AsyncIterator[tuple[Engine, Account]]:
    async with Engine.open(Settings(), persistent=False) as engine:
        yield engine, Account("test", url, "anthropic-messages", "none")


@MODES
async def test_a_completed_answer_has_its_text_its_usage_and_no_error(send: Send) -> None:
    async with (
        answering(http(200, STREAM, EVENT_STREAM)) as server,
        engine_for(server.url) as (engine, account),
    ):
        answer = await send(engine, account)
    assert (answer.outcome, answer.error) == ("completed", None)
    assert answer.text.startswith("Hello!")
    assert answer.usage is not None
    assert answer.usage.input_tokens == 33
    assert answer.finish_reason == "stop"
    assert answer.first is not None
    assert answer.duration >= answer.first


@MODES
async def test_an_answer_has_the_cost_that_the_gateway_reported(send: Send) -> None:
    stream = (RECORDINGS / "litellm.priced-stream.sse").read_bytes()
    async with (
        answering(http(200, stream, EVENT_STREAM)) as server,
        engine_for(server.url) as (engine, account),
    ):
        answer = await send(engine, account)
    assert answer.cost.billed == Decimal("0.0020004")


@MODES
async def test_a_cut_answer_has_what_came_before_the_cut_and_the_error(send: Send) -> None:
    async with (
        answering(http(200, START + b" " * 9, EVENT_STREAM)[:-9]) as server,
        engine_for(server.url) as (engine, account),
    ):
        answer = await send(engine, account)
    assert answer.outcome == "failed"
    assert answer.error is not None
    assert answer.error.kind in ("disconnected", "network")
    assert answer.text == "Hello!"
    assert answer.usage is not None
    assert answer.usage.input_tokens == 33


@MODES
async def test_a_refused_request_has_an_answer_with_the_error(send: Send) -> None:
    async with answering(http(400, REFUSAL)) as server, engine_for(server.url) as (engine, account):
        answer = await send(engine, account)
    assert answer.outcome == "failed"
    assert answer.error is not None
    assert answer.error.kind == "context_too_long"
    assert (answer.text, answer.files, answer.usage) == ("", (), None)


@MODES
async def test_an_answer_that_the_caller_left_has_what_was_received(send: Send) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + START)
        await writer.drain()
        await asyncio.sleep(30)

    async with serving(hold) as port, engine_for(f"http://127.0.0.1:{port}/v1") as (engine, account):
        answer = await send(engine, account, leaves=True)
    assert (answer.outcome, answer.error) == ("cancelled", None)
    if send is translate:  # of a forwarded response, only what was passed on is observed
        assert answer.text
        assert answer.usage is not None
        assert answer.usage.input_tokens == 33


async def test_generated_files_are_in_the_answer_of_create() -> None:
    async with (
        Gateway(scenario="image") as gateway,
        Engine.open({"base_url": gateway.url}, persistent=False) as engine,
    ):
        answer = await engine.create("Draw a bridge", model="tollbridge/demo")
    [file] = answer.files
    assert file.mime == "image/png"
    assert file.data is not None
    assert file.data.startswith(b"\x89PNG")
    assert isinstance(answer.usage, Usage)
