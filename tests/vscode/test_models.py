"""What VS Code shows of a model, and the answer of a model that draws an image.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


async def test_the_list_shows_prices_and_warnings_and_the_chat_shows_the_name_of_the_model(
    browser: None, package: Path, tmp_path: Path
) -> None:
    async with (
        Gateway() as gateway,
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
        try:
            await _read_the_list(vscode)
            await vscode.start_chat("Demo")
            await _draw(vscode)
        except BaseException:
            await take_screenshot(page, "failed-models")
            raise


async def _read_the_list(vscode: VSCodePage) -> None:
    """In Manage Models: credits, which are cents, and why a model is not offered in the chat."""
    demo, plain = vscode.models_row("Demo").first, vscode.models_row("Plain").first
    await demo.wait_for()
    labels = " ".join(await _read_labels(demo))
    await take_screenshot(vscode.page, "models-1-list")
    assert re.search(r"Input cost: 100 credits", labels), labels
    assert re.search(r"Output cost: 400 credits", labels), labels
    await plain.locator(".model-name, .monaco-icon-label, .monaco-highlighted-label").first.hover()
    await vscode.page.locator(".monaco-hover", has_text="requires models that call tools").last.wait_for()
    await take_screenshot(vscode.page, "models-2-no-tools")
    await vscode.page.mouse.move(400, 700)
    await vscode.close_models()


async def _draw(vscode: VSCodePage) -> None:
    """This VS Code cannot show a local file in an answer, so the answer has no image that fails to load."""
    await vscode.send_message("draw a bridge")
    await vscode.answer("Here is the image you asked for.").wait_for()
    await vscode.status(re.compile(r"Demo \d+ % · \$0\.0\d+")).wait_for()
    await take_screenshot(vscode.page, "models-3-answer")
    await expect(vscode.page.locator('.interactive-response img[src*=".png"]')).to_have_count(0)
    button = vscode.page.locator(".part.auxiliarybar .model-picker-split > *").first
    await expect(button).to_contain_text("Demo")


async def _read_labels(row: Locator) -> list[str]:
    script = "(nodes) => nodes.map((node) => node.getAttribute('aria-label'))"
    labels: list[str] = await row.locator("[aria-label]").evaluate_all(script)
    return [*labels, await row.get_attribute("aria-label") or ""]
