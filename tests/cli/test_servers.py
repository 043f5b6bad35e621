from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
from tests.cli.cli_process import PROGRAM, environment, tollbridge


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and the URL at the end of its first line."""
    process = await asyncio.create_subprocess_exec(
        *(*PROGRAM, *arguments),
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(100):
            line = (await process.stdout.readline()).decode()
        yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_gateway_serves_until_ctrl_c() -> None:
    async with serving("gateway", "--scenario", "refusal", "--api-key", "k") as (process, url):
        asked = await tollbridge(
            *("ask", "hi", "--base-url", url, "--model", "tollbridge/demo"), env={"TOLLBRIDGE_API_KEY": "k"}
        )
        assert asked.out.startswith("I refuse")
        denied = await tollbridge("ask", "hi", "--base-url", url, "--model", "tollbridge/demo")
        assert denied.code == 1
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_clients_that_leave_in_the_middle_are_nothing_to_report() -> None:
    body = {"model": "tollbridge/demo", "input": "long 60000", "stream": True}
    async with serving("gateway") as (process, url), aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.post(f"{url}/responses", json=body) as reply:
                await reply.content.readexactly(300)
                reply.close()
        async with session.get(f"{url}/models") as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    assert said.endswith(b"Ctrl-C stops it.\n"), said.decode()


async def test_help_lists_the_scenarios() -> None:
    result = await tollbridge("gateway", "--help")
    assert result.code == 0
    assert "rate-limit" in result.out
    assert "429 with Retry-After" in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gateway", "--scenario", "raet-limit"), "Did you mean rate-limit?"),
        (("gateway", "--scenario", "\x1b[31m"), "there is no scenario '\\x1b[31m'"),
        (("gateway", "--port", "70000"), "70000 is not in the range"),
        (("local", "--port", "-1"), "-1 is not in the range"),
        (("local", "--context", "10"), "10 is not in the range"),
    ],
)
async def test_bad_usage_is_told_with_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = await tollbridge(*arguments)
    assert (result.code, result.out) == (2, "")
    assert words in " ".join(result.err.split())


async def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = await tollbridge("gateway", "--port", str(port))
    assert result.code == 1
    assert f"port {port}" in result.err
    assert "Choose another port" in result.err


async def test_a_model_that_is_not_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("not a model")
    result = await tollbridge("local", "--model", str(tmp_path / "model.gguf"))
    assert result.code == 1
    assert "is not a GGUF file" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.slow
async def test_the_local_model_serves_until_ctrl_c_and_is_quiet() -> None:
    async with serving("local", "--context", "1024") as (process, url):
        asked = await tollbridge("ask", "Say hello.", "--base-url", url, within=60)
        assert asked.code == 0
        assert asked.out.strip()
        (server,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert process.returncode == 0
        assert not server.is_running()
        assert b"llama_" not in said
        assert said.endswith(b"Ctrl-C stops it.\nStopped.\n")


@pytest.mark.slow
async def test_a_local_model_that_dies_is_told() -> None:
    async with serving("local", "--context", "512") as (process, _):
        (server,) = psutil.Process(process.pid).children()
        server.kill()
        _, said = await process.communicate()
        assert process.returncode == 1
        assert b"Error: The local model stopped by itself (exit code -9)." in said


async def test_a_strict_gateway_says_where_a_request_is_wrong() -> None:
    body = {
        "model": "tollbridge/demo",
        "input": [{"role": "user", "content": "hi"}],
    }  # no type: others let it pass
    async with (
        serving("gateway", "--strict") as (_, url),
        aiohttp.ClientSession() as session,
        session.post(f"{url}/responses", json=body) as reply,
    ):
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == "input[0].id"
