from __future__ import annotations

import asyncio
import signal
import socket
import tomllib
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
        result = await tollbridge(
            *("ask", "hi", "--base-url", url, "--model", "tollbridge/demo"), env={"TOLLBRIDGE_API_KEY": "k"}
        )
        assert result.out.startswith("I refuse")
        denied = await tollbridge("ask", "hi", "--base-url", url, "--model", "tollbridge/demo")
        assert denied.code == 1
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_nothing_is_logged_when_clients_disconnect_early() -> None:
    body = {"model": "tollbridge/demo", "input": "long 60000", "stream": True}
    async with serving("gateway") as (process, url), aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.post(f"{url}/responses", json=body) as reply:
                await reply.content.readexactly(300)
                reply.close()
        async with session.get(f"{url}/models") as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    options = f"--base-url {url} --model tollbridge/demo"
    assert err.decode().splitlines() == [
        f"Connect with: tollbridge chat {options}",
        f"          or: tollbridge ask {options} Hello",
        "Press Ctrl-C to stop.",
    ]


async def test_help_lists_the_scenarios() -> None:
    result = await tollbridge("gateway", "--help")
    assert result.code == 0
    assert "rate-limit" in result.out
    assert "429 with Retry-After" in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gateway", "--scenario", "raet-limit"), "Did you mean 'rate-limit'?"),
        (("gateway", "--scenario", "\x1b[31m"), "unknown scenario '\\x1b[31m'"),
        (("gateway", "--port", "70000"), "'70000' is not a whole number from 0 to 65535."),
        (("local", "--port", "-1"), "'-1' is not a whole number from 0 to 65535."),
        (("local", "--context", "10"), "'10' is not a whole number of at least 256."),
    ],
)
async def test_bad_usage_exits_with_2(arguments: tuple[str, ...], words: str) -> None:
    result = await tollbridge(*arguments)
    assert (result.code, result.out) == (2, "")
    assert words in " ".join(result.err.split())


async def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = await tollbridge("gateway", "--port", str(port))
    assert result.code == 1
    assert f"Port {port} is already in use" in result.err
    assert "Choose another port" in result.err


async def test_a_file_that_is_not_a_model_is_reported(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("not a model")
    result = await tollbridge("local", "--model", str(tmp_path / "model.gguf"))
    assert result.code == 1
    assert "is not a GGUF file" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.slow
async def test_the_local_model_serves_until_ctrl_c_and_is_quiet() -> None:
    async with serving("local", "--context", "1024") as (process, url):
        result = await tollbridge("ask", "Say hello.", "--base-url", url, within=60)
        assert result.code == 0
        assert result.out.strip()
        (server,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 0
        assert not server.is_running()
        assert b"llama_" not in err
        assert err.endswith(b"Press Ctrl-C to stop.\nStopped.\n")


@pytest.mark.slow
async def test_a_local_model_that_dies_is_reported() -> None:
    async with serving("local", "--context", "512") as (process, _):
        (server,) = psutil.Process(process.pid).children()
        server.kill()
        _, err = await process.communicate()
        assert process.returncode == 1
        assert b"Error: The local model stopped unexpectedly (exit code -9)." in err


async def test_a_strict_gateway_names_the_invalid_field() -> None:
    body = {
        "model": "tollbridge/demo",
        "input": [{"role": "user", "content": "hi"}],
    }  # without a type, which is accepted unless --strict
    async with (
        serving("gateway", "--strict") as (_, url),
        aiohttp.ClientSession() as session,
        session.post(f"{url}/responses", json=body) as reply,
    ):
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == "input[0].type"


async def test_an_empty_token_is_refused() -> None:
    result = await tollbridge("serve", "--token", "")
    assert result.code == 2
    assert "The token is empty. Pass a token, or remove the option --token." in " ".join(result.err.split())


async def test_an_empty_variable_for_the_token_is_noted() -> None:
    arguments = ("serve", "--print-config", "codex", "--model", "m")
    result = await tollbridge(*arguments, env={"TOLLBRIDGE_SERVE_TOKEN": ""})
    assert result.code == 0
    assert "TOLLBRIDGE_SERVE_TOKEN is empty, so callers need no token." in result.err
    assert "TOKEN" not in result.out


CODEX_SETTINGS = """\
# mine
notes = '''
model = "keep this line"
'''
model = "old"  # chosen

[model_providers.other]
name = "Other"

[model_providers.tollbridge]
name = "Tollbridge"
env_key = "OLD"

[projects."/a"]
trust_level = "trusted"
"""


async def test_the_settings_of_codex_are_merged_and_the_rest_of_its_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CODEX_SETTINGS)
    arguments = ("serve", "--print-config", "codex", "--write", "--model", "m")
    for _ in range(2):
        result = await tollbridge(*arguments, env={"CODEX_HOME": str(tmp_path)})
        assert result.code == 0, result.err
    text = path.read_text()
    assert 'model = "m"  # chosen\n' in text
    assert text.startswith("# mine\nnotes = '''\n")
    assert tomllib.loads(text) == {
        "notes": 'model = "keep this line"\n',
        "model": "m",
        "model_provider": "tollbridge",
        "model_providers": {
            "other": {"name": "Other"},
            "tollbridge": {
                "name": "Tollbridge",
                "base_url": "http://127.0.0.1:8787/v1",
                "wire_api": "responses",
            },
        },
        "projects": {"/a": {"trust_level": "trusted"}},
    }
    assert (tmp_path / "config.toml.bak").read_text() == CODEX_SETTINGS


async def test_print_config_without_a_gateway_says_what_to_do() -> None:
    result = await tollbridge("serve", "--print-config", "codex")
    assert (result.code, result.out) == (2, "")
    message = " ".join(result.err.split())
    assert "No gateway is configured, so models cannot be listed. Name the model with --model, or" in message
