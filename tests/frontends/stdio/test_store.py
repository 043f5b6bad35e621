"""A store that another process holds: nothing stands still, and nothing is lost that need not be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import Editor, Refusal
from tests.storage.locking import locked
from tests.storage.stored import create_database, open_estimator, read_rows

from tollbridge.protocols import jsonrpc
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(settings=FaultSettings(pace=0.02)) as running:
        yield running


def question(gateway: Gateway, text: str) -> dict[str, Any]:
    return {
        "account": {"baseUrl": gateway.url},
        "model": "tollbridge/demo",
        "messages": [{"role": 1, "content": [{"type": "text", "value": text}]}],
    }


@pytest.mark.timed
async def test_a_store_that_is_held_delays_neither_a_turn_nor_stop(tmp_path: Path, gateway: Gateway) -> None:
    path = tmp_path / "tollbridge.db"
    async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
        await editor.initialize()
        await editor.request("chat", question(gateway, "before"))
        with locked(path):
            started = time.monotonic()
            await editor.request("chat", question(gateway, "while it is held"))
            assert time.monotonic() - started < 5  # three waits of half a second, on a busy machine
            token, answer = editor.ask("chat", question(gateway, "slow long 2000"))
            await editor.until_part(token)
            stopped = time.monotonic()
            editor.notify("$/cancelRequest", {"id": token})
            with pytest.raises(Refusal) as refusal:
                await answer
            assert refusal.value.code == jsonrpc.REQUEST_CANCELLED
            assert await gateway.wait_for_disconnect(5) - stopped < 0.1
            assert (await editor.request("count", {"model": "tollbridge/demo", "items": ["hi"]}))["counts"]
        await editor.request("chat", question(gateway, "after"))
        accuracy = (await editor.request("usage"))["accuracy"]
    # What waited was written after all, and the store was not given up.
    assert [row.outcome for row in read_rows(path)] == ["completed", "completed", "cancelled", "completed"]
    assert [each["requests"] for each in accuracy] == [3]
    with open_estimator(path) as again:
        assert [each.requests for each in again.accuracy()] == [3]


async def test_a_store_that_is_held_from_the_start_is_used_once_it_is_free(
    tmp_path: Path, gateway: Gateway
) -> None:
    path = tmp_path / "tollbridge.db"
    create_database(path)
    async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
        with locked(path):
            async with asyncio.timeout(10):
                await editor.initialize()
                await editor.request("chat", question(gateway, "while it is held"))
        await editor.request("chat", question(gateway, "after"))
    assert [row.outcome for row in read_rows(path)] == ["completed", "completed"]


@pytest.mark.timed
async def test_a_store_that_is_held_does_not_keep_the_sidecar_from_leaving(
    tmp_path: Path, gateway: Gateway
) -> None:
    path = tmp_path / "tollbridge.db"
    create_database(path)
    with locked(path):
        async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
            await editor.initialize()
            for number in range(3):
                await editor.request("chat", question(gateway, f"question {number}"))
            left = time.monotonic()
            editor.close_stdin()
            assert await editor.exit_code() == 0
            assert (
                time.monotonic() - left < 8
            )  # one wait of ten seconds would be too long, and there are nine


@pytest.mark.timed
async def test_a_new_store_that_is_held_delays_no_turn(tmp_path: Path, gateway: Gateway) -> None:
    path = tmp_path / "tollbridge.db"
    async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
        with locked(path, "EXCLUSIVE"):
            started = time.monotonic()
            await editor.initialize()
            await editor.request("chat", question(gateway, "while it is held"))
            assert time.monotonic() - started < 9
        await editor.request("chat", question(gateway, "after"))
    assert [row.outcome for row in read_rows(path)] == ["completed", "completed"]
