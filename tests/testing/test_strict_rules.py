"""Rules that a schema cannot express."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.strict import check_rules

HI = {"type": "message", "role": "user", "content": "Hi"}
SAID = {"type": "message", "role": "assistant", "content": "Hello"}
THOUGHT = {"type": "reasoning", "summary": []}


def call(call_id: str = "c1", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}


def result(call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": ""}


@pytest.mark.parametrize(
    "items",
    [
        "Hi",
        [HI],
        [HI, SAID, HI],
        [HI, call(), result()],
        [HI, THOUGHT, call("a"), THOUGHT, call("b"), result("a"), result("b"), SAID],
        [HI, call("a"), result("a"), call("b"), result("b")],
        [HI, THOUGHT, THOUGHT, SAID],
        [HI, {**THOUGHT, "id": "rs_1"}, SAID, {**THOUGHT, "id": "rs_2"}, SAID],
    ],
)
def test_input_that_every_provider_accepts_is_accepted(items: Any) -> None:
    check_rules(items)


@pytest.mark.parametrize(
    ("items", "code", "param"),
    [
        ("", "empty_message", "input[0].content"),
        ([SAID], "missing_user_message", "input"),
        ([HI, {**HI, "content": " \n"}], "empty_message", "input[1].content"),
        ([HI, {**HI, "content": []}], "empty_message", "input[1].content"),
        ([HI, call("a b"), result("a b")], "invalid_value", "input[1].call_id"),
        ([HI, call(arguments=""), result()], "invalid_arguments", "input[1].arguments"),
        ([HI, call(arguments="[]"), result()], "invalid_arguments", "input[1].arguments"),
        ([HI, call(arguments='{"a": 1'), result()], "invalid_arguments", "input[1].arguments"),
        ([HI, THOUGHT, HI], "reasoning_without_following_item", "input[1]"),
        ([HI, THOUGHT], "reasoning_without_following_item", "input[1]"),
        ([HI, *[{**THOUGHT, "id": "rs_1"}] * 2, SAID], "duplicate_item", "input[2].id"),
        ([HI, call(), HI, result()], "out_of_order", "input[2]"),
        ([HI, call("a"), call("b"), result("b"), result("a")], "out_of_order", "input[3]"),
        (
            [HI, call("a"), call("b"), result("a"), call("c"), result("b"), result("c")],
            "out_of_order",
            "input[4]",
        ),
        ([HI, result()], "out_of_order", "input[1]"),
    ],
)
def test_input_that_some_provider_rejects_is_rejected_with_its_path(
    items: Any, code: str, param: str
) -> None:
    with pytest.raises(RequestRejected) as refused:
        check_rules(items)
    assert (refused.value.code, refused.value.param) == (code, param)
