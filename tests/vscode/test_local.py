"""The packaged extension in VS Code before a real model in llama.cpp, whose window is small."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.vscode.person import Person
from tests.vscode.window import opened, shoot
from workshop.workbench import Workbench

from tollbridge.local import fetch
from tollbridge.local.fetch import SMOLLM2
from tollbridge.local.process import LocalModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]

WINDOW = 2048
PATIENCE_MS = 150_000  # a core reads some 60 tokens a second when it is not alone
# VS Code cuts even an agent's prompt to the window it is told. So the same model is there twice: once as it
# is, and once with a window that the person thinks is larger. So small a model does not know when to stop.
CONFIG = """
[models."smollm2*"]
parameters = { max_output_tokens = 48, temperature = 0.0 }

[models."overrated"]
context_window = 16384
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def person(
    browser: None, packed: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Person]:
    folder = tmp_path_factory.mktemp("local")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    again = folder / "overrated.gguf"
    again.symlink_to(await fetch())
    async with LocalModel(context=WINDOW) as local, LocalModel(again, context=WINDOW) as overrated:
        workbench = Workbench(
            folder,
            tree="strict",
            vsix=packed,
            accounts={"Local": local.url, "Overrated": overrated.url},
            environment={"TOLLBRIDGE_CONFIG": str(config)},
        )
        async with workbench, opened(workbench) as page:
            someone = Person(page, workbench)
            await someone.opens_vscode()
            await someone.sets_up_chat()
            await someone.closes_the_models()
            yield someone
            await shoot(page, "local-at-the-end")  # also where a test failed


async def test_what_an_agent_is_told_does_not_fit_and_the_chat_says_so_with_the_numbers(
    person: Person,
) -> None:
    await person.begins("overrated")
    await person.says("What is a bridge?")
    await person.answer("Start a new chat or remove attachments.").wait_for()
    said = await person.reads_to_the_end()
    await shoot(person.page, "13-too-long")
    tokens, window = map(int, re.findall(r"(\d+) tokens", said))
    assert window == WINDOW < tokens


async def test_a_plain_question_is_answered(person: Person) -> None:
    await person.begins(SMOLLM2.id, mode="Ask")
    await person.says("What is a bridge?")
    await person.status(f"{SMOLLM2.id} ").filter(has_text="/2K").wait_for(timeout=PATIENCE_MS)
    said = await person.reads_to_the_end()
    await shoot(person.page, "14-local")
    assert len(re.findall(r"[a-z]{2,}", said)) > 10
