"""Parsing model ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.types.models import Identity, identify


@pytest.mark.parametrize(
    ("model_id", "identity"),
    [
        ("anthropic/claude-sonnet-4.5", Identity("claude-sonnet-4.5", "claude-sonnet", "anthropic", "4.5")),
        (
            "anthropic:claude-3-5-sonnet-20241022",
            Identity("claude-3-5-sonnet-20241022", "claude-sonnet", "anthropic", "3.5", "2024-10-22"),
        ),
        ("openai/gpt-5.2-mini", Identity("gpt-5.2-mini", "gpt-mini", "openai", "5.2")),
        ("gpt-4o-2024-11-20", Identity("gpt-4o-2024-11-20", "gpt-4o", date="2024-11-20")),
        (
            "openai/gpt-4o-2024-08-06-preview",
            Identity("gpt-4o-2024-08-06-preview", "gpt-4o", "openai", date="2024-08-06"),
        ),
        (
            "vertex/claude-opus-4@20250514",
            Identity("claude-opus-4@20250514", "claude-opus", "vertex", "4", "2025-05-14"),
        ),
        ("deepseek/deepseek-v3.2", Identity("deepseek-v3.2", "deepseek", "deepseek", "3.2")),
        ("openrouter/meta/llama-4-scout", Identity("llama-4-scout", "llama-scout", "meta", "4")),
        ("openai/gpt-4-32k", Identity("gpt-4-32k", "gpt-32k", "openai", "4")),
        ("o3", Identity("o3", "o", None, "3")),
    ],
)
def test_creator_family_version_and_date_are_read_from_an_id(model_id: str, identity: Identity) -> None:
    assert identify(model_id) == identity


def test_a_colon_that_does_not_follow_a_creator_belongs_to_the_name() -> None:
    assert identify("llama3.2:3b").creator is None
    assert identify("llama3.2:3b").name == "llama3.2:3b"


@given(st.text())
def test_any_id_has_an_identity(model_id: str) -> None:
    identity = identify(model_id)
    assert identity.name in model_id
    assert bool(identity.family) == bool(model_id)
