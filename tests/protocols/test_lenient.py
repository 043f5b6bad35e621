"""An object of a gateway is read as a struct; a value of the wrong type counts as missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tollbridge.protocols.lenient import Count, read_object


class Leaf(msgspec.Struct, frozen=True):
    text: str | None = None
    count: Count = None


class Root(msgspec.Struct, frozen=True):
    name: str | None = None
    index: int | None = None
    anything: Any = None
    leaf: Leaf | None = None
    leaves: list[Leaf] | None = None


@pytest.mark.parametrize("value", [None, 3, "text", [], [{"name": "a"}], True])
def test_what_is_not_an_object_has_the_defaults(value: object) -> None:
    assert read_object(value, Root) == Root()


def test_every_field_with_the_right_type_is_kept() -> None:
    value = {
        "name": "a",
        "index": -1,
        "anything": {"deep": [1.0]},
        "leaf": {"text": "b", "count": 2},
        "leaves": [{"text": "c"}, {}],
        "unknown": 1,
    }
    leaves = [Leaf("c"), Leaf()]
    assert read_object(value, Root) == Root("a", -1, {"deep": [1.0]}, Leaf("b", 2), leaves)


@pytest.mark.parametrize(
    ("wrong", "missing"),
    [
        ({"name": 5}, "name"),
        ({"index": "x"}, "index"),
        ({"index": True}, "index"),
        ({"index": 1.5}, "index"),
        ({"leaf": "text"}, "leaf"),
        ({"leaf": []}, "leaf"),
    ],
)
def test_a_wrong_field_does_not_cost_the_others(wrong: dict[str, object], missing: str) -> None:
    value = {"name": "a", "index": 1, "anything": 2.0, "leaf": {"text": "b"}, "leaves": [{"text": "c"}]}
    complete = Root("a", 1, 2.0, Leaf("b"), [Leaf("c")])
    read = read_object(value | wrong, Root)
    assert read == msgspec.structs.replace(complete, **{missing: None})
    assert isinstance(read.anything, float)


def test_a_wrong_field_of_an_inner_object_does_not_cost_the_rest_of_it() -> None:
    value = {"leaf": {"text": 1, "count": 4}, "leaves": [{"text": "c", "count": []}, 7, None, {"count": 2}]}
    assert read_object(value, Root) == Root(leaf=Leaf(None, 4), leaves=[Leaf("c"), Leaf(None, 2)])


@pytest.mark.parametrize(
    ("value", "count"),
    [(0, 0), ("12", 12), (12.0, 12), (-1, None), (2**53, None), (float("inf"), None), ("9" * 10, None)],
)
def test_a_count_is_a_plausible_number(value: object, count: int | None) -> None:
    assert read_object({"count": value}, Leaf).count == count
