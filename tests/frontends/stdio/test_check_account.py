"""The sidecar tests an account while a person types it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import Editor

from tollbridge.testing.server import Gateway

KEY = "sk-toll-check-4711"


async def check(editor: Editor, base_url: str, key: str | None = None) -> dict[str, Any]:
    account = {"baseUrl": base_url, **({"apiKey": key} if key else {})}
    result: dict[str, Any] = await editor.request("checkAccount", {"account": account})
    return result


async def test_a_check_of_a_working_account_reports_how_many_models_it_has() -> None:
    async with Gateway(api_key=KEY) as gateway, Editor() as editor:
        await editor.initialize()
        result = await check(editor, gateway.url, KEY)
        assert result == {
            "baseUrl": gateway.url,
            "severity": "info",
            "message": f"{gateway.url} has 2 models.",
        }


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_missing_version_is_added_to_the_url(slash: str) -> None:
    async with Gateway(api_key=KEY) as gateway, Editor() as editor:
        await editor.initialize()
        result = await check(editor, gateway.url.removesuffix("/v1") + slash)
        assert result["baseUrl"] == gateway.url
        assert result["severity"] == "info"
        assert "needs an API key" in result["message"]


async def test_a_wrong_key_is_a_warning_that_does_not_contain_it() -> None:
    async with Gateway(api_key=KEY) as gateway, Editor() as editor:
        await editor.initialize()
        result = await check(editor, gateway.url, "sk-toll-other-0815")
        assert result["severity"] == "warning"
        assert "API key is wrong" in result["message"]
        assert "0815" not in str(result)


@pytest.mark.parametrize(
    ("url", "severity", "words"),
    [
        ("http://gateway.example/v1", "error", "Unencrypted HTTP to gateway.example is not allowed"),
        ("localhost:80", "error", "Invalid gateway URL"),
        ("", "error", "Invalid base URL"),
        ("http://127.0.0.1:9/v1", "warning", "Could not connect to 127.0.0.1:9"),
    ],
)
async def test_a_url_that_cannot_work_is_explained(url: str, severity: str, words: str) -> None:
    async with Editor() as editor:
        await editor.initialize()
        result = await check(editor, url)
        assert result["severity"] == severity
        assert words in result["message"]
        assert result["baseUrl"] == url
