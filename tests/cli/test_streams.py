"""Standard streams that are full or closed: lost output is reported, with an exit code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.cli_process import PROGRAM, environment

from tollbridge.testing.server import Gateway

RECORDING = Path(__file__).parent.parent / "recordings" / "openresponses" / "litellm.parallel-stream.sse"
FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
NO_SPACE = (
    "Error: Cannot write to standard output: No space left on device. The remaining output was discarded.\n"
)


class Run(NamedTuple):
    code: int | None
    out: str
    err: str


async def in_shell(redirection: str, *arguments: str, unbuffered: str = "") -> Run:
    """Run the program as a shell does, with its streams redirected."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'"$@" {redirection}', "sh", *PROGRAM, *arguments),
        env=environment({"PYTHONUNBUFFERED": unbuffered}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return Run(process.returncode, out.decode(), err.decode())


@full
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", str(RECORDING)),
        ("replay", "--json", str(RECORDING)),
        ("--help",),
        ("config",),
        ("gateway",),
    ],
)
async def test_a_full_disk_is_reported(arguments: tuple[str, ...], unbuffered: str) -> None:
    assert await in_shell(">/dev/full", *arguments, unbuffered=unbuffered) == (1, "", NO_SPACE)


@full
async def test_an_answer_that_cannot_be_written_is_not_an_internal_error() -> None:
    async with Gateway() as gateway:
        command = ("ask", "hi", "--base-url", gateway.url, "--model", "tollbridge/demo")
        assert await in_shell(">/dev/full", *command) == (1, "", NO_SPACE)


@full
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
async def test_notes_that_cannot_be_written_do_not_affect_the_answer(redirection: str) -> None:
    async with Gateway() as gateway:
        command = ("ask", "hi", "--base-url", gateway.url, "--model", "tollbridge/demo")
        run = await in_shell(redirection, *command)
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("You said “hi”.")


async def test_a_closed_pipe_is_not_reported_as_an_unreadable_recording() -> None:
    files = [str(RECORDING)] * 2000
    run = await in_shell("| head -n 1", "replay", "--json", *files)
    assert (run.code, run.err) == (0, "")
    assert run.out.count("\n") == 1


async def test_a_closed_output_is_reported() -> None:
    run = await in_shell(">&-", "config")
    assert run.code == 1
    assert run.err.startswith("Error: Cannot write to standard output: ")


@pytest.mark.parametrize(
    ("arguments", "code"), [(("ask", "-"), 2), (("chat",), 0), (("count", "-m", "m", "-"), 0)]
)
async def test_a_closed_input_is_read_as_empty(arguments: tuple[str, ...], code: int) -> None:
    async with Gateway() as gateway:
        where = () if "count" in arguments else ("--base-url", gateway.url, "--model", "tollbridge/demo")
        run = await in_shell("<&-", *arguments, *where)
    assert run.code == code
    assert "Internal error" not in run.err
