"""What a turn needs to know of its server is read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tollbridge.compat.profiles import load_profile, save_profile
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.handlers import Handlers
from tollbridge.frontends.stdio.output import Output
from tollbridge.frontends.vscode.wire import Message, Text
from tollbridge.testing.server import Gateway
from tollbridge.transport.stdio import Stdio
from tollbridge.types.quirks import Quirks


@pytest.mark.parametrize("recorded", [False, True])
async def test_the_profile_is_read_once_a_turn(
    recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def reading(base_url: str, *rest: Any) -> Any:
        reads.append(base_url)
        return load_profile(base_url, *rest)

    monkeypatch.setattr("tollbridge.compat.profiles.load_profile", reading)
    settings = wire.EditorSettings(record=str(tmp_path) if recorded else None)
    handlers = Handlers(settings, None, HybridTokenEstimator(), Output(Stdio(0, 1)))
    async with Gateway() as gateway:
        save_profile(gateway.url, "tollbridge/demo", Quirks(system="system", input_tokens=False))
        reads.clear()  # saving a profile reads the earlier one
        account = wire.AccountParams(gateway.url)
        messages = [Message(3, [Text("Be brief.")]), Message(1, [Text("Hi")])]
        params = wire.ChatParams(account=account, model="tollbridge/demo", messages=messages)
        await handlers.chats.answer(params, 1)
        sent = list(gateway.requests)
    await handlers.aclose()
    assert reads == [gateway.url]
    assert [request.body["input"][0]["role"] for request in sent] == ["system"]  # and no question for a count
