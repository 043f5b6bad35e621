"""Arguments that are not JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.history.tool_calls import INVALID, REPAIR_LIMIT, repair_arguments, valid_input
from tollbridge.types.text import read_json, write_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)


@pytest.mark.parametrize(
    ("text", "meant"),
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
        ('{"a": "x,}"}', {"a": "x,}"}),
    ],
)
def test_what_can_be_read_in_one_way_is_mended(text: str, meant: Any) -> None:
    assert repair_arguments(text) == meant


@pytest.mark.parametrize(
    "text", ["no", "[1]", "3", "null", '{"a": 1}{"a": 2}', '{"a": 1', '{"a": "b', "{a: 1}", "{" * 9999]
)
def test_what_cannot_is_left_alone(text: str) -> None:
    assert repair_arguments(text) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"a": 1', {"a": 1}),
        ('{"a": "b', {"a": "b"}),
        ('{"a": "b\\', {"a": "b"}),
        ('{"a": "b\\u12', {"a": "b"}),
        ('{"a": [{"b": 1}, ', {"a": [{"b": 1}]}),
        ('{"a":', {"a": None}),
    ],
)
def test_in_a_history_what_breaks_off_is_closed(text: str, meant: Any) -> None:
    assert repair_arguments(text, complete=True) == meant


@given(OBJECTS)
def test_json_is_never_changed(value: dict[str, Any]) -> None:
    assert repair_arguments(write_json(value)) == value
    assert repair_arguments(write_json(value), complete=True) == value


@given(OBJECTS, st.data())
def test_any_cut_of_an_object_gives_an_object_or_its_text(value: dict[str, Any], data: st.DataObject) -> None:
    text = write_json(value)
    cut = text[: data.draw(st.integers(0, len(text)))]
    found, _ = valid_input(cut)
    assert isinstance(found, dict)
    assert read_json(write_json(found)) == found


@given(st.text() | st.integers() | st.floats() | st.lists(JSON) | OBJECTS | st.none())
def test_anything_becomes_an_object_json_can_say(given_: Any) -> None:
    found, _ = valid_input(given_)
    assert isinstance(read_json(write_json(found)), dict)


def test_what_json_cannot_say_is_shown() -> None:
    assert valid_input({"a": 1j}) == ({INVALID: "{'a': 1j}"}, True)
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    found, changed = valid_input({"a": nested})
    assert changed
    assert INVALID in found


def test_a_text_that_is_too_long_to_mend_is_carried_as_it_is() -> None:
    text = '{"a": "' + "x" * REPAIR_LIMIT
    assert valid_input(text) == ({INVALID: text}, True)
