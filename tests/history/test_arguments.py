"""Tool call arguments that are not valid JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.history.arguments import INVALID, REPAIR_LIMIT, repair_arguments, valid_input
from tollbridge.types.text import read_json, write_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        (" \n", {}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{}{"a": 1}', {"a": 1}),
        ('{"a": 1}{"a": 1}', {"a": 1}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('  ```\n\n{"a": 1}\n\n  ```  \n', {"a": 1}),
        ('```json \n{"a": "```\n"}\n```', {"a": "```\n"}),
        ("{} " * 3, {}),
        ('{"a": "x,}"}', {"a": "x,}"}),
    ],
)
def test_unambiguous_arguments_are_repaired(text: str, arguments: Any) -> None:
    assert repair_arguments(text) == arguments


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "```\n```",
        "```",
        '```js\n{"a": 1}\n```',
        '```json\n{"a": 1}```',
        "[1]",
        "3",
        "null",
        '{"a": 1}{"a": 2}',
        '{"a": 1',
        '{"a": "b',
        "{a: 1}",
        "{" * 9999,
    ],
)
def test_ambiguous_arguments_are_not_repaired(text: str) -> None:
    assert repair_arguments(text) is None


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": 1', {"a": 1}),
        ('{"a": "b', {"a": "b"}),
        ('{"a": "b\\', {"a": "b"}),
        ('{"a": "b\\u12', {"a": "b"}),
        ('{"a": [{"b": 1}, ', {"a": [{"b": 1}]}),
        ('{"a":', {"a": None}),
    ],
)
def test_truncated_arguments_in_a_history_are_completed(text: str, arguments: Any) -> None:
    assert repair_arguments(text, complete=True) == arguments


@given(OBJECTS)
def test_valid_json_is_not_changed(value: dict[str, Any]) -> None:
    assert repair_arguments(write_json(value)) == value
    assert repair_arguments(write_json(value), complete=True) == value


@given(OBJECTS, st.data())
def test_any_truncated_object_becomes_an_object(value: dict[str, Any], data: st.DataObject) -> None:
    text = write_json(value)
    cut = text[: data.draw(st.integers(0, len(text)))]
    arguments, _ = valid_input(cut)
    assert isinstance(arguments, dict)
    assert read_json(write_json(arguments)) == arguments


@given(st.text() | st.integers() | st.floats() | st.lists(JSON) | OBJECTS | st.none())
def test_any_input_becomes_a_json_object(value: Any) -> None:
    arguments, _ = valid_input(value)
    assert isinstance(read_json(write_json(arguments)), dict)


def test_input_that_is_not_serializable_is_wrapped_as_its_repr() -> None:
    assert valid_input({"a": 1j}) == ({INVALID: "{'a': 1j}"}, True)
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    arguments, changed = valid_input({"a": nested})
    assert changed
    assert INVALID in arguments


def test_a_too_long_text_is_not_repaired() -> None:
    text = '{"a": "' + "x" * REPAIR_LIMIT
    assert valid_input(text) == ({INVALID: text}, True)
