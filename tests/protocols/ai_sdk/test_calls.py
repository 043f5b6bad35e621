"""Tool calls: when they are emitted and offered, and streamed arguments without a call."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocols.ai_sdk.streams import DONE, FINISH, call, failures, full, model

from tollbridge.protocols.ai_sdk.stream import FullDecoder
from tollbridge.types.events import Finished, TextDelta, ToolCall, Usage


def test_events_after_an_undecided_call_are_held_back() -> None:
    decoder = FullDecoder()
    assert decoder.feed_parsed(call()) == []
    assert decoder.feed_parsed({"type": "text-delta", "text": "after"}) == []
    answered = {"type": "tool-result", "toolCallId": "c", "output": 1}
    assert decoder.feed_parsed(answered) == [
        ToolCall("c", "read", {"a": 1}, offered=False),
        TextDelta("after"),
    ]


def test_an_undecided_call_is_offered_at_the_end_of_its_step() -> None:
    decoder = FullDecoder()
    decoder.feed_parsed(call())
    assert decoder.feed_parsed({"type": "finish-step"}) == [ToolCall("c", "read", {"a": 1})]


@pytest.mark.parametrize("kind", ["tool-result", "tool-error", "tool-output-available", "tool-output-denied"])
def test_a_result_before_its_call_counts(kind: str) -> None:
    answer = {"type": kind, "toolCallId": "c"}
    assert full(answer, call(), FINISH) == [ToolCall("c", "read", {"a": 1}, offered=False), DONE]


def test_a_call_executed_by_the_provider_is_never_offered() -> None:
    assert full(call(providerExecuted=True), FINISH)[0] == ToolCall("c", "read", {"a": 1}, offered=False)


def test_a_preliminary_result_shows_that_the_backend_executes_the_tool() -> None:
    result = {"type": "tool-result", "toolCallId": "c", "output": 1, "preliminary": True}
    assert full(call(), result, FINISH)[0] == ToolCall("c", "read", {"a": 1}, offered=False)


def test_an_id_is_one_call_per_step() -> None:
    step = {"type": "finish-step"}
    twice = full(call(input={"a": 1}), call(input={"a": 2}), step, call(input={"a": 3}), step, FINISH)
    assert [event.input for event in twice if isinstance(event, ToolCall)] == [{"a": 2}, {"a": 3}]


def test_an_undecided_call_of_a_truncated_stream_is_not_offered() -> None:
    [first, _] = full(call())
    assert first == ToolCall("c", "read", {"a": 1}, offered=False)


def test_a_denied_approval_denies_the_call() -> None:
    ask = {"type": "tool-approval-request", "approvalId": "p", "toolCallId": "c"}
    no = {"type": "tool-approval-response", "approvalId": "p", "approved": False}
    yes = {**no, "approved": True}
    assert full(call(), ask, no, FINISH)[0] == ToolCall("c", "read", {"a": 1}, offered=False)
    assert full(call(), ask, yes, FINISH)[0] == ToolCall("c", "read", {"a": 1})


def _streamed(text: str, *, ended: bool = True, **start: Any) -> list[dict[str, Any]]:
    chunks = [{"type": "tool-input-start", "id": "c", "toolName": "read", **start}]
    chunks += [{"type": "tool-input-delta", "id": "c", "delta": text}] if text else []
    return [*chunks, {"type": "tool-input-end", "id": "c"}] if ended else chunks


@pytest.mark.parametrize("reason", ["stop", "tool-calls", "other", "unknown", "something new", None])
def test_complete_streamed_arguments_without_a_call_chunk_are_a_call(reason: str | None) -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "finish", "finishReason": reason})
    assert events[0] == ToolCall("c", "read", {"a": 1})


@pytest.mark.parametrize("reason", ["length", "content-filter", "error", "interrupted"])
def test_streamed_arguments_before_a_bad_finish_reason_are_an_error_that_names_the_tool(reason: str) -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "finish", "finishReason": reason})
    assert not [event for event in events if isinstance(event, ToolCall)]
    assert failures(events) == ['The arguments of a call to the tool "read" were truncated.']


@pytest.mark.parametrize("end", [{"type": "finish"}, FINISH])
def test_streamed_arguments_before_an_error_are_not_a_call(end: dict[str, Any]) -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "error", "error": "boom"}, end)
    assert not [event for event in events if isinstance(event, ToolCall)]
    assert failures(events) == ["boom", 'The arguments of a call to the tool "read" were truncated.']


def test_an_invalid_call_does_not_affect_other_streamed_arguments() -> None:
    events = model(*_streamed('{"a": 1}'), call("d", input='{"b": '), FINISH)
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert [(each.call_id, each.offered) for each in calls] == [("d", False), ("c", True)]


def test_empty_streamed_arguments_are_an_empty_object_only_if_they_ended() -> None:
    assert full(*_streamed(""), FINISH)[0] == ToolCall("c", "read", {})
    assert failures(full(*_streamed("", ended=False), FINISH)) != []


def test_text_arguments_are_complete_only_if_they_ended() -> None:
    assert full(*_streamed("print(1)", inputEncoding="text"), FINISH)[0] == ToolCall("c", "read", "print(1)")
    assert failures(full(*_streamed("print(1)", ended=False, inputEncoding="text"), FINISH)) != []


def test_streamed_arguments_of_a_failed_call_are_not_a_call() -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "tool-error", "toolCallId": "c", "error": {}}, FINISH)
    assert events == [DONE]


def test_an_emoji_split_between_streamed_arguments_is_joined() -> None:
    pieces = [{"type": "tool-input-delta", "id": "c", "delta": part} for part in ('{"a":"\ud83d', '\ude00"}')]
    assert full(*_streamed("", ended=False), *pieces, FINISH)[0] == ToolCall("c", "read", {"a": "😀"})


def test_a_call_without_an_id_is_an_error_that_names_the_tool() -> None:
    assert failures(full({"type": "tool-call", "toolName": "read", "input": {}}, FINISH)) == [
        'A call to the tool "read" has no id.'
    ]


def test_a_models_arguments_are_json_text() -> None:
    assert model(call(input='{"b": 2}'), FINISH)[0] == ToolCall("c", "read", {"b": 2})
    assert model(call(input=""), FINISH)[0] == ToolCall("c", "read", {})


def test_invalid_arguments_of_a_model_are_an_error_and_not_offered() -> None:
    events = model(call(input='{"b": '), FINISH)
    assert events[0] == ToolCall("c", "read", '{"b": ', offered=False)
    assert failures(events) == ['The arguments of a call to the tool "read" are not JSON.']


INVALID: list[dict[str, Any]] = [
    call(input='{"b": ', invalid=True),
    {
        "type": "tool-input-error",
        "toolCallId": "c",
        "toolName": "read",
        "input": '{"b": ',
        "errorText": "bad",
    },
]


@pytest.mark.parametrize("call_chunk", INVALID)
def test_the_finish_event_lists_calls_that_the_backend_reported_as_invalid(
    call_chunk: dict[str, Any],
) -> None:
    assert full(call_chunk, FINISH) == [
        ToolCall("c", "read", '{"b": ', offered=False),
        Finished("stop", invalid=("c",)),
    ]


@pytest.mark.parametrize("call_chunk", INVALID)
@pytest.mark.parametrize(
    "after",
    [
        {"type": "tool-error", "toolCallId": "c", "error": "bad"},
        {"type": "tool-output-error", "toolCallId": "c", "errorText": "bad"},
        {"type": "start-step"},
        {"type": "reset-step"},
    ],
)
def test_an_invalid_call_with_a_result_or_a_later_step_is_not_listed(
    call_chunk: dict[str, Any], after: dict[str, Any]
) -> None:
    assert full(call_chunk, after, FINISH)[-1] == DONE


@pytest.mark.parametrize("call_chunk", INVALID)
def test_an_invalid_call_of_the_provider_or_of_an_aborted_stream_is_not_listed(
    call_chunk: dict[str, Any],
) -> None:
    assert full({**call_chunk, "providerExecuted": True}, FINISH)[-1] == DONE
    assert full(call_chunk, {"type": "abort"})[-1] == Finished(None, "abort")


def test_the_sdks_text_input_stays_text() -> None:
    assert full(call(input='{"b": 2}'), FINISH)[0] == ToolCall("c", "read", '{"b": 2}')


def test_empty_text_means_no_arguments_unless_the_input_is_text() -> None:
    assert full(call(input=" "), FINISH)[0] == ToolCall("c", "read", {})
    assert full(*_streamed("", inputEncoding="text"), call(input=""), FINISH)[0] == ToolCall("c", "read", "")


def test_model_chunks_are_recognized_by_the_start_of_the_stream() -> None:
    start = {"type": "stream-start", "warnings": []}
    assert full(start, call(input='{"b": 2}'), FINISH)[0] == ToolCall("c", "read", {"b": 2})


MODELS_ENDS: list[dict[str, Any]] = [
    {"type": "finish", "finishReason": {"unified": "tool-calls", "raw": "tool_use"}},
    {"type": "finish", "finishReason": "tool-calls", "usage": {"inputTokens": {"total": 5}}},
]


@pytest.mark.parametrize("end", MODELS_ENDS)
def test_model_chunks_are_recognized_by_the_end_before_calls_are_emitted(end: dict[str, Any]) -> None:
    assert full(call(input='{"b": 2}'), end)[0] == ToolCall("c", "read", {"b": 2})
    events = full(call(input='{"b": '), end)
    assert events[0] == ToolCall("c", "read", '{"b": ', offered=False)
    assert failures(events) == ['The arguments of a call to the tool "read" are not JSON.']


@pytest.mark.parametrize(
    ("reason", "usage"),
    [
        ("length", {"inputTokens": 10, "outputTokens": 3, "totalTokens": 13, "cachedInputTokens": 4}),
        (
            {"unified": "length", "raw": "max_tokens"},
            {"inputTokens": {"total": 10, "cacheRead": 4}, "outputTokens": {"total": 3}},
        ),
    ],
)
def test_reasons_and_usage_of_every_specification_are_read(reason: Any, usage: Any) -> None:
    [finished] = model({"type": "finish", "finishReason": reason, "usage": usage})
    assert finished == Finished("length", usage=Usage(10, 3, 13, 4))


def test_the_model_and_the_response_id_are_kept() -> None:
    named = {"type": "response-metadata", "id": "resp_1", "modelId": "m"}
    assert model(named, FINISH) == [Finished("stop", response_id="resp_1", model="m")]
