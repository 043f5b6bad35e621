"""Answers for callers: streams, bodies and errors in the form that Anthropic's documentation describes."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from tollbridge.history.normalize import normalize_request
from tollbridge.history.reasoning import ReasoningPacker
from tollbridge.protocols.anthropic_messages.server_requests import CallerRequest, decode_request
from tollbridge.protocols.anthropic_messages.server_stream import (
    ERRORS,
    MessageEncoder,
    encode_error,
    encode_message,
    write_frames,
)
from tollbridge.protocols.anthropic_messages.stream import StreamDecoder
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    InvalidRequest,
    Kind,
    NetworkFailed,
    NotAuthenticated,
    Overloaded,
    RateLimited,
    RequestError,
    TimedOut,
)
from tollbridge.types.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.messages import ChatRequest, Message, Origin, ThinkingPart, ToolCallPart, add_origin
from tollbridge.types.usage import Usage

ORIGIN = Origin.of("openai/gpt-5.4", "https://ai-gateway.vercel.sh/v1")
CALLER = CallerRequest(ChatRequest(model="claude-opus-5", messages=[Message("user", "Hi")]))
END = Finished("stop", usage=Usage(1203, 9, 1212, 1000, 4, 200))


def encode(*events: Event, error: BridgeError | None = None) -> list[dict[str, Any]]:
    encoder = MessageEncoder(CALLER)
    return [*encoder.start(), *encoder.encode(events), *encoder.finish(error)]


def kinds(wire_events: list[dict[str, Any]]) -> list[str]:
    return [
        event["content_block"]["type"]
        if "content_block" in event
        else event.get("delta", event).get("type", "end")
        for event in wire_events
    ]


def test_a_stream_has_the_documented_sequence_of_events() -> None:
    wire_events = encode(ReasoningDelta("Hm."), ReasoningEnded(), TextDelta("Hel"), TextDelta("lo"), END)
    assert [event["type"] for event in wire_events] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in wire_events if "index" in event] == [0, 0, 0, 1, 1, 1, 1]
    message = wire_events[0]["message"]
    assert message["model"] == "claude-opus-5"
    assert message["id"].startswith("msg_")
    assert wire_events[-2]["usage"] == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 1000,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }


def test_frames_have_the_name_of_the_event() -> None:
    frames = write_frames(encode(TextDelta("“\u2028\ud800”"), END)).decode()
    assert "\nevent: content_block_delta\ndata: {" in frames
    assert frames.startswith("event: message_start\n")
    for line in frames.split("\n"):
        if line.startswith("data: "):
            json.loads(line[6:])


@pytest.mark.parametrize(
    ("reason", "calls", "stop_reason"),
    [
        ("stop", 0, "end_turn"),
        ("length", 0, "max_tokens"),
        ("content-filter", 0, "refusal"),
        ("tool-calls", 1, "tool_use"),
        ("stop", 1, "tool_use"),
        ("length", 1, "max_tokens"),
        ("other", 0, "end_turn"),
        (None, 0, "end_turn"),
    ],
)
def test_stop_reasons(reason: FinishReason | None, calls: int, stop_reason: str) -> None:
    wire_events = encode(*[ToolCall("c", "f", {})] * calls, Finished(reason))
    assert wire_events[-2]["delta"]["stop_reason"] == stop_reason


def test_a_call_is_streamed_and_is_an_object_in_the_body() -> None:
    call = ToolCall("call_1", "get_weather", {"city": "Paris"})
    _, start, delta, stop, *_ = encode(call, Finished("tool-calls"))
    assert start["content_block"] == {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}
    assert json.loads(delta["delta"]["partial_json"]) == {"city": "Paris"}
    assert stop["type"] == "content_block_stop"
    body = encode_message([call, Finished("tool-calls")], CALLER)
    assert body is not None
    assert body["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}}
    ]
    assert body["stop_reason"] == "tool_use"


def test_a_call_that_is_repaired_after_the_end_still_arrives() -> None:
    wire_events = encode(END, ToolCall("c", "f", {}))
    assert kinds(wire_events).count("tool_use") == 1
    assert wire_events[-1] == {"type": "message_stop"}


def test_calls_that_the_caller_must_not_run_are_left_out_and_text_arguments_are_wrapped() -> None:
    assert "tool_use" not in kinds(encode(ToolCall("c", "web_search", {}, offered=False), END))
    body = encode_message([ToolCall("c", "custom", "text"), END], CALLER)
    assert body is not None
    assert body["content"][0]["input"] == {"input": "text"}


@pytest.mark.parametrize(
    ("proof", "block_id"),
    [
        ({"signature": "EqQB"}, None),
        ({"encrypted_content": "gAAA", "id": "rs_1"}, "rs_1"),
        (add_origin(ORIGIN, {"signature": "EqQB"}), None),
        (add_origin(ORIGIN, {"encrypted_content": "gAAA"}), "rs_1"),
        (add_origin(ORIGIN, None), None),
    ],
)
@pytest.mark.parametrize("text", ["Hm.", ""])
def test_any_proof_survives_a_caller_that_does_not_know_it(
    proof: Any, block_id: str | None, text: str
) -> None:
    events: list[Event] = [
        *([ReasoningDelta(text, block_id)] if text else []),
        ReasoningEnded(block_id, proof),
    ]
    body = encode_message([*events, TextDelta("Hi"), END], CALLER)
    assert body is not None
    caller = decode_request({"model": "m", "messages": [{"role": "assistant", "content": body["content"]}]})
    assert caller.request.messages[0].parts[0] == ThinkingPart(text, block_id, proof)


def test_own_signatures_and_redacted_data_are_passed_on_as_they_are() -> None:
    body = encode_message(
        [
            ReasoningDelta("Hm."),
            ReasoningEnded(None, {"signature": "EqQB"}),
            ReasoningEnded(None, {"redacted_data": "Emwk"}),
            END,
        ],
        CALLER,
    )
    assert body is not None
    assert body["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "Emwk"},
    ]


def test_the_parts_of_a_summary_are_one_block_and_other_ids_are_another() -> None:
    body = encode_message(
        [ReasoningDelta("A", "rs_1"), ReasoningDelta("B", "rs_1:1"), ReasoningDelta("C", "rs_2"), END], CALLER
    )
    assert body is not None
    assert [block["thinking"] for block in body["content"]] == ["A\n\nB", "C"]


def test_citations_belong_to_the_text_and_files_are_counted() -> None:
    encoder = MessageEncoder(CALLER)
    wire_events = encoder.encode(
        [
            TextDelta("See"),
            Source("url", url="https://e.com", title="E"),
            File("image/png", b"x"),
            Data("d", 1),
            END,
        ]
    )
    [citation] = [event["delta"]["citation"] for event in wire_events if "citation" in event.get("delta", {})]
    assert (citation["url"], citation["title"]) == ("https://e.com", "E")
    assert encoder.dropped == {"File": 1, "Data": 1}


def test_a_body_has_only_the_text_that_was_not_replaced() -> None:
    events: list[Event] = [
        ReasoningDelta("Hm?"),
        Corrected("Hm.", 3, "reasoning"),
        TextDelta("Hello"),
        TextDelta(" wor"),
        TextDelta("p!", replaces=5),
        Corrected(".", 1),
    ]
    body = encode_message([*events, END], CALLER)
    assert body is not None
    assert [block.get("thinking", block.get("text")) for block in body["content"]] == ["Hm.", "Hellp."]


def test_reasoning_and_the_metadata_of_calls_return_only_to_the_model_that_made_them() -> None:
    call = ToolCall("call_1", "f", {"a": 1}, metadata={"thought_signature": "T1"})
    reasoning: list[Event] = [
        ReasoningDelta("Hm.", "rs_1"),
        ReasoningEnded("rs_1", {"encrypted_content": "gAAA"}),
    ]
    body = encode_message(ReasoningPacker(ORIGIN).take([*reasoning, call, Finished("tool-calls")]), CALLER)
    assert body is not None
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "2"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": body["content"]},
        {"role": "user", "content": [result]},
    ]
    request = decode_request({"model": "m", "messages": messages}).request
    answer = normalize_request(request, origin=ORIGIN).request.messages[1].parts
    thought = ThinkingPart("Hm.", "rs_1", add_origin(ORIGIN, {"encrypted_content": "gAAA"}))
    assert answer == (thought, ToolCallPart("call_1", "f", {"a": 1}, {"thought_signature": "T1"}))
    elsewhere = Origin.of("claude-opus-5", "https://api.anthropic.com/v1")
    answer = normalize_request(request, origin=elsewhere).request.messages[1].parts
    assert answer == (ToolCallPart("call_1", "f", {"a": 1}),)


def test_an_answer_without_an_end_has_no_body() -> None:
    assert encode_message([TextDelta("Hel")], CALLER) is None


# Statuses and types: https://platform.claude.com/docs/en/api/errors
@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (NotAuthenticated("x"), 401, "authentication_error"),
        (InvalidRequest("x", status=402), 402, "billing_error"),
        (InvalidRequest("x", status=413), 413, "request_too_large"),
        (RequestError("x"), 400, "invalid_request_error"),
        (RateLimited("x"), 429, "rate_limit_error"),
        (Overloaded("x", status=503), 529, "overloaded_error"),
        (TimedOut("x"), 504, "timeout_error"),
        (NetworkFailed("x"), 502, "api_error"),
    ],
)
def test_errors_have_the_form_of_the_protocol(error: BridgeError, status: int, type_: str) -> None:
    error.retry_after = 1.5
    reply = encode_error(error, "req_1")
    assert reply.status == status
    assert reply.body == {"type": "error", "error": {"type": type_, "message": "x"}, "request_id": "req_1"}
    assert reply.headers == {"retry-after": "2", "request-id": "req_1"}


def test_a_prompt_that_is_too_long_is_reported_in_the_words_that_callers_know() -> None:
    error = ContextTooLong("Shorten it.", tokens=210_000, limit=200_000)
    message = encode_error(error).body["error"]["message"]
    assert message == "prompt is too long: 210000 tokens > 200000 maximum. Shorten it."


def test_an_error_ends_the_stream_and_is_decoded_as_the_same_kind() -> None:
    frames = write_frames(encode(TextDelta("Hel"), error=Overloaded("Busy.")))
    decoder = StreamDecoder()
    text, failed = decoder.feed(frames)
    assert text == TextDelta("Hel")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Overloaded)


def test_every_kind_of_error_has_a_status_and_a_type() -> None:
    assert set(ERRORS) == set(get_args(Kind))
