"""Every way the embedded gateway can fail or be odd: the right outcome, nothing lost, nothing left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from tollbridge import (
    Bridge,
    BridgeError,
    ChatRequest,
    DataPart,
    Message,
    OpenResponsesClient,
    RetryPolicy,
    Role,
    TextPart,
    ThinkingPart,
    Timeouts,
    Tool,
    ToolCallPart,
)
from tollbridge.core.messages import Part
from tollbridge.gateway import SCENARIOS, Gateway, Settings

# The kind of error; whether something had been said before it, and is kept.
FAILURES: dict[str, tuple[str, bool]] = {
    "unauthorized": ("authentication", False),
    "forbidden": ("permission", False),
    "not-found": ("not_found", False),
    "rate-limit": ("rate_limited", False),
    "rate-limit-date": ("rate_limited", False),
    "server-error": ("server", False),
    "overloaded": ("overloaded", False),
    "context-too-long": ("context_too_long", False),
    "html-error": ("server", False),
    "text-error": ("server", False),
    "empty-error": ("server", False),
    "detail-error": ("invalid_request", False),
    "list-error": ("invalid_request", False),
    "string-error": ("invalid_request", False),
    "bare-error": ("invalid_request", False),
    "sse-error": ("server", False),
    "html-page": ("protocol", False),
    "redirect-elsewhere": ("network", False),
    "stall-headers": ("timeout", False),
    "hang-up": ("disconnected", False),
    "error-event": ("server", True),
    "error-event-flat": ("server", True),
    "failed": ("server", True),
    "failed-at-once": ("server", False),
    "disconnect": ("disconnected", True),
    "reset": ("disconnected", True),
    "stall": ("timeout", True),
    "no-terminal": ("disconnected", True),
    "garbage": ("protocol", True),
    "oversized-frame": ("protocol", True),
    "arrays-only": ("invalid_request", False),
    "nested-tools": ("invalid_request", False),
    "no-parameters": ("invalid_request", False),
    "picky": ("invalid_request", False),
}
TOOLS = (Tool("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}}),)
REQUEST = ChatRequest(
    model="tollbridge/demo", messages=(Message(Role.USER, "Hello, how are you?"),), tools=TOOLS
)
ONCE = RetryPolicy(attempts=1)
SHORT = Timeouts(connect=5, idle=0.5, total=20)


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


async def answer(gateway: Gateway, request: ChatRequest = REQUEST) -> tuple[list[Part], BridgeError | None]:
    parts: list[Part] = []
    async with OpenResponsesClient(gateway.url, timeouts=SHORT, retries=ONCE) as client:
        try:
            async with asyncio.timeout(10):
                await Bridge(client).answer(request, parts.extend)
        except BridgeError as error:
            return parts, error
    return parts, None


def said(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


@pytest.mark.parametrize("scenario", FAILURES)
async def test_a_fault_has_its_kind_and_what_was_said_is_kept(scenario: str) -> None:
    kind, spoke = FAILURES[scenario]
    async with Gateway(scenario=scenario, settings=Settings(stall_seconds=3.0)) as gateway:
        parts, error = await answer(gateway)
    assert error is not None
    assert error.kind == kind
    assert error.message
    assert bool(said(parts)) is spoke


# Odd, but nothing is wrong: the same is told as by a gateway that is not odd.
ODD = sorted(
    name
    for name, scenario in SCENARIOS.items()
    if name not in FAILURES and not scenario.once and not scenario.words
)


def asked_for(scenario: str) -> ChatRequest:
    """A request that makes the oddity show: some concern tool calls only."""
    calls = "arguments" in scenario or scenario == "duplicate-added"
    messages = (Message(Role.USER, "Please call a tool." if calls else "Hello, how are you?"),)
    return ChatRequest(model="tollbridge/demo", messages=messages, tools=TOOLS)


@pytest.mark.parametrize(
    "scenario", [name for name in ODD if name not in ("content-filter", "line-separators")]
)
async def test_an_odd_gateway_is_understood_all_the_same(scenario: str) -> None:
    request = asked_for(scenario)
    async with Gateway() as plain, Gateway(scenario=scenario) as odd:
        expected, _ = await answer(plain, request)
        parts, error = await answer(odd, request)
    assert error is None
    assert said(parts) == said(expected)
    assert [(p.name, p.input) for p in parts if isinstance(p, ToolCallPart)] == [
        (p.name, p.input) for p in expected if isinstance(p, ToolCallPart)
    ]
    assert said(parts) or [p for p in parts if isinstance(p, ToolCallPart)]


async def test_a_filtered_answer_keeps_what_was_said() -> None:
    async with Gateway(scenario="content-filter") as gateway, OpenResponsesClient(gateway.url) as client:
        parts: list[Part] = []
        turn = await Bridge(client).answer(REQUEST, parts.extend)
    assert said(parts)
    assert turn.finish_reason == "content-filter"


async def test_line_separators_arrive_as_they_are() -> None:
    async with Gateway(scenario="line-separators") as gateway:
        parts, _ = await answer(gateway)
    assert all(separator in said(parts) for separator in "\u2028\u2029\u0085")


@pytest.mark.parametrize("scenario", ["reasoning-raw", "reasoning-text", "reasoning-summary"])
async def test_thinking_is_told_under_all_its_names(scenario: str) -> None:
    async with Gateway(scenario=scenario) as gateway:
        parts, error = await answer(gateway)
    assert error is None
    assert "".join(part.text for part in parts if isinstance(part, ThinkingPart))
    assert said(parts)


async def test_an_image_is_told_as_what_it_is() -> None:
    async with Gateway(scenario="image") as gateway:
        parts, error = await answer(gateway)
    assert error is None
    (image,) = [part for part in parts if isinstance(part, DataPart)]
    assert image.mime == "image/png"
    assert image.data.startswith(b"\x89PNG")


@pytest.mark.parametrize("scenario", [name for name, scenario in SCENARIOS.items() if scenario.once])
async def test_a_passing_fault_is_not_seen(scenario: str) -> None:
    async with Gateway(scenario=scenario) as gateway:
        async with OpenResponsesClient(gateway.url, retries=RetryPolicy(first=0.01)) as client:
            parts: list[Part] = []
            await Bridge(client).answer(REQUEST, parts.extend)
        assert len(gateway.requests) == 2
    assert said(parts)


async def test_nothing_is_asked_again_once_something_was_said() -> None:
    async with Gateway(scenario="disconnect") as gateway:
        async with OpenResponsesClient(gateway.url, retries=RetryPolicy(first=0.01)) as client:
            with pytest.raises(BridgeError):
                await Bridge(client).answer(REQUEST, lambda parts: None)
        assert len(gateway.requests) == 1


def test_every_scenario_is_tested() -> None:
    answers = {name for name, scenario in SCENARIOS.items() if scenario.words or scenario.once}
    assert set(FAILURES) | set(ODD) | answers == set(SCENARIOS)


@pytest.mark.parametrize("scenario", ["slow", "stall", "stall-headers"])
async def test_cancelling_closes_the_socket_within_100_ms(scenario: str) -> None:
    heard = asyncio.Event()
    quiet = Settings(stall_seconds=20.0)
    async with (
        Gateway(scenario=scenario, settings=quiet) as gateway,
        OpenResponsesClient(gateway.url) as client,
    ):
        turn = asyncio.create_task(Bridge(client).answer(REQUEST, lambda parts: heard.set()))
        await gateway.arrived()
        if scenario != "stall-headers":
            await asyncio.wait_for(heard.wait(), 5)
        cancelled = time.monotonic()
        turn.cancel()
        left = await gateway.hung_up(timeout=5)
        with pytest.raises(asyncio.CancelledError):
            await turn
    assert left - cancelled < 0.1


async def test_leaving_the_stream_early_closes_the_socket() -> None:
    from contextlib import aclosing

    async with Gateway(scenario="slow") as gateway, OpenResponsesClient(gateway.url) as client:
        async with aclosing(client.stream(REQUEST)) as stream:
            async for _ in stream:
                break
        left = time.monotonic()
        assert await gateway.hung_up(timeout=5) - left < 0.1
