"""Broken and rejected tool calls of an answer, and the names of tools."""

from __future__ import annotations

import pytest
from tests.turns import AnswerParts

from tollbridge.types.errors import BrokenCall, Disconnected
from tollbridge.types.events import Finished, TextDelta, ToolCall
from tollbridge.types.messages import (
    DataPart,
    Origin,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    add_origin,
    read_reasoning_pack,
)

BROKEN = ToolCall("c1", "read_file", '{"path": "/x', offered=False)
PROBLEM = BrokenCall("The model called read_file with invalid arguments.", calls=("c1",))


def test_a_call_with_truncated_arguments_is_passed_to_the_tool() -> None:
    answer = AnswerParts()
    assert answer.take([TextDelta("Hm."), BROKEN]) == [TextPart("Hm.")]
    parts, failure = answer.close(PROBLEM)
    assert parts == [ToolCallPart("c1", "read_file", {"_invalid_arguments": '{"path": "/x'})]
    assert failure is None
    assert len(answer.changes) == 1


def test_a_broken_call_keeps_its_metadata() -> None:
    origin, signed = Origin.of("m", "http://here"), {"thought_signature": "s"}
    answer = AnswerParts(origin=origin)
    answer.take([ToolCall("c1", "read_file", '{"path": "/x', offered=False, metadata=signed)])
    [mark, call, pack], _ = answer.close(PROBLEM)
    assert mark == ThinkingPart("", None, add_origin(origin, signed, call="c1"))
    assert isinstance(call, ToolCallPart)
    assert isinstance(pack, DataPart)
    content = read_reasoning_pack(pack.data)
    assert content is not None
    assert content.calls == {"c1": signed}


@pytest.mark.parametrize(
    "text",
    ['{"path": "/x",}', '"{\\"path\\": \\"/x\\"}"', '{}{"path": "/x"}', '```json\n{"path": "/x"}\n```'],
)
def test_unambiguous_arguments_are_repaired(text: str) -> None:
    answer = AnswerParts()
    answer.take([ToolCall("c1", "read_file", text, offered=False)])
    assert answer.close(PROBLEM) == ([ToolCallPart("c1", "read_file", {"path": "/x"})], None)


def test_truncated_arguments_are_not_completed() -> None:
    """Writing half of a file would be worse than an error."""
    answer = AnswerParts()
    answer.take([ToolCall("c1", "write_file", '{"path": "/x", "text": "half of', offered=False)])
    [call], _ = answer.close(PROBLEM)
    assert isinstance(call, ToolCallPart)
    assert set(call.input) == {"_invalid_arguments"}


def test_a_broken_call_of_a_disconnected_stream_is_not_passed_on() -> None:
    answer = AnswerParts()
    answer.take([BROKEN])
    lost = Disconnected("The gateway closed the stream.")
    assert answer.close(lost) == ([], lost)


def test_a_broken_call_without_a_name_is_a_failure() -> None:
    answer = AnswerParts()
    answer.take([ToolCall("c1", "", "{}", offered=False)])
    assert answer.close(PROBLEM) == ([], PROBLEM)


REJECTED = Finished("tool-calls", invalid=("c1",))


def test_a_call_rejected_by_the_gateway_is_passed_to_the_tool() -> None:
    answer = AnswerParts(tools={"read_file"})
    assert answer.take([BROKEN, REJECTED]) == []
    assert answer.close() == ([ToolCallPart("c1", "read_file", {"_invalid_arguments": '{"path": "/x'})], None)
    assert answer.changes == [
        "Invalid JSON in the arguments of the call to read_file; passed to the tool as text."
    ]


def test_rejected_arguments_are_wrapped() -> None:
    answer = AnswerParts()
    answer.take([ToolCall("c1", "read_file", {"path": 7}, offered=False), REJECTED])
    assert answer.close() == ([ToolCallPart("c1", "read_file", {"_invalid_arguments": '{"path":7}'})], None)
    assert len(answer.changes) == 1


def test_a_rejected_call_of_a_backend_tool_is_a_failure_with_its_name() -> None:
    answer = AnswerParts(tools={"list_dir"})
    answer.take([BROKEN, REJECTED])
    parts, failure = answer.close()
    assert (parts, type(failure)) == ([], BrokenCall)
    assert "read_file" in str(failure)


def test_another_failure_has_priority_over_a_rejected_call() -> None:
    answer = AnswerParts()
    answer.take([BROKEN, REJECTED])
    lost = Disconnected("The gateway closed the stream.")
    assert answer.close(lost) == ([], lost)


def test_the_original_names_of_tools_are_restored() -> None:
    answer = AnswerParts({"read_file_1": "read file"}.__getitem__)
    assert answer.take([ToolCall("c1", "read_file_1", {})]) == [ToolCallPart("c1", "read file", {})]
