"""Someone at the keyboard of a VS Code in a browser."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from playwright.async_api import Locator, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout
from workshop.workbench import Workbench

SLOW_MS = 60_000
MODES = re.compile("^(Agent|Ask|Plan)$")


class Person:
    def __init__(self, page: Page, workbench: Workbench) -> None:
        page.set_default_timeout(SLOW_MS)
        self.page = page
        self.workbench = workbench

    async def opens_vscode(self) -> None:
        await self.page.goto(self.workbench.address, wait_until="domcontentloaded")
        await self.status("Tollbridge").wait_for()

    def status(self, text: str) -> Locator:
        return self.page.locator('.statusbar-item[id*="tollbridge"]', has_text=text)

    async def runs(self, command: str) -> None:
        await self.page.keyboard.press("F1")
        await self.page.locator(".quick-input-widget input").first.wait_for()
        await self.page.keyboard.type(command)
        row = self.page.locator(".quick-input-list .monaco-list-row", has_text=command).first
        await row.click()

    async def answers(self, prompt: str, text: str) -> None:
        widget = self.page.locator(".quick-input-widget", has_text=prompt)
        await widget.wait_for()
        await self.page.keyboard.press("Control+A")
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")
        await widget.wait_for(state="hidden")

    async def accepts(self, prompt: str) -> None:
        """What is offered."""
        widget = self.page.locator(".quick-input-widget", has_text=prompt)
        await widget.wait_for()
        await self.page.keyboard.press("Enter")
        await widget.wait_for(state="hidden")

    def row(self, text: str) -> Locator:
        return self.page.locator(".models-widget .monaco-list-row", has_text=text)

    async def chooses(self, text: str) -> None:
        """From a menu, which takes no click in its first moments."""
        item = self.page.locator(".monaco-menu .action-label", has_text=text).first
        await item.wait_for()
        while await item.is_visible():
            await asyncio.sleep(0.5)
            with suppress(PlaywrightTimeout):
                await item.click(timeout=1_000)

    async def sets_up_chat(self) -> None:
        """Leaves the list of models open."""
        await self.runs("Tollbridge: Set Up")
        await self.page.locator(".models-widget .monaco-button", has_text="Add Models").first.wait_for()
        await asyncio.sleep(8)  # the host starts its extensions anew when its chat is set up

    async def closes_the_models(self) -> None:
        await self.page.keyboard.press("Escape")
        await self.page.locator(".models-widget").wait_for(state="hidden")

    async def adds_account(self, name: str, url: str, key: str) -> None:
        await self.page.locator(".models-widget .monaco-button", has_text="Add Models").first.click()
        await self.chooses("Tollbridge")
        await self.answers("Group Name", name)
        await self.answers(f"{name}: Base URL", url)
        await self.answers(f"{name}: API Key", key)
        await self.accepts(f"{name}: Protocol")

    async def changes_key(self, name: str, key: str) -> None:
        await self.row(name).first.locator(".codicon-gear, .codicon-settings-gear").click()
        await self.chooses("Update API Key")
        await self.answers("API Key", key)

    async def says(self, text: str) -> None:
        box = self.page.locator(
            ".interactive-input-part .monaco-editor, .chat-input-container .monaco-editor"
        )
        await box.first.click()
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Escape")  # closes suggestions
        await self.page.keyboard.press("Enter")

    def answer(self, text: str | re.Pattern[str]) -> Locator:
        return self.page.locator(".interactive-session .interactive-item-container", has_text=text).last

    async def begins(self, model: str, mode: str = "Agent") -> None:
        """A new chat with a model, in a mode."""
        chat = self.page.locator(".part.auxiliarybar")
        await chat.locator("a.action-label[aria-label^='New Chat']").first.click()
        await chat.locator(".interactive-item-container").first.wait_for(state="hidden")
        await asyncio.sleep(1)  # it takes the focus a moment later, which closes lists
        await self.picks(chat.locator(".chat-input-toolbars .action-label", has_text=MODES).first, mode)
        await self.picks(chat.locator(".model-picker-split > *").first, model, search=True)

    async def picks(self, button: Locator, text: str, *, search: bool = False) -> None:
        """From a list behind a button; opened again where it closed by itself."""
        widget = self.page.locator(".action-widget")
        row = widget.locator(".monaco-list-row", has_text=text).first
        async with asyncio.timeout(SLOW_MS / 1000):
            while True:
                await button.click()
                with suppress(PlaywrightTimeout):
                    if search:
                        await widget.locator("input").first.wait_for(timeout=3_000)
                        await self.page.keyboard.type(text)
                    await row.wait_for(timeout=3_000)
                    await asyncio.sleep(0.5)  # until it has faded in
                    await row.click(timeout=1_000)
                    await row.wait_for(state="hidden", timeout=3_000)
                    return
                await self.page.keyboard.press("Escape")

    async def reads_to_the_end(self) -> str:
        """The last answer, when nothing more comes."""
        response = self.page.locator(".part.auxiliarybar .interactive-response:not(.chat-response-loading)")
        await response.last.wait_for()
        return await response.last.inner_text()
