"""Turns against the embedded gateway, and what the tracker has of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.locked_database import held
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.storage.tracker import BillingAccount, UsageTracker, open_tracker
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.turn import Bridge
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest, Message, Part, Role

PAYER = BillingAccount("work", "https://w.example/v1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def tracker(path: Path) -> Iterator[UsageTracker]:
    tracker = open_tracker(path)
    yield tracker
    tracker.close()


def rows(path: Path) -> list[UsageRow]:
    table = UsageTable(Database(path))
    try:
        return table.since(0)
    finally:
        table.close()


def request(text: str) -> ChatRequest:
    return ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, text),))


async def ask(gateway: Gateway, tracker: UsageTracker, text: str) -> None:
    async with OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1)) as client:
        await Bridge(client, tracker, account=PAYER).answer(request(text), lambda parts: None)


async def test_a_turn_is_one_row_with_everything_that_is_known(tracker: UsageTracker, path: Path) -> None:
    async with Gateway() as gateway:
        await ask(gateway, tracker, "hello")
    (row,) = rows(path)
    assert (row.model, row.account, row.base_url) == ("tollbridge/demo", "work", "https://w.example/v1")
    assert (row.outcome, row.finish_reason, row.error) == ("completed", "stop", None)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (5, 20)
    assert row.first is not None
    assert row.duration is not None
    assert 0 < row.first <= row.duration
    assert tracker.total() == row.usage


@pytest.mark.parametrize("fault", ["rate-limit", "failed", "disconnect"])
async def test_a_failure_is_there_too(tracker: UsageTracker, path: Path, fault: str) -> None:
    async with Gateway() as gateway:
        with pytest.raises(BridgeError) as caught:
            await ask(gateway, tracker, f"fault:{fault}")
    (row,) = rows(path)
    assert (row.outcome, row.error) == ("failed", caught.value.kind)


async def test_a_cancelled_turn_is_there_too(tracker: UsageTracker, path: Path) -> None:
    async with Gateway(settings=FaultSettings(pace=0.05)) as gateway:
        began = asyncio.Event()
        async with OpenResponsesClient(gateway.url) as client:
            bridge = Bridge(client, tracker)
            turn = asyncio.ensure_future(bridge.answer(request("fault:slow"), lambda parts: began.set()))
            await asyncio.wait_for(began.wait(), 10)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
    (row,) = rows(path)
    assert (row.outcome, row.finish_reason) == ("cancelled", None)
    assert row.first is not None


async def test_a_turn_that_the_caller_breaks_is_there_too(tracker: UsageTracker, path: Path) -> None:
    def report(parts: list[Part]) -> None:
        raise ZeroDivisionError

    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        with pytest.raises(ZeroDivisionError):
            await Bridge(client, tracker).answer(request("hello"), report)
    (row,) = rows(path)
    assert (row.outcome, row.error) == ("failed", None)


async def test_turns_at_once_are_each_there_once(tracker: UsageTracker, path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        bridges = [Bridge(client, tracker, account=BillingAccount(f"a{number}")) for number in range(50)]
        await asyncio.gather(*(bridge.answer(request("hello"), lambda parts: None) for bridge in bridges))
    found = rows(path)
    assert sorted(row.account for row in found) == sorted(f"a{number}" for number in range(50))
    assert {row.outcome for row in found} == {"completed"}


async def test_a_file_that_cannot_be_used_does_not_stop_a_chat(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.db").mkdir()
    with caplog.at_level(logging.WARNING):
        tracker = open_tracker(tmp_path / "store.db")
    assert "not written down" in caplog.text
    async with Gateway() as gateway:
        await ask(gateway, tracker, "hello")
    assert tracker.requests() == 1


async def test_a_file_that_breaks_under_way_does_not_stop_a_chat(tracker: UsageTracker, path: Path) -> None:
    other = Database(path)
    other.run("DROP TABLE usage")
    other.close()
    async with Gateway() as gateway:
        await ask(gateway, tracker, "hello")
        await ask(gateway, tracker, "hello")
    assert tracker.requests() == 2


@pytest.mark.timed
async def test_a_file_that_another_process_holds_costs_its_rows_and_no_time(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = open_tracker(path)
    async with Gateway() as gateway:
        with held(path), caplog.at_level(logging.WARNING):
            started = time.monotonic()
            await ask(gateway, tracker, "hello")
            await ask(gateway, tracker, "hello")
            tracker.close()
            assert time.monotonic() - started < 8
    assert [record.getMessage().partition("; ")[2] for record in caplog.records] == [
        "a request is not written down"
    ] * 2
    assert tracker.requests() == 2
    assert rows(path) == []
