from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tollbridge.catalog.cache import CachedModels, CatalogCache
from tollbridge.cli.connection import connect
from tollbridge.cli.options import ConnectionOptions
from tollbridge.cli.run_turn import MOST_CHANGES, TurnRunner, show, show_changes
from tollbridge.cli.screen import Screen
from tollbridge.compat.profiles import load_profile
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import ServerFailed
from tollbridge.types.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.messages import ChatRequest, Message


@pytest.mark.parametrize(
    ("event", "out", "side"),
    [
        (TextDelta("Hi"), "Hi\n", ""),
        (ReasoningDelta("Well"), "", "Well\n"),
        (ReasoningEnded(), "", ""),
        (Corrected("Hi", 2), "", ""),
        (ToolCall("c", "f", {"a": 1}), "", '→ f {"a": 1}\n'),
        (ToolCall("c", "f", "x", offered=False), "", '→ f "x" (run by the provider)\n'),
        (File("image/png", b"1234"), "", "[image/png, 4 bytes]\n"),
        (File("image/png", url="https://a/b"), "", "[image/png, https://a/b]\n"),
        (Source("url", url="https://a/", title="A"), "", "[source: A, https://a/]\n"),
        (Source("document", id="d1"), "", "[source: d1]\n"),
        (Data("status", {}), "", ""),
        (Finished("stop"), "", ""),
        (Finished("length", ended="incomplete"), "", "[the answer was truncated (output limit reached)]\n"),
        (Finished("content-filter"), "", "[the gateway's content filter stopped the answer]\n"),
        (
            Finished("other", ended="incomplete"),
            "",
            "[the answer is incomplete; the gateway gave no reason]\n",
        ),
        (Failed(ServerFailed("no")), "", ""),
    ],
)
def test_how_each_event_is_shown(event: Event, out: str, side: str) -> None:
    text, side_output = io.StringIO(), io.StringIO()
    screen = Screen(text, side_output)
    show(event, screen)
    screen.end()
    assert (text.getvalue(), side_output.getvalue()) == (out, side)


@pytest.mark.parametrize("recorded", [False, True])
async def test_model_facts_are_read_once_per_turn(
    recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path / "lists"))
    lists, profiles = list[str](), list[str]()

    class Watched(CatalogCache):
        def get(self, base_url: str, account: str = "") -> CachedModels | None:
            lists.append(base_url)
            return super().get(base_url, account)

    def reading(base_url: str, *rest: Any) -> Any:
        profiles.append(base_url)
        return load_profile(base_url, *rest)

    async with Gateway() as gateway:
        where = ConnectionOptions(gateway.url, record=str(tmp_path / "recordings") if recorded else None)
        async with connect(where) as before:
            await before.list_models()
        monkeypatch.setattr("tollbridge.catalog.models.CatalogCache", Watched)
        monkeypatch.setattr("tollbridge.compat.profiles.load_profile", reading)
        async with connect(where) as connection:
            listener = TurnRunner(connection)
            await listener.run(ChatRequest(model="tollbridge/plain", messages=(Message("user", "Hi"),)))
    assert listener.answer.error is None
    assert len(list((tmp_path / "recordings").glob("*"))) == recorded
    assert (lists, profiles) == ([gateway.url], [gateway.url])


@pytest.mark.parametrize(
    ("where_all", "last"),
    [("", "[… and 2 more changes]"), ("; use --json", "[… and 2 more changes; use --json]")],
)
def test_only_the_first_changes_are_printed(where_all: str, last: str) -> None:
    side_output = io.StringIO()
    changes = [f"change {number}" for number in range(MOST_CHANGES + 2)]
    show_changes(changes, Screen(io.StringIO(), side_output), where_all)
    assert side_output.getvalue().splitlines() == [
        *(f"[{change}]" for change in changes[:MOST_CHANGES]),
        last,
    ]
