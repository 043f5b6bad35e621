"""Use the packaged extension in VS Code, as a user does, with proposed APIs rejected.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.vscode.browser import ARTIFACTS, open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KEY, WRONG_KEY = "sk-toll-browser-4711", "sk-toll-wrong-0815"


async def test_a_user_sets_up_accounts_runs_an_agent_reads_the_usage_and_stops(
    browser: None, package: Path, tmp_path: Path
) -> None:
    async with (
        Gateway(api_key=KEY, settings=FaultSettings(pace=0.025)) as gateway,
        Workbench(
            tmp_path, tree="strict", vsix=package, settings={"tollbridge.interpreter": sys.executable}
        ) as workbench,
        open_browser(workbench) as page,
    ):
        (workbench.workspace / "bridge.py").write_text("print('toll')\n")
        vscode = VSCodePage(page, workbench)
        await vscode.open()
        for step in STEPS:
            await _run_step(page, step, vscode, gateway)
    _check_that_no_key_was_written(tmp_path)


Step = Callable[[VSCodePage, Gateway], Awaitable[None]]


async def _run_step(page: Page, step: Step, vscode: VSCodePage, gateway: Gateway) -> None:
    """Run a step, and take a screenshot if it fails."""
    try:
        await step(vscode, gateway)
    except BaseException:
        await take_screenshot(page, f"failed{step.__name__}")
        raise


async def _set_up_accounts(vscode: VSCodePage, gateway: Gateway) -> None:
    await vscode.set_up_chat()
    await vscode.add_account("Work", gateway.url, WRONG_KEY)
    await vscode.models_row("The API key is wrong").wait_for()
    await take_screenshot(vscode.page, "1-wrong-key")
    await vscode.add_account("Home", gateway.url, KEY)
    await expect(vscode.models_row("Demo")).to_have_count(1)
    await take_screenshot(vscode.page, "2-two-accounts")
    await vscode.change_key("Work", KEY)
    await expect(vscode.models_row("Demo")).to_have_count(2)
    await expect(vscode.models_row("Plain")).to_have_count(2)
    await expect(vscode.models_row("The API key is wrong")).to_have_count(0)
    await take_screenshot(vscode.page, "3-key-changed")
    assert {request.bearer for request in gateway.requests} == {KEY, WRONG_KEY}
    await vscode.close_models()


async def _select_a_model(vscode: VSCodePage, _: Gateway) -> None:
    await vscode.page.locator(".model-picker-split > *").first.click()
    items = vscode.page.locator(".action-widget .monaco-list-row", has_text="Demo")
    await items.first.wait_for()
    await take_screenshot(vscode.page, "4-model-picker")
    await items.first.click()


async def _run_an_agent(vscode: VSCodePage, gateway: Gateway) -> None:
    await vscode.send_message(f"use the tool list_dir on `{vscode.workbench.workspace}`")
    await vscode.answer("The tool list_dir answered: “bridge.py”").wait_for()
    await take_screenshot(vscode.page, "5-agent")
    first, second = [request.body for request in gateway.requests if request.path == "/v1/responses"]
    assert len(first["tools"]) > 20
    assert first["input"][0]["role"] in ("system", "developer")
    outputs = [item for item in second["input"] if item.get("type") == "function_call_output"]
    assert "bridge.py" in json.dumps(outputs)


async def _read_the_usage(vscode: VSCodePage, gateway: Gateway) -> None:
    """VS Code's context meter and the status bar both show the gateway's own token counts."""
    body = [request.body for request in gateway.requests if request.path == "/v1/responses"][-1]
    input_tokens = await asyncio.to_thread(_count_input_tokens, gateway.url, body)
    await vscode.status(" %").hover()
    hover = vscode.page.locator(".monaco-hover", has_text="last answer").last
    await hover.wait_for()
    await take_screenshot(vscode.page, "6-status-bar")
    rows = dict(re.findall(r"^(input|output)\s+([\d,]+)$", await hover.inner_text(), re.MULTILINE))
    counts = {name: int(value.replace(",", "")) for name, value in rows.items()}
    assert counts["input"] == input_tokens
    await vscode.page.mouse.move(600, 300)
    await hover.wait_for(state="hidden")
    ring = vscode.page.locator(".chat-context-usage-widget, [class*=context-usage]").first
    await ring.hover()
    total = sum(counts.values())
    await vscode.page.locator("text=Context Window").last.wait_for()
    meter = await vscode.page.locator(".monaco-hover, [class*=context-usage]").all_inner_texts()
    await take_screenshot(vscode.page, "7-context-meter")
    assert f"{total / 1000:.1f}K / 128K tokens" in " ".join(meter)
    await vscode.status(" %").click()
    usage_page = vscode.page.frame_locator("iframe.webview").frame_locator("#active-frame")
    await usage_page.locator("canvas").first.wait_for()
    await take_screenshot(vscode.page, "8-usage")


async def _stop_an_answer(vscode: VSCodePage, gateway: Gateway) -> None:
    await vscode.send_message("slow long 3000")
    await vscode.answer(re.compile("w1 w2 w3")).wait_for()
    await take_screenshot(vscode.page, "9-streaming")
    await vscode.page.locator(".interactive-input-part [class*=codicon-stop]:visible").first.click()
    await gateway.wait_for_disconnect(10)
    await take_screenshot(vscode.page, "10-stopped")


STEPS = (_set_up_accounts, _select_a_model, _run_an_agent, _read_the_usage, _stop_an_answer)


def _count_input_tokens(url: str, body: dict[str, Any]) -> int:
    fields = {
        name: body[name] for name in ("model", "input", "tools", "tool_choice", "reasoning") if name in body
    }
    request = urllib.request.Request(
        f"{url}/responses/input_tokens",
        data=json.dumps(fields).encode(),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        tokens: int = json.load(response)["input_tokens"]
        return tokens


def _check_that_no_key_was_written(folder: Path) -> None:
    for path in (*folder.glob("data/**/*"), folder / "server.log"):
        if path.is_file():
            content = path.read_bytes()
            assert KEY.encode() not in content, path
            assert WRONG_KEY.encode() not in content, path
    assert ARTIFACTS.exists()
