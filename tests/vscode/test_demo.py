"""Run `make vscode` as a new user does."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.vscode.browser import list_descendants, open_page, wait_for_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


async def test_the_demo_opens_with_its_models_and_leaves_nothing_behind(
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
    async with asyncio.timeout(240):
        while not (match := re.search(rb"http://127\.0\.0\.1:\d+/\S*", await process.stdout.readline())):
            assert process.returncode is None
    descendants = list_descendants(process.pid)
    async with open_page(tmp_path / "browser") as page:
        await page.goto(match[0].decode(), wait_until="domcontentloaded")
        await page.locator('.statusbar-item[id*="tollbridge"]').wait_for(timeout=60_000)
        await page.locator(".tab", has_text="README.md").wait_for(timeout=60_000)
    assert list(temporary.glob("tollbridge-vscode-*"))
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        await process.stdout.read()
        assert await process.wait() == 0
    await wait_for_end(descendants, timeout=30)
    assert not list(temporary.glob("tollbridge-vscode-*"))
