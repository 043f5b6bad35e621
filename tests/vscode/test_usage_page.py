"""The usage page in a webview of VS Code: the same page as in a browser, with the colours of the editor."""

from __future__ import annotations

import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from tests.storage.stored import write_rows
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.storage.rows import UsageRow
from tollbridge.types.events import Usage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# The background of the page, and that of the editor.
COLOURS = """(body) => {
    const own = getComputedStyle(body).backgroundColor;
    body.style.setProperty("outline-color", "var(--vscode-editor-background)");
    return [own, getComputedStyle(body).outlineColor];
}"""


def put(folder: Path, count: int) -> None:
    now = time.time()
    write_rows(
        folder / "tollbridge.db",
        *(
            UsageRow(
                started=now - number * 40_000,
                model=f"demo/model-{number % 3}",
                outcome="completed",
                usage=Usage(9_000 + 100 * number, 500, 9_500 + 100 * number, 6_000),
                conversation=f"conversation-{number % 4}",
                cost=Decimal("0.01") * (number % 7 + 1),
                billed=Decimal("0.01") * (number % 7 + 1),
            )
            for number in range(count)
        ),
    )


async def test_the_page_has_the_colours_of_the_editor_and_shows_new_requests(
    browser: None, package: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    put(data, 50)
    workbench = Workbench(
        tmp_path / "vscode",
        tree="strict",
        vsix=package,
        settings={"tollbridge.interpreter": sys.executable, "window.autoDetectColorScheme": True},
        environment={"TOLLBRIDGE_DATA_DIR": str(data)},
    )
    async with workbench, open_browser(workbench) as page:
        vscode = VSCodePage(page, workbench)
        await page.emulate_media(color_scheme="light")
        await vscode.open()
        await vscode.run_command("Tollbridge: Show Usage")
        shown = page.frame_locator("iframe.webview").frame_locator("#active-frame")
        try:
            await shown.locator("dl strong", has_text="50").wait_for()
            assert await shown.locator("canvas").count() == 3
            light = await shown.locator("body").evaluate(COLOURS)
            assert light[0] == light[1]
            await take_screenshot(page, "usage-light")
            put(data, 1)
            await shown.locator("dl strong", has_text="51").wait_for()
            await page.emulate_media(color_scheme="dark")
            await shown.locator("body.vscode-dark").wait_for()
            dark = await shown.locator("body").evaluate(COLOURS)
            assert dark[0] == dark[1] != light[0]
            await take_screenshot(page, "usage-dark")
        except BaseException:
            await take_screenshot(page, "failed-usage-page")
            raise
