"""One answer as an editor gets it."""

from __future__ import annotations

import pytest

from tollbridge.history.answer import AnswerParts
from tollbridge.types.errors import BrokenCall, Disconnected
from tollbridge.types.events import Finished, TextDelta, ToolCall
from tollbridge.types.messages import DataPart, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.reasoning import Origin, bind, read_reasoning_pack

BROKEN = ToolCall("c1", "read_file", '{"path": "/x', offered=False)
PROBLEM = BrokenCall("The model called read_file with arguments that make no sense.", calls=("c1",))


def test_a_call_whose_arguments_break_off_is_handed_on_for_the_tool_to_refuse() -> None:
    answer = AnswerParts()
    assert answer.take([TextDelta("Hm."), BROKEN]) == [TextPart("Hm.")]
    parts, failure = answer.close(PROBLEM)
    assert parts == [ToolCallPart("c1", "read_file", {"_invalid_arguments": '{"path": "/x'})]
    assert failure is None
    assert len(answer.changes) == 1


def test_a_call_that_is_handed_on_carries_what_the_model_needs_to_know_it_again() -> None:
    origin, signed = Origin.of("m", "http://here"), {"thought_signature": "s"}
    answer = AnswerParts(origin=origin)
    answer.take([ToolCall("c1", "read_file", '{"path": "/x', offered=False, metadata=signed)])
    [mark, call, pack], _ = answer.close(PROBLEM)
    assert mark == ThinkingPart("", None, bind(origin, signed, call="c1"))
    assert isinstance(call, ToolCallPart)
    assert isinstance(pack, DataPart)
    carried = read_reasoning_pack(pack.data)
    assert carried is not None
    assert carried.calls == {"c1": signed}


@pytest.mark.parametrize(
    "text",
    ['{"path": "/x",}', '"{\\"path\\": \\"/x\\"}"', '{}{"path": "/x"}', '```json\n{"path": "/x"}\n```'],
)
def test_arguments_with_one_possible_meaning_are_mended(text: str) -> None:
    answer = AnswerParts()
    answer.take([ToolCall("c1", "read_file", text, offered=False)])
    assert answer.close(PROBLEM) == ([ToolCallPart("c1", "read_file", {"path": "/x"})], None)


def test_arguments_that_were_cut_off_are_never_completed_and_run() -> None:
    """A file written from half of its text would be worse than an error."""
    answer = AnswerParts()
    answer.take([ToolCall("c1", "write_file", '{"path": "/x", "text": "half of', offered=False)])
    [call], _ = answer.close(PROBLEM)
    assert isinstance(call, ToolCallPart)
    assert set(call.input) == {"_invalid_arguments"}


def test_a_call_that_the_stream_lost_is_not_handed_on() -> None:
    answer = AnswerParts()
    answer.take([BROKEN])
    lost = Disconnected("The gateway closed the stream.")
    assert answer.close(lost) == ([], lost)


def test_a_call_without_a_name_stays_a_failure() -> None:
    answer = AnswerParts()
    answer.take([ToolCall("c1", "", "{}", offered=False)])
    assert answer.close(PROBLEM) == ([], PROBLEM)


LEFT = Finished("tool-calls", invalid=("c1",))


def test_a_call_that_the_gateway_refused_and_left_there_is_handed_on_too() -> None:
    answer = AnswerParts(tools={"read_file"})
    assert answer.take([BROKEN, LEFT]) == []
    assert answer.close() == ([ToolCallPart("c1", "read_file", {"_invalid_arguments": '{"path": "/x'})], None)
    assert answer.changes == [
        "Invalid JSON in the arguments of the call to read_file; passed to the tool as text."
    ]


def test_arguments_that_the_gateway_could_read_and_refused_are_not_run_as_they_are() -> None:
    answer = AnswerParts()
    answer.take([ToolCall("c1", "read_file", {"path": 7}, offered=False), LEFT])
    assert answer.close() == ([ToolCallPart("c1", "read_file", {"_invalid_arguments": '{"path":7}'})], None)
    assert len(answer.changes) == 1


def test_a_refused_call_of_a_tool_of_the_backends_own_is_a_failure_that_names_it() -> None:
    answer = AnswerParts(tools={"list_dir"})
    answer.take([BROKEN, LEFT])
    parts, failure = answer.close()
    assert (parts, type(failure)) == ([], BrokenCall)
    assert "read_file" in str(failure)


def test_a_refused_call_does_not_hide_what_else_went_wrong() -> None:
    answer = AnswerParts()
    answer.take([BROKEN, LEFT])
    lost = Disconnected("The gateway closed the stream.")
    assert answer.close(lost) == ([], lost)


def test_tools_have_the_names_their_editor_gave_them() -> None:
    answer = AnswerParts({"read_file_1": "read file"}.__getitem__)
    assert answer.take([ToolCall("c1", "read_file_1", {})]) == [ToolCallPart("c1", "read file", {})]
