"""Control headless Chromium, and run tests inside the VS Code that it shows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import psutil
from playwright.async_api import Page, async_playwright
from workshop.workbench import Workbench

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts" / "vscode"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",  # not available to root, nor to other users in most containers
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def open_browser(workbench: Workbench) -> AbstractAsyncContextManager[Page]:
    return open_page(workbench.folder / "browser")


@asynccontextmanager
async def open_page(folder: Path, flags: Sequence[str] = ()) -> AsyncIterator[Page]:
    """Start Chromium and yield an empty page. All files of the browser are in `folder`, also its home."""
    folder.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=CHROMIUM,
            headless=True,
            viewport={"width": 1400, "height": 900},
            args=[*FLAGS, *flags],
            env={**inherited, "HOME": str(folder)},
        )
        try:
            yield context.pages[0] if context.pages else await context.new_page()
        finally:
            await context.close()


async def run_in_extension_host(
    workbench: Workbench,
    page: Page,
    extension: Path,
    tests: Path,
    timeout: float,  # noqa: ASYNC109
) -> int:
    """Run a test file inside the extension host and return its exit code.

    Args:
        workbench: A running VS Code with `allow_tests`.
        page: The browser page in which VS Code is opened.
        extension: The folder from which the extension is loaded.
        tests: The bundled tests.
        timeout: Seconds until TimeoutError is raised.
    """
    exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def set_exit_code(code: int) -> None:
        if not exit_code.done():
            exit_code.set_result(code)

    await page.expose_function("codeAutomationLog", lambda *_: None)
    await page.expose_function("codeAutomationExit", set_exit_code)
    remote = f"vscode-remote://127.0.0.1:{workbench.port}"
    payload = [
        ["extensionDevelopmentPath", f"{remote}{quote(str(extension))}"],
        ["extensionTestsPath", f"{remote}{quote(str(tests))}"],
    ]
    await page.goto(
        f"{workbench.address}&payload={quote(json.dumps(payload))}", wait_until="domcontentloaded"
    )
    async with asyncio.timeout(timeout):
        return await exit_code


async def take_screenshot(page: Page, name: str) -> None:
    await asyncio.sleep(0.5)  # until animations have ended
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=ARTIFACTS / f"{name}.png")


def list_descendants(pid: int) -> dict[psutil.Process, list[str]]:
    """Return the running descendants of a process with their command lines."""
    commands: dict[psutil.Process, list[str]] = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            commands[process] = process.cmdline()
        except psutil.Error:
            continue  # the process has ended
    return commands


async def wait_for_end(processes: dict[psutil.Process, list[str]], timeout: float) -> None:  # noqa: ASYNC109
    """Wait until all processes have ended. A new process that reuses a process id does not count."""
    _, running = await asyncio.to_thread(psutil.wait_procs, list(processes), timeout=timeout)
    remaining = [processes[process] for process in running if not _is_zombie(process)]
    assert not remaining, remaining


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
