"""Headless Chromium looking at a VS Code."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.async_api import Page, async_playwright
from workshop.workbench import Workbench

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts" / "vscode"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def opened(workbench: Workbench) -> AbstractAsyncContextManager[Page]:
    return opened_page(workbench.folder / "browser")


@asynccontextmanager
async def opened_page(folder: Path) -> AsyncIterator[Page]:
    """A page that has not gone anywhere yet; the browser keeps its things in the folder."""
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            folder,
            executable_path=CHROMIUM,
            headless=True,
            viewport={"width": 1400, "height": 900},
            args=FLAGS,
        )
        try:
            yield context.pages[0] if context.pages else await context.new_page()
        finally:
            await context.close()


async def run_inside(workbench: Workbench, page: Page, extension: Path, tests: Path, timeout: float) -> int:  # noqa: ASYNC109
    """Runs a test file inside the extension host; its exit code. The extension is loaded from its folder."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    await page.expose_function("codeAutomationLog", lambda *_: None)
    await page.expose_function("codeAutomationExit", end)
    place = f"vscode-remote://127.0.0.1:{workbench.port}"
    payload = [["extensionDevelopmentPath", f"{place}{extension}"], ["extensionTestsPath", f"{place}{tests}"]]
    await page.goto(
        f"{workbench.address}&payload={quote(json.dumps(payload))}", wait_until="domcontentloaded"
    )
    async with asyncio.timeout(timeout):
        return await ended


async def shoot(page: Page, name: str) -> None:
    await asyncio.sleep(0.5)  # until everything has faded in
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=ARTIFACTS / f"{name}.png")


def descendants(pid: int) -> dict[int, str]:
    """The processes that came of this one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            waiting.append(child)
            try:
                found[child] = (Path("/proc") / str(child) / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
    return found


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
