"""Take screenshots of VS Code while its agent fixes a bug with the scripted model of the embedded gateway.

VS Code is the one of `make vscode`; it runs in Chromium, like in the tests of `tests/vscode`.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

from docs.pictures.svg import FOLDER
from playwright.async_api import Page
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.open import BUG, SETTINGS, address, pack
from workshop.workbench import Workbench

from tollbridge.testing.server import Gateway

SIZE = {"width": 1180, "height": 720}
QUALITY = 0.82
THEMES = {"dark": "Default Dark Modern", "light": "Default Light Modern"}
# Draws a PNG on a canvas and returns it as WebP, which is a fifth of its size.
TO_WEBP = """async ([png, quality]) => {
    const bitmap = await createImageBitmap(await (await fetch(png)).blob());
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    const blob = await canvas.convertToBlob({type: "image/webp", quality});
    const bytes = new Uint8Array(await blob.arrayBuffer());
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
}"""


def main() -> None:
    package = pack()
    with tempfile.TemporaryDirectory(prefix="tollbridge-pictures-", ignore_cleanup_errors=True) as folder:
        for theme in THEMES:
            asyncio.run(_take(theme, package, Path(folder) / theme))


async def _take(theme: str, package: Path, folder: Path) -> None:
    settings = {
        **SETTINGS,
        "tollbridge.interpreter": sys.executable,
        "workbench.colorTheme": THEMES[theme],
        "workbench.layoutControl.enabled": False,
        "editor.minimap.enabled": False,
    }
    async with (
        Gateway() as gateway,
        Workbench(folder, accounts={"Gateway": gateway.url}, settings=settings, vsix=package) as workbench,
        open_browser(workbench) as page,
    ):
        await page.set_viewport_size(SIZE)  # type: ignore[arg-type]
        file = workbench.workspace / "tolls.py"
        file.write_text(BUG)
        vscode = VSCodePage(page, workbench)
        try:
            await page.goto(address(workbench, file), wait_until="domcontentloaded")
            await vscode.status("Tollbridge").wait_for()
            await vscode.set_up_chat()
            await vscode.close_models()
            await page.keyboard.press("Control+B")  # close the list of files
            await vscode.start_chat("Demo")
            await vscode.send_message("Fix the bug in tolls.py")
            # The model fixes the bug, and asks whether it may run the examples of the file.
            await page.locator(".part.auxiliarybar .monaco-button:visible", has_text="Allow").first.click()
            await vscode.read_answer()
            await asyncio.sleep(2)  # until animations have ended
        except BaseException:
            await take_screenshot(page, f"failed-picture-{theme}")
            raise
        await _save(page, f"vscode-{theme}")


async def _save(page: Page, name: str) -> None:
    png = base64.b64encode(await page.screenshot()).decode()
    blank = await page.context.new_page()
    webp = await blank.evaluate(TO_WEBP, [f"data:image/png;base64,{png}", QUALITY])
    (FOLDER / f"{name}.webp").write_bytes(base64.b64decode(webp))
    print(f"docs/pictures/{name}.webp")
