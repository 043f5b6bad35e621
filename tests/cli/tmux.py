"""Run the program in tmux, a real terminal: with a screen, scrollback, paste and resizing."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cli.cli_process import PROGRAM, environment

TMUX = shutil.which("tmux")
# `make test` installs tmux; where it cannot, these tests are skipped, and fail if CI=true.
needs_tmux = pytest.mark.skipif(
    TMUX is None and os.environ.get("CI") != "true", reason="tmux is not installed (Debian: apt install tmux)"
)
# Seconds to wait for anything on the screen: much more than a busy machine needs.
_PATIENCE = 60
_OPTIONS = """\
set -g default-terminal screen-256color
set -g history-limit 10000
set -g escape-time 0
set -g remain-on-exit on
set -g status off
"""


class Tmux:
    """A tmux server with one window. Keys have tmux's names: `Enter`, `C-c`, `M-Enter`."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._socket = folder / "tmux"
        self._exit_code = folder / "exit_code"
        self._config = folder / "tmux.conf"
        self._config.write_text(_OPTIONS)
        self._env = environment(env)
        self._env.pop("COLUMNS")
        # tmux must not think that it runs inside another tmux.
        self._env.pop("TMUX", None)

    async def start(self, columns: int, rows: int, *command: str) -> None:
        size = ("-x", str(columns), "-y", str(rows))
        # tmux sometimes does not know the exit code, so the shell writes it. Ctrl-C must not end the shell.
        shell = f"trap : INT; {shlex.join(command)}; echo $? > {shlex.quote(str(self._exit_code))}"
        await self._tmux("new-session", "-d", *size, shell)

    async def press(self, *keys: str) -> None:
        await self._tmux("send-keys", *keys)

    async def type(self, text: str) -> None:
        await self._tmux("send-keys", "-l", "--", text)

    async def paste(self, text: str) -> None:
        """Paste a text as a terminal does: in brackets, if the program asked for them."""
        await self._tmux("load-buffer", "-", stdin=text)
        await self._tmux("paste-buffer", "-p")

    async def resize(self, columns: int, rows: int) -> None:
        await self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    async def screen(self, *, all_lines: bool = False, styles: bool = False) -> str:
        """Return the text on the screen, or with the scrollback too, without spaces at the ends of lines."""
        options = (*(("-S", "-") if all_lines else ()), *(("-e",) if styles else ()))
        text = await self._tmux("capture-pane", "-p", *options)
        return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")

    async def expect(self, *texts: str, absent: str | None = None) -> str:
        """Wait until the screen has all texts and not the absent one. Return the screen."""
        return await self._wait_until(
            lambda screen: all(text in screen for text in texts) and (absent is None or absent not in screen),
            f"{texts} did not appear (without {absent!r})",
        )

    async def expect_match(self, pattern: str) -> re.Match[str]:
        """Wait until the pattern matches something on the screen. Return the match."""
        screen = await self._wait_until(
            lambda screen: re.search(pattern, screen, re.MULTILINE) is not None, f"{pattern} did not match"
        )
        match = re.search(pattern, screen, re.MULTILINE)
        assert match is not None
        return match

    async def expect_prompt(self) -> str:
        """Wait for an empty prompt on the last line."""
        return await self._wait_until(lambda screen: screen.endswith("\n>"), "no prompt appeared")

    async def _wait_until(self, matches: Callable[[str], bool], problem: str) -> str:
        screen = ""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    screen = await self.screen()
                    if matches(screen):
                        return screen
                    await asyncio.sleep(0.05)  # tmux does not report changes of the screen
        except TimeoutError:
            raise AssertionError(f"{problem} in:\n{screen}") from None

    async def exit_code(self) -> int:
        """Wait until the program has ended and all its output is on the screen. Return its exit code."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    if (await self._tmux("display-message", "-p", "#{pane_dead}")).strip() == "1":
                        return int(self._exit_code.read_text())
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"the program did not end:\n{await self.screen()}") from None

    async def close(self) -> None:
        await self._tmux("kill-server")

    async def _tmux(self, *arguments: str, stdin: str = "") -> str:
        assert TMUX is not None
        process = await asyncio.create_subprocess_exec(
            *(TMUX, "-S", str(self._socket), "-f", str(self._config), "-u", *arguments),
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()


@asynccontextmanager
async def tmux(size: tuple[int, int], *command: str, env: Mapping[str, str] = {}) -> AsyncIterator[Tmux]:
    """Run a command, by default the program, in a window of this many columns and rows."""
    # The path of a socket must be short, so pytest's folder for the test is not used.
    with tempfile.TemporaryDirectory(prefix="tmux-") as folder:
        window = Tmux(Path(folder), env)
        await window.start(*size, *command)
        try:
            yield window
        finally:
            await window.close()


def program(*arguments: str) -> tuple[str, ...]:
    """Return the command that runs the program."""
    return (*PROGRAM, *arguments)
