from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tollbridge.config.parameters import apply_settings
from tollbridge.config.patterns import matches
from tollbridge.config.schema import Settings
from tollbridge.policy.clearing import CLEAR_AT_LEAST, CLEAR_TRIGGER
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


def long_request(**fields: Any) -> ChatRequest:
    """Return a request that can have as many tokens as the trigger: one per byte."""
    return ChatRequest(model=CLAUDE, messages=(Message(Role.USER, "x" * CLEAR_TRIGGER),), **fields)


def edits(chat_request: ChatRequest, user_settings: Settings) -> Any:
    return options(chat_request, user_settings)["anthropic"]["contextManagement"]["edits"]


def test_old_tool_results_are_cleared_for_claude_on_vercel_if_that_pays_for_the_cache() -> None:
    assert edits(long_request(), Settings()) == [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 100_000},
            "clearAtLeast": {"type": "input_tokens", "value": 40_000},
        }
    ]


def test_the_saving_of_a_clearing_pays_for_the_lost_cache_before_the_next_one() -> None:
    """The inequality of docs/cost.md, with Anthropic's multiples of the input price.

    At the trigger, `kept` tokens are written to the cache again instead of being read from it. Each request
    until the context has grown to the trigger again does not read the cleared tokens.
    """
    write, read, growth = Decimal("1.25"), Decimal("0.1"), 2_000
    kept = CLEAR_TRIGGER - CLEAR_AT_LEAST
    lost = kept * (write - read)
    requests = CLEAR_AT_LEAST // growth
    assert requests * CLEAR_AT_LEAST * read >= lost
    # With a tenth less, it would not pay.
    less = CLEAR_AT_LEAST * 9 // 10
    assert less // growth * less * read < (CLEAR_TRIGGER - less) * (write - read)


def test_a_conversation_that_is_too_short_is_not_edited() -> None:
    assert options(request(), Settings()) is None
    almost = ChatRequest(model=CLAUDE, messages=(Message(Role.USER, "x" * (CLEAR_TRIGGER - 1_000)),))
    assert options(almost, Settings()) is None


def test_without_prompt_caching_a_clearing_always_pays() -> None:
    uncached = Settings(prompt_caching=False)
    [edit] = edits(long_request(), uncached)
    assert "clearAtLeast" not in edit
    assert edits(long_request(reasoning_effort="high"), uncached)[0] == {"type": "clear_thinking_20251015"}


def test_cached_thinking_is_kept_and_named_first_and_only_if_thinking_is_on() -> None:
    """Anthropic rejects the edit with a 400 if thinking is off."""
    first, _ = edits(long_request(reasoning_effort="high"), Settings())
    assert first == {"type": "clear_thinking_20251015", "keep": "all"}
    assert len(edits(long_request(reasoning_effort="none"), Settings())) == 1


@pytest.mark.parametrize(
    ("model", "base_url", "on"),
    [(CLAUDE, ELSEWHERE, True), ("openai/gpt-5", VERCEL_URL, True), (CLAUDE, VERCEL_URL, False)],
)
def test_context_editing_is_not_sent_to_other_models_or_gateways_or_if_disabled(
    model: str, base_url: str, on: bool
) -> None:
    user_settings = Settings(context_management=on)
    chat_request = msgspec.structs.replace(long_request(), model=model)
    assert options(chat_request, user_settings, base_url) is None
    assert apply_settings(chat_request, user_settings, base_url).extra is None


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
