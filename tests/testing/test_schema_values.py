"""Values that are created for a JSON Schema are valid."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.testing.values import make_value

SCHEMAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "object": {"type": "object"},
    "required": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "enum": {"enum": [3, 4]},
    "const": {"const": {"a": 1}},
    "bounds": {"type": "integer", "minimum": 5, "maximum": 7},
    "exclusive bounds": {"type": "number", "exclusiveMinimum": 5, "exclusiveMaximum": 7},
    "negative": {"type": "integer", "maximum": -3},
    "multiple": {"type": "integer", "minimum": 4, "multipleOf": 5},
    "lengths": {"type": "string", "minLength": 30, "maxLength": 40},
    "short": {"type": "string", "maxLength": 2},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
    "empty array": {"type": "array", "maxItems": 0},
    "alternatives": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    "one of": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    "several types": {"type": ["null", "string"]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    "reference": {
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/point"}},
        "required": ["at"],
    },
    "recursion with an end": {
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}},
        "required": ["name"],
    },
    "untyped object": {"properties": {"a": {"type": "null"}}, "required": ["a"]},
    "a property of no schema": {"type": "object", "required": ["a"]},
    "true": {"type": "object", "properties": {"a": True}, "required": ["a"]},
    "format": {"type": "string", "format": "uri"},
    "default": {"type": "integer", "default": 42},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_value_is_valid(name: str) -> None:
    jsonschema.validate(make_value(SCHEMAS[name]), SCHEMAS[name])


def test_an_endless_recursion_is_limited() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}, "required": ["child"]}
    assert make_value(schema)["child"]["child"]["child"] is not None


def test_a_reference_to_itself_is_limited() -> None:
    assert make_value({"$ref": "#"}) == "value"


def test_hints_fill_free_strings() -> None:
    schema = SCHEMAS["required"]
    assert make_value(schema, {"a": "hinted"}.get) == {"a": "hinted", "b": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "enum", "anyOf", "allOf", "items", "properties", "required", "$ref", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_schema_gives_a_value(schema: Any) -> None:
    make_value(schema)
