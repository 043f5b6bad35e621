"""The packaged extension in VS Code before gateways that people run: a litellm proxy, and one that wants its
reasoning back.

One VS Code for all; each picture is kept in `artifacts/vscode`, to be looked at.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from tests.interop.litellm import proxy
from tests.interop.litellm.upstream import TEXT, Upstream
from tests.vscode.person import Person
from tests.vscode.window import opened, shoot
from workshop.workbench import Workbench

from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Call, ScriptedAnswer, Think, encode_encrypted_content
from tollbridge.testing.server import Gateway

# The first run installs the proxy, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.asyncio(loop_scope="module")]

THOUGHT = "A folder is to be listed; there is a tool for that."


class Scene(NamedTuple):
    person: Person
    upstream: Upstream
    gateway: Gateway

    @property
    def wish(self) -> str:
        return f"use the tool list_dir on {self.person.workbench.workspace}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(
    browser: None, packed: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("gateways")
    async with (
        Upstream() as upstream,
        proxy.running(upstream.url) as litellm,
        Gateway(strict=True, model=lambda turn: _thinks_and_lists(turn, folder / "workspace")) as gateway,
    ):
        accounts = {"Sealed": gateway.url}
        workbench = Workbench(folder, tree="strict", vsix=packed, accounts=accounts)
        async with workbench, opened(workbench) as page:
            (workbench.workspace / "bridge.py").write_text("print('toll')\n")
            person = Person(page, workbench)
            await person.opens_vscode()
            await person.sets_up_chat()
            await person.adds_account("Proxy", litellm.url, litellm.key)
            await person.row(litellm.model).wait_for()
            await person.closes_the_models()
            yield Scene(person, upstream, gateway)
            await shoot(page, "gateways-at-the-end")  # also where a test failed


def _thinks_and_lists(turn: AcceptedRequest, folder: Path) -> ScriptedAnswer | None:
    """A thought and the call it leads to; after the tool's result, what the scripted model says."""
    if any(item["type"] == "function_call_output" for item in turn.items):
        return None
    return ScriptedAnswer(blocks=(Think(THOUGHT), Call("list_dir", json.dumps({"path": str(folder)}))))


async def test_an_agents_turn_goes_through_a_litellm_proxy(scene: Scene) -> None:
    person, upstream, _ = scene
    await person.begins("bridge-test")
    await person.says(scene.wish)
    await person.answer(TEXT).wait_for()
    said = await person.reads_to_the_end()
    await shoot(person.page, "11-litellm")
    assert "bridge.py" in said
    first, second = upstream.requests
    assert len(first["tools"]) > 20
    call, result = second["messages"][-2:]
    assert [each["function"]["name"] for each in call["tool_calls"]] == ["list_dir"]
    assert result["role"] == "tool"
    assert "bridge.py" in str(result["content"])


async def test_reasoning_comes_back_before_the_call_it_led_to(scene: Scene) -> None:
    person, _, gateway = scene
    await person.begins("Demo")
    await person.says(scene.wish)
    await person.answer("The tool list_dir answered: “bridge.py”").wait_for()
    await shoot(person.page, "12-sealed")
    turns = [arrival for arrival in gateway.requests if arrival.path == "/v1/responses"]
    assert [arrival.status for arrival in turns] == [200, 200]
    items = turns[1].body["input"]
    [place] = [index for index, item in enumerate(items) if item.get("type") == "function_call"]
    thought = items[place - 1]
    assert thought["type"] == "reasoning"
    assert thought["encrypted_content"] == encode_encrypted_content(THOUGHT)
    assert [part["text"] for part in thought["summary"]] == [THOUGHT]
