"""Recordings of real servers decode correctly, however they are split, and no input raises."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recorded_streams import Recording, anthropic_messages, events_of

from tollbridge.protocols.anthropic_messages.stream import StreamDecoder
from tollbridge.protocols.anthropic_messages.wire import EVENTS
from tollbridge.protocols.detect import decoder_for
from tollbridge.types.events import (
    Failed,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
    Usage,
)

RECORDINGS = anthropic_messages()
COUNTS = {name for name in RECORDINGS if name.endswith("count-tokens")}
# The failures in the recordings, with the messages of the servers.
FAILURES = {
    "litellm.badkey": ("authentication", "No connected db."),
    "litellm.badmodel": ("invalid_request", "Invalid model name"),
    "litellm.err400-stream": ("invalid_request", "The upstream does not like this."),
    "litellm.err429-stream": ("rate_limited", "The upstream is asked too often."),
    "litellm.err500-stream": ("server", "The upstream is broken."),
    "llamacpp.badjson": ("invalid_request", "parse error"),
    "llamacpp.toolong-stream": ("context_too_long", "exceeds the available context size"),
}
ANSWERS = sorted(RECORDINGS.keys() - FAILURES.keys() - COUNTS)
STREAMS = [name for name in ANSWERS if name.endswith("-stream")]


def read(recording: Recording, *cuts: int, protocol: str = "anthropic-messages") -> list[Any]:
    edges = [0, *sorted(cuts), len(recording.body)]
    chunks = [recording.body[a:b] for a, b in pairwise(edges)]
    return list(events_of(decoder_for(protocol, recording.status, recording.headers), chunks))


def wire_events(recording: Recording) -> list[dict[str, Any]]:
    lines = recording.body.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def read_off(recording: Recording, field: str) -> str:
    """Return the text or the thinking of a recording, read without the decoder."""
    if recording.body.startswith(b"{"):
        return "".join(block.get(field, "") for block in json.loads(recording.body)["content"])
    return "".join(event.get("delta", {}).get(field, "") for event in wire_events(recording))


@pytest.mark.parametrize("name", ANSWERS)
def test_the_text_and_the_thinking_are_those_of_the_recording(name: str) -> None:
    events = read(RECORDINGS[name])
    assert not [event for event in events if isinstance(event, Failed)]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == read_off(RECORDINGS[name], "text")
    thinking = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
    assert thinking == read_off(RECORDINGS[name], "thinking")


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_their_kind_and_message(name: str) -> None:
    [failed] = read(RECORDINGS[name])
    kind, message = FAILURES[name]
    assert failed.error.kind == kind
    assert message in failed.error.message


def test_calls_arrive_complete() -> None:
    calls = [event for event in read(RECORDINGS["litellm.parallel-stream"]) if isinstance(event, ToolCall)]
    assert calls == [
        ToolCall("call_up_0", "get_weather", {"city": "Paris"}),
        ToolCall("call_up_1", "get_weather", {"city": "Rome"}),
    ]
    for name in ("litellm.tool-stream", "litellm.tool-nostream"):
        *_, call, finished = read(RECORDINGS[name])
        assert call == ToolCall("call_up_0", "get_weather", {"city": "Paris"})
        assert finished.reason == "tool-calls"


def test_unsigned_thinking_ends_without_a_proof() -> None:
    events = read(RECORDINGS["litellm.reasoning-stream"])
    assert ReasoningEnded(None, None) in events


# Read off the recordings. LiteLLM counts at the end, llama.cpp counts the prompt at the start.
@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("litellm.text-stream", Usage(21, 9, 30, 4, None, 0)),
        ("litellm.text-nostream", Usage(21, 9, 30, 4, None, None)),
        ("llamacpp.tool-stream", Usage(18 + 24, 60, 102, 24)),
        ("llamacpp.tool-nostream", Usage(1 + 41, 60, 102, 41)),
    ],
)
def test_the_cached_tokens_are_part_of_the_input(name: str, usage: Usage) -> None:
    finished = read(RECORDINGS[name])[-1]
    assert finished.usage == usage


@pytest.mark.parametrize("name", ["litellm.length-stream", "llamacpp.length-stream"])
def test_a_truncated_answer_says_so(name: str) -> None:
    finished = read(RECORDINGS[name])[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.ended) == ("length", "incomplete")


@pytest.mark.parametrize("name", STREAMS)
def test_the_protocol_is_detected(name: str) -> None:
    assert read(RECORDINGS[name], protocol="auto") == read(RECORDINGS[name])


@pytest.mark.parametrize("name", STREAMS)
def test_every_event_of_the_recordings_is_known(name: str) -> None:
    assert {event["type"] for event in wire_events(RECORDINGS[name])} <= EVENTS.keys()
    decoder = StreamDecoder()
    decoder.feed(RECORDINGS[name].body)
    assert not decoder.unknown
    assert decoder.is_finished


@given(name=st.sampled_from(sorted(RECORDINGS)), data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_the_split_of_the_bytes_does_not_matter(name: str, data: st.DataObject) -> None:
    recording = RECORDINGS[name]
    cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=12))
    assert read(recording, *cuts) == read(recording)


@given(name=st.sampled_from(STREAMS), data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_stream_that_breaks_off_keeps_its_text_and_fails_last(name: str, data: st.DataObject) -> None:
    recording = RECORDINGS[name]
    length = data.draw(st.integers(0, recording.body.index(b'"message_delta"')))
    decoder = StreamDecoder()
    events = decoder.feed(recording.body[:length]) + decoder.close()
    assert isinstance(events[-1], Failed)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert read_off(recording, "text").startswith(text)
    assert not [event for event in events[:-1] if isinstance(event, Failed | Finished)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
BLOCK_FIELDS = ("text", "input", "name", "id", "data", "citations", "signature")
odd_events = st.fixed_dictionaries(
    {"type": st.sampled_from([*EVENTS, "content_block_delta", "unheard_of"]) | json_values},
    optional={
        "index": st.integers(-1, 3) | json_values,
        "message": json_values,
        "content_block": st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking", "x"])},
            optional=dict.fromkeys(
                ("text", "input", "name", "id", "data", "citations", "signature"), json_values
            ),
        )
        | json_values,
        "delta": st.fixed_dictionaries(
            {
                "type": st.sampled_from(
                    ["text_delta", "input_json_delta", "signature_delta", "citations_delta"]
                )
            },
            optional=dict.fromkeys(("text", "partial_json", "stop_reason", "citation"), json_values),
        )
        | json_values,
        "usage": json_values,
        "error": json_values,
    },
)


@given(st.lists(odd_events, max_size=12))
@settings(deadline=None)
def test_any_events_give_events_and_at_most_one_end(events: list[Any]) -> None:
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    decoder = StreamDecoder()
    decoded = decoder.feed(body) + decoder.close()
    assert len([event for event in decoded if isinstance(event, Finished)]) <= 1
    assert isinstance(decoded[-1], Finished | Failed)
    assert decoder.is_finished


@given(st.binary(max_size=200))
def test_any_bytes_give_events(data: bytes) -> None:
    decoder = StreamDecoder()
    assert isinstance((decoder.feed(data) + decoder.close())[-1], Finished | Failed)
