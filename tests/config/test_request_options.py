from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tollbridge.config.schema import Settings, apply_settings, matches
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


def options(chat_request: ChatRequest, user_settings: Settings, base_url: str = VERCEL_URL) -> Any:
    return (apply_settings(chat_request, user_settings, base_url).extra or {}).get("providerOptions")


def test_old_tool_results_are_cleared_by_default_for_claude_on_vercel() -> None:
    edits = [{"type": "clear_tool_uses_20250919"}]
    assert options(request(), Settings()) == {"anthropic": {"contextManagement": {"edits": edits}}}


def test_old_thinking_is_cleared_first_and_only_if_thinking_is_on() -> None:
    """Anthropic rejects the edit with a 400 if thinking is off."""
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
def test_context_editing_is_not_sent_to_other_models_or_gateways_or_if_disabled(
    model: str, base_url: str, on: bool
) -> None:
    user_settings = Settings(context_management=on)
    assert apply_settings(request(model), user_settings, base_url) == request(model)


def test_the_most_specific_pattern_wins_and_objects_are_merged() -> None:
    user_settings = settings(
        **{
            CLAUDE: {"provider_options": {"gateway": {"order": ["vertex"]}}},
            "*": {"provider_options": {"gateway": {"caching": "auto", "order": ["azure"]}}},
            "anthropic/*": {"provider_options": {"gateway": {"order": ["bedrock"], "sort": "cost"}}},
        }
    )
    assert options(request(), user_settings, ELSEWHERE) == {
        "gateway": {"caching": "auto", "order": ["vertex"], "sort": "cost"}
    }
    assert options(request("openai/gpt-5"), user_settings, ELSEWHERE)["gateway"]["order"] == ["azure"]


def test_values_of_the_editor_are_kept() -> None:
    user_settings = settings(
        **{
            "*": {
                "parameters": {"temperature": 0.2, "service_tier": "flex"},
                "provider_options": {"a": {"b": 1}},
            }
        }
    )
    original = request(
        temperature=1.0, extra={"service_tier": "auto", "providerOptions": {"a": {"b": 2, "c": 3}}}
    )
    result = apply_settings(original, user_settings, ELSEWHERE)
    assert result.temperature == 1.0
    assert result.extra == {"service_tier": "auto", "providerOptions": {"a": {"b": 2, "c": 3}}}
    preset = apply_settings(request(), user_settings, ELSEWHERE)
    assert (preset.temperature, preset.extra) == (
        0.2,
        {"service_tier": "flex", "providerOptions": {"a": {"b": 1}}},
    )


def test_both_backends_send_the_provider_options() -> None:
    user_settings = settings(**{"*": {"provider_options": {"gateway": {"caching": "auto"}}}})
    result = apply_settings(request("openai/gpt-5"), user_settings, VERCEL_URL)
    assert encode_request(result)["providerOptions"] == {"gateway": {"caching": "auto"}}
    assert encode_call(result)["providerOptions"] == {"gateway": {"caching": "auto"}}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"temperature": "warm"}, "temperature for .*expected a number, got a string"),
        ({"model": "other"}, "model for .* cannot be set here"),
        ({"input": []}, "input for .* cannot be set here"),
    ],
)
def test_an_invalid_parameter_is_reported(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        apply_settings(request(), settings(**{"*": {"parameters": parameters}}), ELSEWHERE)


def test_provider_options_that_are_not_an_object_are_rejected() -> None:
    with pytest.raises(RequestError, match="must be a JSON object"):
        apply_settings(request(extra={"providerOptions": [1]}), Settings(), ELSEWHERE)


@pytest.mark.parametrize(
    ("pattern", "model", "expected"),
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
def test_a_pattern_matches_model_names(pattern: str, model: str, expected: bool) -> None:
    assert matches(pattern, model) is expected
