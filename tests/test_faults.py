"""Our own client meets every scenario of the gateway: the right error, nothing lost, nothing left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import psutil
import pytest

from tollbridge.clients.base import GatewayClient
from tollbridge.clients.protocols import (
    AiSdkClient,
    AnthropicMessagesClient,
    ChatCompletionsClient,
    OpenResponsesClient,
)
from tollbridge.protocols import BACKENDS, Backend
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event, File, Finished, ReasoningDelta, TextDelta, ToolCall
from tollbridge.types.messages import ChatRequest, Message, Role, TextPart, Tool

QUICK = FaultSettings(stall_seconds=30, pace=0.001)
TOOL = Tool(
    "list_dir",
    "Lists a directory",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
BOUND_SECONDS = 10

# What kind of error each scenario is to us. Those not here are none.
KINDS: dict[str, str] = {
    "arrays-only": "invalid_request",
    "bare-error": "invalid_request",
    "context-too-long": "context_too_long",
    "detail-error": "invalid_request",
    "disconnect": "disconnected",
    "empty-error": "server",
    "error-event": "server",
    "error-event-flat": "server",
    "failed": "server",
    "failed-at-once": "server",
    "failed-counted": "server",
    "forbidden": "permission",
    "garbage": "protocol",
    "hang-up": "disconnected",
    "hang-up-once": "disconnected",
    "html-error": "server",
    "html-page": "protocol",
    "list-error": "invalid_request",
    "no-parameters": "invalid_request",
    "no-terminal": "disconnected",
    "not-found": "not_found",
    "overloaded": "overloaded",
    "oversized-frame": "protocol",
    "picky": "invalid_request",
    "rate-limit": "rate_limited",
    "rate-limit-date": "rate_limited",
    "rate-limit-once": "rate_limited",
    "redirect-elsewhere": "network",
    "reject-store": "invalid_request",
    "reject-string-content": "invalid_request",
    "reset": "disconnected",
    "server-error": "server",
    "server-error-once": "server",
    "sse-error": "server",
    "stall": "timeout",
    "stall-headers": "timeout",
    "string-error": "invalid_request",
    "text-error": "server",
    "unauthorized": "authentication",
}
# Those that are about how OpenResponses puts a request. The other protocols have one way to, and it passes.
ONLY_IN_OPENRESPONSES = {"arrays-only", "no-parameters", "picky", "reject-store", "reject-string-content"}
# Those of them that fail after something was said.
MIDWAY = {
    *("disconnect", "error-event", "error-event-flat", "failed", "garbage", "no-terminal"),
    *("oversized-frame", "reset", "stall"),
}
# The text of an answer without a fault, and with some kinds of answers.
TEXT = "You said “Hello”. I was given 1 item and no system prompt, with no tools."
OTHERWISE = {"image", "refusal", "incomplete", "long", "cite", "content-filter", "line-separators"}
LATE = ("arguments-in-done", "arguments-in-item", "arguments-in-response")
BOTH = {"parallel", "interleaved", "wrong-index"}
CALLING = {"tool", "duplicate-added", "scrambled-arguments", "renamed-calls", *LATE, *BOTH}


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """No socket, no task and no thread outlives a turn and its client."""
    process = psutil.Process()
    tasks, threads, sockets = asyncio.all_tasks(), set(threading.enumerate()), process.net_connections()
    yield
    left = {task for task in asyncio.all_tasks() - tasks if task is not asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=2)
    assert {task for task in left if not task.done()} == set()
    assert set(threading.enumerate()) - threads == set()
    assert {c for c in process.net_connections() if c.status not in ("TIME_WAIT", "NONE")} <= set(sockets)


def hello(*tools: Tool, text: str = "Hello") -> ChatRequest:
    message = Message(Role.USER, (TextPart(text),))
    return ChatRequest(model="tollbridge/demo", messages=(message,), tools=tools)


def client_of(gateway: Gateway, attempts: int = 1) -> OpenResponsesClient:
    return OpenResponsesClient(
        gateway.url, timeouts=Timeouts(idle=0.5), retries=RetryPolicy(attempts=attempts, first=0.01)
    )


def backend_of(backend: Backend, gateway: Gateway, attempts: int = 1) -> GatewayClient:
    if backend == "openresponses":
        return client_of(gateway, attempts)
    timeouts, retries = Timeouts(idle=0.5), RetryPolicy(attempts=attempts, first=0.01)
    if backend == "chat-completions":
        return ChatCompletionsClient(gateway.url, timeouts=timeouts, retries=retries)
    if backend == "anthropic-messages":
        return AnthropicMessagesClient(gateway.url, timeouts=timeouts, retries=retries)
    return AiSdkClient(gateway.url.removesuffix("/v1") + "/v4/ai", timeouts=timeouts, retries=retries)


async def collect(client: GatewayClient, *tools: Tool) -> tuple[list[Event], BridgeError | None]:
    events: list[Event] = []
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            async for event in client.stream(hello(*tools)):
                events.append(event)  # noqa: PERF401 (what came before an error counts)
    except BridgeError as error:
        return events, error
    return events, None


def test_every_scenario_in_the_table_exists() -> None:
    assert set(KINDS) | MIDWAY | CALLING <= set(SCENARIOS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_scenario_has_its_outcome(name: str, backend: Backend) -> None:
    async with Gateway(scenario=name, settings=QUICK) as gateway, backend_of(backend, gateway) as client:
        events, error = await collect(client, *([TOOL] if name in CALLING else []))
    passes = backend != "openresponses" and name in ONLY_IN_OPENRESPONSES
    expected = None if passes else KINDS.get(name)
    assert (error.kind if error else None) == expected, error
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    if name in MIDWAY:
        assert text.startswith("You said “Hello”.")
    elif expected:
        assert events == []
    elif name in CALLING:
        calls = [event for event in events if isinstance(event, ToolCall)]
        assert [call.input for call in calls] == [{"path": "path"}] * (2 if name in BOTH else 1)
        assert all(call.offered for call in calls)
    else:
        assert isinstance(events[-1], Finished)
        assert name in OTHERWISE or text == TEXT


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["server-error-once", "rate-limit-once", "hang-up-once"])
async def test_a_request_that_fails_once_is_retried(name: str, backend: Backend) -> None:
    async with Gateway(scenario=name, settings=QUICK) as gateway, backend_of(backend, gateway, 2) as client:
        _, error = await collect(client)
        assert error is None
        assert len(gateway.requests) == 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(MIDWAY))
async def test_a_request_that_fails_mid_stream_is_not_retried(name: str, backend: Backend) -> None:
    async with Gateway(scenario=name, settings=QUICK) as gateway, backend_of(backend, gateway, 3) as client:
        _, error = await collect(client)
        assert error is not None
        assert len(gateway.requests) == 1


@pytest.mark.parametrize("text", ["long 20000 slow", "long 60000"])
@pytest.mark.timed
async def test_stopping_closes_the_socket_within_100_ms(text: str) -> None:
    async with Gateway(settings=QUICK) as gateway, client_of(gateway) as client:
        async with aclosing(client.stream(hello(text=text))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
            left = time.monotonic()
        assert await gateway.wait_for_disconnect(timeout=2) - left < 0.1


@pytest.mark.parametrize("name", ["stall", "stall-headers"])
@pytest.mark.timed
async def test_stopping_closes_the_socket_of_a_silent_gateway_too(name: str) -> None:
    async with Gateway(scenario=name, settings=QUICK) as gateway, OpenResponsesClient(gateway.url) as client:
        turn = asyncio.create_task(collect(client))
        await gateway.wait_for_request()
        stopped = time.monotonic()
        turn.cancel()
        left = await gateway.wait_for_disconnect()
        with pytest.raises(asyncio.CancelledError):
            await turn
    assert left - stopped < 0.1


@pytest.mark.parametrize("name", ["reasoning-raw", "reasoning-text", "reasoning-summary"])
async def test_reasoning_is_decoded_under_all_its_names(name: str) -> None:
    async with Gateway(scenario=name) as gateway, client_of(gateway) as client:
        events, _ = await collect(client)
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta))


async def test_an_image_has_the_mime_type_of_its_bytes() -> None:
    async with Gateway(scenario="image") as gateway, client_of(gateway) as client:
        events, _ = await collect(client)
    (image,) = [event for event in events if isinstance(event, File)]
    assert image.mime == "image/png"
    assert image.data is not None
    assert image.data.startswith(b"\x89PNG")


async def test_line_separators_arrive_as_they_are() -> None:
    async with Gateway(scenario="line-separators") as gateway, client_of(gateway) as client:
        events, _ = await collect(client)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert all(separator in text for separator in "\u2028\u2029\u0085")
