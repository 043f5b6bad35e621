"""Parameters are read leniently where that does not change their meaning."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tollbridge.frontends.stdio.parameters import read_parameters
from tollbridge.frontends.vscode import wire


def _read(params: Any, shape: type[Any]) -> Any:
    return read_parameters(msgspec.Raw(msgspec.json.encode(params)), shape)


NO_VALUES: dict[str, tuple[Any, Any]] = {
    "null for an optional field": (
        {"model": "m", "messages": [], "tools": None, "toolMode": None, "modelOptions": None},
        wire.Chat("m", []),
    ),
    "null for an optional field of a message": (
        {"model": "m", "messages": [{"role": 1, "content": None, "name": None}]},
        wire.Chat("m", [wire.Message(1)]),
    ),
    "null for an optional field of a part": (
        {
            "model": "m",
            "messages": [
                {
                    "role": 1,
                    "content": [{"type": "toolResult", "callId": "1", "content": None, "isError": None}],
                }
            ],
        },
        wire.Chat("m", [wire.Message(1, [wire.ToolResult("1")])]),
    ),
    "a list for an empty object": (
        {"model": "m", "messages": [], "modelOptions": [], "modelConfiguration": []},
        wire.Chat("m", []),
    ),
    "a list for an empty object in a part": (
        {
            "model": "m",
            "messages": [{"role": 2, "content": [{"type": "thinking", "value": "x", "metadata": []}]}],
            "tools": [{"name": "t", "inputSchema": []}],
        },
        wire.Chat("m", [wire.Message(2, [wire.Thinking("x", None, {})])], [wire.Tool("t", "", {})]),
    ),
    "a list that is one, beside a part of an unknown type": (
        {
            "model": "m",
            "messages": [{"role": 2, "content": [{"type": "thinking", "value": []}, {"type": "new"}]}],
            "modelOptions": {"stop": [], "seed": None},
        },
        wire.Chat(
            "m",
            [wire.Message(2, [wire.Thinking([]), wire.Unknown("new")])],
            model_options={"stop": [], "seed": None},
        ),
    ),
}


@pytest.mark.parametrize("case", NO_VALUES)
def test_null_and_an_empty_list_stand_for_no_value(case: str) -> None:
    params, chat = NO_VALUES[case]
    assert _read(params, wire.Chat) == chat


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"model": None, "messages": []}, r"\$\.model"),
        ({"model": "m", "messages": None}, r"\$\.messages"),
        ({"model": "m", "messages": [], "modelOptions": [1]}, r"\$\.modelOptions"),
        ({"model": "m", "messages": [[]]}, r"role.*\$\.messages\[0\]"),
        ({"model": "m", "messages": [{"role": 1, "content": {}}]}, r"\$\.messages\[0\]\.content"),
    ],
)
def test_a_missing_value_that_is_required_is_an_error_that_names_it(params: Any, path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=path):
        _read(params, wire.Chat)
