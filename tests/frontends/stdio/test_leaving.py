"""An editor that stops reading, or is gone: the sidecar leaves, and says no more than that."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import SRC
from tests.sandbox import ENVIRONMENT

from tollbridge.testing.server import Gateway

SOON = 12.0  # seconds; it takes three at the most on a machine with nothing else to do


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway() as running:
        yield running


class Deaf:
    """An editor that reads nothing after its greeting."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.process = process
        self.stdin, self.stdout = process.stdin, process.stdout
        self.send("initialize", protocolVersion=1)
        length = int(self.stdout.readline().removeprefix(b"Content-Length: "))
        self.stdout.read(2 + length)

    def send(self, method: str, number: int = 1, **params: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        self.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.stdin.flush()

    def ask(self, gateway: Gateway, number: int, text: str) -> None:
        messages = [{"role": 1, "content": [{"type": "text", "value": text}]}]
        account = {"baseUrl": gateway.url}
        self.send("chat", number, account=account, model="tollbridge/demo", messages=messages)


@contextmanager
def deaf(folder: Path) -> Iterator[Deaf]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tollbridge.sidecar"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={"PYTHONPATH": str(SRC), **ENVIRONMENT, "TOLLBRIDGE_DATA_DIR": str(folder)},
        )
        with process:
            try:
                yield Deaf(process)
            finally:
                process.kill()


async def left(process: subprocess.Popen[bytes], within: float = SOON) -> int:
    return await asyncio.to_thread(process.wait, within)


@pytest.mark.timed
@pytest.mark.parametrize("long", [10_000, 100_000])
async def test_an_editor_that_does_not_read_is_heard_when_it_leaves(
    tmp_path: Path, gateway: Gateway, long: int
) -> None:
    """The shorter answer fills the pipe, the longer one also the line before it."""
    with deaf(tmp_path) as editor:
        editor.ask(gateway, 2, f"long {long}")
        await asyncio.to_thread(editor.stdout.read, 1)  # it has begun
        await asyncio.sleep(1)  # for the pipe to be full; there is nothing that could be waited for
        for number in range(3, 10):
            editor.send("status", number)
        started = time.monotonic()
        editor.stdin.close()
        assert await left(editor.process) == 0
        assert time.monotonic() - started < SOON
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("method", ["status", "chat", "count"])
async def test_an_editor_that_closes_only_what_it_reads_from_is_gone(
    tmp_path: Path, gateway: Gateway, method: str
) -> None:
    with deaf(tmp_path) as editor:
        editor.stdout.close()
        if method == "chat":
            editor.ask(gateway, 2, "long 2000")
        else:
            editor.send(method, 2, model="m", items=["hi"])
        assert await left(editor.process) == 0
    log = (tmp_path / "log").read_text()
    assert "BrokenPipeError" not in log
    assert "[error]" not in log


async def test_a_log_that_nobody_reads_blocks_nothing() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tollbridge.sidecar"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(SRC), **ENVIRONMENT},
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stderr._transport.pause_reading()  # type: ignore[attr-defined]

    def send(message: dict[str, Any]) -> None:
        assert process.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async with asyncio.timeout(SOON):
        send({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
        for _ in range(1000):
            send({"method": "x" * 200})  # unknown, which is logged: more than a pipe holds
        send({"id": 2, "method": "status"})
        for _ in range(2):
            length = int((await process.stdout.readline()).removeprefix(b"Content-Length: "))
            answer = json.loads(await process.stdout.readexactly(2 + length))
        assert answer["id"] == 2
        process.stdin.close()
        process.stderr._transport.resume_reading()  # type: ignore[attr-defined]
        assert await process.wait() == 0
        assert b"Unknown method" in await process.stderr.read()


@pytest.mark.io
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
@pytest.mark.parametrize("program", ["tollbridge.sidecar", "tollbridge sidecar"])
def test_without_both_ends_of_the_way_it_leaves_without_a_traceback(program: str, closed: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" -m {program} {closed}', sys.executable],
        input=b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        stderr=subprocess.PIPE,
        timeout=60,
        env={"PYTHONPATH": str(SRC), **ENVIRONMENT},
    )
    log = ended.stderr.decode()
    if program == "tollbridge.sidecar":
        assert ended.returncode == 2
        assert re.fullmatch(r"\[error\] Standard input and output must be open.*\n", log)
    else:  # which replaces a closed stream: nothing can be read, and nothing is written
        assert ended.returncode == 0
        assert log == ("" if "<" in closed else "[info] The editor closed its end of the pipe.\n")
