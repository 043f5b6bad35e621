"""The names that requests go by are the editor's to choose, and each is one request's while it lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import Editor

from tollbridge.protocols import jsonrpc
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(settings=FaultSettings(pace=0.02)) as running:
        yield running


@pytest.fixture
async def editor() -> AsyncIterator[Editor]:
    async with Editor() as running:
        await running.initialize()
        yield running


def find_request(gateway: Gateway, call_id: object, words: str) -> dict[str, Any]:
    messages = [{"role": 1, "content": [{"type": "text", "value": words}]}]
    params = {"account": {"baseUrl": gateway.url}, "model": "tollbridge/demo", "messages": messages}
    return {"jsonrpc": "2.0", "id": call_id, "method": "chat", "params": params}


async def test_no_name_a_request_goes_by_keeps_it_from_being_stopped(
    editor: Editor, gateway: Gateway
) -> None:
    editor.send(find_request(gateway, "settings", "slow long 2000"))
    await editor.until_part("settings")
    editor.notify("settings", {})
    await editor.request("usage")  # which is answered when the settings have been changed
    editor.notify("$/cancelRequest", {"id": "settings"})
    stopped = await editor.until_orphan()
    assert (stopped["id"], stopped["error"]["code"]) == ("settings", jsonrpc.REQUEST_CANCELLED)


async def test_an_id_that_is_under_way_is_refused_until_its_request_has_ended(
    editor: Editor, gateway: Gateway
) -> None:
    editor.send(find_request(gateway, "one", "slow long 2000"))
    await editor.until_part("one")
    editor.send(find_request(gateway, "one", "hello"))
    refused = await editor.until_orphan()
    assert (refused["id"], refused["error"]["code"]) == ("one", jsonrpc.INVALID_REQUEST)
    assert "pending" in refused["error"]["message"]
    # The first is still there, and can be stopped.
    editor.notify("$/cancelRequest", {"id": "one"})
    assert (await editor.until_orphan())["error"]["code"] == jsonrpc.REQUEST_CANCELLED
    for _ in range(2):
        editor.send(find_request(gateway, "one", "hello"))
        assert (await editor.until_orphan())["result"]["finishReason"] == "stop"
