"""A budget refuses a request in VS Code, and a button sends it anyway.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.catalog import MODELS
from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# One cent. At these prices in US dollars per token, one request of VS Code's agent fits, and no second.
BUDGET = 0.01
PRICES = {"input": "0.0000002", "output": "0.0000008", "input_cache_write": "0.0000002"}


async def test_a_budget_of_one_cent_refuses_the_second_request_and_a_button_allows_it(
    browser: None, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, price in PRICES.items():
        monkeypatch.setitem(MODELS[0]["pricing"], name, price)
    settings = {"tollbridge.interpreter": sys.executable, "tollbridge.budgets": {"day": BUDGET}}
    async with (
        Gateway() as gateway,
        Workbench(
            tmp_path, tree="strict", vsix=package, accounts={"Test": gateway.url}, settings=settings
        ) as workbench,
        open_browser(workbench) as page,
    ):
        vscode = VSCodePage(page, workbench)
        await vscode.open()
        await vscode.set_up_chat()
        await vscode.close_models()
        await vscode.start_chat("Demo")
        try:
            await vscode.send_message("long 4000")
            await vscode.answer("w1 w2 w3").wait_for()
            await vscode.read_answer()
            await vscode.status("$0.00").hover()
            hover = page.locator(".monaco-hover", has_text="daily budget").last
            await expect(hover).to_contain_text("of $0.01")
            await take_screenshot(page, "budget-0-hover")
            await page.mouse.move(600, 300)
            sent = len(gateway.counted)
            await vscode.send_message("and now?")
            notification = page.locator(".notification-list-item", has_text="daily budget")
            await notification.wait_for()
            await take_screenshot(page, "budget-1-refused")
            assert len(gateway.counted) == sent
            await notification.locator(".monaco-button", has_text="Allow Over Budget Today").click()
            await vscode.answer("You said “and now?”").wait_for()
            await expect(notification).to_have_count(0)
            await take_screenshot(page, "budget-2-allowed")
            assert len(gateway.counted) > sent
        except BaseException:
            await take_screenshot(page, "failed-budget")
            raise
