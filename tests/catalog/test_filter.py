from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tollbridge.catalog.models import filter_models, is_favourite
from tollbridge.config.schema import Settings
from tollbridge.types.models import Model

IDS = ("openai/gpt-5", "anthropic/claude-opus-4.5", "anthropic/claude-sonnet-4.5", "google/gemini-3-preview")


def chosen(**settings: Any) -> list[str]:
    told = msgspec.convert(settings, Settings)
    return [model.id for model in filter_models([Model(id=name) for name in IDS], told)]


def test_without_settings_everything_is_there_in_the_gateways_order() -> None:
    assert chosen() == list(IDS)


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [
        (["anthropic/*"], [], IDS[1:3]),
        (["gpt-5", "*opus*"], [], IDS[:2]),
        ([], ["*-preview"], IDS[:3]),
        (["anthropic/*"], ["*opus*"], IDS[2:3]),
        (["ANTHROPIC/*"], [], IDS[1:3]),
        (["nobody/*"], [], ()),
    ],
)
def test_what_is_allowed_and_not_denied_is_left(
    allow: list[str], deny: list[str], left: tuple[str, ...]
) -> None:
    assert chosen(allow=allow, deny=deny) == list(left)


def test_favourites_come_first_in_their_own_order() -> None:
    assert chosen(favourites=["google/*", "*sonnet*"]) == [IDS[3], IDS[2], IDS[0], IDS[1]]
    assert is_favourite(IDS[2], Settings(favourites=("*sonnet*",)))


def test_the_closest_correction_has_the_last_word() -> None:
    told = msgspec.convert(
        {
            "models": {
                "anthropic/claude-opus-4.5": {"context_window": 1_000, "capabilities": {"images": True}},
                "anthropic/*": {
                    "context_window": 500,
                    "max_output_tokens": 100,
                    "capabilities": {"tools": False},
                },
                "*": {"name": "Any"},
            }
        },
        Settings,
    )
    opus, sonnet = filter_models([Model(id=name, tags=frozenset({"vision"})) for name in IDS[1:3]], told)
    assert (opus.name, opus.context_window, opus.max_output_tokens) == ("Any", 1_000, 100)
    assert opus.capabilities.images
    assert not opus.capabilities.tools
    assert sonnet.context_window == 500
