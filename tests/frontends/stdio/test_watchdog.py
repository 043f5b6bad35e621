"""A sidecar whose event loop is frozen ends, so that the editor can start it again."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import Editor

from tollbridge.frontends.stdio.watchdog import EXIT_FROZEN, Heartbeat

# The real limit is 20 seconds.
LIMIT = 1.5
SECRET = "words of the user"
# Exponential backtracking, as a pattern with a mistake has it: `re` never gives up the interpreter's lock.
HOLD_LOCK = "re.match('(a+)+$', 'a' * 60 + 'b')"
WAIT = "time.sleep(60)"


def sidecar(freeze: str) -> list[str]:
    """The command of a real sidecar that freezes when it is asked for the usage."""
    return [
        sys.executable,
        "-c",
        "import re, sys, time\n"
        "from tollbridge.frontends.stdio import limits, main\n"
        f"limits.LIMITS = limits.SidecarLimits(freeze_seconds={LIMIT}, idle_interval=0.2)\n"
        "from tollbridge.frontends.stdio import handlers\n"
        "async def usage(self, params):\n"
        f"    text = {SECRET!r}\n"
        f"    {freeze}\n"
        "handlers.Handlers.usage = usage\n"
        "sys.exit(main())",
    ]


async def until_beating(editor: Editor) -> None:
    """Wait until the engine is loaded: only then is the loop supervised."""
    with pytest.raises(Exception, match="Could not connect"):
        await editor.request("models", {"account": {"baseUrl": "http://127.0.0.1:9/v1"}})


async def exit_of(editor: Editor) -> int:
    with pytest.raises(EOFError):
        await editor.request("usage")
    return await editor.exit_code()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of processor time")
async def test_a_loop_that_holds_the_interpreters_lock_ends_with_the_place_in_the_log() -> None:
    async with Editor(sidecar(HOLD_LOCK)) as editor:
        await editor.initialize()
        await until_beating(editor)
        assert await exit_of(editor) == -signal.SIGPROF
    assert re.search(r'File ".*re/__init__\.py", line \d+ in match', editor.stderr)
    assert SECRET not in editor.stderr
    async with Editor() as editor:
        await editor.initialize()
        assert (await editor.request("status"))["turns"] == 0


async def test_a_loop_that_waits_ends_too_and_status_answers_until_then() -> None:
    async with Editor(sidecar(WAIT)) as editor:
        await editor.initialize()
        await until_beating(editor)
        _, answer = editor.ask("usage")
        lags = []
        for _ in range(3):
            await asyncio.sleep(0.3)
            lags.append((await editor.request("status"))["lagSeconds"])
        assert lags == sorted(lags)
        assert lags[-1] > 0.2
        with pytest.raises(EOFError):
            await answer
        assert await editor.exit_code() == EXIT_FROZEN
    assert "[error] The event loop has not reacted for 1.5 s. The process ends." in editor.stderr
    assert "in usage" in editor.stderr
    assert SECRET not in editor.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGSTOP")
async def test_a_suspended_process_is_not_taken_for_a_frozen_one() -> None:
    async with Editor(sidecar("return None")) as editor:
        await editor.initialize()
        await until_beating(editor)
        editor.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(3 * LIMIT)
        editor.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(2 * LIMIT)  # for a watchdog that counted the pause to act
        status = await editor.request("status")
        assert status["processId"] == editor.process.pid
        assert status["longestLagSeconds"] > LIMIT


async def test_an_idle_sidecar_is_not_taken_for_a_frozen_one() -> None:
    async with Editor(sidecar("return None")) as editor:
        await editor.initialize()
        await until_beating(editor)
        await asyncio.sleep(3 * LIMIT)
        assert (await editor.request("status"))["longestLagSeconds"] < LIMIT


def test_the_longest_lag_of_the_last_minute_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    heartbeat: Any = Heartbeat()
    assert (heartbeat.lag, heartbeat.longest_lag) == (0, 0)
    for lag in (0.25, 3.0, 0.5):
        heartbeat.plan(1)
        now += 1 + lag
        heartbeat.beat()
    assert (heartbeat.lag, heartbeat.longest_lag) == (0.5, 3)
    heartbeat.plan(1)
    now += 5
    assert (heartbeat.lag, heartbeat.longest_lag) == (4, 4)  # it is overdue
    heartbeat.beat()
    for _ in range(58):
        heartbeat.plan(1)
        now += 1
        heartbeat.beat()
    assert (heartbeat.lag, heartbeat.longest_lag) == (0, 4)
    for _ in range(3):
        heartbeat.plan(1)
        now += 1
        heartbeat.beat()
    assert (heartbeat.lag, heartbeat.longest_lag) == (0, 0)
