"""A page object for VS Code in a browser: each method is one action of a user."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from playwright.async_api import Locator, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout
from workshop.workbench import Workbench

TIMEOUT_MS = 60_000
MODES = re.compile("^(Agent|Ask|Plan)$")


class VSCodePage:
    def __init__(self, page: Page, workbench: Workbench) -> None:
        page.set_default_timeout(TIMEOUT_MS)
        self.page = page
        self.workbench = workbench

    async def open(self) -> None:
        await self.page.goto(self.workbench.address, wait_until="domcontentloaded")
        await self.status("Tollbridge").wait_for()

    async def wait_for_model(self, name: str) -> None:
        """Wait until the chat has chosen a model."""
        await self.page.locator(".part.auxiliarybar .model-picker-split > *", has_text=name).first.wait_for()

    def status(self, text: str | re.Pattern[str]) -> Locator:
        return self.page.locator('.statusbar-item[id*="tollbridge"]', has_text=text)

    async def run_command(self, command: str) -> None:
        await self.page.keyboard.press("F1")
        await self.page.locator(".quick-input-widget input").first.wait_for()
        await self.page.keyboard.type(command)
        row = self.page.locator(".quick-input-list .monaco-list-row", has_text=command).first
        await row.click()

    async def fill_prompt(self, prompt: str, text: str) -> None:
        widget = self.page.locator(".quick-input-widget", has_text=prompt)
        await widget.wait_for()
        await self.page.keyboard.press("Control+A")
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")
        await widget.wait_for(state="hidden")

    async def accept_default(self, prompt: str) -> None:
        widget = self.page.locator(".quick-input-widget", has_text=prompt)
        await widget.wait_for()
        await self.page.keyboard.press("Enter")
        await widget.wait_for(state="hidden")

    async def type_in_prompt(self, prompt: str, text: str, message: str) -> None:
        """Replace the text of a prompt, and wait until a message appears under it."""
        widget = self.page.locator(".quick-input-widget", has_text=prompt)
        await widget.wait_for()
        await self.page.keyboard.press("Control+A")
        await self.page.keyboard.type(text)
        await widget.get_by_text(message).first.wait_for()

    async def choose_row(self, text: str) -> None:
        """Click a row of the list that is open."""
        await self.page.locator(".quick-input-list .monaco-list-row", has_text=text).first.click()

    def models_row(self, text: str) -> Locator:
        return self.page.locator(".models-widget .monaco-list-row", has_text=text)

    async def choose_menu_item(self, text: str) -> None:
        """Click a menu item repeatedly: a menu ignores clicks in the first moments after it has opened."""
        item = self.page.locator(".monaco-menu .action-label", has_text=text).first
        await item.wait_for()
        while await item.is_visible():
            await asyncio.sleep(0.5)
            with suppress(PlaywrightTimeout):
                await item.click(timeout=1_000)

    async def set_up_chat(self) -> None:
        """Activate the chat. The list of models stays open."""
        await self.run_command("Chat: Manage Language Models")
        await self.page.locator(".models-widget .monaco-button", has_text="Add Models").first.wait_for()
        await asyncio.sleep(8)  # VS Code restarts its extensions when the chat is set up

    async def close_models(self) -> None:
        await self.page.keyboard.press("Escape")
        await self.page.locator(".models-widget").wait_for(state="hidden")

    async def add_account(self, name: str, url: str, key: str) -> None:
        await self.page.locator(".models-widget .monaco-button", has_text="Add Models").first.click()
        await self.choose_menu_item("Tollbridge")
        await self.fill_prompt("Group Name", name)
        await self.fill_prompt(f"{name}: Base URL", url)
        await self.fill_prompt(f"{name}: API Key", key)
        await self.accept_default(f"{name}: Protocol")

    async def change_key(self, name: str, key: str) -> None:
        await self.models_row(name).first.locator(".codicon-gear, .codicon-settings-gear").click()
        await self.choose_menu_item("Update API Key")
        await self.fill_prompt("API Key", key)

    async def send_message(self, text: str) -> None:
        box = self.page.locator(
            ".interactive-input-part .monaco-editor, .chat-input-container .monaco-editor"
        )
        await box.first.click()
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Escape")  # closes suggestions
        await self.page.keyboard.press("Enter")

    def answer(self, text: str | re.Pattern[str]) -> Locator:
        return self.page.locator(".interactive-session .interactive-item-container", has_text=text).last

    async def start_chat(self, model: str, mode: str = "Agent") -> None:
        chat = self.page.locator(".part.auxiliarybar")
        await chat.locator("a.action-label[aria-label^='New Chat']").first.click()
        await chat.locator(".interactive-item-container").first.wait_for(state="hidden")
        await asyncio.sleep(1)  # the new chat takes the focus a moment later, which would close a list
        mode_button = chat.locator(".chat-input-toolbars .action-label", has_text=MODES).first
        await self.choose_from_list(mode_button, mode)
        await self.choose_from_list(chat.locator(".model-picker-split > *").first, model, search=True)

    async def choose_from_list(self, button: Locator, text: str, *, search: bool = False) -> None:
        """Open a list with a button and click a row; try again if the list closes by itself."""
        widget = self.page.locator(".action-widget")
        row = widget.locator(".monaco-list-row", has_text=text).first
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while True:
                await button.click()
                with suppress(PlaywrightTimeout):
                    if search:
                        await widget.locator("input").first.wait_for(timeout=3_000)
                        await self.page.keyboard.type(text)
                    await row.wait_for(timeout=3_000)
                    await asyncio.sleep(0.5)  # until the animation has ended
                    await row.click(timeout=1_000)
                    await row.wait_for(state="hidden", timeout=3_000)
                    return
                await self.page.keyboard.press("Escape")

    async def read_answer(self) -> str:
        """Return the text of the last answer when it is complete."""
        response = self.page.locator(".part.auxiliarybar .interactive-response:not(.chat-response-loading)")
        await response.last.wait_for()
        return await response.last.inner_text()
