"""The command line as a whole: help, errors, exit codes and warnings."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.cli_process import PROGRAM, environment, tollbridge

from tollbridge.cli import COMMANDS, WarningHandler
from tollbridge.testing.server import Gateway


async def test_help_lists_every_command() -> None:
    for flag in ("--help", "-h"):
        result = await tollbridge(flag)
        assert result.code == 0
        for name, (_, summary) in COMMANDS.items():
            assert f"  {name}" in result.out
            assert summary in result.out


@pytest.mark.parametrize("name", COMMANDS)
async def test_every_command_has_its_own_help(name: str) -> None:
    result = await tollbridge(name, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: tollbridge {name} ")


@pytest.mark.io
def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from tollbridge.cli import tollbridge; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"rich", "aiohttp", "msgspec", "xllamacpp"} & set(loaded)


@pytest.mark.parametrize("command", ["ask", "chat"])
@pytest.mark.io
def test_commands_load_no_terminal_libraries_before_they_need_them(command: str) -> None:
    code = f"import sys, tollbridge.cli.{command}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"prompt_toolkit", "rich", "pygments", "markdown_it", "aiohttp"} & set(loaded)


async def test_shells_can_complete_commands() -> None:
    env = {"_TOLLBRIDGE_COMPLETE": "bash_complete", "COMP_WORDS": "tollbridge re", "COMP_CWORD": "1"}
    assert (await tollbridge(env=env)).out == "plain,replay\n"


async def test_the_version_is_printed() -> None:
    assert (await tollbridge("--version")).out == f"tollbridge {version('tollbridge')}\n"


async def test_without_a_command_it_shows_help() -> None:
    result = await tollbridge()
    assert result.code == 2
    assert "Usage: tollbridge" in result.err


async def test_an_unknown_command_is_reported_with_exit_code_2() -> None:
    result = await tollbridge("chta")
    assert result.code == 2
    assert "Error: Unknown command 'chta'. Did you mean 'chat'?" in result.err
    assert "Did you mean" not in (await tollbridge("xyzzy")).err


async def test_nothing_is_printed_when_the_reader_of_the_output_closes_it() -> None:
    async with Gateway() as gateway:
        process = await asyncio.create_subprocess_exec(
            *(*PROGRAM, "ask", "long 100000", "--base-url", gateway.url, "--model", "tollbridge/demo"),
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readexactly(10)
        process.stdout._transport.close()  # type: ignore[attr-defined]
        err = await process.stderr.read()
        assert await process.wait() == 1
    assert err == b""


@pytest.mark.io
def test_an_internal_error_is_one_line_and_a_traceback_with_debug() -> None:
    broken = "import tollbridge.cli as cli; cli._run = lambda _: 1 / 0; cli.main([])"
    run = [sys.executable, "-c", broken]
    result = subprocess.run(run, capture_output=True, text=True, env=environment(), check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("Internal error: ZeroDivisionError: division by zero. ")
    assert result.stderr.count("\n") == 1
    debug = subprocess.run(
        run, capture_output=True, text=True, env=environment({"TOLLBRIDGE_DEBUG": "1"}), check=False
    )
    assert "Traceback" in debug.stderr


async def test_ctrl_c_ends_a_command_silently() -> None:
    async with Gateway(scenario="stall") as gateway:
        process = await asyncio.create_subprocess_exec(
            *(*PROGRAM, "ask", "hi", "--base-url", gateway.url, "--model", "tollbridge/demo"),
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await process.stdout.readexactly(3)
        process.send_signal(2)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert err.strip() == b""


async def test_ctrl_c_during_the_imports_ends_the_program_silently(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    paths = [str(tmp_path), str(Path(__file__).parents[2] / "src")]
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        "usage",
        env=environment({"PYTHONPATH": os.pathsep.join(paths)}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err) == (-signal.SIGINT, b"")


@pytest.mark.io
def test_without_key_url_and_local_extra_the_demo_is_used_and_announced() -> None:
    hidden = "import sys; sys.modules['xllamacpp'] = None; from tollbridge.cli import main; main()"
    run = [sys.executable, "-c", hidden, "ask", "hello"]
    result = subprocess.run(run, capture_output=True, text=True, env=environment(), check=True)
    assert result.stderr.startswith("No API key or --base-url; using the embedded demo (not a real model).\n")
    assert result.stdout.startswith("You said “hello”.")


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("the turn could not be recorded.", "Note: The turn could not be recorded.\n"),
        ("a/b.db was damaged", "Note: a/b.db was damaged.\n"),
        ("two\nlines\x1b[31m", "Note: Two lines�[31m.\n"),
    ],
)
def test_a_warning_is_printed_as_a_sentence(
    message: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    WarningHandler().handle(logging.LogRecord("tollbridge", logging.WARNING, "", 0, message, (), None))
    assert capsys.readouterr().err == line
