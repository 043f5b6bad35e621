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

from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# The prompt of VS Code is about a cent at the prices of the model, so that one request fits.
BUDGET = 0.05


async def test_a_budget_refuses_a_request_and_a_button_allows_it(
    browser: None, package: Path, tmp_path: Path
) -> None:
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
            await vscode.send_message("long 12000")
            await vscode.answer("w1 w2 w3").wait_for()
            await vscode.read_answer()
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
