"""How often and how long a client tries, what it says of it, and when it gives up at once."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import Any

import pytest
import trustme
from tests.canned_server import answering, http
from tests.transport.servers import saying, serving

from tollbridge.clients.ai_sdk import AiSdkClient
from tollbridge.clients.base import GatewayClient, Observer
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.testing.server import Gateway
from tollbridge.transport.http import Timeouts
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError, NetworkFailed, RateLimited, StreamError, TimedOut
from tollbridge.types.messages import ChatRequest, Message

QUICK = RetryPolicy(attempts=3, first=0.01)
HELLO = ChatRequest(model="tollbridge/demo", messages=(Message("user", "Hello"),))


def client_of(server: Any, **more: Any) -> OpenResponsesClient:
    return OpenResponsesClient(server.url, **{"retries": QUICK, **more})


async def failure(client: GatewayClient) -> BridgeError:
    async with client:
        with pytest.raises(BridgeError) as raised:
            async for _ in client.stream(HELLO):
                pass
    return raised.value


# --- time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [Timeouts(total=0.5), Timeouts(idle=0.5)], ids=["total", "idle"])
async def test_a_silent_gateway_is_asked_once(times: Timeouts) -> None:
    async with Gateway(scenario="stall-headers") as gateway:
        error = await failure(client_of(gateway, timeouts=times))
        assert isinstance(error, TimedOut)
        assert len(gateway.requests) == 1


async def test_the_total_time_bounds_all_attempts_together() -> None:
    async def slow_refusal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(1)
        writer.write(http(500, b""))

    async with serving(slow_refusal) as port:
        began = time.monotonic()
        client = OpenResponsesClient(
            f"http://127.0.0.1:{port}/v1",
            timeouts=Timeouts(total=1.5),
            retries=RetryPolicy(attempts=20, first=0.01),
        )
        error = await failure(client)
        took = time.monotonic() - began
    assert isinstance(error, TimedOut)  # in the middle of the second attempt
    assert 1.4 < took < 6


async def test_a_wait_that_would_outlast_the_total_time_is_not_begun() -> None:
    async with answering(http(429, b"", {"retry-after": "30"})) as server:
        began = time.monotonic()
        error = await failure(client_of(server, timeouts=Timeouts(total=20)))
        took = time.monotonic() - began
    assert isinstance(error, RateLimited)
    assert error.retry_after == 30
    assert took < 10


async def test_the_total_time_bounds_look_ups_too() -> None:
    async with Gateway(scenario="stall-headers") as gateway:
        async with client_of(gateway, timeouts=Timeouts(total=0.5)) as client:
            with pytest.raises(TimedOut):
                await client.models()
        assert len(gateway.requests) == 1


# --- what asking again would only repeat -------------------------------------------------------------------


async def test_a_refused_redirect_is_not_asked_for_again() -> None:
    async with Gateway(scenario="redirect-elsewhere") as gateway:
        assert isinstance(await failure(client_of(gateway)), NetworkFailed)
        assert len(gateway.requests) == 1


async def test_a_server_without_a_proper_certificate_is_not_asked_again() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(http(400, b""))

    async with serving(plainly) as plain, serving(saying(http(200, b"")), context) as doubtful:
        for port, words in ((doubtful, "could not prove who it is"), (plain, "does not speak TLS")):
            seen = Seen()
            async with OpenResponsesClient(f"https://127.0.0.1:{port}/v1", retries=QUICK) as client:
                error = await failure(client.watched(seen))
            assert isinstance(error, NetworkFailed)
            assert words in error.message
            assert seen.asked_ == 1


CHAT = b'data: {"id": "c", "object": "chat.completion.chunk", "choices": [{"delta": {"content": "Hi"}}]}\n\n'
RESPONSES = b'data: {"type": "response.created", "response": {}}\n\n'
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (OpenResponsesClient, CHAT, "not an OpenResponses stream"),
        (OpenResponsesClient, CHAT + b"data: [DONE]\n\n", "not an OpenResponses stream"),
        (OpenResponsesClient, PAGE, "not an event stream"),
        (AiSdkClient, RESPONSES, "not an AI SDK stream"),
        (AiSdkClient, RESPONSES + b"data: [DONE]\n\n", "not an AI SDK stream"),
        (AiSdkClient, CHAT, "a chunk without a type"),
        (AiSdkClient, PAGE, "not an AI SDK stream"),
    ],
)
async def test_a_server_that_speaks_something_else_is_told_and_asked_once(
    kind: type[GatewayClient], body: bytes, words: str
) -> None:
    async with answering(http(200, body)) as server:
        error = await failure(kind(server.url, retries=QUICK))
        assert isinstance(error, StreamError)
        assert words in error.message
        assert len(server.heads) == 1


@pytest.mark.parametrize("kind", [OpenResponsesClient, AiSdkClient])
@pytest.mark.parametrize("body", [b"", b": still thinking\n\n", b'data: {"type": "resp'])
async def test_a_stream_that_is_cut_before_it_says_anything_is_asked_for_again(
    kind: type[GatewayClient], body: bytes
) -> None:
    async with answering(http(200, body)) as server:
        error = await failure(kind(server.url, retries=QUICK))
        assert error.kind == "disconnected"
        assert len(server.heads) == QUICK.attempts


@pytest.mark.parametrize("kind", [OpenResponsesClient, AiSdkClient])
async def test_a_refusal_that_calls_itself_a_success_is_asked_again_and_told_as_what_it_is(
    kind: type[GatewayClient],
) -> None:
    body = b'{"error": {"message": "Slow down.", "type": "rate_limit_exceeded"}}'
    async with answering(http(200, body)) as server:
        error = await failure(kind(server.url, retries=QUICK))
        assert (type(error), error.message) == (RateLimited, "Slow down.")
        assert len(server.heads) == QUICK.attempts


# --- what is said of it ------------------------------------------------------------------------------------


class Seen(Observer):
    def __init__(self) -> None:
        self.asked_ = 0
        self.waits: list[tuple[int | None, float]] = []

    def asked(self, *_: Any) -> None:
        self.asked_ += 1

    def waiting(self, error: BridgeError, seconds: float) -> None:
        self.waits.append((error.status, seconds))


async def test_every_wait_is_logged_and_shown_to_all_who_watch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tollbridge")
    one, other = Seen(), Seen()
    refused = http(429, b"", {"retry-after": "0.05"})
    async with answering(refused) as server, client_of(server) as client:
        error = await failure(client.watched(one).watched(other))
    assert isinstance(error, RateLimited)
    assert one.waits == other.waits == [(429, 0.05)] * 2
    assert one.asked_ == other.asked_ == 3
    said = [record.getMessage() for record in caplog.records if record.name.startswith("tollbridge.clients")]
    assert said == [
        "Attempt 1 failed (rate_limited, status 429); the next is in 0.1 s.",
        "Attempt 2 failed (rate_limited, status 429); the next is in 0.1 s.",
    ]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (OpenResponsesClient, b'data: {"type": "response.premonition"}\n\n' + RESPONSES),
        (AiSdkClient, b'data: {"type": "response.premonition"}\n\ndata: {"type": "finish"}\n\n'),
    ],
)
async def test_what_was_not_understood_is_logged_in_one_line(
    kind: type[GatewayClient], body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tollbridge")
    async with (
        answering(http(200, body)) as server,
        kind(server.url, retries=RetryPolicy(attempts=1)) as client,
    ):
        try:
            async for _ in client.stream(HELLO):
                pass
        except BridgeError as error:
            assert error.kind == "disconnected"  # noqa: PT017 (that it failed is not the point)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert "Not understood, and left out of the answer: 'response.premonition' 1." in said
