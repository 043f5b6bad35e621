from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tollbridge.catalog.models import filter_models, is_favourite
from tollbridge.config.schema import Settings
from tollbridge.types.models import Model

IDS = ("openai/gpt-5", "anthropic/claude-opus-4.5", "anthropic/claude-sonnet-4.5", "google/gemini-3-preview")


def filtered(**settings: Any) -> list[str]:
    parsed = msgspec.convert(settings, Settings)
    return [model.id for model in filter_models([Model(id=name) for name in IDS], parsed)]


def test_without_settings_all_models_are_listed_in_the_gateways_order() -> None:
    assert filtered() == list(IDS)


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (["anthropic/*"], [], IDS[1:3]),
        (["gpt-5", "*opus*"], [], IDS[:2]),
        ([], ["*-preview"], IDS[:3]),
        (["anthropic/*"], ["*opus*"], IDS[2:3]),
        (["ANTHROPIC/*"], [], IDS[1:3]),
        (["nobody/*"], [], ()),
    ],
)
def test_models_that_are_allowed_and_not_denied_are_listed(
    allow: list[str], deny: list[str], expected: tuple[str, ...]
) -> None:
    assert filtered(allow=allow, deny=deny) == list(expected)


def test_favourites_come_first_in_the_order_of_the_settings() -> None:
    assert filtered(favourites=["google/*", "*sonnet*"]) == [IDS[3], IDS[2], IDS[0], IDS[1]]
    assert is_favourite(IDS[2], Settings(favourites=("*sonnet*",)))


def test_the_most_specific_pattern_overrides_the_others() -> None:
    settings = msgspec.convert(
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
    opus, sonnet = filter_models([Model(id=name, tags=frozenset({"vision"})) for name in IDS[1:3]], settings)
    assert (opus.name, opus.context_window, opus.max_output_tokens) == ("Any", 1_000, 100)
    assert opus.capabilities.images
    assert not opus.capabilities.tools
    assert sonnet.context_window == 500
