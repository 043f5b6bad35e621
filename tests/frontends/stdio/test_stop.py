"""Stop closes the connection to the gateway at once, however busy the sidecar is with something else.

`bench/stop.py` has the scenarios and measures how long Stop takes. These tests only tell a Stop that is
handled at once from one that waits for the data of other turns (25 s in these scenarios), so that they also
pass on a busy machine.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from bench import stop
from tests.frontends.stdio.stdio_client import Editor, Refusal
from tests.transport.servers import serving, silent

from tollbridge.protocols import jsonrpc

# Seconds that the 500 streams last.
STREAM_SECONDS = 60.0 if os.environ.get("CI") == "true" else 15.0
# Milliseconds. Most stops take less than 25.
AT_ONCE = 3000.0


async def test_stop_is_handled_and_nothing_is_lost_while_the_editor_does_not_read() -> None:
    result = await stop.with_unread_output(stops=10)
    assert result["worst"] <= AT_ONCE, result
    # At rest it needs about 85 MB. The gateway had 35 MB to send.
    assert result["rss_mb"] < 120, result


@pytest.mark.slow
@pytest.mark.parametrize("kind", stop.BOMBS)
async def test_stop_is_handled_while_another_turn_receives_a_gzip_bomb(kind: str) -> None:
    result = await stop.during_bomb(kind, stops=100)
    assert result["worst"] <= AT_ONCE, result
    assert result["status_ms"] <= AT_ONCE, result
    assert result["rss_mb"] < 150, result


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_five_hundred_streams_end_without_errors_and_stop_is_handled_meanwhile() -> None:
    result = await stop.with_many_streams(stops=100, seconds=STREAM_SECONDS)
    assert result["failed"] == 0, result
    assert result["worst"] <= AT_ONCE, result


async def test_status_tells_open_turns_and_a_cancelled_request_says_so() -> None:
    arrived = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await silent(reader, writer)

    async with serving(handle) as port, Editor() as editor:
        await editor.initialize()
        account = {"baseUrl": f"http://127.0.0.1:{port}/v1"}
        messages = [{"role": 1, "content": [{"type": "text", "value": "Hi"}]}]
        number, answer = editor.ask("chat", {"account": account, "model": "m", "messages": messages})
        async with asyncio.timeout(20):
            await arrived.wait()
        status = await editor.request("status")
        assert (status["turns"], status["pausedTurns"], status["queuedBytes"]) == (1, 0, 0)
        assert 0 <= status["lagSeconds"] <= status["longestLagSeconds"]
        editor.notify("$/cancelRequest", {"id": number})
        with pytest.raises(Refusal) as refusal:
            await answer
        assert refusal.value.code == jsonrpc.REQUEST_CANCELLED
        assert refusal.value.data == {"kind": "cancelled"}
        assert (await editor.request("status"))["turns"] == 0
