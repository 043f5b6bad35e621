"""What single chunks mean, where a recording cannot show it: odd orders, odd shapes, things that go wrong."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from tollbridge.core.events import (
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.core.usage import Usage
from tollbridge.gateways.aisdk.decode import DataDecoder, FullDecoder, ModelDecoder, UiDecoder
from tollbridge.gateways.aisdk.lines import LineDecoder
from tollbridge.gateways.aisdk.turn import ERROR_LIMIT, Turn

FINISH = {"type": "finish", "finishReason": "stop"}
DONE = Finished("stop")
PNG = b"\x89PNG\r\n\x1a\n"


def full(*chunks: Any) -> list[Event]:
    decoder = FullDecoder()
    body = b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks)
    return decoder.feed(body) + decoder.close()


def call(call_id: str = "c", name: str = "read", **more: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": {"a": 1}, **more}


def failures(events: list[Event]) -> list[str]:
    return [event.error.message for event in events if isinstance(event, Failed)]


# --- calls -------------------------------------------------------------------------------------------------


def test_what_follows_an_undecided_call_waits_behind_it() -> None:
    turn = Turn()
    decoder = FullDecoder(turn)
    assert decoder.take(call()) == []
    assert decoder.take({"type": "text-delta", "text": "after"}) == []
    answered = {"type": "tool-result", "toolCallId": "c", "output": 1}
    assert decoder.take(answered) == [ToolCall("c", "read", {"a": 1}, offered=False), TextDelta("after")]


def test_the_end_of_its_step_decides_that_a_call_is_the_editors() -> None:
    decoder = FullDecoder()
    decoder.take(call())
    assert decoder.take({"type": "finish-step"}) == [ToolCall("c", "read", {"a": 1})]


@pytest.mark.parametrize("kind", ["tool-result", "tool-error", "tool-output-available", "tool-output-denied"])
def test_an_answer_that_comes_before_its_call_counts_too(kind: str) -> None:
    answer = {"type": kind, "toolCallId": "c"}
    assert full(answer, call(), FINISH) == [ToolCall("c", "read", {"a": 1}, offered=False), DONE]


def test_a_preliminary_result_shows_that_the_backend_runs_the_tool() -> None:
    result = {"type": "tool-result", "toolCallId": "c", "output": 1, "preliminary": True}
    assert full(call(), result, FINISH)[0] == ToolCall("c", "read", {"a": 1}, offered=False)


def test_one_id_is_called_once_in_a_step_and_again_in_the_next() -> None:
    step = {"type": "finish-step"}
    twice = full(call(input={"a": 1}), call(input={"a": 2}), step, call(input={"a": 3}), step, FINISH)
    assert [event.input for event in twice if isinstance(event, ToolCall)] == [{"a": 2}, {"a": 3}]


def test_a_call_that_a_broken_stream_leaves_undecided_is_not_offered() -> None:
    [made, _] = full(call())
    assert made == ToolCall("c", "read", {"a": 1}, offered=False)


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
def test_whole_arguments_without_a_call_are_a_call(reason: str | None) -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "finish", "finishReason": reason})
    assert events[0] == ToolCall("c", "read", {"a": 1})


@pytest.mark.parametrize("reason", ["length", "content-filter", "error", "interrupted"])
def test_after_a_bad_end_they_are_an_error_that_names_the_tool(reason: str) -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "finish", "finishReason": reason})
    assert not [event for event in events if isinstance(event, ToolCall)]
    assert failures(events) == ["The arguments of a call of the tool “read” were cut off."]


def test_no_arguments_at_all_are_an_empty_object_only_where_the_model_said_that_they_ended() -> None:
    assert full(*_streamed(""), FINISH)[0] == ToolCall("c", "read", {})
    assert failures(full(*_streamed("", ended=False), FINISH)) != []


def test_arguments_that_are_text_are_whole_where_the_model_said_so() -> None:
    assert full(*_streamed("print(1)", inputEncoding="text"), FINISH)[0] == ToolCall("c", "read", "print(1)")
    assert failures(full(*_streamed("print(1)", ended=False, inputEncoding="text"), FINISH)) != []


def test_streamed_arguments_whose_call_failed_are_no_call() -> None:
    events = full(*_streamed('{"a": 1}'), {"type": "tool-error", "toolCallId": "c", "error": {}}, FINISH)
    assert events == [DONE]


def test_an_emoji_cut_in_two_by_streamed_arguments_is_whole_again() -> None:
    pieces = [{"type": "tool-input-delta", "id": "c", "delta": part} for part in ('{"a":"\ud83d', '\ude00"}')]
    assert full(*_streamed("", ended=False), *pieces, FINISH)[0] == ToolCall("c", "read", {"a": "😀"})


def test_a_call_without_an_id_is_an_error_that_names_the_tool() -> None:
    assert failures(full({"type": "tool-call", "toolName": "read", "input": {}}, FINISH)) == [
        "A call of the tool “read” has no id."
    ]


# --- a model's own parts -----------------------------------------------------------------------------------


def model(*parts: Any) -> list[Event]:
    decoder = ModelDecoder()
    body = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts)
    return decoder.feed(body) + decoder.close()


def test_a_models_arguments_are_json_text() -> None:
    assert model(call(input='{"b": 2}'), FINISH)[0] == ToolCall("c", "read", {"b": 2})
    assert model(call(input=""), FINISH)[0] == ToolCall("c", "read", {})


def test_a_models_broken_arguments_are_not_offered_and_are_an_error() -> None:
    events = model(call(input='{"b": '), FINISH)
    assert events[0] == ToolCall("c", "read", '{"b": ', offered=False)
    assert failures(events) == ["The arguments of a call of the tool “read” are not JSON."]


def test_the_sdks_text_input_stays_text() -> None:
    assert full(call(input='{"b": 2}'), FINISH)[0] == ToolCall("c", "read", '{"b": 2}')


def test_a_model_is_recognised_in_any_stream_by_how_it_begins() -> None:
    start = {"type": "stream-start", "warnings": []}
    assert full(start, call(input='{"b": 2}'), FINISH)[0] == ToolCall("c", "read", {"b": 2})


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


def test_who_answered_is_kept() -> None:
    named = {"type": "response-metadata", "id": "resp_1", "modelId": "m"}
    assert model(named, FINISH) == [Finished("stop", response_id="resp_1", model="m")]


# --- usage -------------------------------------------------------------------------------------------------


def test_a_cut_streams_steps_are_still_billed() -> None:
    step = {"type": "finish-step", "usage": {"inputTokens": 10, "outputTokens": 3}}
    [failed] = full(step, step)
    assert isinstance(failed, Failed)
    assert failed.usage == Usage(20, 6, 26)


def test_merged_streams_are_billed_together_and_finish_once() -> None:
    one = {
        "type": "finish",
        "finishReason": "tool-calls",
        "totalUsage": {"inputTokens": 10, "outputTokens": 1},
    }
    two = {"type": "finish", "finishReason": "stop", "totalUsage": {"inputTokens": 20, "outputTokens": 2}}
    assert full(one, two) == [Finished("stop", usage=Usage(30, 3, 33), context=Usage(20, 2, 22))]


@pytest.mark.parametrize("count", [None, "10", True, -1, float("nan"), 1e300, [], {}])
def test_a_count_that_is_none_is_unknown(count: Any) -> None:
    chunk = {"type": "finish", "totalUsage": {"inputTokens": count, "outputTokens": 3}}
    decoder = FullDecoder()
    decoder.take(chunk)
    [finished] = decoder.close()
    assert isinstance(finished, Finished)
    assert finished.usage == Usage(None, 3)


# --- reasoning ---------------------------------------------------------------------------------------------


def test_what_goes_back_with_reasoning_is_gathered_from_its_start_its_deltas_and_its_end() -> None:
    events = full(
        {"type": "reasoning-start", "id": "r", "providerMetadata": {"openai": {"itemId": "rs"}}},
        {"type": "reasoning-delta", "id": "r", "text": "hm", "providerMetadata": {"google": {"sign": "g"}}},
        {"type": "reasoning-end", "id": "r", "providerMetadata": {"openai": {"encrypted": "e"}}},
        FINISH,
    )
    kept = {"openai": {"itemId": "rs", "encrypted": "e"}, "google": {"sign": "g"}}
    assert events == [ReasoningDelta("hm", "r"), ReasoningEnded("r", kept), DONE]


def test_a_block_that_never_ends_does_not_lose_what_it_carries() -> None:
    start = {"type": "reasoning-start", "id": "r", "providerMetadata": {"anthropic": {"redactedData": "x"}}}
    assert full(start, FINISH)[0] == ReasoningEnded("r", {"anthropic": {"redactedData": "x"}})


def test_two_blocks_side_by_side_keep_their_names() -> None:
    deltas = [{"type": "reasoning-delta", "id": block, "text": block} for block in ("a", "a", "b", "a")]
    said = [ReasoningDelta("aa", "a"), ReasoningDelta("b", "b"), ReasoningDelta("a", "a")]
    assert full(*deltas, FINISH)[:3] == said


# --- files, sources, data ----------------------------------------------------------------------------------

TEXT = b64encode(PNG).decode()
NUMBERS = {str(index): byte for index, byte in enumerate(PNG)}


@pytest.mark.parametrize(
    "carrier",
    [
        {"file": {"base64": TEXT, "mediaType": "image/png"}},
        {"file": {"base64Data": TEXT, "mediaType": "image/png"}},
        {"file": {"uint8Array": NUMBERS, "mediaType": "image/png"}},
        {"file": {"uint8ArrayData": NUMBERS, "mediaType": "image/png"}},
        {"file": {"uint8Array": list(PNG), "mediaType": "image/png"}},
        {"file": {"uint8Array": {"type": "Buffer", "data": list(PNG)}, "mediaType": "image/png"}},
        {"base64": TEXT, "mimeType": "image/png"},
        {"uint8ArrayData": NUMBERS, "mimeType": "image/png"},
        {"data": TEXT, "mediaType": "image/png"},
        {"data": TEXT.rstrip("="), "mediaType": "image/png"},
        {"data": {"type": "data", "data": TEXT}, "mediaType": "image/png"},
        {"data": f"data:image/png;base64,{TEXT}", "mediaType": "image/png"},
        {"url": f"data:image/png;base64,{TEXT}", "mediaType": "image/png"},
        {"url": f"data:image/png;base64,{TEXT}"},
        {"url": "data:image/png,%89PNG%0D%0A%1A%0A"},
    ],
    ids=str,
)
def test_a_file_is_read_in_every_form_it_is_written_in(carrier: dict[str, Any]) -> None:
    assert full({"type": "file", **carrier}, FINISH) == [File("image/png", PNG), DONE]


@pytest.mark.parametrize(
    "carrier",
    [
        {"url": "https://example.com/x.png"},
        {"data": "https://example.com/x.png"},
        {"data": {"type": "url", "url": "https://example.com/x.png"}},
    ],
)
def test_a_link_to_a_file_is_passed_on(carrier: dict[str, Any]) -> None:
    linked = File("image/png", url="https://example.com/x.png")
    assert full({"type": "file", "mediaType": "image/png", **carrier}, FINISH) == [linked, DONE]


@pytest.mark.parametrize(
    "carrier",
    [
        {},
        {"file": None},
        {"file": {"base64": "not base64!"}},
        {"file": {"base64": "é"}},
        {"file": {"uint8Array": {"0": 1, "2": 3}}},
        {"file": {"uint8Array": [256]}},
        {"file": {"uint8Array": ["a"]}},
        {"file": {"uint8Array": 7}},
        {"url": "data:image/png;base64"},
    ],
    ids=str,
)
def test_a_broken_file_is_an_error_and_the_stream_goes_on(carrier: dict[str, Any]) -> None:
    events = full({"type": "file", **carrier}, {"type": "text-delta", "text": "on"}, FINISH)
    assert events[:2] == [TextDelta("on"), DONE]
    assert len(failures(events)) == 1


def test_a_source_of_a_new_kind_is_left_out() -> None:
    new = {"type": "source", "sourceType": "video", "id": "s"}
    page = {"type": "source-url", "sourceId": "s", "url": "u"}
    assert full(new, page, FINISH) == [Source("url", "s", "u"), DONE]


def test_data_keeps_its_name_its_id_and_any_value() -> None:
    assert full({"type": "data-a-b", "id": "1", "data": None}, FINISH)[0] == Data("a-b", None, "1")


# --- errors ------------------------------------------------------------------------------------------------

PROMPT = "the secret plan of the user"
CALL_ERROR = {
    "name": "AI_APICallError",
    "url": "https://api.test",
    "requestBodyValues": {"messages": [{"content": PROMPT}]},
    "statusCode": 429,
    "responseBody": '{"error":{"message":"Slow down","type":"rate_limit_exceeded"}}',
}


@pytest.mark.parametrize(
    ("error", "message", "kind"),
    [
        ("plain", "plain", "server"),
        ({"message": "m"}, "m", "server"),
        ({"error": {"message": "m", "type": "overloaded_error"}}, "m", "overloaded"),
        ({"type": "error", "error": "m"}, "m", "server"),
        (CALL_ERROR, "Slow down", "rate_limited"),
        (
            {"name": "GatewayRateLimitError", "statusCode": 429, "cause": CALL_ERROR},
            "Slow down",
            "rate_limited",
        ),
        ({"name": "AI_RetryError", "cause": {"data": {"error": {"message": "m"}}}}, "m", "server"),
        ({"name": "X", "responseBody": PROMPT}, "X; the stream gave no message.", "server"),
        ({"name": "X", "statusCode": 401}, "X; the stream gave no message.", "authentication"),
        ({}, "The stream reported an error and gave no message.", "server"),
        ("", "The stream reported an error and gave no message.", "server"),
        (None, "The stream reported an error and gave no message.", "server"),
        ([1], "The stream reported an error and gave no message.", "server"),
        (json.dumps(CALL_ERROR), "Slow down", "rate_limited"),
    ],
    ids=str,
)
def test_an_error_of_any_shape_is_one_sentence_and_a_kind(error: Any, message: str, kind: str) -> None:
    [_, failed] = full({"type": "error", "error": error}, FINISH)
    assert isinstance(failed, Failed)
    assert (failed.error.message, failed.error.kind) == (message, kind)
    assert PROMPT not in str(failed.error)


def test_the_error_of_a_ui_stream_is_its_text() -> None:
    assert failures(full({"type": "error", "errorText": "m"}, FINISH)) == ["m"]


def test_an_error_is_told_after_the_end_and_nothing_is_lost_by_it() -> None:
    events = full({"type": "error", "error": "m"}, {"type": "text-delta", "text": "on"}, FINISH)
    assert events[:2] == [TextDelta("on"), DONE]
    assert failures(events) == ["m"]


def test_a_stream_that_only_fails_is_not_repeated_for_ever() -> None:
    events = full(*({"type": "error", "error": f"m{number}"} for number in range(100)))
    assert len(events) == ERROR_LIMIT


def test_a_bare_error_body_is_an_error() -> None:
    assert failures(full({"error": {"message": "No such route", "code": 404}})) == ["No such route"]


# --- framing -----------------------------------------------------------------------------------------------


def test_a_line_that_is_not_json_is_told_once_and_the_rest_is_read() -> None:
    decoder = FullDecoder()
    body = b'{"type":"text-delta","text":"a"}\nnonsense\n<html>\n[1]\n{"type":"finish"}\n'
    events = decoder.feed(body) + decoder.close()
    assert events[:2] == [TextDelta("a"), Finished(None)]
    assert failures(events) == [
        "The stream holds something that is not JSON.",
        "The stream holds a chunk that is not an object.",
    ]


def test_a_last_line_that_is_cut_is_a_cut_and_no_nonsense() -> None:
    for decoder, body in (
        (FullDecoder(), b'{"type":"text-delta","text":"a"}\n{"type":"te'),
        (UiDecoder(), b'data: {"type":"text-delta","delta":"a"}\n\ndata: {"type":"te'),
        (DataDecoder(), b'0:"a"\n0:"b'),
    ):
        events = decoder.feed(body) + decoder.close()
        assert events[0] == TextDelta("a")
        assert failures(events) == ["The stream stopped before its end."]


def test_a_last_line_without_its_end_is_read() -> None:
    assert full_of(b'{"type":"finish","finishReason":"stop"}') == [DONE]
    decoder = DataDecoder()
    events = decoder.feed(b'0:"a"\nd:{"finishReason":"stop"}') + decoder.close()
    assert events == [TextDelta("a"), DONE]


def full_of(body: bytes) -> list[Event]:
    decoder = FullDecoder()
    return decoder.feed(body) + decoder.close()


def test_line_ends_blank_lines_and_a_byte_order_mark_change_nothing() -> None:
    body = (
        b'\xef\xbb\xbf{"type":"text-delta","text":"a"}\r\n\r\n  \n{"type":"finish","finishReason":"stop"}\r\n'
    )
    assert full_of(body) == [TextDelta("a"), DONE]


def test_the_mark_of_the_end_ends_the_turn_at_once() -> None:
    decoder = UiDecoder()
    assert decoder.feed(b'data: {"type":"text-delta","delta":"a"}\n\ndata: [DONE]\n\n') == [
        TextDelta("a"),
        Finished(None),
    ]
    assert decoder.over
    assert decoder.feed(b'data: {"type":"text-delta","delta":"late"}\n\n') == []
    assert decoder.close() == []


@pytest.mark.parametrize("line", [b"x", b"0", b"0:", b"00:1", b"0:1", b'2:"a"', b"9:[]", b"d:3", b"\xff:{}"])
def test_a_wrong_line_of_a_data_stream_is_an_error(line: bytes) -> None:
    decoder = DataDecoder()
    events = decoder.feed(line + b'\n0:"on"\nd:{"finishReason":"stop"}\n') + decoder.close()
    assert [event for event in events if not isinstance(event, Failed)] == [TextDelta("on"), DONE]
    assert len(failures(events)) == (0 if line.endswith(b":{}") else 1), "an unknown code is no error"


def test_a_line_over_the_limit_ends_the_stream_with_an_error() -> None:
    for chunks in ([b"x" * 11], [b"x" * 6, b"x" * 6], [b"x" * 11 + b"\n"]):
        lines = LineDecoder(limit=10)
        assert [line for chunk in chunks for line in lines.feed(chunk)] == []
        assert lines.error is not None
        assert "10 bytes" in lines.error.message
        assert lines.feed(b"y\n") == []
    lines = LineDecoder(limit=10)
    assert lines.feed(b"x" * 10 + b"\n" + b"y" * 10 + b"\n") == [b"x" * 10, b"y" * 10]


def test_bytes_that_are_not_utf_8_are_replaced_as_every_reader_does() -> None:
    assert full_of(b'{"type":"text-delta","text":"a\xff"}\n{"type":"finish"}\n')[0] == TextDelta("a\ufffd")


def test_json_nested_too_deeply_is_an_error() -> None:
    deep = b'{"type":"raw","rawValue":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    assert failures(full_of(deep)) == ["The stream holds something that is not JSON."]


def test_a_step_that_starts_anew_voids_what_it_said() -> None:
    text, thought = (
        {"type": "text-delta", "text": "bad"},
        {"type": "reasoning-delta", "id": "r", "text": "hm"},
    )
    events = full(text, {"type": "start-step"}, text, thought, call(), {"type": "reset-step"}, text, FINISH)
    assert TextDelta("bad", replaces=3) in events
    assert ReasoningDelta("", "r", replaces=2) in events
    assert not [event for event in events if isinstance(event, ToolCall)], (
        "a call that had not left never does"
    )


def test_half_a_character_that_stays_alone_leaves_at_the_end_as_it_is() -> None:
    assert full({"type": "text-delta", "text": "a\ud83d"}, FINISH) == [
        TextDelta("a"),
        TextDelta("\ud83d"),
        DONE,
    ]
