"""The rows that the usage tracker writes for turns against the embedded gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.stored import open_store, read_rows
from tests.turns import Runner
from tollbridge.clients.observer import Observer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.testing.service import SCENARIO_HEADER
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest, Message, Part, Role

PAYER = BillingAccount("work", "https://w.example/v1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def tracker(path: Path) -> Iterator[UsageTracker]:
    with open_store(path) as store:
        yield UsageTracker(store.usage)


def request(text: str) -> ChatRequest:
    return ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, text),))


async def ask(gateway: Gateway, tracker: UsageTracker, text: str, attempts: int = 1) -> None:
    retries = RetryPolicy(attempts=attempts, first=0.01)
    async with OpenResponsesClient(gateway.url, retries=retries) as client:
        await Runner(client, tracker, account=PAYER).run(request(text), lambda parts: None)


async def test_a_turn_is_one_row_with_usage_and_timing(tracker: UsageTracker, path: Path) -> None:
    async with Gateway() as gateway:
        await ask(gateway, tracker, "hello")
    (row,) = read_rows(path)
    assert (row.model, row.account, row.base_url) == ("tollbridge/demo", "work", "https://w.example/v1")
    assert (row.outcome, row.finish_reason, row.error) == ("completed", "stop", None)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (5, 20)
    assert row.first is not None
    assert row.duration is not None
    assert 0 < row.first <= row.duration
    assert tracker.total() == row.usage


@pytest.mark.parametrize("fault", ["rate-limit", "failed", "disconnect"])
async def test_a_failed_turn_is_recorded(tracker: UsageTracker, path: Path, fault: str) -> None:
    async with Gateway() as gateway:
        with pytest.raises(BridgeError) as caught:
            await ask(gateway, tracker, f"fault:{fault}")
    (row,) = read_rows(path)
    assert (row.outcome, row.error) == ("failed", caught.value.kind)


async def test_a_cancelled_turn_is_recorded(tracker: UsageTracker, path: Path) -> None:
    async with Gateway(settings=FaultSettings(pace=0.05)) as gateway:
        began = asyncio.Event()
        async with OpenResponsesClient(gateway.url) as client:
            runner = Runner(client, tracker)
            turn = asyncio.ensure_future(runner.run(request("fault:slow"), lambda parts: began.set()))
            await asyncio.wait_for(began.wait(), 10)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
    (row,) = read_rows(path)
    assert (row.outcome, row.finish_reason) == ("cancelled", None)
    assert row.first is not None


async def test_a_turn_whose_callback_raises_is_recorded(tracker: UsageTracker, path: Path) -> None:
    def report(parts: list[Part]) -> None:
        raise ZeroDivisionError

    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        with pytest.raises(ZeroDivisionError):
            await Runner(client, tracker).run(request("hello"), report)
    (row,) = read_rows(path)
    assert (row.outcome, row.error) == ("failed", None)


async def test_concurrent_turns_are_each_recorded_once(tracker: UsageTracker, path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        runners = [Runner(client, tracker, account=BillingAccount(f"a{number}")) for number in range(50)]
        await asyncio.gather(*(runner.run(request("hello"), lambda parts: None) for runner in runners))
    stored = read_rows(path)
    assert sorted(row.account for row in stored) == sorted(f"a{number}" for number in range(50))
    assert {row.outcome for row in stored} == {"completed"}


async def test_every_attempt_is_a_row_with_its_usage(tracker: UsageTracker, path: Path) -> None:
    async with Gateway() as gateway:
        with pytest.raises(BridgeError):
            await ask(gateway, tracker, "fault:failed-counted", attempts=3)
        counted = [answer.usage for answer in gateway.counted]
    stored = read_rows(path)
    assert [(row.attempt, row.outcome, row.error) for row in stored] == [
        (number, "failed", "server") for number in (1, 2, 3)
    ]
    assert len({row.turn for row in stored}) == 1
    assert [row.usage for row in stored] == counted
    assert tracker.total().input_tokens == sum(usage.input_tokens or 0 for usage in counted if usage) > 0
    assert (tracker.requests(), tracker.failures(), tracker.incomplete()) == (1, 1, 0)


async def test_a_repaired_request_is_two_rows(tracker: UsageTracker, path: Path) -> None:
    async with Gateway(scenario="reject-developer") as gateway, OpenResponsesClient(gateway.url) as client:
        system = ChatRequest(
            model="tollbridge/demo", messages=(Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "hello"))
        )
        result = await Runner(client, tracker, account=PAYER).run(system, lambda parts: None)
    first, second = read_rows(path)
    assert (first.outcome, first.error, first.incomplete) == ("failed", "invalid_request", False)
    assert (second.outcome, second.attempt, second.turn) == ("completed", 2, first.turn)
    assert result.usage == second.usage


async def test_a_turn_reports_the_usage_of_failed_attempts_too(tracker: UsageTracker) -> None:
    answers = iter(["failed-counted", "demo"])

    async with Gateway() as gateway:

        class Changing(OpenResponsesClient):
            """Names another scenario with each attempt."""

            def _request_headers(self, key: str | None) -> dict[str, str]:
                return {**super()._request_headers(key), SCENARIO_HEADER: next(answers)}

        async with Changing(gateway.url, retries=RetryPolicy(first=0.01)) as client:
            result = await Runner(client, tracker).run(request("hello"), lambda parts: None)
        failed, completed = [answer.usage for answer in gateway.counted]
    assert failed is not None
    assert completed is not None
    assert result.usage == failed + completed
    assert result.context == completed


async def test_cache_writes_are_stored(tracker: UsageTracker, path: Path) -> None:
    async with Gateway() as gateway:
        await ask(gateway, tracker, "fault:cache-writes")
    (row,) = read_rows(path)
    assert row.usage.cache_write_tokens == row.usage.input_tokens


async def test_an_attempt_that_was_never_sent_has_used_nothing(tracker: UsageTracker, path: Path) -> None:
    retrying = asyncio.Event()

    class Retries(Observer):
        def retry(self, error: BridgeError, seconds: float) -> None:
            retrying.set()

    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        runner = Runner(client, tracker, observers=[Retries()])
        waiting = asyncio.ensure_future(runner.run(request("fault:rate-limit"), lambda parts: None))
        await gateway.wait_for_request()
        await asyncio.wait_for(retrying.wait(), 10)  # for a second, as the gateway asked
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(gateway.requests) == 1
    assert [(row.outcome, row.incomplete) for row in read_rows(path)] == [
        ("failed", False),
        ("cancelled", False),
    ]
