"""Models become entries of VS Code's model picker."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.frontends.vscode.models import encode_model, encode_model_id, encode_models
from tollbridge.protocols import jsonrpc
from tollbridge.types.models import Model, Prices, PriceTier


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


@given(st.text())
def test_the_encoded_model_id_has_no_slash(model_id: str) -> None:
    assert "/" not in encode_model_id(model_id)


def test_the_prices_of_long_prompts_have_a_column_of_their_own() -> None:
    prices = Prices(
        input=Decimal("0.00000125"),
        output=Decimal("0.00001"),
        cache_read=Decimal("0.000000125"),
        tiers=(PriceTier(200_000, Decimal("0.0000025"), Decimal("0.000015")),),
    )
    info = as_json(encode_model(Model(id="google/gemini-2.5-pro", prices=prices)))
    costs = {name: value for name, value in info.items() if name.endswith("Cost")}
    # Credits per million tokens: a credit is a cent, so $1.25 is 125.
    assert costs == {
        "inputCost": 125,
        "outputCost": 1000,
        "cacheCost": 12.5,
        "longContextInputCost": 250,
        "longContextOutputCost": 1500,
        "longContextCacheCost": 12.5,
    }
    assert info["pricing"] == "$1.25 in, $0.125 cached, $10.00 out per 1M tokens"


def test_a_model_without_prices_has_no_costs() -> None:
    info = as_json(encode_model(Model(id="m")))
    assert not [name for name in info if name.endswith("Cost") or name.startswith("pric")]
    cheap = Prices(Decimal("0.000000075"), Decimal("0.0000003"))
    assert as_json(encode_model(Model(id="m", prices=cheap)))["pricing"].startswith("$0.075 in, $0.30 out")


def test_a_model_is_encoded_with_all_fields() -> None:
    model = Model(
        id="anthropic/claude-sonnet-4.5",
        name="Claude Sonnet 4.5",
        description="A model.",
        context_window=200_000,
        max_output_tokens=64_000,
        tags=frozenset({"tool-use", "vision", "reasoning"}),
        reasoning_efforts=("low", "ultra"),
        prices=Prices(input=Decimal("0.000003"), output=Decimal("0.000015"), cache_read=Decimal("0.0000003")),
    )
    assert as_json(encode_model(model)) == {
        "id": "anthropic:claude-sonnet-4.5",
        "model": "anthropic/claude-sonnet-4.5",
        "name": "Claude Sonnet 4.5",
        "family": "claude-sonnet-4.5",
        "version": "4.5",
        "maxInputTokens": 191_808,
        "maxOutputTokens": 8_192,
        "contextWindow": 200_000,
        "maxContextWindowTokens": 200_000,
        "capabilities": {"toolCalling": True, "imageInput": True},
        "tooltip": "A model.",
        "detail": "anthropic",
        "inputCost": 300,
        "outputCost": 1500,
        "cacheCost": 30,
        "pricing": "$3.00 in, $0.30 cached, $15.00 out per 1M tokens",
        "priceCategory": "medium",
        "category": "reasoning",
        "infoText": {"prices": "Prices: $3.00 in, $0.30 cached, $15.00 out per 1M tokens."},
        "configurationSchema": {
            "properties": {
                "reasoningEffort": {
                    "type": "string",
                    "title": "Thinking Effort",
                    "group": "navigation",
                    "enum": ["default", "low", "ultra"],
                    "enumItemLabels": ["Auto", "Low", "Ultra"],
                    "enumDescriptions": [
                        "What the model does if nothing is set",
                        "Little reasoning, faster answers",
                        "ultra",
                    ],
                },
                "contextSize": {
                    "type": "number",
                    "title": "Context Size",
                    "group": "tokens",
                    "enum": [64_000, 128_000, 191_808],
                    "enumItemLabels": ["64K", "128K", "200K"],
                    "enumDescriptions": [
                        "Summarise earlier, at lower cost",
                        "Summarise earlier, at lower cost",
                        "Longer sessions",
                    ],
                    "default": 191_808,
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Model(id="m", tags=frozenset({"vision"}), context_window=128_000), "tools"),
        (Model(id="m", context_window=8_192), "window"),
        (Model(id="m", context_window=128_000), None),
    ],
)
def test_a_model_that_the_chat_cannot_use_says_why(model: Model, reason: str | None) -> None:
    info = as_json(encode_model(model))
    if reason is None:
        assert not {"warningText", "statusIcon"} & set(info)
        return
    assert info["statusIcon"] == {"id": "warning"}
    assert list(info["warningText"]) == [reason]
    assert info["tooltip"].startswith(info["warningText"][reason])


@pytest.mark.parametrize(("window", "default"), [(200_000, None), (32_768, "default")])
def test_one_value_is_shown_next_to_the_model(window: int, default: str | None) -> None:
    """The context size if it can be chosen, or else the effort. Beside both, VS Code hides the name."""
    schema = encode_model(
        Model(id="m", reasoning_efforts=("low",), context_window=window)
    ).configuration_schema
    assert schema is not None
    efforts, sizes = schema.properties.reasoning_effort, schema.properties.context_size
    assert efforts is not None
    assert efforts.default == default
    assert (sizes is None) == (default is not None)


def test_ids_are_readable_and_unique() -> None:
    models = encode_models([Model(id="a/b"), Model(id="a:b"), Model(id="a/b/c:free")])
    assert [info.id for info in models] == ["a:b", "a%3Ab", "a:b:c:free"]
    assert [info.model for info in models] == ["a/b", "a:b", "a/b/c:free"]


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        (Model(id="m", context_window=1_048_576), ["128K", "200K", "400K", "1M"]),
        (Model(id="m", context_window=200_000, context_size=100_000), ["64K", "100K"]),
        (Model(id="m", context_window=32_768), None),
    ],
)
def test_the_context_size_can_be_chosen_if_there_is_a_choice(model: Model, labels: list[str] | None) -> None:
    schema = encode_model(model).configuration_schema
    if labels is None:
        assert schema is None
        return
    assert schema is not None
    sizes = schema.properties.context_size
    assert sizes is not None
    assert list(sizes.enum_item_labels) == labels
    assert sizes.default == sizes.enum[-1] == model.limits.input


@pytest.mark.parametrize(
    ("model", "is_listed"),
    [
        (Model(id="odd", context_window=10**401, max_output_tokens=10**400), True),
        (Model(id="odd", prices=Prices(input=Decimal("1e999999"), output=Decimal(1))), False),
        (Model(id="odd", tags=frozenset({"\ud83d"}), name="\ud83d"), True),
    ],
)
def test_one_odd_model_does_not_hide_the_others(model: Model, is_listed: bool) -> None:
    infos = encode_models([Model(id="a"), model, Model(id="b")])
    assert [info.model for info in infos] == (["a", "odd", "b"] if is_listed else ["a", "b"])
    assert jsonrpc.encode_result(1, infos)


def test_a_model_with_only_an_id_is_encoded() -> None:
    assert as_json(encode_model(Model(id="smollm2"))) == {
        "id": "smollm2",
        "model": "smollm2",
        "name": "smollm2",
        "family": "smollm2",
        "version": "2",
        "maxInputTokens": 24_576,
        "maxOutputTokens": 8_192,
        "contextWindow": 32_768,
        "maxContextWindowTokens": 32_768,
        "capabilities": {"toolCalling": True, "imageInput": False},
        "tooltip": "smollm2",
    }
