"""Streams of the Messages API as its documentation describes them, and what servers make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.recorded_streams import events_of

from tollbridge.protocols.anthropic_messages.stream import StreamDecoder
from tollbridge.types.errors import BrokenCall, Disconnected, Overloaded
from tollbridge.types.events import (
    CacheDiagnosis,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)

Json = dict[str, Any]
START: Json = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-opus-5",
        "stop_reason": None,
        "usage": {"input_tokens": 25, "output_tokens": 1},
    },
}
STOP: Json = {"type": "message_stop"}


def opened(index: int, **block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def closed(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None = "end_turn", **usage: int) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9, **usage}}


def text(index: int, piece: str) -> Json:
    return delta(index, type="text_delta", text=piece)


def arguments(index: int, piece: str) -> Json:
    return delta(index, type="input_json_delta", partial_json=piece)


def decode(*events: Json | bytes) -> list[Event]:
    frames = [
        event
        if isinstance(event, bytes)
        else f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        for event in events
    ]
    return events_of(StreamDecoder(), frames)


def weather(index: int = 0, **more: Any) -> Json:
    return opened(index, type="tool_use", id=f"toolu_{index}", name="get_weather", input={}, **more)


def finished(events: list[Event]) -> Finished:
    return next(event for event in events if isinstance(event, Finished))


def test_thinking_ends_with_its_signature() -> None:
    events = decode(
        START,
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="27 * 453"),
        delta(0, type="thinking_delta", thinking=" = 12,231"),
        delta(0, type="signature_delta", signature="EqQBCgIYAhIM1gbcDa9GJwZA2b3h"),
        closed(0),
        opened(1, type="text", text=""),
        text(1, "12,231"),
        closed(1),
        ended(),
        STOP,
    )
    assert events == [
        ReasoningDelta("27 * 453 = 12,231"),
        ReasoningEnded(None, {"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}),
        TextDelta("12,231"),
        Finished("stop", "finish", Usage(25, 9, 34), response_id="msg_1", model="claude-opus-5"),
    ]


def test_redacted_thinking_and_withheld_thinking_are_only_proofs() -> None:
    events = decode(
        START,
        opened(0, type="redacted_thinking", data="EmwKAhgBEgy3va3pzix"),
        closed(0),
        opened(1, type="thinking", thinking="", signature=""),
        delta(1, type="signature_delta", signature="EosnCkYICxIMMb3LzNrM"),
        closed(1),
        ended(),
        STOP,
    )
    assert events[:2] == [
        ReasoningEnded(None, {"redacted_data": "EmwKAhgBEgy3va3pzix"}),
        ReasoningEnded(None, {"signature": "EosnCkYICxIMMb3LzNrM"}),
    ]


def test_the_arguments_of_parallel_calls_are_joined_by_index() -> None:
    events = decode(
        START,
        weather(0),
        weather(1),
        arguments(0, ""),
        arguments(0, '{"city": "Pa'),
        arguments(1, '{"city": '),
        arguments(0, 'ris"}'),
        arguments(1, '"Rome"}'),
        closed(0),
        closed(1),
        ended("tool_use"),
        STOP,
    )
    assert events[:2] == [
        ToolCall("toolu_0", "get_weather", {"city": "Paris"}),
        ToolCall("toolu_1", "get_weather", {"city": "Rome"}),
    ]
    assert finished(events).reason == "tool-calls"


@pytest.mark.parametrize("pieces", [[], [""], ["{}"]])
def test_a_call_without_arguments_has_an_empty_object(pieces: list[str]) -> None:
    deltas = [arguments(0, piece) for piece in pieces]
    events = decode(START, weather(), *deltas, closed(0), ended("tool_use"), STOP)
    assert events[0] == ToolCall("toolu_0", "get_weather", {})


def test_arguments_in_the_start_of_the_block_are_used_if_there_are_no_deltas() -> None:
    block = {"type": "tool_use", "id": "toolu_0", "name": "get_weather", "input": {"city": "Oslo"}}
    events = decode(START, opened(0, **block), closed(0), ended("tool_use"), STOP)
    assert events[0] == ToolCall("toolu_0", "get_weather", {"city": "Oslo"})


def test_a_call_that_the_output_limit_truncated_is_not_offered_and_no_error() -> None:
    for pieces in ([], ['{"city": "Par']):
        deltas = [arguments(0, piece) for piece in pieces]
        call, end = decode(START, weather(), *deltas, closed(0), ended("max_tokens"), STOP)
        assert isinstance(call, ToolCall)
        assert not call.offered
        assert isinstance(end, Finished)
        assert end.reason == "length"


def test_invalid_arguments_fail_last_and_name_the_call() -> None:
    call, end, failed = decode(START, weather(), arguments(0, "{city}"), closed(0), ended("tool_use"), STOP)
    assert call == ToolCall("toolu_0", "get_weather", "{city}", offered=False)
    assert isinstance(end, Finished)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, BrokenCall)
    assert failed.error.calls == ("toolu_0",)


def test_calls_of_the_servers_own_tools_are_not_offered_and_citations_are_sources() -> None:
    citation = {
        "type": "web_search_result_location",
        "url": "https://example.com/a",
        "title": "A",
        "cited_text": "…",
        "encrypted_index": "Eo8BCioIAhgBIiQyYjQ0",
    }
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "x"}]}
    page = {"type": "page_location", "document_title": "Report", "document_index": 0, "cited_text": "…"}
    events = decode(
        START,
        opened(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        arguments(0, '{"query": "bridges"}'),
        closed(0),
        opened(1, **result),
        closed(1),
        opened(2, type="text", text="", citations=[]),
        delta(2, type="citations_delta", citation=citation),
        text(2, "Bridges are long."),
        delta(2, type="citations_delta", citation=citation),
        delta(2, type="citations_delta", citation=page),
        closed(2),
        ended("end_turn"),
        STOP,
    )
    assert events[:-1] == [
        ToolCall("srvtoolu_1", "web_search", {"query": "bridges"}, offered=False),
        Source("url", url="https://example.com/a", title="A"),
        TextDelta("Bridges are long."),
        Source("document", title="Report"),
    ]
    assert finished(events).reason == "stop"


def test_unknown_events_blocks_and_deltas_are_ignored_and_counted() -> None:
    decoder = StreamDecoder()
    unknown: list[Json] = [
        {"type": "ping"},
        {"type": "message_mood", "mood": "fine"},
        opened(0, type="hologram", text="not to be shown"),
        delta(0, type="hologram_delta", text="not to be shown"),
        closed(0),
        opened(1, type="text", text=""),
        delta(1, type="glow_delta", glow=1),
        text(1, "Hi"),
        ended(),
        STOP,
    ]
    frames = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in [START, *unknown])
    events = decoder.feed(frames)
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Hi")]
    assert isinstance(events[-1], Finished)
    assert decoder.unknown == {"message_mood": 1, "hologram": 1, "glow_delta": 1}


def test_an_error_in_the_stream_is_last_and_carries_the_usage_so_far() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    events = decode(START, opened(0, type="text", text=""), text(0, "Hel"), error, text(0, "lo"))
    assert events[0] == TextDelta("Hel")
    [failed] = events[1:]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Overloaded)
    assert failed.error.usage == Usage(25, 1, 26)


@pytest.mark.parametrize(
    ("stop_reason", "reason", "how"),
    [
        ("end_turn", "stop", "finish"),
        ("stop_sequence", "stop", "finish"),
        ("max_tokens", "length", "incomplete"),
        ("model_context_window_exceeded", "length", "incomplete"),
        ("pause_turn", "other", "incomplete"),
        ("refusal", "content-filter", "incomplete"),
        ("invented_later", "other", "finish"),
        (None, None, "finish"),
    ],
)
def test_stop_reasons(stop_reason: str | None, reason: str | None, how: str) -> None:
    end = finished(decode(START, text(0, "Hi"), ended(stop_reason), STOP))
    assert (end.reason, end.ended) == (reason, how)


def test_usage_is_cumulative_and_the_input_includes_the_cache() -> None:
    start = {**START, "message": {**START["message"], "usage": {}}}
    start["message"]["usage"] = {
        "input_tokens": 3,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "cache_creation": {"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
        "output_tokens": 1,
    }
    end = finished(decode(start, text(0, "Hi"), ended(), STOP))
    assert end.usage == Usage(1203, 9, 1212, 1000, None, 200, 50)
    # A server tool can make the input grow: the last report counts.
    end = finished(decode(start, text(0, "Hi"), ended(input_tokens=500), STOP))
    assert end.usage == Usage(1700, 9, 1709, 1000, None, 200, 50)
    # Some gateways count only by lifetime.
    del start["message"]["usage"]["cache_creation_input_tokens"]
    assert finished(decode(start, text(0, "Hi"), ended(), STOP)).usage == Usage(
        1203, 9, 1212, 1000, None, 200, 50
    )


def test_a_stream_that_ends_early_is_an_error_and_its_open_call_must_not_run() -> None:
    *events, failed = decode(START, weather(), arguments(0, '{"city": "Paris"}'))
    assert events == [ToolCall("toolu_0", "get_weather", {"city": "Paris"}, offered=False)]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Disconnected)


def test_only_the_last_event_may_be_missing() -> None:
    events = decode(START, text(0, "Hi"), ended())
    assert isinstance(events[-1], Finished)
    assert isinstance(decode(START, text(0, "Hi"), ended(), b"data: [DONE]\n\n")[-1], Finished)


def test_a_deeply_nested_field_does_not_end_the_answer() -> None:
    depth = 5000
    nested = b'{"x":' * depth + b"1" + b"}" * depth
    frame = (
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"A"},"y":%b}\n\n'
    )
    decoder = StreamDecoder()
    events = decoder.feed(frame % nested)
    events += decoder.feed(f"data: {json.dumps(text(0, 'B'))}\n\n".encode())
    assert TextDelta("B") in events


@pytest.mark.parametrize(
    ("diagnostics", "expected"),
    [
        (
            {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 4_321}},
            CacheDiagnosis("tools_changed", 4_321),
        ),
        ({"cache_miss_reason": None}, None),  # not known yet
        (None, None),
    ],
)
def test_the_reason_of_a_cache_miss_is_read(
    diagnostics: Json | None, expected: CacheDiagnosis | None
) -> None:
    # The shapes are those of `Diagnostics` in Anthropic's Python client 2.8.
    start = {**START, "message": {**START["message"], "diagnostics": diagnostics}}
    (finished,) = [event for event in decode(start, ended(), STOP) if isinstance(event, Finished)]
    assert finished.cache == expected
