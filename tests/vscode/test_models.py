"""What VS Code shows of a model, and the images that a model draws.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing import model
from tollbridge.testing.server import Gateway
from tollbridge.types.media import encode_png

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


async def test_prices_and_warnings_are_shown_and_so_are_the_images_that_a_model_draws(
    browser: None, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
            await _read_the_picker(vscode)
            await _draw(vscode)
            await _open_the_image(vscode)
            await _ask_again(vscode, gateway)
            monkeypatch.setattr(model, "draw_bridge", lambda: _draw_noise(640, 480))
            await _draw_a_large_image(vscode)
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


async def _read_the_picker(vscode: VSCodePage) -> None:
    """In the chat: US dollars, once, also for screen readers, and the description of the model."""
    button = vscode.page.locator(".part.auxiliarybar .model-picker-split > *").first
    await expect(button).to_contain_text("Demo")
    await button.click()
    row = vscode.page.locator(".action-widget .monaco-list-row", has_text="Demo").first
    await row.hover()
    hover = vscode.page.locator(".action-widget .chat-model-hover", has_text="Demo")
    await hover.wait_for()
    await take_screenshot(vscode.page, "models-3-picker")
    text = " ".join((await hover.inner_text()).split())
    assert text.count("$1.00 in, $0.10 cached, $4.00 out per 1M tokens") == 1, text
    assert "A scripted model that supports tools, images and reasoning." in text
    assert "$1.00 in, $0.10 cached, $4.00 out per 1M tokens" in (await row.get_attribute("aria-label") or "")
    await vscode.page.keyboard.press("Escape")
    await hover.wait_for(state="hidden")


async def _draw(vscode: VSCodePage) -> None:
    image = await _ask_for_image(vscode, "draw a bridge")
    await vscode.status(re.compile(r"Demo \d+ % · \$0\.0\d+")).wait_for()
    await take_screenshot(vscode.page, "models-4-image")
    assert image == (320, 180)


async def _open_the_image(vscode: VSCodePage) -> None:
    """The link under an image opens the saved file, in the viewer of VS Code."""
    await vscode.page.locator(".chat-inline-anchor-widget", has_text=".png").last.click()
    viewer = vscode.page.locator(".image-carousel-editor .main-image")
    await viewer.wait_for()
    await take_screenshot(vscode.page, "models-5-viewer")
    assert await _read_size(viewer) == (320, 180)
    await vscode.page.keyboard.press("Escape")
    await viewer.wait_for(state="hidden")


async def _ask_again(vscode: VSCodePage, gateway: Gateway) -> None:
    """The text of the embedded image is not sent to the model."""
    await vscode.send_message("What did you send?")
    await vscode.page.locator(".chat-most-recent-response", has_text="What did you send?").wait_for()
    requests = [request.body for request in gateway.requests if request.path == "/v1/responses"]
    [body] = [json.dumps(body) for body in requests if "What did you send?" in json.dumps(body["input"][-1])]
    assert "Here is the image you asked for." in body
    assert "![Image]" in body
    assert "base64" not in body


async def _draw_a_large_image(vscode: VSCodePage) -> None:
    """Of an image that is too large for the text, VS Code shows a preview, and all of the text after it."""
    width, height = await _ask_for_image(vscode, "draw a sea")
    await take_screenshot(vscode.page, "models-6-preview")
    assert 100 <= width < 640
    assert height == width * 3 // 4


async def _ask_for_image(vscode: VSCodePage, text: str) -> tuple[int, int]:
    """Return the size of the image, in its own pixels, when the text after it is there."""
    await vscode.send_message(text)
    await vscode.page.locator(".interactive-request", has_text=text).wait_for()
    answer = vscode.page.locator(".chat-most-recent-response", has_text="Here is the image you asked for.")
    image = answer.locator("img[alt=Image]")
    await image.wait_for()
    return await _read_size(image)


async def _read_size(image: Locator) -> tuple[int, int]:
    script = "async (image) => { await image.decode(); return [image.naturalWidth, image.naturalHeight]; }"
    width, height = await image.evaluate(script)
    return width, height


def _draw_noise(width: int, height: int) -> bytes:
    rng = random.Random(1)
    return encode_png(width, 3, [rng.randbytes(3 * width) for _ in range(height)])


async def _read_labels(row: Locator) -> list[str]:
    script = "(nodes) => nodes.map((node) => node.getAttribute('aria-label'))"
    labels: list[str] = await row.locator("[aria-label]").evaluate_all(script)
    return [*labels, await row.get_attribute("aria-label") or ""]
