"""Greeting and parting, and every message that should not have been sent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from tests.frontends.stdio.stdio_client import Editor, Refusal

from tollbridge._version import __version__
from tollbridge.protocols import jsonrpc


async def test_the_greeting_tells_versions_and_limits() -> None:
    async with Editor() as editor:
        assert await editor.initialize() == {
            "protocolVersion": 1,
            "server": {"name": "tollbridge", "version": __version__},
            "maxFrameBytes": jsonrpc.MAX_FRAME_BYTES,
        }
        status = await editor.request("status")
        assert status["processId"] == editor.process.pid
        assert status["pending"] == 0


async def test_another_protocol_is_refused_in_words() -> None:
    async with Editor() as editor:
        with pytest.raises(Refusal, match="protocol version 99") as refusal:
            await editor.request("initialize", {"protocolVersion": 99})
        assert refusal.value.code == jsonrpc.INVALID_PARAMS
        await editor.initialize()


async def test_a_second_greeting_is_refused() -> None:
    async with Editor() as editor:
        await editor.initialize()
        with pytest.raises(Refusal, match="twice"):
            await editor.initialize()


@pytest.mark.parametrize("method", ["chat", "models", "count", "status", "usage", "shutdown"])
async def test_nothing_is_answered_before_the_greeting(method: str) -> None:
    async with Editor() as editor:
        with pytest.raises(Refusal, match="before `initialize`") as refusal:
            await editor.request(method, {})
        assert refusal.value.code == jsonrpc.NOT_INITIALIZED


async def test_an_unknown_method_is_named() -> None:
    async with Editor() as editor:
        await editor.initialize()
        with pytest.raises(Refusal, match="'fly'") as refusal:
            await editor.request("fly")
        assert refusal.value.code == jsonrpc.METHOD_NOT_FOUND


async def test_parameters_that_do_not_fit_are_named() -> None:
    async with Editor() as editor:
        await editor.initialize()
        with pytest.raises(Refusal, match=r"\$\.items") as refusal:
            await editor.request("count", {"model": "m", "items": 3})
        assert refusal.value.code == jsonrpc.INVALID_PARAMS
        with pytest.raises(Refusal, match="account"):
            await editor.request("chat", {"model": "m", "messages": []})


async def test_a_polite_end_is_zero() -> None:
    async with Editor() as editor:
        await editor.initialize()
        assert await editor.request("shutdown") is None
        with pytest.raises(Refusal, match="after `shutdown`"):
            await editor.request("status")
        editor.notify("exit")
        assert await editor.exit_code() == 0


async def test_an_exit_without_a_shutdown_is_one() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.notify("exit")
        assert await editor.exit_code() == 1


async def test_it_leaves_when_the_editor_closes_its_end() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.close_stdin()
        assert await editor.exit_code() == 0


async def test_it_leaves_when_nobody_reads_any_more() -> None:
    async with Editor() as editor:
        await editor.initialize()
        transport = editor.process._transport  # type: ignore[attr-defined]
        transport.get_pipe_transport(1).close()
        for _ in range(100):
            editor.send({"jsonrpc": "2.0", "id": 9, "method": "status"})
        assert await editor.exit_code() == 0
        assert "Traceback" not in editor.stderr


async def test_a_broken_frame_is_answered_and_the_next_is_read() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.send(b'{"jsonrpc":"2.0","id":77,"method":"cou')
        orphan = await editor.until_orphan()
        assert (orphan["id"], orphan["error"]["code"]) == (77, jsonrpc.PARSE_ERROR)
        assert (await editor.request("status"))["pending"] == 0


async def test_lost_frames_end_it_with_a_word() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.send_bytes(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        orphan = await editor.until_orphan()
        assert orphan["id"] is None
        assert "Content-Length" in orphan["error"]["message"]
        assert await editor.exit_code() == 2


async def test_a_stray_print_cannot_break_a_frame() -> None:
    prints = "import tollbridge.transport.stdio as s, os, sys\nclaim = s.claim_stdio\n"
    prints += (
        "def noisy():\n  out = claim()\n  print('stray')\n  os.write(1, b'stray bytes\\n')\n  return out\n"
    )
    prints += "s.claim_stdio = noisy\nfrom tollbridge.frontends.stdio import main\nsys.exit(main())"
    async with Editor([sys.executable, "-c", prints]) as editor:
        await editor.initialize()
        await editor.request("status")
    assert "stray bytes" in editor.stderr
    assert "stray\n" in editor.stderr


@pytest.mark.timed
async def test_ctrl_c_ends_it_without_a_traceback() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.process.send_signal(signal.SIGINT)
        assert await editor.exit_code() == 130
    assert "Traceback" not in editor.stderr


async def test_starting_up_loads_nothing_that_the_greeting_does_not_need() -> None:
    script = "import sys, tollbridge.frontends.stdio.server; print(*sys.modules, sep='\\n')"
    # Coverage, which measures subprocesses too, would load half of the library into this one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import tollbridge.frontends.stdio\n{script}",
        stdout=asyncio.subprocess.PIPE,
        env=clean,
    )
    out, _ = await process.communicate()
    loaded = {name.partition(".")[0] for name in out.decode().split()}
    assert "msgspec" in loaded
    assert loaded.isdisjoint(
        {"asyncio", "aiohttp", "base64", "click", "json", "logging", "rich", "splintr", "sqlite3", "ssl"}
        | {"typing_extensions"}
    )


async def test_a_notification_nobody_knows_is_passed_over() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.notify("$/setTrace", {"value": "off"})
        editor.notify("settings", {"proxy": 3})
        editor.notify("$/cancelRequest", {"id": 4711})
        assert (await editor.request("status"))["pending"] == 0
    assert editor.stderr.count("Unknown method '$/setTrace'") == 1
    assert editor.stderr.count("$.proxy") == 1


async def test_half_an_emoji_costs_a_character_and_not_the_call() -> None:
    """JavaScript cuts a text between the halves of a pair, and writes the half as an escape."""
    halves = rb'"a\ud83d", "\udc00b", "\ud83d\ude00", "\\ud83d", '
    message = rb'{"role": 1, "content": [{"type": "text", "value": "\ud83d"}]}'
    async with Editor() as editor:
        await editor.initialize()
        body = rb'{"jsonrpc":"2.0","id":88,"method":"count","params":{"model":"openai/gpt-5","items":[%b]}}'
        editor.send(body % (halves + message))
        counts = (await editor.until_orphan())["result"]["counts"]
        whole = ["a\ufffd", "\ufffdb", "😀", "\\ud83d", "\ufffd"]
        assert counts == (await editor.request("count", {"model": "openai/gpt-5", "items": whole}))["counts"]


async def test_bytes_that_are_no_text_are_a_parse_error_and_not_an_internal_error() -> None:
    async with Editor() as editor:
        await editor.initialize()
        editor.send(b'{"jsonrpc":"2.0","id":78,"method":"count","params":{"model":"m","items":["\xff"]}}')
        orphan = await editor.until_orphan()
        assert (orphan["id"], orphan["error"]["code"]) == (78, jsonrpc.PARSE_ERROR)
        assert "UTF-8" in orphan["error"]["message"]
    assert "Traceback" not in editor.stderr
    assert ".py" not in editor.stderr


async def test_a_closed_standard_error_silences_the_log_and_nothing_else() -> None:
    started = 'exec "$0" -m tollbridge.sidecar 2>&-'
    async with Editor(["sh", "-c", started, sys.executable]) as editor:
        await editor.initialize()
        editor.send(b'{"jsonrpc":"2.0","id":77,"method":"cou')
        assert (await editor.until_orphan())["id"] == 77
        editor.notify("$/setTrace", {"value": "off"})
        assert (await editor.request("status"))["pending"] == 0
        editor.close_stdin()
        assert await editor.exit_code() == 0
