"""Reading and writing JSON, also invalid JSON."""

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
def test_written_json_is_read_back_unchanged(value: Any) -> None:
    assert read_json(write_json(value)) == value
    assert read_json(write_json(value).encode()) == value


@given(VALUES)
def test_json_of_the_standard_library_is_read(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@given(st.binary())
def test_any_bytes_give_a_value_or_raise_value_error(data: bytes) -> None:
    try:
        read_json(data)
    except ValueError:
        return


def test_invalid_utf8_is_replaced_and_the_rest_is_read() -> None:
    assert read_json(b'{"a": "b\xffc"}') == {"a": "b\ufffdc"}


def test_lone_surrogates_can_be_read_and_written() -> None:
    assert read_json(rb'{"a": "\ud83d"}') == {"a": "\ud83d"}
    assert write_json({"a": "\ud83d"}).encode() == rb'{"a": "\ud83d"}'


def test_too_deep_nesting_raises_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(b"[" * 1_000_000)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="recursion"):
        write_json(deep)


@pytest.mark.parametrize("data", [b"", b" ", b"{", b'{"a": 1} x', b"9" * 5000, b"\xff"])
def test_invalid_json_raises_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(data)


def test_read_only_mappings_are_encoded_at_any_depth() -> None:
    value = MappingProxyType({"a": [MappingProxyType({"b": 1})]})
    assert json.loads(write_json(value)) == {"a": [{"b": 1}]}
    assert json.loads(write_json({"odd": "\ud800", "a": value})) == {"odd": "\ud800", "a": {"a": [{"b": 1}]}}


@pytest.mark.parametrize("value", [object(), {"a": object()}, {"odd": "\ud800", "a": object()}, {(1, 2): 3}])
def test_a_value_that_is_not_serializable_raises_value_error_with_its_type(value: Any) -> None:
    with pytest.raises(ValueError, match=r"(object|tuple) is not JSON serializable"):
        write_json(value)


@given(st.text(st.characters(codec=None) | st.sampled_from('\ud83d\ude00\\u"')))
def test_only_lone_escaped_surrogates_are_replaced(text: str) -> None:
    replaced = join_escaped_surrogates(json.dumps(text).encode())
    assert read_json(replaced) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
