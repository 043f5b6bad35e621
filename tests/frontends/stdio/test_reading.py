"""What a turn needs to know of its server is read once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tollbridge.compat.profiles import load_profile, save_profile
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.stdio.handlers import Handlers
from tollbridge.frontends.vscode import wire
from tollbridge.testing.server import Gateway
from tollbridge.types.quirks import Quirks


async def ignore(parts: list[wire.Part]) -> None:
    """Report nothing."""


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
    with closing(HybridTokenEstimator()) as estimator:
        turns = Handlers(settings, estimator, lambda _: None)
        async with Gateway() as gateway:
            save_profile(gateway.url, "tollbridge/demo", Quirks(system="system", input_tokens=False))
            reads.clear()  # saving a profile reads the earlier one
            account = wire.AccountParams(gateway.url)
            messages = [wire.Message(3, [wire.Text("Be brief.")]), wire.Message(1, [wire.Text("Hi")])]
            params = wire.ChatParams(account=account, model="tollbridge/demo", messages=messages)
            await turns.chat(params, ignore, lambda wait: None)
            sent = list(gateway.requests)
        await turns.aclose()
    assert reads == [gateway.url]
    assert [request.body["input"][0]["role"] for request in sent] == ["system"]  # and no question for a count
