"""Run the real program: as a subprocess, and on a pseudo-terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, NamedTuple

from tests.sandbox import ENVIRONMENT

PROGRAM = (sys.executable, "-m", "tollbridge")
# Makes the pseudo-terminal its controlling terminal, so that Ctrl-C becomes a signal, then runs the program.
AT_TERMINAL = (
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])",
)
# Runs the program with a limit on the size of files, which simulates a full disk.
NEARLY_FULL = (
    "import os, resource, signal, sys\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\n"
    # Coverage is not measured: its data file would exceed the limit too.
    "variables = {name: value for name, value in os.environ.items() if not name.startswith('COV')}\n"
    "os.execve(sys.argv[2], sys.argv[2:], variables)"
)
_OURS = re.compile(r"TOLLBRIDGE_|AI_GATEWAY_|VERCEL_|NO_COLOR|.*_proxy", re.IGNORECASE)
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def with_room(room: int) -> tuple[str, ...]:
    """Return the command that runs the program with this limit on the size of files."""
    return (sys.executable, "-c", NEARLY_FULL, str(room), *PROGRAM)


class Result(NamedTuple):
    code: int
    out: str
    err: str


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment without variables that affect the program; the model cache stays."""
    variables = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
    if "TOLLBRIDGE_CACHE_DIR" in os.environ:
        variables["TOLLBRIDGE_CACHE_DIR"] = os.environ["TOLLBRIDGE_CACHE_DIR"]
    return {**variables, **ENVIRONMENT, "COLUMNS": "100", "TERM": "xterm", **extra}


async def tollbridge(
    *arguments: str,
    env: Mapping[str, str] = {},
    stdin: bytes = b"",
    within: float = 60.0,
    program: tuple[str, ...] = PROGRAM,
) -> Result:
    """Run the program until it exits. A traceback on standard error is a failure."""
    process = await asyncio.create_subprocess_exec(
        *(*program, *arguments),
        env=environment(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(within):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"Traceback" not in err
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())


class Terminal:
    """A terminal in which the program runs."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master = master
        self._process = process
        self.pid = process.pid
        self.seen = ""
        self._arrived = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def expect(self, text: str, within: float = 40.0) -> str:
        """Wait for the text. Return the output before it, and continue after it."""
        try:
            async with asyncio.timeout(within):
                while text not in self.seen:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} did not appear in {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    async def ended(self, within: float = 40.0) -> int:
        async with asyncio.timeout(within):
            return await self._process.wait()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux: the other end was closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.seen += _STYLES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
        self._arrived.set()


@asynccontextmanager
async def terminal(
    *arguments: str, env: Mapping[str, str] = {}, out: IO[bytes] | None = None
) -> AsyncIterator[Terminal]:
    """Run the program on a terminal. Its standard output goes there too, unless `out` is given."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    variables = environment(env)
    variables.pop("COLUMNS")
    process = await asyncio.create_subprocess_exec(
        *(*AT_TERMINAL, *PROGRAM, *arguments),
        env=variables,
        stdin=slave,
        stdout=out or slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
