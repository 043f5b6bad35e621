"""Drives a real Neovim, without a screen, over its MessagePack-RPC interface."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
from tests.cli.cli_process import environment

PLUGIN = Path(__file__).parents[2] / "editors" / "neovim"
NVIM = shutil.which("nvim")
SIDECAR = (sys.executable, "-m", "tollbridge", "sidecar")


class Neovim:
    """A running Neovim with the plugin. Requests are sent one at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._last_id = 0

    async def request(self, method: str, *parameters: Any) -> Any:
        """Call a function of Neovim's API, and return its result. An error of it fails the test."""
        self._last_id += 1
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.msgpack.encode([0, self._last_id, method, parameters]))
        data = b""
        async with asyncio.timeout(50):
            while True:
                chunk = await self.process.stdout.read(1 << 20)
                assert chunk, "Neovim has ended"
                data += chunk
                try:
                    _, answered, error, result = msgspec.msgpack.decode(data)
                except msgspec.DecodeError:  # not all of it has arrived
                    continue
                assert (answered, error) == (self._last_id, None)
                return result

    async def lua(self, code: str, *arguments: Any) -> Any:
        return await self.request("nvim_exec_lua", code, arguments)

    async def command(self, command: str) -> None:
        await self.request("nvim_command", command)

    async def type(self, keys: str) -> None:
        await self.request("nvim_input", keys)

    async def wait_for(self, condition: str, *arguments: Any) -> None:
        """Wait until a Lua expression is true. It can use `_FUNCTIONS`, and the arguments as `...`."""
        code = f"{_FUNCTIONS} return wait(function(...) return {condition} end, ...)"
        if not await self.lua(code, *arguments):
            chat = await self.text(), await self.status(), await self.messages()
            raise AssertionError(f"{condition} {arguments} did not become true: {chat}")

    async def text(self) -> str:
        """Return the text of the chat."""
        return str(await self.lua(f"{_FUNCTIONS} return text()"))

    async def status(self) -> str:
        """Return the text that is shown after the chat."""
        return str(await self.lua(f"{_FUNCTIONS} return status()"))

    async def messages(self) -> str:
        """Return what `:messages` shows."""
        return str(await self.lua(f"{_FUNCTIONS} return messages()"))

    def sidecar(self) -> psutil.Process:
        """Return the process that the plugin has started."""
        (child,) = psutil.Process(self.process.pid).children()
        return child


_FUNCTIONS = """
local function buffer()
  for _, number in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(number):find("tollbridge://chat", 1, true) then return number end
  end
end
local function text()
  return buffer() and table.concat(vim.api.nvim_buf_get_lines(buffer(), 0, -1, false), "\\n") or ""
end
local function status()
  local namespace = vim.api.nvim_get_namespaces().tollbridge
  if not buffer() then return "" end
  local marks = vim.api.nvim_buf_get_extmarks(buffer(), namespace, 0, -1, { details = true })
  return marks[1] and marks[1][4].virt_text[1][1] or ""
end
local function messages() return vim.api.nvim_exec("messages", true) end
local function has(text, part) return text:find(part, 1, true) ~= nil end
local function wait(condition, ...)
  local arguments = { ... }
  return vim.wait(40000, function() return condition(unpack(arguments)) end, 5)
end
"""


@asynccontextmanager
async def neovim(directory: Path, **settings: Any) -> AsyncIterator[Neovim]:
    """Start Neovim in a directory, with these settings of the plugin."""
    assert NVIM is not None
    process = await asyncio.create_subprocess_exec(
        *(NVIM, "--clean", "--headless", "--embed", "--cmd", f"set runtimepath^={PLUGIN}"),
        cwd=directory,
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        editor = Neovim(process)
        await editor.lua("require('tollbridge').setup(...)", {"command": SIDECAR, **settings})
        yield editor
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
