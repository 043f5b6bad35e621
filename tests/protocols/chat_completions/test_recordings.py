"""Recordings of real servers decode correctly, however they are split."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recorded_streams import Recording, chat_completions, events_of

from tollbridge.protocols.detect import decoder_for
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.events import Event, Failed, Finished, ReasoningDelta, TextDelta, ToolCall, Usage

RECORDINGS = chat_completions()
NAMES = sorted(RECORDINGS)
STREAMS = [name for name in NAMES if name.endswith("-stream")]
# The failures in the recordings, with the messages of the servers.
FAILURES: dict[str, tuple[str, str]] = {
    "litellm.badmodel": ("invalid_request", "Invalid model name"),
    "litellm.err429": ("rate_limited", "The upstream is asked too often."),
    "llamacpp.badrole": ("invalid_request", "Expected 'content' to be a string or an array"),
    "llamacpp.toolong": ("context_too_long", "exceeds the available context size"),
}
ANSWERS = [name for name in NAMES if name not in FAILURES]


def read(recording: Recording, *cuts: int, protocol: str = "chat-completions") -> list[Event]:
    edges = [0, *sorted(cuts), len(recording.body)]
    chunks = [recording.body[a:b] for a, b in pairwise(edges)]
    return events_of(decoder_for(protocol, recording.status, recording.headers), chunks)


def objects(recording: Recording) -> list[dict[str, Any]]:
    """Return the chunks of a stream, or the only object of a body."""
    if recording.body.startswith(b"{"):
        return [json.loads(recording.body)]
    lines = recording.body.decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def pieces(recording: Recording, field: str) -> str:
    choices = [choice for value in objects(recording) for choice in value["choices"]]
    return "".join(choice.get("delta", choice.get("message")).get(field) or "" for choice in choices)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_the_text_and_the_usage_of_its_server(name: str) -> None:
    recording = RECORDINGS[name]
    events = read(recording)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == pieces(
        recording, "content"
    )
    thoughts = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert thoughts == pieces(recording, "reasoning_content")
    usages = [value["usage"] for value in objects(recording) if value.get("usage")]
    end = events[-1]
    assert isinstance(end, Finished)
    if usages:
        assert end.usage is not None
        assert end.usage.input_tokens == usages[-1]["prompt_tokens"]
        assert end.usage.output_tokens == usages[-1]["completion_tokens"]
        assert end.usage.cached_tokens == usages[-1]["prompt_tokens_details"]["cached_tokens"]
    else:
        assert end.usage is None
    reasons = [choice.get("finish_reason") for value in objects(recording) for choice in value["choices"]]
    expected = {"stop": "stop", "length": "length", "tool_calls": "tool-calls"}
    assert [end.reason] == [expected[reason] for reason in reasons if reason]
    assert end.response_id == objects(recording)[0]["id"]


def test_the_recordings_contain_what_they_are_for() -> None:
    assert pieces(RECORDINGS["litellm.reasoning-stream"], "reasoning_content").startswith("The user wants")
    ends = {name: read(RECORDINGS[name])[-1] for name in STREAMS}
    assert {end.reason for end in ends.values() if isinstance(end, Finished)} == {
        *("stop", "length", "tool-calls")
    }
    nothing = ends["llamacpp.nousage-stream"]
    assert isinstance(nothing, Finished)
    assert nothing.usage is None


@pytest.mark.parametrize("form", ["", "-stream"])
@pytest.mark.parametrize(("case", "cities"), [("tool", ["Paris"]), ("parallel", ["Paris", "Rome"])])
def test_litellms_calls(case: str, cities: list[str], form: str) -> None:
    events = read(RECORDINGS[f"litellm.{case}{form}"])
    assert [event for event in events if isinstance(event, ToolCall)] == [
        ToolCall(f"call_up_{index}", "get_weather", {"city": city}) for index, city in enumerate(cities)
    ]
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.usage == Usage(21, 9, 30, 4, 0)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_the_error_of_its_server(name: str) -> None:
    kind, message = FAILURES[name]
    [failed] = read(RECORDINGS[name])
    assert isinstance(failed, Failed)
    assert failed.error.kind == kind
    assert message in failed.error.message
    if isinstance(failed.error, ContextTooLong):
        assert (failed.error.tokens, failed.error.limit) == (5031, 4096)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_protocol_of_every_recording_is_detected(name: str) -> None:
    assert read(RECORDINGS[name], protocol="auto") == read(RECORDINGS[name])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_any_split_of_the_bytes_gives_the_same_events(name: str, data: st.DataObject) -> None:
    recording = RECORDINGS[name]
    cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=12))
    assert read(recording, *cuts) == read(recording)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_before_its_finish_reason_fails_and_keeps_its_text(name: str) -> None:
    recording = RECORDINGS[name]
    end = recording.body.index(b'"finish_reason":"')
    cut = Recording(name, recording.body[:end], recording.status, recording.headers)
    *before, failed = read(cut)
    assert isinstance(failed, Failed)
    assert failed.error.kind == "disconnected"
    assert [event for event in before if isinstance(event, TextDelta)] == [
        event for event in read(recording) if isinstance(event, TextDelta)
    ]
