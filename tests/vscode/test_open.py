"""`make vscode`, as a newcomer runs it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

from tests.vscode.window import descendants, opened_page, runs

ROOT = Path(__file__).parents[2]


async def test_a_newcomer_gets_an_address_behind_which_the_models_are(browser: None, tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "extension")))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workshop.open", "--no-local", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    async with asyncio.timeout(240):
        while not (found := re.search(rb"http://127\.0\.0\.1:\d+/\S*", await process.stdout.readline())):
            assert process.returncode is None
    started = descendants(process.pid)
    async with opened_page(tmp_path / "browser") as page:
        await page.goto(found[0].decode(), wait_until="domcontentloaded")
        await page.locator('.statusbar-item[id*="tollbridge"]').wait_for(timeout=60_000)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(30):
        await process.stdout.read()
        assert await process.wait() == 0
        while any(map(runs, started)):  # noqa: ASYNC110 - of a process that is not ours there is no news
            await asyncio.sleep(0.1)
