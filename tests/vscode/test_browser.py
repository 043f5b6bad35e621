"""What a person sees: the packaged extension in VS Code, in a browser, where proposed APIs are refused.

Each picture is kept in `artifacts/vscode`, to be looked at.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.vscode.person import Person
from tests.vscode.window import ARTIFACTS, opened, shoot
from workshop.workbench import Workbench

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KEY, WRONG_KEY = "sk-toll-browser-4711", "sk-toll-wrong-0815"


async def test_from_setting_up_to_an_agents_answer(browser: None, packed: Path, tmp_path: Path) -> None:
    async with (
        Gateway(api_key=KEY, settings=FaultSettings(pace=0.025)) as gateway,
        Workbench(tmp_path, tree="strict", vsix=packed) as workbench,
        opened(workbench) as page,
    ):
        (workbench.workspace / "bridge.py").write_text("print('toll')\n")
        person = Person(page, workbench)
        await person.opens_vscode()
        for step in (_sets_up_accounts, _finds_the_models, _has_an_agent_work, _reads_the_toll, _stops):
            await _pictured(page, step, person, gateway)
    _check_that_no_key_is_written_down(tmp_path)


Step = Callable[[Person, Gateway], Awaitable[None]]


async def _pictured(page: Page, step: Step, person: Person, gateway: Gateway) -> None:
    """A step that fails leaves a picture too."""
    try:
        await step(person, gateway)
    except BaseException:
        await shoot(page, f"failed{step.__name__}")
        raise


async def _sets_up_accounts(person: Person, gateway: Gateway) -> None:
    await person.sets_up_chat()
    await person.adds_account("Work", gateway.url, WRONG_KEY)
    await person.row("The API key is wrong").wait_for()
    await shoot(person.page, "1-wrong-key")
    await person.adds_account("Home", gateway.url, KEY)
    await expect(person.row("Demo")).to_have_count(1)
    await shoot(person.page, "2-two-accounts")
    await person.changes_key("Work", KEY)
    await expect(person.row("Demo")).to_have_count(2)
    await expect(person.row("Plain")).to_have_count(2)
    await expect(person.row("The API key is wrong")).to_have_count(0)
    await shoot(person.page, "3-key-changed")
    assert {arrival.bearer for arrival in gateway.requests} == {KEY, WRONG_KEY}
    await person.closes_the_models()


async def _finds_the_models(person: Person, _: Gateway) -> None:
    await person.page.locator(".model-picker-split > *").first.click()
    items = person.page.locator(".action-widget .monaco-list-row", has_text="Demo")
    await items.first.wait_for()
    await shoot(person.page, "4-model-picker")
    await items.first.click()


async def _has_an_agent_work(person: Person, gateway: Gateway) -> None:
    await person.says(f"use the tool list_dir on {person.workbench.workspace}")
    await person.answer("The tool list_dir answered: “bridge.py”").wait_for()
    await shoot(person.page, "5-agent")
    first, second = [arrival.body for arrival in gateway.requests if arrival.path == "/v1/responses"]
    assert len(first["tools"]) > 20
    assert first["input"][0]["role"] in ("system", "developer")
    outputs = [item for item in second["input"] if item.get("type") == "function_call_output"]
    assert "bridge.py" in json.dumps(outputs)


async def _reads_the_toll(person: Person, gateway: Gateway) -> None:
    """The host's meter and our status bar both show what the gateway itself counts."""
    body = [arrival.body for arrival in gateway.requests if arrival.path == "/v1/responses"][-1]
    counted = await asyncio.to_thread(_count, gateway.url, body)
    await person.status("/128K").hover()
    hover = person.page.locator(".monaco-hover", has_text="last answer").last
    await hover.wait_for()
    await shoot(person.page, "6-status-bar")
    toll = dict(re.findall(r"^(input|output)\s+([\d,]+)$", await hover.inner_text(), re.MULTILINE))
    numbers = {name: int(value.replace(",", "")) for name, value in toll.items()}
    assert numbers["input"] == counted
    await person.page.mouse.move(600, 300)
    await hover.wait_for(state="hidden")
    ring = person.page.locator(".chat-context-usage-widget, [class*=context-usage]").first
    await ring.hover()
    total = sum(numbers.values())
    await person.page.locator("text=Context Window").last.wait_for()
    meter = await person.page.locator(".monaco-hover, [class*=context-usage]").all_inner_texts()
    await shoot(person.page, "7-context-meter")
    assert f"{total / 1000:.1f}K / 128K tokens" in " ".join(meter)
    await person.status("/128K").click()
    await asyncio.sleep(4)  # the preview is a page of its own, into which one cannot look from here
    await shoot(person.page, "8-usage")


async def _stops(person: Person, gateway: Gateway) -> None:
    await person.says("slow long 3000")
    await person.answer(re.compile("w1 w2 w3")).wait_for()
    await shoot(person.page, "9-streaming")
    await person.page.locator(".interactive-input-part [class*=codicon-stop]:visible").first.click()
    await gateway.hung_up(10)
    await shoot(person.page, "10-stopped")


def _count(url: str, body: dict[str, Any]) -> int:
    kept = {
        name: body[name] for name in ("model", "input", "tools", "tool_choice", "reasoning") if name in body
    }
    request = urllib.request.Request(
        f"{url}/responses/input_tokens",
        data=json.dumps(kept).encode(),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        tokens: int = json.load(answer)["input_tokens"]
        return tokens


def _check_that_no_key_is_written_down(folder: Path) -> None:
    for path in (*folder.glob("data/**/*"), folder / "server.log"):
        if path.is_file():
            content = path.read_bytes()
            assert KEY.encode() not in content, path
            assert WRONG_KEY.encode() not in content, path
    assert ARTIFACTS.exists()
