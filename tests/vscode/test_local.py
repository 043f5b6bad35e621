"""Use the packaged extension in VS Code with a real model in llama.cpp that has a small context window."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.local.process import SMOLLM2, LocalModel, fetch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]

CONTEXT_WINDOW = 2048
TIMEOUT_MS = 150_000  # one core of a busy machine reads about 60 tokens per second
# VS Code truncates every prompt to the context window that the model reports. So the model is served twice:
# once as it is, and once with a window that is configured too large. The output is limited because so small a
# model often does not stop by itself.
CONFIG = """
[models."smollm2*"]
parameters = { max_output_tokens = 48, temperature = 0.0 }

[models."overrated"]
context_window = 16384
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vscode(
    browser: None, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VSCodePage]:
    folder = tmp_path_factory.mktemp("local")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    second_copy = folder / "overrated.gguf"
    second_copy.symlink_to(await fetch())
    async with (
        LocalModel(context=CONTEXT_WINDOW) as local,
        LocalModel(second_copy, context=CONTEXT_WINDOW) as overrated,
    ):
        workbench = Workbench(
            folder,
            tree="strict",
            vsix=package,
            accounts={"Local": local.url, "Overrated": overrated.url},
            settings={"tollbridge.interpreter": sys.executable},
            environment={"TOLLBRIDGE_CONFIG": str(config)},
        )
        async with workbench, open_browser(workbench) as page:
            vscode = VSCodePage(page, workbench)
            await vscode.open()
            await vscode.set_up_chat()
            await vscode.close_models()
            yield vscode
            await take_screenshot(page, "local-at-the-end")  # also if a test has failed


async def test_a_prompt_that_exceeds_the_context_window_gives_an_error_with_the_numbers(
    vscode: VSCodePage,
) -> None:
    await vscode.start_chat("overrated")
    await vscode.send_message("What is a bridge?")
    await vscode.answer("Start a new chat or remove attachments.").wait_for()
    answer = await vscode.read_answer()
    await take_screenshot(vscode.page, "13-too-long")
    tokens, window = map(int, re.findall(r"(\d+) tokens", answer))
    assert window == CONTEXT_WINDOW < tokens


async def test_a_short_question_is_answered(vscode: VSCodePage) -> None:
    await vscode.start_chat(SMOLLM2.id, mode="Ask")
    await vscode.send_message("What is a bridge?")
    await vscode.status(re.compile(rf"{re.escape(SMOLLM2.id)} \d+ %")).wait_for(timeout=TIMEOUT_MS)
    answer = await vscode.read_answer()
    await take_screenshot(vscode.page, "14-local")
    assert len(re.findall(r"[a-z]{2,}", answer)) > 10
