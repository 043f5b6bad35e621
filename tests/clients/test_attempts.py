"""Attempts of a client: their number and duration, their log, and errors that are not retried."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from tests.canned_server import answering, http
from tests.transport.servers import saying, serving

from tollbridge.clients.base import GatewayClient
from tollbridge.clients.observer import Observer
from tollbridge.clients.protocols import AiSdkClient, ChatCompletionsClient, OpenResponsesClient
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import BridgeError, NetworkFailed, RateLimited, StreamError, TimedOut
from tollbridge.types.messages import ChatRequest, Message

QUICK = RetryPolicy(attempts=3, first=0.01)
HELLO = ChatRequest(model="tollbridge/demo", messages=(Message("user", "Hello"),))


def client_of(server: Any, **more: Any) -> OpenResponsesClient:
    return OpenResponsesClient(server.url, **{"retries": QUICK, **more})


async def failure(client: GatewayClient, *observers: Observer) -> BridgeError:
    async with client:
        with pytest.raises(BridgeError) as raised:
            async for _ in client.stream(HELLO, observers=observers):
                pass
    return raised.value


# --- time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [Timeouts(total=0.5), Timeouts(idle=0.5)], ids=["total", "idle"])
async def test_a_timeout_is_not_retried(times: Timeouts) -> None:
    async with Gateway(scenario="stall-headers") as gateway:
        error = await failure(client_of(gateway, timeouts=times))
        assert isinstance(error, TimedOut)
        assert len(gateway.requests) == 1


async def test_the_total_timeout_includes_all_attempts() -> None:
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


async def test_there_is_no_retry_after_the_total_timeout() -> None:
    async with answering(http(429, b"", {"retry-after": "30"})) as server:
        began = time.monotonic()
        error = await failure(client_of(server, timeouts=Timeouts(total=20)))
        took = time.monotonic() - began
    assert isinstance(error, RateLimited)
    assert error.retry_after == 30
    assert took < 10


async def test_the_total_timeout_applies_to_calls_without_streaming() -> None:
    async with Gateway(scenario="stall-headers") as gateway:
        async with client_of(gateway, timeouts=Timeouts(total=0.5)) as client:
            with pytest.raises(TimedOut):
                await client.models()
        assert len(gateway.requests) == 1


# --- errors that are not retried ---------------------------------------------------------------------------


async def test_a_refused_redirect_is_not_retried() -> None:
    async with Gateway(scenario="redirect-elsewhere") as gateway:
        assert isinstance(await failure(client_of(gateway)), NetworkFailed)
        assert len(gateway.requests) == 1


async def test_a_failed_tls_handshake_is_not_retried() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def plain_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(http(400, b""))

    async with serving(plain_http) as plain, serving(saying(http(200, b"")), context) as untrusted:
        for port, message in ((untrusted, "TLS certificate verification failed"), (plain, "TLS handshake")):
            observer = CountingObserver()
            async with OpenResponsesClient(f"https://127.0.0.1:{port}/v1", retries=QUICK) as client:
                error = await failure(client, observer)
            assert isinstance(error, NetworkFailed)
            assert message in error.message
            assert observer.requests == 1


CHAT = b'data: {"id": "c", "object": "chat.completion.chunk", "choices": [{"delta": {"content": "Hi"}}]}\n\n'
RESPONSES = b'data: {"type": "response.created", "response": {}}\n\n'
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (OpenResponsesClient, CHAT, "not an OpenResponses stream"),
        (OpenResponsesClient, CHAT + b"data: [DONE]\n\n", "not an OpenResponses stream"),
        (OpenResponsesClient, PAGE, "not an event stream, but an HTML page"),
        (OpenResponsesClient, b"Quota used up.\nAsk the admin: a@b.c", "Quota used up. Ask the admin: a@b.c"),
        (ChatCompletionsClient, RESPONSES, "not a Chat Completions stream"),
        (ChatCompletionsClient, RESPONSES + b"data: [DONE]\n\n", "not a Chat Completions stream"),
        (ChatCompletionsClient, PAGE, "not an event stream, but an HTML page"),
        (ChatCompletionsClient, b"Quota used up.", "Quota used up."),
        (AiSdkClient, RESPONSES, "not an AI SDK stream"),
        (AiSdkClient, RESPONSES + b"data: [DONE]\n\n", "not an AI SDK stream"),
        (AiSdkClient, CHAT, "a chunk without a type"),
        (AiSdkClient, PAGE, "not an event stream, but an HTML page"),
        (AiSdkClient, b"Quota used up.", "Quota used up."),
    ],
)
async def test_a_response_in_another_protocol_is_not_retried(
    kind: Callable[..., GatewayClient], body: bytes, words: str
) -> None:
    async with answering(http(200, body)) as server:
        error = await failure(kind(server.url, retries=QUICK))
        assert isinstance(error, StreamError)
        assert words in error.message
        assert len(server.heads) == 1


@pytest.mark.parametrize("kind", [OpenResponsesClient, ChatCompletionsClient, AiSdkClient])
@pytest.mark.parametrize("body", [b"", b": still thinking\n\n", b'data: {"type": "resp'])
async def test_a_stream_that_ends_without_an_event_is_retried(
    kind: Callable[..., GatewayClient], body: bytes
) -> None:
    async with answering(http(200, body)) as server:
        error = await failure(kind(server.url, retries=QUICK))
        assert error.kind == "disconnected"
        assert len(server.heads) == QUICK.attempts


@pytest.mark.parametrize("kind", [OpenResponsesClient, ChatCompletionsClient, AiSdkClient])
async def test_an_error_with_status_200_is_recognised_and_retried(
    kind: Callable[..., GatewayClient],
) -> None:
    body = b'{"error": {"message": "Slow down.", "type": "rate_limit_exceeded"}}'
    async with answering(http(200, body)) as server:
        error = await failure(kind(server.url, retries=QUICK))
        assert (type(error), error.message) == (RateLimited, "Slow down.")
        assert len(server.heads) == QUICK.attempts


# --- logs and observers ------------------------------------------------------------------------------------


class CountingObserver(Observer):
    def __init__(self) -> None:
        self.requests = 0
        self.delays: list[tuple[int | None, float]] = []

    def request(self, *_: Any) -> None:
        self.requests += 1

    def retry(self, error: BridgeError, seconds: float) -> None:
        self.delays.append((error.status, seconds))


async def test_retries_are_logged_and_reported_to_all_observers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tollbridge")
    first, second = CountingObserver(), CountingObserver()
    refused = http(429, b"", {"retry-after": "0.05"})
    async with answering(refused) as server, client_of(server) as client:
        error = await failure(client, first, second)
    assert isinstance(error, RateLimited)
    assert first.delays == second.delays == [(429, 0.05)] * 2
    assert first.requests == second.requests == 3
    messages = [
        record.getMessage() for record in caplog.records if record.name.startswith("tollbridge.clients")
    ]
    assert messages == [
        "Attempt 1 failed (rate_limited, status 429); retrying in 0.1 s.",
        "Attempt 2 failed (rate_limited, status 429); retrying in 0.1 s.",
    ]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (OpenResponsesClient, b'data: {"type": "response.premonition"}\n\n' + RESPONSES),
        (ChatCompletionsClient, b'data: {"type": "response.premonition"}\n\n' + CHAT),
        (AiSdkClient, b'data: {"type": "response.premonition"}\n\ndata: {"type": "finish"}\n\n'),
    ],
)
async def test_unrecognised_content_is_logged_in_one_line(
    kind: Callable[..., GatewayClient], body: bytes, caplog: pytest.LogCaptureFixture
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
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert "Ignored unrecognised content: 'response.premonition' 1." in messages
