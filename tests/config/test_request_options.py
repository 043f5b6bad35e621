from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tollbridge.config.request_options import apply_settings
from tollbridge.config.schema import Settings, matches
from tollbridge.protocols.ai_sdk.requests import encode_call
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest, Message, Role
from tollbridge.types.urls import VERCEL_URL

CLAUDE = "anthropic/claude-sonnet-4.5"
ELSEWHERE = "http://127.0.0.1:8080/v1"


def settings(**models: Any) -> Settings:
    return msgspec.convert({"models": models}, Settings)


def request(model: str = CLAUDE, **fields: Any) -> ChatRequest:
    return ChatRequest(model=model, messages=(Message(Role.USER, "hi"),), **fields)


def options(asked: ChatRequest, told: Settings, base_url: str = VERCEL_URL) -> Any:
    return (apply_settings(asked, told, base_url).extra or {}).get("providerOptions")


def test_claude_on_vercel_forgets_old_tool_results_by_default() -> None:
    edits = [{"type": "clear_tool_uses_20250919"}]
    assert options(request(), Settings()) == {"anthropic": {"contextManagement": {"edits": edits}}}


def test_old_thinking_is_cleared_first_and_only_where_the_model_thinks() -> None:
    """Anthropic refuses the edit with a 400 where thinking is off."""
    edits = [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]
    thinking = request(reasoning_effort="high")
    assert options(thinking, Settings()) == {"anthropic": {"contextManagement": {"edits": edits}}}
    assert (
        len(options(request(reasoning_effort="none"), Settings())["anthropic"]["contextManagement"]["edits"])
        == 1
    )


@pytest.mark.parametrize(
    ("model", "base_url", "on"),
    [(CLAUDE, ELSEWHERE, True), ("openai/gpt-5", VERCEL_URL, True), (CLAUDE, VERCEL_URL, False)],
)
def test_nothing_is_sent_to_others_or_when_it_is_switched_off(model: str, base_url: str, on: bool) -> None:
    told = Settings(context_management=on)
    assert apply_settings(request(model), told, base_url) == request(model)


def test_the_closest_pattern_has_the_last_word_and_objects_are_joined() -> None:
    told = settings(
        **{
            CLAUDE: {"provider_options": {"gateway": {"order": ["vertex"]}}},
            "*": {"provider_options": {"gateway": {"caching": "auto", "order": ["azure"]}}},
            "anthropic/*": {"provider_options": {"gateway": {"order": ["bedrock"], "sort": "cost"}}},
        }
    )
    assert options(request(), told, ELSEWHERE) == {
        "gateway": {"caching": "auto", "order": ["vertex"], "sort": "cost"}
    }
    assert options(request("openai/gpt-5"), told, ELSEWHERE)["gateway"]["order"] == ["azure"]


def test_what_the_editor_asked_for_stays() -> None:
    told = settings(
        **{
            "*": {
                "parameters": {"temperature": 0.2, "service_tier": "flex"},
                "provider_options": {"a": {"b": 1}},
            }
        }
    )
    asked = request(
        temperature=1.0, extra={"service_tier": "auto", "providerOptions": {"a": {"b": 2, "c": 3}}}
    )
    made = apply_settings(asked, told, ELSEWHERE)
    assert made.temperature == 1.0
    assert made.extra == {"service_tier": "auto", "providerOptions": {"a": {"b": 2, "c": 3}}}
    preset = apply_settings(request(), told, ELSEWHERE)
    assert (preset.temperature, preset.extra) == (
        0.2,
        {"service_tier": "flex", "providerOptions": {"a": {"b": 1}}},
    )


def test_each_backend_has_them_where_it_looks_for_them() -> None:
    told = settings(**{"*": {"provider_options": {"gateway": {"caching": "auto"}}}})
    made = apply_settings(request("openai/gpt-5"), told, VERCEL_URL)
    assert encode_request(made)["providerOptions"] == {"gateway": {"caching": "auto"}}
    assert encode_call(made)["providerOptions"] == {"gateway": {"caching": "auto"}}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"temperature": "warm"}, "temperature for .*Expected"),
        ({"model": "other"}, "model for .* cannot be preset"),
        ({"input": []}, "input for .* cannot be preset"),
    ],
)
def test_a_parameter_that_cannot_be_is_told(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        apply_settings(request(), settings(**{"*": {"parameters": parameters}}), ELSEWHERE)


def test_options_that_are_no_object_are_told() -> None:
    with pytest.raises(RequestError, match="must be a JSON object"):
        apply_settings(request(extra={"providerOptions": [1]}), Settings(), ELSEWHERE)


@pytest.mark.parametrize(
    ("pattern", "model", "found"),
    [
        ("anthropic/*", CLAUDE, True),
        ("Anthropic/Claude*", CLAUDE, True),
        ("claude-sonnet-4.5", CLAUDE, True),
        ("claude-*", CLAUDE, True),
        ("claude", CLAUDE, False),
        ("*-4.?", CLAUDE, True),
        ("openai/*", CLAUDE, False),
        ("*", "anything", True),
    ],
)
def test_patterns(pattern: str, model: str, found: bool) -> None:
    assert matches(pattern, model) is found
