"""JSON as the world writes it."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.types.text import join_escaped_surrogates, read_json, write_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert read_json(write_json(value)) == value
    assert read_json(write_json(value).encode()) == value


@given(VALUES)
def test_what_others_write_is_read(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_a_value_error(data: bytes) -> None:
    try:
        read_json(data)
    except ValueError:
        return


def test_bad_utf8_costs_a_character_and_not_the_message() -> None:
    assert read_json(b'{"a": "b\xffc"}') == {"a": "b\ufffdc"}


def test_half_a_surrogate_pair_survives_both_ways() -> None:
    assert read_json(rb'{"a": "\ud83d"}') == {"a": "\ud83d"}
    assert write_json({"a": "\ud83d"}).encode() == rb'{"a": "\ud83d"}'


def test_what_is_nested_too_deeply_is_an_error_and_no_crash() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(b"[" * 1_000_000)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="recursion"):
        write_json(deep)


@pytest.mark.parametrize("data", [b"", b" ", b"{", b'{"a": 1} x', b"9" * 5000, b"\xff"])
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(data)


def test_read_only_mappings_are_objects_also_deep_inside() -> None:
    value = MappingProxyType({"a": [MappingProxyType({"b": 1})]})
    assert json.loads(write_json(value)) == {"a": [{"b": 1}]}
    assert json.loads(write_json({"odd": "\ud800", "a": value})) == {"odd": "\ud800", "a": {"a": [{"b": 1}]}}


@pytest.mark.parametrize("value", [object(), {"a": object()}, {"odd": "\ud800", "a": object()}, {(1, 2): 3}])
def test_what_json_cannot_say_is_a_value_error_that_names_it(value: Any) -> None:
    with pytest.raises(ValueError, match=r"(object|tuple) is not JSON serializable"):
        write_json(value)


@given(st.text(st.characters(codec=None) | st.sampled_from('\ud83d\ude00\\u"')))
def test_halves_of_pairs_are_replaced_and_nothing_else_is(text: str) -> None:
    mended = join_escaped_surrogates(json.dumps(text).encode())
    assert read_json(mended) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
