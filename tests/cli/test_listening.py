from __future__ import annotations

import io

import pytest

from tollbridge.cli.listening import MOST_CHANGES, show, show_changes
from tollbridge.cli.screen import Screen
from tollbridge.core.errors import ServerFailed
from tollbridge.core.events import (
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


@pytest.mark.parametrize(
    ("event", "out", "side"),
    [
        (TextDelta("Hi"), "Hi\n", ""),
        (ReasoningDelta("Well"), "", "Well\n"),
        (ReasoningEnded(), "", ""),
        (Corrected("Hi", 2), "", ""),
        (ToolCall("c", "f", {"a": 1}), "", '→ f {"a": 1}\n'),
        (ToolCall("c", "f", "x", offered=False), "", '→ f "x" (not for us to run)\n'),
        (File("image/png", b"1234"), "", "[image/png, 4 bytes]\n"),
        (File("image/png", url="https://a/b"), "", "[image/png, https://a/b]\n"),
        (Source("url", url="https://a/", title="A"), "", "[source: A, https://a/]\n"),
        (Source("document", id="d1"), "", "[source: d1]\n"),
        (Data("status", {}), "", ""),
        (Finished("stop"), "", ""),
        (Finished("length", ended="incomplete"), "", "[the answer was cut at the limit of its length]\n"),
        (Finished("content-filter"), "", "[the gateway's content filter stopped the answer]\n"),
        (
            Finished("other", ended="incomplete"),
            "",
            "[the answer is incomplete; the gateway did not say why]\n",
        ),
        (Failed(ServerFailed("no")), "", ""),
    ],
)
def test_how_each_event_is_shown(event: Event, out: str, side: str) -> None:
    text, beside = io.StringIO(), io.StringIO()
    screen = Screen(text, beside)
    show(event, screen)
    screen.end()
    assert (text.getvalue(), beside.getvalue()) == (out, side)


@pytest.mark.parametrize(
    ("where_all", "last"),
    [("", "[and 2 changes more]"), ("; --json has them all", "[and 2 changes more; --json has them all]")],
)
def test_of_many_changes_the_first_are_told(where_all: str, last: str) -> None:
    beside = io.StringIO()
    changes = [f"change {number}" for number in range(MOST_CHANGES + 2)]
    show_changes(changes, Screen(io.StringIO(), beside), where_all)
    assert beside.getvalue().splitlines() == [*(f"[{each}]" for each in changes[:MOST_CHANGES]), last]
