"""Thirty known deviations of servers and clients of this protocol, one test each.

If a recording shows the deviation, the test uses it; the others are rebuilt from bug reports.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.protocols.openresponses.streams import (
    ARGUMENTS,
    CALL,
    COMPLETED,
    OPENED,
    OSLO,
    Json,
    added,
    arguments,
    calls,
    completed,
    decode,
    done,
    frame,
    text,
    text_of,
    texts_of,
)
from tests.recorded_streams import events_of, openresponses

from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import StreamError
from tollbridge.types.events import (
    Corrected,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
)
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

RECORDINGS = openresponses()


def recorded(name: str) -> list[Event]:
    recording = RECORDINGS[name]
    return events_of(decoder_for("auto", recording.status, recording.headers), [recording.body])


def test_pitfall_01_item_ids_change_in_every_event() -> None:
    events = decode(
        added({"type": "message", "id": "a"}, 0),
        text("Hel", item_id="b"),
        text("lo", item_id="c"),
        {"type": "response.output_text.done", "output_index": 0, "item_id": "d", "text": "Hello"},
        done({"type": "message", "id": "e", "content": [{"type": "output_text", "text": "Hello"}]}, 0),
        added({**OPENED, "id": "f"}),
        arguments(ARGUMENTS, item_id="g"),
        done({**CALL, "id": "h"}),
        completed(
            {"type": "message", "id": "i", "content": [{"type": "output_text", "text": "Hello"}]},
            {**CALL, "id": "j"},
        ),
    )
    assert text_of(events) == "Hello"
    assert calls(events) == [OSLO]


def test_pitfall_02_one_call_is_announced_twice_under_two_ids() -> None:
    events = decode(
        added(OPENED, 1),
        added({**OPENED, "id": "fc_2"}, 2),
        arguments(ARGUMENTS, item_id="fc_2", output_index=2),
        {"type": "response.function_call_arguments.done", "item_id": "call_1", "arguments": ARGUMENTS},
        done(CALL, 1),
        done({**CALL, "id": "fc_2"}, 2),
        completed(CALL),
    )
    assert calls(events) == [OSLO]


@pytest.mark.parametrize(
    "stream",
    [
        [
            added(OPENED),
            {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": ARGUMENTS},
            COMPLETED,
        ],
        [added(OPENED), done(CALL), COMPLETED],
        [done(CALL), COMPLETED],
        [added(OPENED), completed(CALL)],
        [completed(CALL)],
        [added(CALL), COMPLETED],
        [added(OPENED), arguments(ARGUMENTS), COMPLETED],
    ],
    ids=[
        "in arguments.done",
        "in the item",
        "in the item alone",
        "in the answer",
        "in the answer alone",
        "in added",
        "in deltas",
    ],
)
def test_pitfall_03_arguments_are_in_one_place_only(stream: list[Json]) -> None:
    assert calls(decode(*stream)) == [OSLO]


def test_pitfall_04_done_replaces_and_never_appends() -> None:
    events = decode(
        text("Hel"),
        text("lo"),
        {"type": "response.output_text.done", "output_index": 0, "item_id": "msg_1", "text": "Hello"},
        {
            "type": "response.content_part.done",
            "output_index": 0,
            "part": {"type": "output_text", "text": "Hello"},
        },
        added(OPENED),
        arguments('{"city":'),
        arguments('"Oslo"}'),
        {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": ARGUMENTS},
        done(CALL),
        completed(
            {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hello"}]}, CALL
        ),
    )
    assert text_of(events) == "Hello"
    assert calls(events) == [OSLO]


@pytest.mark.parametrize(
    ("name", "of", "place"),
    [
        ("output_text", "text", "content_index"),
        ("reasoning_text", "reasoning", "content_index"),
        ("reasoning_summary_text", "reasoning", "summary_index"),
    ],
)
def test_pitfall_04_done_corrects_different_deltas(name: str, of: Any, place: str) -> None:
    at = {"output_index": 0, "item_id": "i_1", place: 0}
    told_so = (
        {"type": f"response.{name}.delta", **at, "delta": "He"},
        {"type": f"response.{name}.delta", **at, "delta": "lo"},
    )
    full = {"type": f"response.{name}.done", **at, "text": "Hello"}
    last: Json = {"type": "message", "id": "i_1", "content": [{"type": "output_text", "text": "Hello"}]}
    if of == "reasoning":
        last = {"type": "reasoning", "id": "i_1", "summary": [{"type": "summary_text", "text": "Hello"}]}
    whole = texts_of(decode(*told_so, full, full, done(last, 0), completed(last)))
    assert whole == ("Hello" if of == "text" else "", "Hello" if of == "reasoning" else "")
    assert Corrected("Hello", 4, of, None if of == "text" else "i_1") in decode(*told_so, full)
    assert texts_of(decode(*told_so, COMPLETED))[of == "reasoning"] == "Helo"


def test_pitfall_04_only_the_last_part_with_an_index_can_be_corrected() -> None:
    full = {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Other"}
    after = text("More", output_index=1, item_id="msg_2")
    assert texts_of(decode(text("Hello"), after, full, COMPLETED)) == ("HelloMore", "")
    second = text("More", content_index=1)
    assert texts_of(decode(text("Hello"), second, full, COMPLETED)) == ("HelloMore", "")
    right = {**full, "content_index": 1, "text": "Moor"}
    assert texts_of(decode(text("Hello"), second, right, COMPLETED)) == ("HelloMoor", "")
    unnamed = {"type": "response.output_text.done", "output_index": 0, "text": "Other"}
    assert texts_of(decode(text("Hello"), unnamed, COMPLETED)) == ("Hello", "")
    assert texts_of(decode(text("Hello"), {**full, "text": ""}, COMPLETED)) == ("Hello", "")


def test_pitfall_05_argument_deltas_are_cipher_text() -> None:
    events = decode(
        added(OPENED), arguments("q8Zk", obfuscation="x"), arguments("0vPe"), done(CALL), COMPLETED
    )
    assert calls(events) == [OSLO]


def test_pitfall_06_no_event_lines() -> None:
    recording = RECORDINGS["litellm.text-stream"]
    assert b"event:" not in recording.body
    assert text_of(recorded("litellm.text-stream")) == "Hello from the mock é你😀!\n"


def test_pitfall_07_no_done_marker() -> None:
    assert b"[DONE]" not in RECORDINGS["transformers.text-stream"].body
    assert isinstance(recorded("transformers.text-stream")[-1], Finished)
    last = decode(text("Hi"), "[DONE]")[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "disconnected"


def test_pitfall_08_the_end_of_the_bytes_is_not_a_success() -> None:
    texts_of, last = decode(text("Hi"))
    assert texts_of == TextDelta("Hi")
    assert isinstance(last, Failed)
    assert last.error.kind == "disconnected"


@pytest.mark.parametrize("error", [None, {}, {"code": "server_error", "message": "boom"}])
def test_pitfall_09_a_failed_response_is_always_an_error(error: Json | None) -> None:
    last = decode(text("Hi"), {"type": "response.failed", "response": {"status": "failed", "error": error}})[
        -1
    ]
    assert isinstance(last, Failed)
    assert last.error.kind == "server"
    assert last.error.message


MESSAGE = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi there"}]}


@pytest.mark.parametrize("streamed", [(), (text("Hi"),)], ids=["nothing", "a beginning"])
def test_pitfall_09_the_content_of_a_failed_response_is_kept_and_its_calls_are_withheld(
    streamed: tuple[Json, ...],
) -> None:
    response = {
        "status": "failed",
        "error": {"code": "server_error", "message": "boom"},
        "output": [MESSAGE, CALL],
    }
    events = decode(*streamed, {"type": "response.failed", "response": response})
    assert text_of(events) == "Hi there"
    assert calls(events) == [ToolCall("call_1", "weather", {"city": "Oslo"}, offered=False)]
    assert [type(event) for event in events[-2:]] == [ToolCall, Failed]
    if not streamed:
        assert events_of(StreamDecoder(), [json.dumps(response).encode()]) == events


@pytest.mark.parametrize(
    "error",
    [
        {
            "type": "error",
            "sequence_number": 3,
            "error": {"type": "too_many_requests", "code": None, "message": "slow"},
        },
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None},
        {"error": {"message": "slow", "code": "rate_limit_exceeded"}},
        {"error": {"message": "slow", "code": 429}},
        {"type": "error", "message": "slow", "code": "429"},
    ],
    ids=["nested", "flat", "no type", "status as a code", "status as a string"],
)
def test_pitfall_10_errors_of_every_shape_are_emitted_once(error: Json) -> None:
    failed = {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": "x", "message": "slow"}},
    }
    for stream in ([error], [error, failed], [error, failed, "[DONE]"]):
        failures = [event for event in decode(text("Hi"), *stream) if isinstance(event, Failed)]
        assert [(failure.error.kind, failure.error.message) for failure in failures] == [
            ("rate_limited", "slow")
        ]


def test_pitfall_10_an_error_without_a_message_waits_for_the_next_event() -> None:
    failed = {"type": "response.failed", "response": {"error": {"code": "overloaded", "message": "busy"}}}
    assert [e.error.message for e in decode({"type": "error"}, failed) if isinstance(e, Failed)] == ["busy"]
    assert isinstance(decode({"type": "error"})[-1], Failed)


def test_pitfall_11_incomplete_is_neither_failure_nor_success() -> None:
    *_, finished = recorded("litellm.length-stream")
    assert text_of(recorded("litellm.length-stream")) == "Hello from the mock é你😀!\n"
    assert isinstance(finished, Finished)
    assert (finished.ended, finished.reason) == ("incomplete", "length")


def test_pitfall_12_sequence_numbers_are_ignored() -> None:
    numbers = [b"17", b"19", b"1"]
    assert all(
        b'"sequence_number":' + number in RECORDINGS["litellm.parallel-stream"].body for number in numbers
    )
    assert len(calls(recorded("litellm.parallel-stream"))) == 2
    assert (
        text_of(
            decode(text("a", sequence_number=9), text("b", sequence_number=9), text("c", sequence_number=1))
        )
        == "abc"
    )


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, "many", {"input_tokens": -1}],
)
def test_pitfall_13_usage_that_was_not_counted_is_unknown(usage: Any) -> None:
    finished = decode(completed(usage=usage))[-1]
    assert isinstance(finished, Finished)
    assert finished.usage is None


def test_pitfall_13_details_that_are_missing_are_unknown_and_not_zero() -> None:
    finished = decode(completed(usage={"input_tokens": 3, "output_tokens": 0}))[-1]
    assert isinstance(finished, Finished)
    assert finished.usage is not None
    assert (finished.usage.input_tokens, finished.usage.output_tokens, finished.usage.total_tokens) == (
        3,
        0,
        3,
    )
    assert finished.usage.cached_tokens is None
    assert finished.usage.reasoning_tokens is None


def test_pitfall_14_two_items_have_one_index() -> None:
    events = decode(
        added({"type": "reasoning", "id": "rs_1"}, 0),
        {"type": "response.reasoning_text.delta", "output_index": 0, "item_id": "rs_1", "delta": "Hm."},
        added({"type": "message", "id": "msg_1"}, 0),
        text("Hi", output_index=1),
        text("!", output_index=1),
        done({"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm."}]}, 0),
        done({"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi!"}]}, 1),
        COMPLETED,
    )
    assert text_of(events) == "Hi!"
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["Hm."]


def test_pitfall_14_two_calls_have_one_index() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_2"}
    assert [call.call_id for call in calls(decode(done(CALL, 0), done(other, 0), COMPLETED))] == [
        "call_1",
        "call_2",
    ]


def test_pitfall_15_items_are_not_announced() -> None:
    events = decode(
        text("Hi", output_index=None, item_id=None),
        text("!", output_index=None, item_id=None),
        arguments(ARGUMENTS),
        done(CALL),
        COMPLETED,
    )
    assert text_of(events) == "Hi!"
    assert calls(events) == [OSLO]


def test_pitfall_16_open_items_are_closed_by_the_final_response() -> None:
    events = decode(
        added(OPENED),
        arguments('{"city":"Os'),
        text("Hel"),
        completed(
            {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hello"}]}, CALL
        ),
    )
    assert text_of(events) == "Hello"
    assert calls(events) == [OSLO]


def test_pitfall_17_the_first_call_id_stays() -> None:
    renamed = {**CALL, "call_id": "call_other", "id": "fc_other"}
    assert calls(decode(added(OPENED), arguments(ARGUMENTS), done(CALL), completed(renamed))) == [OSLO]
    assert calls(decode(added(OPENED), done({**CALL, "call_id": "call_other"}), COMPLETED)) == [OSLO]


@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_pitfall_18_any_line_end_split_anywhere(end: bytes) -> None:
    body = RECORDINGS["litellm.tool-stream"].body.replace(b"\n", end)
    whole = events_of(StreamDecoder(), [body])
    assert events_of(StreamDecoder(), [body[at : at + 1] for at in range(len(body))]) == whole
    assert [call.name for call in calls(whole)] == ["get_weather"]


def test_pitfall_19_line_separators_of_unicode_are_text() -> None:
    odd = "a\u2028b\u2029c\u0085d"
    body = f'data: {{"type":"response.output_text.delta","delta":"{odd}"}}\n\n'.encode() + frame(COMPLETED)
    assert text_of(events_of(StreamDecoder(), [body])) == odd


def test_pitfall_20_a_character_is_split() -> None:
    body = RECORDINGS["litellm.text-stream"].body
    at = body.index("😀".encode()) + 2
    assert text_of(events_of(StreamDecoder(), [body[:at], body[at:]])) == "Hello from the mock é你😀!\n"


def test_pitfall_21_comments_and_empty_data_are_ignored() -> None:
    noise = b": ping\n\ndata:\n\nid: 3\n: ping\n\ndata: \n\nevent: ping\ndata: {}\n\n"
    body = noise + frame(text("Hi")) + noise + frame(COMPLETED)
    assert events_of(StreamDecoder(), [body]) == [TextDelta("Hi"), Finished("stop")]


def test_pitfall_22_frames_of_several_lines_without_space_and_without_end() -> None:
    pretty = json.dumps(text("Hi"), indent=1).replace("\n", "\ndata:")
    body = f"data:{pretty}\n\ndata:{json.dumps(COMPLETED)}".encode()
    assert events_of(StreamDecoder(), [body]) == [TextDelta("Hi"), Finished("stop")]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"error":{"message":"no","code":"rate_limit_exceeded"}}', "rate_limited"),
        (
            200,
            frame(
                {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}
            ),
            "server",
        ),
        (500, frame({"type": "error", "error": {"message": "no", "type": "server_error"}}), "server"),
        (502, b"<html><head><title>502 Bad Gateway</title></head></html>", "server"),
        (500, b"Internal Server Error", "server"),
        (422, b'{"detail":[{"loc":["body","input"],"msg":"no"}]}', "invalid_request"),
        (400, b'{"success":false,"error":[{"message":"no"}]}', "invalid_request"),
        (200, b"<html>log in</html>", "protocol"),
        (503, b"", "overloaded"),
    ],
)
def test_pitfall_23_errors_have_any_status_and_any_body(status: int, body: bytes, kind: str) -> None:
    (failed,) = events_of(decoder_for("openresponses", status, {}), [body])
    assert isinstance(failed, Failed)
    assert failed.error.kind == kind
    assert failed.error.message


def test_pitfall_24_a_server_streams_without_a_request_for_it() -> None:
    assert RECORDINGS["transformers.text-nostream"].body.startswith(b"data:")
    assert isinstance(recorded("transformers.text-nostream")[-1], Finished)


@pytest.mark.parametrize(
    "name",
    [
        "response.reasoning",
        "response.reasoning_text",
        "response.reasoning_summary_text",
        "response.reasoning_summary",
    ],
)
def test_pitfall_25_reasoning_has_several_event_names(name: str) -> None:
    place = {"item_id": "rs_1", "output_index": 0}
    events = decode(
        {"type": f"{name}.delta", **place, "content_index": 0, "delta": "Let me "},
        {"type": f"{name}.delta", **place, "content_index": 1, "delta": "think."},
        {"type": f"{name}.done", **place, "text": "Let me think."},
        COMPLETED,
    )
    assert events == [ReasoningDelta("Let me think.", "rs_1"), Finished("stop")]


def test_pitfall_26_reasoning_is_sent_back_completely_or_not_at_all() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "ENC",
    }
    events = decode(done(item, 0), COMPLETED)
    assert events[:2] == [
        ReasoningDelta("Hm.", "rs_1"),
        ReasoningEnded("rs_1", {"id": "rs_1", "encrypted_content": "ENC"}),
    ]
    sealed = ThinkingPart("Hm.", "rs_1", {"id": "rs_1", "encrypted_content": "ENC"})
    request = ChatRequest(
        model="m",
        messages=(Message(Role.ASSISTANT, (sealed, ThinkingPart("unsealed"), TextPart("Hi"))),),
        reasoning_effort="low",
    )
    body = encode_request(request)
    assert body["input"] == [item, {"type": "message", "role": "assistant", "content": "Hi"}]
    assert body["include"] == ["reasoning.encrypted_content"]


def test_pitfall_27_reasoning_stays_before_the_call_it_belongs_to() -> None:
    sealed = ThinkingPart("", "rs_1", {"id": "rs_1", "encrypted_content": "ENC"})
    messages = (
        Message(Role.ASSISTANT, (TextPart("First."), sealed, ToolCallPart("call_1", "weather", {}))),
        Message(Role.USER, (ToolResultPart("call_1", (TextPart("rain"),)),)),
    )
    items = encode_request(ChatRequest(model="m", messages=messages))["input"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]


async def test_pitfall_28_the_embedded_gateway_sends_errors_that_every_client_sees() -> None:
    import aiohttp

    async with Gateway() as gateway, aiohttp.ClientSession() as session:
        reply = await session.post(f"{gateway.url}/responses", json={"model": "no/such", "input": "hi"})
        error = (await reply.json())["error"]
    assert isinstance(error["param"], str)
    assert isinstance(error["code"], str)


async def test_pitfall_29_the_embedded_gateway_sends_completed_last_with_usage() -> None:
    import aiohttp

    async with Gateway() as gateway, aiohttp.ClientSession() as session:
        body = {"model": "tollbridge/demo", "input": "hi", "stream": True}
        reply = await session.post(f"{gateway.url}/responses", json=body)
        frames = (await reply.read()).decode().strip().split("\n\n")
    assert frames[-1] == "data: [DONE]"
    last = json.loads(frames[-2].partition("data: ")[2])
    assert last["type"] == "response.completed"
    assert last["response"]["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    "end",
    [
        [],
        ["[DONE]"],
        [{"type": "response.failed", "response": {}}],
        [{"type": "response.incomplete", "response": {}}],
    ],
    ids=["cut", "done without an end", "failed", "incomplete"],
)
def test_pitfall_30_a_call_of_an_interrupted_response_is_never_offered(end: list[Json | str]) -> None:
    other = {**OPENED, "id": "fc_2", "call_id": "call_2", "name": "delete"}
    events = decode(
        done(CALL, 1), added(other, 2), arguments('{"path":"/"}', item_id="fc_2", output_index=2), *end
    )
    assert [(call.name, call.offered) for call in calls(events)] == [("weather", True), ("delete", False)]


def test_a_custom_call_whose_item_is_never_closed_has_text_input() -> None:
    opened = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": ""}
    place = {"output_index": 1, "item_id": "ctc_1"}
    whole = {"type": "response.custom_tool_call_input.done", **place, "input": "*** Begin"}
    pieces = {"type": "response.custom_tool_call_input.delta", **place, "delta": "*** Begin"}
    for events in (whole, pieces):
        assert decode(added(opened), events, COMPLETED) == [
            ToolCall("c1", "patch", "*** Begin"),
            Finished("tool-calls"),
        ]


def test_a_call_with_invalid_arguments_is_emitted_and_not_offered() -> None:
    events = decode(done({**CALL, "arguments": '{"city": "Os'}), COMPLETED)
    assert events[0] == ToolCall("call_1", "weather", '{"city": "Os', offered=False)
    assert isinstance(events[1], Finished)
    assert isinstance(events[2], Failed)
    assert isinstance(events[2].error, StreamError)
    assert "weather" in events[2].error.message


@pytest.mark.parametrize("empty", ["", "  ", "null", "{}", None])
def test_a_call_without_arguments_gets_an_empty_object(empty: str | None) -> None:
    assert calls(decode(done({**CALL, "arguments": empty}), COMPLETED)) == [ToolCall("call_1", "weather", {})]
