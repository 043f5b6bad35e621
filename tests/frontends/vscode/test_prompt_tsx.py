"""Extraction of text from prompt-tsx trees."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.frontends.vscode.requests import read_prompt_text
from tollbridge.types.text import MAX_DEPTH


def test_the_text_of_a_tree_is_read_in_order() -> None:
    leaf = {"type": 2, "text": "one", "lineBreakBefore": True}
    other = {"type": 2, "text": "two", "lineBreakBefore": True}
    inner = {"type": 1, "ctor": 2, "children": [other, {"type": 3, "value": "opaque"}], "props": {}}
    assert read_prompt_text({"node": {"type": 1, "children": [leaf, inner]}}) == "one\ntwo"


@pytest.mark.parametrize(
    ("value", "text"),
    [({"x": 1}, '{"x":1}'), ("plain", "plain"), (None, "null"), ({"node": 3}, '{"node":3}'), ([1], "[1]")],
)
def test_a_value_that_is_not_a_tree_is_returned_as_json(value: Any, text: str) -> None:
    assert read_prompt_text(value) == text


def test_a_tree_deeper_than_the_limit_is_truncated() -> None:
    node: dict[str, Any] = {"type": 2, "text": "deep"}
    for _ in range(MAX_DEPTH + 1):
        node = {"type": 1, "children": [node]}
    assert read_prompt_text({"node": node}) == ""
