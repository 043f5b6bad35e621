"""Run a VS Code with configured accounts on a loopback port, isolated from the user's own settings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from workshop import node
from workshop.code_server import ENABLED_EXTENSIONS, Tree, entry_point

START_TIMEOUT = 60.0
STOP_TIMEOUT = 15.0

# No notifications, and no requests for updates, experiments or telemetry.
SETTINGS: dict[str, Any] = {
    "chat.agent.enabled": True,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "tollbridge.enableChat": "never",
    "update.mode": "none",
    "workbench.enableExperiments": False,
    "workbench.startupEditor": "none",
}
# Part of VS Code, which disables it until someone signs in to GitHub.
CHAT_EXTENSION = "GitHub.copilot-chat"
# A port where no server listens.
UNREACHABLE_URL = "http://127.0.0.1:9"
OPTIONS = (
    "--auth",
    "none",
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-workspace-trust",
    "--disable-getting-started-override",
)


class Workbench:
    """A VS Code server; an asynchronous context manager that starts and stops it.

    Args:
        folder: Folder for all files that VS Code writes.
        tree: The installation to use, see `workshop.code_server`.
        accounts: Base URLs of Tollbridge accounts by name.
        settings: VS Code settings, in addition to the defaults.
        vsix: Extension package to install.
        environment: Environment variables, in addition to the current ones.
        enable_chat: Enable VS Code's chat from the start, as it is for a user who has enabled it before. Only
            the `strict` installation can do this.
        allow_tests: Enable the driver with which tests run inside the extension host.
        port: Port to listen on; 0 chooses a free one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tree: Tree = "stock",
        accounts: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        vsix: Path | None = None,
        environment: Mapping[str, str] | None = None,
        enable_chat: bool = False,
        allow_tests: bool = False,
        port: int = 0,
    ) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.port = port or _free_port()
        self._entry_point = entry_point(tree)
        self._accounts = accounts or {}
        self._settings = {**SETTINGS, **(settings or {})}
        self._vsix = vsix
        chat = {ENABLED_EXTENSIONS: CHAT_EXTENSION} if enable_chat else {}
        self._environment = self._isolated_environment({**chat, **(environment or {})})
        self._allow_tests = allow_tests
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        """The URL that opens the workspace."""
        return f"http://127.0.0.1:{self.port}/?folder={quote(str(self.workspace))}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("The workbench has not been started.")
        return self._process.pid

    def _write_accounts(self, accounts: Mapping[str, str]) -> None:
        """Write the groups of *Manage Language Models*, without keys, which VS Code stores separately."""
        groups = [{"name": name, "vendor": "tollbridge", "baseUrl": url} for name, url in accounts.items()]
        (self._user / "chatLanguageModels.json").write_text(json.dumps(groups, indent=2))

    async def start(self) -> None:
        """Start VS Code and wait until it is ready."""
        machine = self._user.with_name("Machine")
        for path in (self._user, machine, self.folder / "extensions", self.folder / "home", self.workspace):
            path.mkdir(parents=True, exist_ok=True)
        # VS Code reads settings of scope `machine`, such as tollbridge.command, only from this folder.
        for path in (self._user, machine):
            (path / "settings.json").write_text(json.dumps(self._settings, indent=2))
        self._write_accounts(self._accounts)
        if self._vsix is not None:
            await self._run_and_wait("--install-extension", str(self._vsix))
        driver = ("--vscode-option", "enable-smoke-test-driver") if self._allow_tests else ()
        bind = ("--bind-addr", f"127.0.0.1:{self.port}")
        self._process = await self._spawn(*OPTIONS, *driver, *bind, str(self.workspace))
        async with asyncio.timeout(START_TIMEOUT):
            while not await asyncio.to_thread(self._is_ready):
                if self._process.returncode is not None:
                    raise RuntimeError(f"VS Code did not start: {self.log()}")
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Stop VS Code and the processes that it started; kill those that do not end in time.

        The extension host ends after the server, and writes to the folder until then.
        """
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await process.wait()
                while _group_runs(process.pid):  # noqa: ASYNC110 - no event tells that a group has ended
                    await asyncio.sleep(0.05)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def log(self) -> str:
        """Return the output of VS Code."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def _user(self) -> Path:
        return self.folder / "data" / "User"

    def _isolated_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        home = str(self.folder / "home")
        removed = ("CODE_SERVER_", "VSCODE_", "XDG_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
        gallery = json.dumps({"serviceUrl": UNREACHABLE_URL, "itemUrl": UNREACHABLE_URL})
        own = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home, "EXTENSIONS_GALLERY": gallery}
        return {**inherited, **own, **extra}

    async def _spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        folders = (
            "--user-data-dir",
            str(self.folder / "data"),
            "--extensions-dir",
            str(self.folder / "extensions"),
        )
        with (self.folder / "server.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *node.command("node", str(self._entry_point), *folders, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    async def _run_and_wait(self, *arguments: str) -> None:
        process = await self._spawn(*arguments)
        async with asyncio.timeout(START_TIMEOUT):
            if await process.wait() != 0:
                raise RuntimeError(f"VS Code failed with {' '.join(arguments)}: {self.log()}")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False


def _group_runs(leader: int) -> bool:
    """Return whether a process group has members. Zombies do not count."""
    if not Path("/proc/self/stat").exists():
        with suppress(ProcessLookupError):
            os.killpg(leader, 0)
            return True
        return False
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name, which is in parentheses: state, parent, group.
            state, _, group, *_ = path.read_text().rpartition(")")[2].split()
            if int(group) == leader and state != "Z":
                return True
    return False


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
