"""Fill the context window of a model in VS Code, with proposed APIs rejected.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.requests import PromptSettings
from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

WINDOW, PROMPT = 200_000, 170_000
# A token per word and one for the line end, for the gateway and for most tokenizers.
LINE, LINE_TOKENS = "The bridge is long and very old\n", 8


async def test_an_agent_uses_most_of_the_window_and_its_answer_is_complete(
    browser: None, package: Path, tmp_path: Path
) -> None:
    """The gateway rejects a prompt that does not fit next to the largest output, which is 64,000 tokens."""
    async with (
        Gateway(prompts=PromptSettings(window=WINDOW, shared=True)) as gateway,
        Workbench(
            tmp_path,
            tree="strict",
            vsix=package,
            accounts={"Long": gateway.url},
            settings={"tollbridge.interpreter": sys.executable},
        ) as workbench,
        open_browser(workbench) as page,
    ):
        vscode = VSCodePage(page, workbench)
        await vscode.open()
        await vscode.set_up_chat()
        await expect(vscode.models_row("Demo")).to_contain_text("200K")
        await take_screenshot(page, "13-window-models")
        await vscode.close_models()
        await vscode.start_chat("Demo")
        await vscode.send_message("hello")
        await vscode.answer("You said").wait_for()
        text = LINE * ((PROMPT - _count_last_prompt(gateway)) // LINE_TOKENS + 1)
        _write_instructions(workbench, text)
        try:
            await _fill_the_window(vscode, gateway, text)
            await _choose_a_smaller_size(vscode)
        except BaseException:
            await take_screenshot(page, "failed-window")
            raise


async def _fill_the_window(vscode: VSCodePage, gateway: Gateway, text: str) -> None:
    earlier = len(gateway.requests)
    await vscode.start_chat("Demo")
    await vscode.send_message("long 3000")
    await vscode.answer("w2999 w3000").wait_for()
    await take_screenshot(vscode.page, "14-window-full")
    arrived = list(gateway.requests)[earlier:]
    requests = [request for request in arrived if request.path == "/v1/responses"]
    # No request for a summary. The first is rejected because of the output limit that the gateway assumes.
    assert [request.status for request in requests] == [400, 200]
    tokens = _count_last_prompt(gateway)
    assert tokens >= PROMPT
    rejected, accepted = (request.body for request in requests)
    assert "max_output_tokens" not in rejected
    assert accepted["max_output_tokens"] == WINDOW - tokens
    assert accepted["input"] == rejected["input"]
    assert text.strip() in "".join(_find_texts(accepted["input"]))
    usage = gateway.counted[-1].usage
    assert usage is not None
    assert usage.total_tokens is not None
    await vscode.status(f"{100 * usage.total_tokens / WINDOW:.0f} %").wait_for()


async def _choose_a_smaller_size(vscode: VSCodePage) -> None:
    button = vscode.page.locator(".part.auxiliarybar .model-picker-split > *", has_text="200K").last
    await button.click()
    row = vscode.page.locator(".action-widget .monaco-list-row", has_text="128K").first
    await row.wait_for()
    await asyncio.sleep(0.5)  # until the animation has ended
    await take_screenshot(vscode.page, "15-window-sizes")
    await row.click()
    await vscode.page.keyboard.press("Escape")  # the list stays open for another choice
    await vscode.page.locator(".model-picker-split > *", has_text="128K").last.wait_for()
    await take_screenshot(vscode.page, "16-window-size-chosen")


def _write_instructions(workbench: Workbench, text: str) -> None:
    """Write a file that is part of every prompt in this workspace."""
    path = workbench.workspace / ".github" / "copilot-instructions.md"
    path.parent.mkdir()
    path.write_text(text)


def _count_last_prompt(gateway: Gateway) -> int:
    usage = gateway.counted[-1].usage
    assert usage is not None
    assert usage.input_tokens is not None
    return usage.input_tokens


def _find_texts(items: list[dict[str, Any]]) -> Iterator[str]:
    for item in items:
        content = item.get("content")
        if isinstance(content, str):
            yield content
        else:
            yield from (part.get("text", "") for part in content or ())
