"""The usage page and its figures over the pipe, as an editor's webview uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.frontends.stdio.stdio_client import Editor, Refusal

from tollbridge.frontends.usage_page import read_page
from tollbridge.testing.server import Gateway


async def test_the_report_contains_the_turns_of_the_editor_and_is_sent_again_only_when_it_changed(
    tmp_path: Path,
) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOG_DIR": str(tmp_path / "lists")}
    message = {"role": 1, "content": [{"type": "text", "value": "hello"}]}
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        assert (await editor.request("usagePage", {}))["html"] == read_page()
        account = {"baseUrl": gateway.url}
        await editor.request("models", {"account": account})
        chat = {"account": account, "model": "tollbridge/demo", "messages": [message]}
        await editor.request("chat", chat)
        report = await editor.request("usageReport", {"days": 7})
        (model,) = report["models"]
        (counted,) = [answer.usage for answer in gateway.counted if answer.usage]
        assert (model["model"], model["requests"]) == ("tollbridge/demo", 1)
        assert model["usage"]["input_tokens"] == counted.input_tokens
        assert [entry["model"] for entry in report["accuracy"]] == ["tollbridge/demo"]
        unchanged = {"days": 7, "revision": report["revision"]}
        assert await editor.request("usageReport", unchanged) == {"revision": report["revision"]}
        await editor.request("chat", chat)
        assert (await editor.request("usageReport", unchanged))["total"]["requests"] == 2


async def test_an_invalid_number_of_days_is_refused() -> None:
    async with Editor() as editor:
        await editor.initialize()
        for days in (0, 3651, "x"):
            with pytest.raises(Refusal):
                await editor.request("usageReport", {"days": days})
