"""Decoding of endpoints responses with the fields that Vercel documents."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.protocols.model_list import fill_from_endpoints, has_gaps, read_endpoints
from tollbridge.types.errors import StreamError
from tollbridge.types.models import Model, Prices

ANSWER: dict[str, Any] = {
    "data": {
        "id": "anthropic/claude-sonnet-4.5",
        "name": "Claude Sonnet 4.5",
        "created": 1_755_815_280,
        "description": "",
        "architecture": {
            "tokenizer": None,
            "instruct_type": None,
            "modality": "text+image→text",
            "input_modalities": ["text", "image"],
            "output_modalities": ["text"],
        },
        "endpoints": [
            {
                "name": "anthropic | anthropic/claude-sonnet-4.5",
                "model_name": "Claude Sonnet 4.5",
                "context_length": 200_000,
                "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
                "provider_name": "anthropic",
                "max_completion_tokens": 64_000,
                "max_prompt_tokens": None,
                "supported_parameters": ["max_tokens", "temperature", "tools", "reasoning"],
                "status": 0,
                "uptime_last_15m": 99.9,
                "supports_implicit_caching": False,
                "quantization": None,
            },
            {
                "context_length": 1_000_000,
                "pricing": {"prompt": "0.0000033", "completion": "0.0000165", "request": "0"},
                "provider_name": "vertexAnthropic",
                "max_completion_tokens": 32_000,
                "supported_parameters": ["max_tokens", "stop"],
                "status": 0,
                "supports_implicit_caching": True,
            },
            {"provider_name": "bedrock", "context_length": 1_000, "status": -2},
        ],
    }
}


def test_the_properties_of_active_providers_are_combined() -> None:
    endpoints = read_endpoints(msgspec.json.encode(ANSWER))
    assert endpoints.providers == ("anthropic", "vertexAnthropic")
    assert (endpoints.context_window, endpoints.max_output_tokens) == (200_000, 32_000)
    assert endpoints.prices == Prices(Decimal("0.0000033"), Decimal("0.0000165"), Decimal("0.0000003"))
    assert endpoints.tags == {"vision", "implicit-caching"}
    assert endpoints.parameters == {"max_tokens", "temperature", "tools", "reasoning", "stop"}


def test_missing_values_are_filled_and_values_of_the_list_are_kept() -> None:
    endpoints = read_endpoints(msgspec.json.encode(ANSWER))
    whole = fill_from_endpoints(
        Model(id="m", max_output_tokens=8_000, tags=frozenset({"tool-use"})), endpoints
    )
    assert (whole.context_window, whole.max_output_tokens) == (200_000, 8_000)
    assert whole.prices == endpoints.prices
    assert whole.capabilities.images
    assert whole.capabilities.tools
    assert whole.capabilities.reasoning
    priced = Model(id="m", prices=Prices(Decimal(1)), parameters=frozenset({"stop"}))
    assert fill_from_endpoints(priced, endpoints).prices == Prices(Decimal(1))
    assert fill_from_endpoints(priced, endpoints).parameters == {"stop"}


def test_only_a_chat_model_with_missing_values_has_gaps() -> None:
    whole = Model(
        id="m",
        context_window=1,
        max_output_tokens=1,
        prices=Prices(Decimal(0)),
        parameters=frozenset({"tools"}),
    )
    assert not has_gaps(whole)
    assert has_gaps(msgspec.structs.replace(whole, parameters=frozenset()))
    assert has_gaps(Model(id="m"))
    assert not has_gaps(Model(id="m", type="embedding"))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"data": {"endpoints": {}}}', b'{"data": 1}']
)
def test_a_body_that_is_not_a_list_is_an_error(body: bytes) -> None:
    with pytest.raises(StreamError, match="list of endpoints"):
        read_endpoints(body)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(sorted(ANSWER["data"]["endpoints"][0])), inner)
        ),
    )
)
def test_no_invalid_endpoint_raises(entry: Any) -> None:
    read_endpoints(msgspec.json.encode({"data": {"endpoints": [entry, {}], "architecture": entry}}))
