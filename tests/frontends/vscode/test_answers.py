"""The parts and the usage of an answer become VS Code's."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from tollbridge.frontends.vscode.answers import encode_parts, encode_usage
from tollbridge.types.errors import (
    StreamError,
)
from tollbridge.types.events import Usage
from tollbridge.types.messages import (
    DataPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (TextPart("hi"), {"type": "text", "value": "hi"}),
        (ThinkingPart("hm"), {"type": "thinking", "value": "hm"}),
        (
            ThinkingPart("", "rs_1", {"signature": "s"}),
            {"type": "thinking", "value": "", "id": "rs_1", "metadata": {"signature": "s"}},
        ),
        (
            ToolCallPart("c1", "read", {"a": 1}),
            {"type": "toolCall", "callId": "c1", "name": "read", "input": {"a": 1}},
        ),
        (ToolCallPart("c1", "now", ""), {"type": "toolCall", "callId": "c1", "name": "now", "input": {}}),
        (ToolCallPart("c1", "now", None), {"type": "toolCall", "callId": "c1", "name": "now", "input": {}}),
        (
            DataPart(b"\x89PNG", "image/png"),
            {"type": "data", "mimeType": "image/png", "data": base64.b64encode(b"\x89PNG").decode()},
        ),
    ],
)
def test_every_part_is_encoded(part: Part, sent: dict[str, Any]) -> None:
    assert as_json(encode_parts([part])) == [sent]


@pytest.mark.parametrize("value", ['{"a": ', [1], 3])
def test_arguments_that_are_not_an_object_are_an_error_that_names_the_tool(value: Any) -> None:
    with pytest.raises(StreamError, match="tool read_file"):
        encode_parts([ToolCallPart("c1", "read_file", value)])


def test_a_tool_result_in_an_answer_is_an_error() -> None:
    with pytest.raises(StreamError, match="c1"):
        encode_parts([ToolResultPart("c1", (TextPart("x"),))])


def test_usage_is_encoded_for_the_context_meter() -> None:
    part = encode_usage(Usage(1234, 56, 1290, cached_tokens=1000, reasoning_tokens=20))
    assert part is not None
    assert part.mime_type == "usage"
    assert json.loads(part.data) == {
        "prompt_tokens": 1234,
        "completion_tokens": 56,
        "total_tokens": 1290,
        "prompt_tokens_details": {"cached_tokens": 1000},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }


def test_a_missing_total_is_the_sum() -> None:
    part = encode_usage(Usage(10, 5))
    assert part is not None
    assert json.loads(part.data) == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 0, 0), Usage(10, None), Usage(None, 10)])
def test_unknown_usage_is_not_encoded(usage: Usage | None) -> None:
    assert encode_usage(usage) is None
