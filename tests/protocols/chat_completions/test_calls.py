"""Tool calls, in all the ways in which servers divide and number them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocols.chat_completions.chunks import (
    DONE,
    call,
    calls_chunk,
    chunk,
    decode,
    decode_message,
    failure,
    finished,
    tool_calls,
)

from tollbridge.types.errors import BrokenCall, Disconnected
from tollbridge.types.events import ToolCall

END = chunk("tool_calls")
OSLO = ToolCall("call_a", "weather", {"city": "Oslo"})
ROME = ToolCall("call_b", "weather", {"city": "Rome"})


def test_the_id_and_the_name_are_only_in_the_first_delta() -> None:
    events = decode(
        calls_chunk(call(0, "", id="call_a", type="function", name="weather")),
        calls_chunk(call(0, '{"city"')),
        calls_chunk(call(0, ': "Oslo"}')),
        END,
        DONE,
    )
    assert tool_calls(events) == [OSLO]
    assert finished(events).reason == "tool-calls"


def test_parallel_calls_are_distinguished_by_their_index_even_if_interleaved() -> None:
    events = decode(
        calls_chunk(call(0, "", id="call_a", name="weather"), call(1, "", id="call_b", name="weather")),
        calls_chunk(call(1, '{"city": '), call(0, '{"city": ')),
        calls_chunk(call(0, '"Oslo"}')),
        calls_chunk(call(1, '"Rome"}')),
        END,
        DONE,
    )
    assert tool_calls(events) == [OSLO, ROME]


def test_a_server_can_repeat_the_id_and_the_name_in_every_delta() -> None:
    pieces = ('{"city": ', '"Oslo"', "}")
    deltas = [calls_chunk(call(0, piece, id="call_a", name="weather")) for piece in pieces]
    assert tool_calls(decode(*deltas, END, DONE)) == [OSLO]


@pytest.mark.parametrize("index", [0, None])
def test_a_server_can_repeat_the_name_without_an_id(index: int | None) -> None:
    pieces = ('{"city": {"name": ', '"Oslo"}', ', "options": ', "{}", "}", "")
    deltas = [calls_chunk(call(index, piece, name="weather")) for piece in pieces]
    [only] = tool_calls(decode(*deltas, END, DONE))
    assert only.input == {"city": {"name": "Oslo"}, "options": {}}


@pytest.mark.parametrize("finish_reason", ["tool_calls", "stop", "function_call"])
def test_a_server_can_send_whole_calls_at_once(finish_reason: str) -> None:
    calls = (
        call(0, '{"city": "Oslo"}', id="call_a", name="weather"),
        call(1, '{"city": "Rome"}', id="call_b", name="weather"),
    )
    events = decode(calls_chunk(*calls, finish_reason=finish_reason), DONE)
    assert tool_calls(events) == [OSLO, ROME]
    assert finished(events).reason == "tool-calls"


@pytest.mark.parametrize("index", [0, None])
def test_complete_calls_with_wrong_or_missing_indexes_are_distinguished_by_id(
    index: int | None,
) -> None:
    events = decode(
        calls_chunk(call(index, '{"city": "Oslo"}', id="call_a", name="weather")),
        calls_chunk(call(index, '{"city": "Rome"}', id="call_b", name="weather")),
        END,
        DONE,
    )
    assert tool_calls(events) == [OSLO, ROME]


@pytest.mark.parametrize("index", [0, None])
def test_whole_calls_without_ids_and_indexes_are_separate_calls(index: int | None) -> None:
    events = decode(
        calls_chunk(call(index, '{"city": "Oslo"}', name="weather")),
        calls_chunk(call(index, '{"city": "Rome"}', name="weather")),
        END,
        DONE,
    )
    first, second = tool_calls(events)
    assert (first.input, second.input) == ({"city": "Oslo"}, {"city": "Rome"})
    assert first.call_id != second.call_id


def test_another_name_begins_another_call_if_there_are_no_ids_and_indexes() -> None:
    events = decode(
        calls_chunk(call(None, "", name="weather")),
        calls_chunk(call(None, '{"city": "Oslo"}')),
        calls_chunk(call(None, "", name="now")),
        calls_chunk(call(None, '{"zone": "CET"}')),
        END,
        DONE,
    )
    assert [(c.name, c.input) for c in tool_calls(events)] == [
        ("weather", {"city": "Oslo"}),
        ("now", {"zone": "CET"}),
    ]


def test_deltas_without_an_index_belong_to_the_last_call() -> None:
    events = decode(
        calls_chunk(call(None, "", id="call_a", name="weather")),
        calls_chunk(call(None, '{"city": ')),
        calls_chunk(call(None, '"Oslo"}')),
        calls_chunk(call(None, "", id="call_b", name="weather")),
        calls_chunk(call(None, '{"city": "Rome"}')),
        END,
        DONE,
    )
    assert tool_calls(events) == [OSLO, ROME]


def test_calls_with_one_id_and_two_indexes_are_both_kept() -> None:
    events = decode(
        calls_chunk(call(0, '{"city": "Oslo"}', id="call_a", name="weather")),
        calls_chunk(call(1, '{"city": "Rome"}', id="call_a", name="weather")),
        END,
        DONE,
    )
    first, second = tool_calls(events)
    assert first == OSLO
    assert second.input == {"city": "Rome"}
    assert second.call_id != first.call_id


@pytest.mark.parametrize("arguments", ["", None, "{}", "null"])
def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    events = decode(calls_chunk(call(0, arguments, id="c", name="now")), END, DONE)
    assert tool_calls(events) == [ToolCall("c", "now", {})]


def test_arguments_can_be_an_object_instead_of_its_text() -> None:
    whole: Any = {"id": "call_a", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    assert tool_calls(decode(calls_chunk(whole), END, DONE)) == [OSLO]


def test_the_legacy_function_call_is_a_call() -> None:
    events = decode(
        chunk(function_call={"name": "weather", "arguments": ""}),
        chunk(function_call={"arguments": '{"city": '}),
        chunk(function_call={"arguments": '"Oslo"}'}),
        chunk("function_call"),
        DONE,
    )
    [only] = tool_calls(events)
    assert (only.name, only.input) == ("weather", {"city": "Oslo"})
    assert finished(events).reason == "tool-calls"


def test_a_custom_tool_gets_its_input_as_text() -> None:
    custom: Any = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    events = decode(calls_chunk(custom), calls_chunk({"index": 0, "custom": {"input": " Patch"}}), END, DONE)
    assert tool_calls(events) == [ToolCall("c", "patch", "*** Begin Patch")]


def test_the_signature_of_a_call_is_kept() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    signed = call(0, "{}", id="c", name="now", extra_content=extra)
    assert tool_calls(decode(calls_chunk(signed), END, DONE)) == [
        ToolCall("c", "now", {}, metadata={"extra_content": extra})
    ]


def test_invalid_arguments_fail_after_everything_else() -> None:
    events = decode(calls_chunk(call(0, "{not json", id="c", name="now")), END, DONE)
    assert tool_calls(events) == [ToolCall("c", "now", "{not json", offered=False)]
    error = failure(events).error
    assert isinstance(error, BrokenCall)
    assert error.calls == ("c",)


def test_a_call_cut_by_the_output_limit_is_not_offered_but_complete_ones_are() -> None:
    events = decode(
        calls_chunk(call(0, '{"city": "Oslo"}', id="call_a", name="weather")),
        calls_chunk(call(1, '{"city": "Ro', id="call_b", name="weather")),
        chunk("length"),
        DONE,
    )
    assert [(c.call_id, c.offered) for c in tool_calls(events)] == [("call_a", True), ("call_b", False)]
    assert (finished(events).reason, finished(events).ended) == ("length", "incomplete")


def test_a_call_in_a_broken_stream_is_not_offered() -> None:
    events = decode(calls_chunk(call(0, '{"city": "Os', id="call_a", name="weather")))
    assert [c.offered for c in tool_calls(events)] == [False]
    assert isinstance(failure(events).error, Disconnected)


def test_calls_of_a_body_that_is_not_streamed_need_no_index() -> None:
    calls = [
        call(None, '{"city": "Oslo"}', id="call_a", type="function", name="weather"),
        call(None, '{"city": "Rome"}', id="call_b", type="function", name="weather"),
    ]
    assert tool_calls(decode_message("tool_calls", content=None, tool_calls=calls)) == [OSLO, ROME]
