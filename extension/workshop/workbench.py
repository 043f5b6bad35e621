"""A running VS Code with accounts set up, on a loopback port, with nothing of the machine's own in it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workshop import node
from workshop.codeserver import Tree, entry

READY_SECONDS = 60.0
STOP_SECONDS = 15.0

# Quiet, and without the network that it would ask for updates and advice.
SETTINGS: dict[str, Any] = {
    "chat.agent.enabled": True,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.enableExperiments": False,
    "workbench.startupEditor": "none",
}
NOWHERE = "http://127.0.0.1:9"
OPTIONS = (
    "--auth",
    "none",
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-workspace-trust",
    "--disable-getting-started-override",
)


class Workbench:
    """`folder` takes what it writes; `accounts` are base URLs by name; `driven` lets a test run inside."""

    def __init__(
        self,
        folder: Path,
        *,
        tree: Tree = "stock",
        accounts: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        vsix: Path | None = None,
        environment: Mapping[str, str] | None = None,
        driven: bool = False,
        port: int = 0,
    ) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.port = port or _free_port()
        self._entry = entry(tree)
        self._accounts = accounts or {}
        self._settings = {**SETTINGS, **(settings or {})}
        self._vsix = vsix
        self._environment = self._isolated(environment or {})
        self._driven = driven
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?folder={self.workspace}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("The workbench has not been started.")
        return self._process.pid

    def _set_accounts(self, accounts: Mapping[str, str]) -> None:
        """The groups of *Manage Language Models*. A key cannot be given here: VS Code keeps it apart."""
        groups = [{"name": name, "vendor": "tollbridge", "baseUrl": url} for name, url in accounts.items()]
        (self._user / "chatLanguageModels.json").write_text(json.dumps(groups, indent=2))

    async def start(self) -> None:
        machine = self._user.with_name("Machine")
        for path in (self._user, machine, self.folder / "extensions", self.folder / "home", self.workspace):
            path.mkdir(parents=True, exist_ok=True)
        # Settings of the machine, such as the program to start, are not looked for among the user's.
        for path in (self._user, machine):
            (path / "settings.json").write_text(json.dumps(self._settings, indent=2))
        self._set_accounts(self._accounts)
        if self._vsix is not None:
            await self._run_to_end("--install-extension", str(self._vsix))
        driver = ("--vscode-option", "enable-smoke-test-driver") if self._driven else ()
        bind = ("--bind-addr", f"127.0.0.1:{self.port}")
        self._process = await self._spawn(*OPTIONS, *driver, *bind, str(self.workspace))
        async with asyncio.timeout(READY_SECONDS):
            while not await asyncio.to_thread(self._answers):
                if self._process.returncode is not None:
                    raise RuntimeError(f"VS Code did not start: {self.log()}")
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def log(self) -> str:
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

    def _isolated(self, more: Mapping[str, str]) -> dict[str, str]:
        home = str(self.folder / "home")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VSCODE_", "XDG_"))}
        gallery = json.dumps({"serviceUrl": NOWHERE, "itemUrl": NOWHERE})
        own = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home, "EXTENSIONS_GALLERY": gallery}
        return {**kept, **own, **more}

    async def _spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        places = (
            "--user-data-dir",
            str(self.folder / "data"),
            "--extensions-dir",
            str(self.folder / "extensions"),
        )
        with (self.folder / "server.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *node.command("node", str(self._entry), *places, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    async def _run_to_end(self, *arguments: str) -> None:
        process = await self._spawn(*arguments)
        async with asyncio.timeout(READY_SECONDS):
            if await process.wait() != 0:
                raise RuntimeError(f"VS Code failed at {' '.join(arguments)}: {self.log()}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
