"""Run `make vscode` as a new user does. Screenshots are saved in `artifacts/vscode`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from tests.vscode.browser import ARTIFACTS, list_descendants, open_page, take_screenshot, wait_for_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TIMEOUT_MS = 90_000


async def test_the_first_question_is_answered_in_several_steps_and_nothing_is_left_behind(
    browser: None, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "extension")))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workshop.open", "--no-local", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "TMPDIR": str(temporary)},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    async with asyncio.timeout(300):
        while not (match := re.search(rb"http://127\.0\.0\.1:\d+/\S*", await process.stdout.readline())):
            assert process.returncode is None
    descendants = list_descendants(process.pid)
    [folder] = temporary.glob("tollbridge-vscode-*")
    try:
        async with open_page(tmp_path / "browser") as page:
            page.set_default_timeout(TIMEOUT_MS)
            try:
                await _fix_the_bug(page, match[0].decode(), folder / "workspace" / "tolls.py")
            except BaseException:
                await take_screenshot(page, "failed-demo")
                raise
        descendants |= list_descendants(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        await process.stdout.read()
        assert await process.wait() == 0
    await wait_for_end(descendants, timeout=30)
    assert not list(temporary.glob("tollbridge-vscode-*"))


async def _fix_the_bug(page: Page, address: str, file: Path) -> None:
    """Send one sentence: the agent reads the file, edits it, runs its examples and reports the result."""
    started = time.monotonic()
    seconds: dict[str, float] = {}

    def note(name: str) -> None:
        seconds[name] = round(time.monotonic() - started, 1)

    await page.goto(address, wait_until="domcontentloaded")
    # The welcome page takes the focus when it is shown.
    await page.locator(".editor-instance .view-line", has_text="Fix the bug in tolls.py").first.wait_for()
    chat = page.locator(".part.auxiliarybar")
    await chat.locator(".interactive-input-part .monaco-editor").first.click()
    await page.keyboard.type("Fix the bug in tolls.py")
    await page.keyboard.press("Escape")  # closes suggestions
    await page.keyboard.press("Enter")
    note("sent")
    # VS Code shows a confirmation above the input. A moment later it adds a hidden copy to the answer.
    confirmation = chat.locator(".chat-tool-confirmation-carousel", has_text="Run bash command?")
    await confirmation.wait_for()
    note("command to allow")
    await take_screenshot(page, "demo-1-allow")
    await expect(page.locator(".monaco-dialog-box")).to_have_count(0)
    await confirmation.get_by_role("button", name=re.compile("^Allow")).click()
    await confirmation.wait_for(state="hidden")
    await chat.locator(".interactive-response", has_text="All its examples pass.").wait_for()
    note("answered")
    await take_screenshot(page, "demo-2-fixed")
    assert "return 2 * axles" in file.read_text()
    await expect(page.locator(".monaco-dialog-box")).to_have_count(0)
    await expect(page.locator(".notification-toast")).to_have_count(0)
    (ARTIFACTS / "demo-seconds.json").write_text(json.dumps(seconds))
