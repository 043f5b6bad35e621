"""Set up accounts and the chat in a VS Code that was never used, with proposed APIs rejected.

Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.server import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEY, WRONG_KEY = "sk-toll-setup-4711", "sk-toll-wrong-0815"


async def test_an_account_is_added_corrected_and_used_without_signing_in(
    browser: None, package: Path, tmp_path: Path
) -> None:
    settings = {"tollbridge.interpreter": sys.executable, "tollbridge.enableChat": "ask"}
    async with (
        Gateway(api_key=KEY) as gateway,
        Workbench(tmp_path, tree="strict", vsix=package, settings=settings) as workbench,
        open_browser(workbench) as page,
    ):
        vscode = VSCodePage(page, workbench)
        await vscode.open()
        try:
            await _add_an_account_with_a_wrong_key(vscode, gateway)
            await _mend_the_only_account(vscode)
            await _use_it_in_chat(vscode)
            await _add_a_second_key_of_the_same_gateway(vscode, gateway)
        except BaseException:
            await take_screenshot(page, "failed-setup")
            raise


async def _add_an_account_with_a_wrong_key(vscode: VSCodePage, gateway: Gateway) -> None:
    await vscode.status("Tollbridge: set up").click()
    await take_screenshot(vscode.page, "setup-1-list")
    await vscode.choose_row("Add an Account")
    await vscode.type_in_prompt("(1/4): URL", "http://gateway.example/v1", "Unencrypted HTTP")
    await take_screenshot(vscode.page, "setup-2-plain-http")
    # Without /v1: the URL that works is found.
    await vscode.type_in_prompt("(1/4): URL", gateway.url.removesuffix("/v1"), "needs an API key")
    await take_screenshot(vscode.page, "setup-3-url")
    await vscode.page.keyboard.press("Enter")
    await vscode.type_in_prompt("(2/4): API key", WRONG_KEY, "The API key is wrong")
    await take_screenshot(vscode.page, "setup-4-wrong-key")
    await vscode.page.keyboard.press("Enter")
    await vscode.accept_default("(3/4): protocol")
    await vscode.fill_prompt("(4/4): name", "Work")
    await expect(vscode.status("set up")).to_have_count(0)


async def _mend_the_only_account(vscode: VSCodePage) -> None:
    await vscode.run_command("Tollbridge: Set Up")
    await vscode.page.locator(".quick-input-list", has_text="The API key is wrong").wait_for()
    await take_screenshot(vscode.page, "setup-5-broken")
    await vscode.choose_row("Edit http")
    await vscode.accept_default("(1/3): URL")
    await vscode.type_in_prompt("(2/3): API key", KEY, "has 2 models")
    await take_screenshot(vscode.page, "setup-6-right-key")
    await vscode.page.keyboard.press("Enter")
    await vscode.accept_default("(3/3): protocol")


async def _use_it_in_chat(vscode: VSCodePage) -> None:
    toast = vscode.page.locator(".notification-list-item", has_text="do not have to sign in")
    await toast.wait_for()
    await take_screenshot(vscode.page, "setup-7-offer")
    await toast.locator(".monaco-button", has_text="Use Your Models in Chat").click()
    await vscode.models_row("Demo").wait_for()
    await asyncio.sleep(8)  # VS Code restarts its extensions when the chat is enabled
    await vscode.close_models()
    await vscode.send_message("hello")
    await vscode.answer("You said “hello”").wait_for()
    await take_screenshot(vscode.page, "setup-8-answered")
    await expect(vscode.page.locator(".monaco-dialog-box")).to_have_count(0)
    user = vscode.workbench.folder / "data" / "User"
    groups = json.loads((user / "chatLanguageModels.json").read_text())
    assert [group["name"] for group in groups] == ["Work"]
    assert KEY not in str(groups)
    settings = (user / "settings.json").read_text()
    assert '"chat.byokUtilityModelDefault": "mainAgent"' in settings


async def _add_a_second_key_of_the_same_gateway(vscode: VSCodePage, gateway: Gateway) -> None:
    """The lists of two keys of one gateway never mix, also after a restart."""
    await _add_an_account(vscode, gateway, "Other", WRONG_KEY, "The API key is wrong")
    for name in ("setup-9-two-keys", "setup-10-after-a-restart"):
        await vscode.run_command("Chat: Manage Language Models")
        await vscode.models_row("The API key is wrong").wait_for()
        await expect(vscode.models_row("Demo")).to_have_count(1)
        await take_screenshot(vscode.page, name)
        await vscode.page.keyboard.press("Escape")
        await vscode.open()


async def test_an_account_that_vscode_does_not_accept_is_restored(
    browser: None, package: Path, tmp_path: Path
) -> None:
    """Changing an account removes it and adds it again. VS Code refuses that if another one has its name."""
    settings = {"tollbridge.interpreter": sys.executable}
    async with (
        Gateway(api_key=KEY) as gateway,
        Gateway() as other,
        Workbench(
            tmp_path, tree="strict", vsix=package, accounts={"Work": other.url}, settings=settings
        ) as workbench,
        open_browser(workbench) as page,
    ):
        vscode = VSCodePage(page, workbench)
        await vscode.open()
        try:
            await _add_an_account(vscode, gateway, "Second", KEY, "has 2 models")
            before = await _rename_both(workbench, "Work")
            await vscode.open()
            await (await _find_account(vscode, gateway)).click()
            await _enter_a_wrong_key(vscode)
            await page.locator(".notification-list-item", has_text="already exists").wait_for()
            await take_screenshot(page, "setup-11-refused")
            assert sorted(_read_groups(workbench), key=str) == sorted(before, key=str)
            await vscode.open()
            restored = await _find_account(vscode, gateway)
            await expect(restored).to_contain_text("has 2 models")  # so its key was restored, too
            await take_screenshot(page, "setup-12-restored")
        except BaseException:
            await take_screenshot(page, "failed-setup-restore")
            raise


async def _add_an_account(vscode: VSCodePage, gateway: Gateway, name: str, key: str, verdict: str) -> None:
    await vscode.run_command("Tollbridge: Set Up")
    await vscode.choose_row("Add an Account")
    await vscode.type_in_prompt("(1/4): URL", gateway.url, "needs an API key")
    await vscode.page.keyboard.press("Enter")
    await vscode.type_in_prompt("(2/4): API key", key, verdict)
    await vscode.page.keyboard.press("Enter")
    await vscode.accept_default("(3/4): protocol")
    await vscode.fill_prompt("(4/4): name", name)


def _groups_file(workbench: Workbench) -> Path:
    return workbench.folder / "data" / "User" / "chatLanguageModels.json"


def _read_groups(workbench: Workbench) -> list[dict[str, object]]:
    """Return the accounts; none while VS Code is writing the file."""
    text = _groups_file(workbench).read_text()
    groups: list[dict[str, object]] = json.loads(text) if text else []
    return groups


async def _rename_both(workbench: Workbench, name: str) -> list[dict[str, object]]:
    """Give the two accounts one name, as a user who edits the file can; return them."""
    async with asyncio.timeout(30):
        while len(_read_groups(workbench)) < 2:  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0.1)
    groups = [{**group, "name": name} for group in _read_groups(workbench)]
    _groups_file(workbench).write_text(json.dumps(groups))
    return groups


async def _find_account(vscode: VSCodePage, gateway: Gateway) -> Locator:
    """Open the list of steps, and return the row of an account."""
    row = vscode.page.locator(".quick-input-list .monaco-list-row", has_text=f"Edit {gateway.url}")
    async with asyncio.timeout(60):
        while True:  # VS Code asks for the models of all accounts soon after its start
            await vscode.run_command("Tollbridge: Set Up")
            await vscode.page.locator(".quick-input-list", has_text="Manage Language Models").wait_for()
            if await row.count():
                return row
            await vscode.page.keyboard.press("Escape")
            await asyncio.sleep(1)


async def _enter_a_wrong_key(vscode: VSCodePage) -> None:
    await vscode.accept_default("(1/3): URL")
    await vscode.type_in_prompt("(2/3): API key", WRONG_KEY, "The API key is wrong")
    await vscode.page.keyboard.press("Enter")
    await vscode.accept_default("(3/3): protocol")
