"""Use the packaged extension in VS Code with a litellm proxy, and with a gateway that requires reasoning.

All tests use one VS Code. Screenshots are saved in `artifacts/vscode`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from tests.interop.litellm import proxy
from tests.interop.upstream import TEXT, Upstream
from tests.vscode.browser import open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop.workbench import Workbench

from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Call, ScriptedAnswer, Think, encode_encrypted_content
from tollbridge.testing.server import Gateway

# The first run installs the proxy, which takes several minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.asyncio(loop_scope="module")]

THOUGHT = "A folder is to be listed; there is a tool for that."


class Scene(NamedTuple):
    vscode: VSCodePage
    upstream: Upstream
    gateway: Gateway

    @property
    def prompt(self) -> str:
        return f"use the tool list_dir on {self.vscode.workbench.workspace}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(
    browser: None, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("gateways")
    async with (
        Upstream() as upstream,
        proxy.running(upstream.url) as litellm,
        Gateway(strict=True, model=lambda turn: _think_and_list(turn, folder / "workspace")) as gateway,
    ):
        accounts = {"Sealed": gateway.url}
        settings = {"tollbridge.interpreter": sys.executable}
        workbench = Workbench(folder, tree="strict", vsix=package, accounts=accounts, settings=settings)
        async with workbench, open_browser(workbench) as page:
            (workbench.workspace / "bridge.py").write_text("print('toll')\n")
            vscode = VSCodePage(page, workbench)
            await vscode.open()
            await vscode.set_up_chat()
            await vscode.add_account("Proxy", litellm.url, litellm.key)
            await vscode.models_row(litellm.model).wait_for()
            await vscode.close_models()
            yield Scene(vscode, upstream, gateway)
            await take_screenshot(page, "gateways-at-the-end")  # also if a test has failed


def _think_and_list(turn: AcceptedRequest, folder: Path) -> ScriptedAnswer | None:
    """Answer with reasoning and a tool call; after the tool's result, use the scripted model."""
    if any(item["type"] == "function_call_output" for item in turn.items):
        return None
    return ScriptedAnswer(blocks=(Think(THOUGHT), Call("list_dir", json.dumps({"path": str(folder)}))))


async def test_an_agent_turn_works_through_a_litellm_proxy(scene: Scene) -> None:
    vscode, upstream, _ = scene
    await vscode.start_chat("bridge-test")
    await vscode.send_message(scene.prompt)
    await vscode.answer(TEXT).wait_for()
    answer = await vscode.read_answer()
    await take_screenshot(vscode.page, "11-litellm")
    assert "bridge.py" in answer
    first, second = upstream.requests
    assert len(first["tools"]) > 20
    call, result = second["messages"][-2:]
    assert [tool_call["function"]["name"] for tool_call in call["tool_calls"]] == ["list_dir"]
    assert result["role"] == "tool"
    assert "bridge.py" in str(result["content"])


async def test_reasoning_is_sent_back_before_the_tool_call_it_led_to(scene: Scene) -> None:
    vscode, _, gateway = scene
    await vscode.start_chat("Demo")
    await vscode.send_message(scene.prompt)
    await vscode.answer("The tool list_dir answered: “bridge.py”").wait_for()
    await take_screenshot(vscode.page, "12-sealed")
    requests = [request for request in gateway.requests if request.path == "/v1/responses"]
    assert [request.status for request in requests] == [200, 200]
    items = requests[1].body["input"]
    [position] = [index for index, item in enumerate(items) if item.get("type") == "function_call"]
    reasoning = items[position - 1]
    assert reasoning["type"] == "reasoning"
    assert reasoning["encrypted_content"] == encode_encrypted_content(THOUGHT)
    assert [part["text"] for part in reasoning["summary"]] == [THOUGHT]
