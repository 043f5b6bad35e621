"""What a turn needs to know of its server is read once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tollbridge.core.quirks import Quirks
from tollbridge.editors.vscode import wire as vscode
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.gateway import Gateway
from tollbridge.profiles import keep_profile, kept_profile
from tollbridge.sidecar import wire
from tollbridge.sidecar.turns import Turns


@pytest.mark.parametrize("recorded", [False, True])
async def test_the_profile_is_read_once_a_turn(
    recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def reading(base_url: str, *rest: Any) -> Any:
        reads.append(base_url)
        return kept_profile(base_url, *rest)

    monkeypatch.setattr("tollbridge.profiles.lookup.kept_profile", reading)
    settings = wire.Settings(record=str(tmp_path) if recorded else None)
    with closing(HybridTokenEstimator()) as estimator:
        turns = Turns(settings, estimator, lambda _: None)
        async with Gateway() as gateway:
            keep_profile(gateway.url, "tollbridge/demo", Quirks(system="system", input_tokens=False))
            account = wire.Account(gateway.url)
            said = [vscode.Message(3, [vscode.Text("Be brief.")]), vscode.Message(1, [vscode.Text("Hi")])]
            await turns.chat(
                wire.Chat(account=account, model="tollbridge/demo", messages=said), lambda _: None
            )
            sent = list(gateway.requests)
        await turns.aclose()
    assert reads == [gateway.url]
    assert [request.body["input"][0]["role"] for request in sent] == ["system"]  # and no question for a count
