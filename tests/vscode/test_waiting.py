"""A request that waits says so in the chat and in the status bar of VS Code.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import TIMEOUT_MS, VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

LONG, SHORT = 45, 4  # seconds that the gateway asks to wait
STALL = 6.0  # seconds until the gateway disconnects


class RateLimit:
    """Rejects every request that contains `LONG wait`, and the first one that contains `SHORT wait`."""

    def __init__(self) -> None:
        self.rejected: Counter[int] = Counter()
        self.last = 0.0  # by `time.monotonic()`

    def __call__(self, body: Mapping[str, Any]) -> RequestRejected | None:
        text = json.dumps(body)
        for seconds in (LONG, SHORT):
            if f"wait {seconds} now" in text and (seconds == LONG or not self.rejected[seconds]):
                self.rejected[seconds] += 1
                self.last = time.monotonic()
                headers = {"Retry-After": str(seconds)}
                return RequestRejected(429, "rate_limit_exceeded", "Too many requests.", headers=headers)
        return None


async def test_a_request_that_waits_says_so_and_a_long_wait_is_an_error(
    browser: None, package: Path, tmp_path: Path
) -> None:
    limit = RateLimit()
    async with (
        Gateway(reject=limit, settings=FaultSettings(stall_seconds=STALL)) as gateway,
        Workbench(
            tmp_path,
            tree="strict",
            vsix=package,
            accounts={"Test": gateway.url},
            settings={"tollbridge.interpreter": sys.executable},
        ) as workbench,
        open_browser(workbench) as page,
    ):
        vscode = VSCodePage(page, workbench)
        await vscode.open()
        await vscode.set_up_chat()
        await vscode.close_models()
        await vscode.start_chat("Demo")
        try:
            await _wait_shortly(vscode, limit)
            await _wait_for_the_first_token(vscode)
            await _refuse_a_long_wait(vscode, limit)
        except BaseException:
            await take_screenshot(page, "failed-waiting")
            raise


async def _wait_shortly(vscode: VSCodePage, limit: RateLimit) -> None:
    await vscode.send_message(f"wait {SHORT} now")
    await vscode.status(re.compile(r"retry in \d s")).wait_for()
    await vscode.answer("Trying again in 4 s (attempt 2 of 3).").wait_for()
    await take_screenshot(vscode.page, "waiting-1-retry")
    await vscode.answer("You said").wait_for()
    await vscode.status("%").wait_for()
    await take_screenshot(vscode.page, "waiting-2-answered")
    assert limit.rejected[SHORT] == 1


async def _wait_for_the_first_token(vscode: VSCodePage) -> None:
    await vscode.send_message("fault:stall-headers")
    await vscode.status(re.compile(r"waiting \d s")).wait_for()
    await vscode.answer(re.compile(r"No answer yet after \d s\.")).wait_for()
    await take_screenshot(vscode.page, "waiting-3-first-token")
    await vscode.answer("The partial answer was kept").wait_for()
    await take_screenshot(vscode.page, "waiting-4-disconnected")


async def _refuse_a_long_wait(vscode: VSCodePage, limit: RateLimit) -> None:
    """The error is shown although the gateway asks to wait for longer than the test does."""
    await vscode.start_chat("Demo")
    await vscode.send_message(f"wait {LONG} now")
    await vscode.answer(f"Try again in {LONG} s.").wait_for(timeout=TIMEOUT_MS)
    assert limit.rejected[LONG] == 1
    assert time.monotonic() - limit.last < LONG
    await expect(
        vscode.page.locator(".interactive-session .monaco-button", has_text="Try Again")
    ).to_be_visible()
    await take_screenshot(vscode.page, "waiting-5-long")
