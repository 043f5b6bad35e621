"""Decoding of model lists."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.protocols.model_list import MODEL_LIMIT, NAME_LIMIT, TAG_LIMIT, read_models
from tollbridge.types.errors import StreamError
from tollbridge.types.models import ID_LIMIT, Capabilities, Model, Prices

RECORDED = Path(__file__).parents[1] / "recordings" / "models" / "llamacpp.models.json"

# As documented for the AI Gateway's `GET /v1/models`.
CLAUDE = {
    "id": "anthropic/claude-sonnet-4.5",
    "object": "model",
    "created": 1755815280,
    "owned_by": "anthropic",
    "name": "Claude Sonnet 4.5",
    "description": "A model.",
    "context_window": 200000,
    "max_tokens": 64000,
    "type": "language",
    "tags": ["file-input", "reasoning", "tool-use", "vision", "explicit-caching"],
    "pricing": {
        "input": "0.000003",
        "output": "0.000015",
        "input_cache_read": "0.0000003",
        "input_cache_write": "0.00000375",
        "input_tiers": [{"cost": "0.000003", "min": 0}],
    },
    "reasoning_options": [{"type": "toggle"}, {"type": "effort", "values": ["low", "high", "max"]}],
}


def listed(*entries: Any) -> list[Model]:
    return read_models(json.dumps({"object": "list", "data": entries}).encode())


def test_all_documented_fields_are_read() -> None:
    assert listed(CLAUDE) == [
        Model(
            id="anthropic/claude-sonnet-4.5",
            name="Claude Sonnet 4.5",
            description="A model.",
            owner="anthropic",
            type="language",
            created=1755815280,
            context_window=200_000,
            max_output_tokens=64_000,
            tags=frozenset({"file-input", "reasoning", "tool-use", "vision", "explicit-caching"}),
            reasoning_efforts=("low", "high", "max"),
            prices=Prices(
                input=Decimal("0.000003"),
                output=Decimal("0.000015"),
                cache_read=Decimal("0.0000003"),
                cache_write=Decimal("0.00000375"),
                cache_write_long=Decimal("0.000006"),
            ),
        )
    ]


def test_the_context_size_loaded_by_llama_cpp_has_priority() -> None:
    (model,) = read_models(RECORDED.read_bytes())
    assert model.id == "smollm2-135m-instruct"
    assert model.context_window == 2048  # loaded; the model was trained for 8192
    assert model.tags == frozenset()


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"id": "m", "max_model_len": 40_960}, 40_960),
        ({"id": "m", "context_length": "131072"}, 131_072),
        ({"id": "m", "top_provider": {"context_length": 8192}}, 8192),
        ({"id": "m", "context_window": 0}, None),
        ({"id": "m", "context_window": True}, None),
        ({"id": "m", "context_window": "large"}, None),
    ],
)
def test_the_context_window_is_read_from_the_field_of_every_server(
    entry: dict[str, Any], window: int | None
) -> None:
    assert listed(entry)[0].context_window == window


def test_capabilities_and_modalities_become_tags() -> None:
    entry = {
        "id": "m",
        "supported_parameters": ["tools", "max_tokens", "reasoning"],
        "architecture": {"input_modalities": ["text", "image", "file"]},
    }
    (model,) = listed(entry)
    assert model.tags == {"vision", "file-input"}
    assert model.capabilities == Capabilities(tools=True, images=True, files=True, reasoning=True)


def test_a_parameter_list_without_tools_means_no_tool_support() -> None:
    (model,) = listed({"id": "m", "tags": [], "supported_parameters": ["max_tokens"]})
    assert not model.capabilities.tools


def test_an_invalid_price_is_unknown() -> None:
    pricing = {"prompt": "0", "completion": "-1", "input_cache_read": "cheap", "input_cache_write": None}
    assert listed({"id": "m", "pricing": pricing})[0].prices == Prices(input=Decimal(0))


def test_invalid_entries_do_not_affect_the_others() -> None:
    entries = [
        None,
        7,
        {},
        {"id": ""},
        {"id": 5},
        "bare",
        {"id": "good", "tags": 3, "pricing": []},
        CLAUDE,
        CLAUDE,
    ]
    assert [model.id for model in listed(*entries)] == ["bare", "good", "anthropic/claude-sonnet-4.5"]


def test_the_list_can_be_the_body_or_the_field_models() -> None:
    assert [model.id for model in read_models(b'[{"id": "a"}]')] == ["a"]
    assert [model.id for model in read_models(b'{"models": [{"name": "b"}]}')] == ["b"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"3", b'{"data": {}}', b'{"error": {"message": "no"}}']
)
def test_a_body_that_is_not_a_list_is_an_error(body: bytes) -> None:
    with pytest.raises(StreamError, match="model list"):
        read_models(body)


KEYS = st.sampled_from(sorted(CLAUDE))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(CLAUDE)), inner, max_size=6)
    ),
)


@given(st.lists(JSON, max_size=4))
def test_no_invalid_entry_raises(entries: list[Any]) -> None:
    for model in listed(*entries):
        assert model.limits.input > 0


def test_invalid_utf8_does_not_hide_a_model() -> None:
    body = json.dumps({"data": [{"id": "a", "name": "ODD"}, {"id": "b"}]}).encode().replace(b"ODD", b"\xff")
    assert [model.id for model in read_models(body)] == ["a", "b"]


def test_a_deeply_nested_list_is_an_error() -> None:
    with pytest.raises(StreamError, match="not JSON"):
        read_models(b"[" * 100_000)


ODD_ENTRIES = [
    '{"id": "odd", "context_window": ' + "9" * 401 + "}",
    '{"id": "odd", "context_window": "' + "9" * 401 + '"}',
    '{"id": "odd", "context_window": 1e999999, "max_tokens": ' + "9" * 401 + "}",
    '{"id": "odd", "pricing": {"input": "1e999999", "output": "1e-999999"}}',
    '{"id": "odd", "pricing": {"input": 1e999999, "output": ' + "9" * 401 + "}}",
    '{"id": "odd", "created": ' + "9" * 401 + "}",
    r'{"id": "odd", "name": "half \ud83d a face"}',
]


@pytest.mark.parametrize("odd", ODD_ENTRIES)
def test_an_odd_value_is_unknown_and_the_list_stays_complete(odd: str) -> None:
    models = read_models(f'{{"data": [{{"id": "a"}}, {odd}, {{"id": "b"}}]}}'.encode())
    assert [model.id for model in models] == ["a", "odd", "b"]
    for model in models:  # everything that the front ends use
        assert model.limits.window == Model(id="x").limits.window
        assert model.prices is None or model.prices.category is None
        msgspec.json.encode(model)


def test_an_entry_that_cannot_be_read_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    digits = "9" * 5000  # more than Python converts to an integer
    body = f'{{"data": [{{"id": "a"}}, {{"id": "x", "n": {digits}}}, {{"id": "y", "n": {digits}}}, "b"]}}'
    assert [model.id for model in read_models(body.encode())] == ["a", "b"]
    (record,) = caplog.records
    assert record.message.startswith("ignored 2 unreadable entries of the model list (ValueError: ")


def test_every_text_of_a_model_has_a_limit() -> None:
    long = "x" * 100_000
    entry = {**CLAUDE, "name": long, "description": long, "owned_by": long, "type": long, "tags": ["t", long]}
    (model,) = listed({"id": long}, {**entry, "supported_parameters": [f"p{n}" for n in range(10_000)]})
    assert (
        model.id == CLAUDE["id"]
    )  # a part of an id is not an id, so the model with the long one is left out
    assert (model.name, model.owner, model.type) == (long[:NAME_LIMIT],) * 3
    assert "t" in model.tags
    assert len(model.parameters) == TAG_LIMIT
    assert len(msgspec.json.encode(model)) < 10_000
    assert listed({"id": "x" * ID_LIMIT}) != []


def test_the_number_of_models_has_a_limit() -> None:
    models = listed(*({"id": f"m{number}"} for number in range(MODEL_LIMIT + 10)))
    assert len(models) == MODEL_LIMIT
    assert models[0].id == "m0"
