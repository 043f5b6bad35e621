"""Recordings of real servers decode correctly, however they are split, and no input raises."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recorded_streams import Recording, events_of, openresponses

from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.openresponses.wire import EVENTS
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.events import Data, Failed, Finished, ReasoningDelta, TextDelta, ToolCall, Usage

RECORDINGS = openresponses()
NAMES = sorted(RECORDINGS)
ANSWERS = [
    name
    for name in NAMES
    if any(
        case in name
        for case in (
            *("text", "tool", "parallel", "reasoning", "length", "refusal", "history", "badparam", "priced"),
        )
    )
    and "toolong" not in name
]

# The failures in the recordings, with the messages of the servers.
FAILURES: dict[str, tuple[str, str]] = {
    "litellm.badjson": ("invalid_request", "Invalid JSON payload"),
    "litellm.badkey": ("authentication", "No connected db."),
    "litellm.badmodel": ("invalid_request", "Invalid model name"),
    "litellm.err400-stream": ("invalid_request", "upstream says 400"),
    "litellm.err429-stream": ("rate_limited", "upstream says 429"),
    "litellm.err500-stream": ("server", "upstream says 500"),
    "litellm.middrop-stream": ("server", "Not enough data to satisfy transfer length header"),
    "litellm.miderror-stream": ("server", "upstream exploded mid-stream"),
    "litellm.noinput": ("invalid_request", "Missing required parameter: 'input'"),
    "llamacpp.badjson": ("invalid_request", "parse error"),
    "llamacpp.toolong-stream": ("context_too_long", "exceeds the available context size"),
    "transformers.badjson": ("invalid_request", "JSON decode error"),
    "transformers.noinput": ("server", "Internal Server Error"),
}


def read(recording: Recording, *cuts: int, headers: bool = True) -> list[Any]:
    status, sent_headers = (recording.status, recording.headers) if headers else (None, {})
    edges = [0, *sorted(cuts), len(recording.body)]
    chunks = [recording.body[a:b] for a, b in pairwise(edges)]
    return list(events_of(decoder_for("auto", status, sent_headers), chunks))


def final(recording: Recording) -> dict[str, Any]:
    """Return the final response of the recording."""
    if recording.body.startswith(b"{"):
        whole: dict[str, Any] = json.loads(recording.body)
        return whole
    lines = [line[5:] for line in recording.body.decode().split("\n") if line.startswith("data:")]
    values = [json.loads(line) for line in lines if line.strip() != "[DONE]"]
    response: dict[str, Any] = values[-1]["response"]
    return response


def test_every_recording_has_its_expectation() -> None:
    others = {"llamacpp.models", "llamacpp.input-tokens"}
    assert set(NAMES) == set(ANSWERS) | set(FAILURES) | others


@pytest.mark.parametrize("name", ANSWERS)
def test_the_events_match_the_final_response(name: str) -> None:
    response, events = final(RECORDINGS[name]), read(RECORDINGS[name])
    messages = [item for item in response["output"] if item["type"] == "message"]
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    thoughts = [item for item in response["output"] if item["type"] == "reasoning"]
    text = "".join(part["text"] for item in messages for part in item["content"])
    thought = "".join(p["text"] for i in thoughts for p in i.get("content") or i.get("summary") or [])
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == text
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == thought
    assert [e for e in events if isinstance(e, ToolCall)] == [
        ToolCall(call["call_id"], call["name"], json.loads(call["arguments"])) for call in calls
    ]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.ended == ("incomplete" if response["status"] == "incomplete" else "finish")
    expected = "length" if response["status"] == "incomplete" else "tool-calls" if calls else "stop"
    assert finished.reason == expected
    assert finished.response_id == response["id"]


@pytest.mark.parametrize("name", ANSWERS)
def test_usage_is_what_the_server_reports(name: str) -> None:
    reported = final(RECORDINGS[name])["usage"]
    assert read(RECORDINGS[name])[-1].usage == Usage(
        reported["input_tokens"],
        reported["output_tokens"],
        reported["total_tokens"],
        reported.get("input_tokens_details", {}).get("cached_tokens"),
        reported.get("output_tokens_details", {}).get("reasoning_tokens"),
        reported.get("input_tokens_details", {}).get("cache_write_tokens"),
    )


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_has_a_kind_and_the_message_of_the_server(name: str) -> None:
    *text_of, failed = read(RECORDINGS[name])
    kind, words = FAILURES[name]
    assert isinstance(failed, Failed)
    assert failed.error.kind == kind
    assert words in failed.error.message
    assert text_of == ([TextDelta("Hello from the")] if "mid" in name else [])


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_recognized_without_headers(name: str) -> None:
    assert isinstance(read(RECORDINGS[name], headers=False)[-1], Failed)


def test_the_error_for_a_long_prompt_has_the_token_counts() -> None:
    error = read(RECORDINGS["llamacpp.toolong-stream"])[-1].error
    assert isinstance(error, ContextTooLong)
    assert (error.tokens, error.limit) == (9031, 2048)


def test_an_error_response_has_its_request_id_and_retry_delay() -> None:
    error = read(RECORDINGS["litellm.err429-stream"])[-1].error
    assert (error.status, error.retry_after) == (429, 1.0)
    assert error.request_id == "be95f39f-6a40-46ef-8c8f-aeef1425b1ec"


def test_responses_of_other_endpoints_are_decoded() -> None:
    models = read(RECORDINGS["llamacpp.models"])
    assert models == [Data("models", ["smollm2-135m-instruct"]), Finished("stop")]
    assert read(RECORDINGS["llamacpp.input-tokens"]) == [Finished("stop", usage=Usage(input_tokens=32))]


@pytest.mark.parametrize("name", NAMES)
def test_decoding_a_recording_byte_by_byte_gives_the_same_result(name: str) -> None:
    recording = RECORDINGS[name]
    if len(recording.body) > 20_000:
        assert read(recording, *range(1, len(recording.body), 97)) == read(recording)
    else:
        assert read(recording, *range(1, len(recording.body))) == read(recording)


@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_the_result_does_not_depend_on_where_the_bytes_are_split(name: str, data: st.DataObject) -> None:
    recording = RECORDINGS[name]
    cuts = data.draw(st.sets(st.integers(0, len(recording.body)), max_size=12))
    assert read(recording, *cuts) == read(recording)


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from([None, 200, 400, 500]))
def test_any_bytes_give_a_result(chunks: list[bytes], status: int | None) -> None:
    events = events_of(decoder_for("auto", status, {}), chunks)
    assert isinstance(events[-1], (Finished, Failed))


@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_a_damaged_recording_gives_a_result(name: str, data: st.DataObject) -> None:
    body = bytearray(RECORDINGS[name].body)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        cut = data.draw(st.integers(0, 40))
        body[at : at + cut] = data.draw(st.binary(max_size=8))
    events = events_of(decoder_for("auto", RECORDINGS[name].status, {}), [bytes(body)])
    assert isinstance(events[-1], (Finished, Failed))


NAMES_OF_FIELDS = st.sampled_from(
    "type id item delta text output_index item_id content summary response error output status usage call_id "
    "name arguments annotations annotation part result message refusal summary_index content_index".split()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES_OF_FIELDS, inner, max_size=4),
    max_leaves=12,
)
ITEMS = st.sampled_from(
    ["message", "reasoning", "function_call", "custom_tool_call", "image_generation_call"]
)


@st.composite
def any_event(draw: st.DrawFn) -> bytes:
    event: dict[str, Any] = draw(st.dictionaries(NAMES_OF_FIELDS, JSON, max_size=5))
    if isinstance(event.get("item"), dict):
        event["item"]["type"] = draw(ITEMS)
    event["type"] = draw(st.sampled_from([*EVENTS, "vendor:event"]))
    return b"data: " + json.dumps(event).encode() + b"\n\n"


@settings(max_examples=1000, deadline=None)
@given(st.lists(any_event(), max_size=6))
def test_any_json_in_any_event_gives_a_result(frames: list[bytes]) -> None:
    events = events_of(decoder_for("openresponses"), frames)
    assert isinstance(events[-1], (Finished, Failed))
