"""Every known event is in the table, and fields are read with their type."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.recorded_streams import openresponses

from tollbridge.protocols.lenient import read_object
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.protocols.openresponses.wire import (
    EVENTS,
    Response,
    StreamEvent,
    read_cache_diagnosis,
    read_usage,
)
from tollbridge.types.events import CacheDiagnosis, Failed, Finished, Usage
from tollbridge.types.text import Fields

SHARED = Path(os.environ.get("TOLLBRIDGE_SHARED", Path(__file__).parents[4] / "shared"))
SCHEMA = SHARED / "openresponses" / "openapi-2026-04-24.json"

SPECIFIED = (
    "response.created response.queued response.in_progress response.completed response.failed "
    "response.incomplete response.output_item.added response.output_item.done "
    "response.reasoning_summary_part.added response.reasoning_summary_part.done response.content_part.added "
    "response.content_part.done response.output_text.delta response.output_text.done response.refusal.delta "
    "response.refusal.done response.reasoning.delta response.reasoning.done "
    "response.reasoning_summary_text.delta response.reasoning_summary_text.done "
    "response.output_text.annotation.added response.function_call_arguments.delta "
    "response.function_call_arguments.done error"
).split()


def test_the_24_events_of_the_specification_are_in_the_table() -> None:
    assert len(SPECIFIED) == 24
    assert set(SPECIFIED) <= set(EVENTS)


@pytest.mark.skipif(not SCHEMA.exists(), reason="the specification's schema is not beside this checkout")
def test_the_24_events_are_those_of_the_schema() -> None:
    schemas: dict[str, Any] = json.loads(SCHEMA.read_text())["components"]["schemas"]
    types = {
        value
        for name, schema in schemas.items()
        if name.endswith("StreamingEvent")
        for value in schema["properties"]["type"].get("enum", [])
    }
    assert types == set(SPECIFIED)


def test_every_event_of_the_openai_client_is_in_the_table() -> None:
    from openai.types.responses import ResponseStreamEvent

    union = get_args(ResponseStreamEvent)[0]
    names = {get_args(event.model_fields["type"].annotation)[0] for event in get_args(union)}
    assert len(names) >= 59
    assert names - set(EVENTS) == set()


def test_an_unknown_event_has_no_kind() -> None:
    events: list[object] = [{"type": "acme:sparkle"}, {}, ["not an object"]]
    for event in events:
        decoder = StreamDecoder()
        assert decoder.feed_parsed(event) == []
        assert decoder.unknown


def test_an_error_without_a_type_is_an_error() -> None:
    for event in ({"error": {"message": "no"}}, {"code": "x", "message": "no"}, {"detail": "no"}):
        (failed,) = StreamDecoder().feed_parsed(event)
        assert isinstance(failed, Failed)
        assert "no" in str(failed.error)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        ("3", 3),
        (3.0, 3),
        (3.5, None),
        (True, None),
        (None, None),
        ("x", None),
        ("9" * 30, None),
        ([], None),
    ],
)
def test_a_number_is_read_from_the_formats_of_servers(value: object, number: int | None) -> None:
    assert Fields({"n": value}).number("n") == number
    assert read_object({"output_index": value}, StreamEvent).output_index == number


def test_usage_is_read_with_the_field_names_of_chat_completions() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert read_usage(usage) == Usage(5, 2, 7, 4, 1)


@pytest.mark.parametrize(
    ("usage", "written"),
    [
        ({"input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}}, 3),  # OpenAI, OpenRouter
        ({"input_tokens_details": {"cache_write_tokens": 0}}, 0),
        ({"input_tokens_details": {"cached_tokens": 2, "cache_creation_tokens": 3}}, 3),  # LiteLLM
        ({"cache_creation_input_tokens": 3, "cache_read_input_tokens": 2}, 3),  # Anthropic's own names
        ({"prompt_tokens_details": {"cache_write_tokens": 3}}, 3),
        ({"input_tokens_details": {"cached_tokens": 2}}, None),
        ({"input_tokens_details": {"cache_write_tokens": "many"}}, None),
    ],
)
def test_cache_writes_are_read_under_every_name(usage: dict[str, Any], written: int | None) -> None:
    read = read_usage({"input_tokens": 9, "output_tokens": 1, **usage})
    assert read is not None
    assert read.cache_write_tokens == written


def test_a_recorded_server_reports_no_cache_writes_as_zero() -> None:
    recording = openresponses()["transformers.text-stream"]
    decoder = StreamDecoder()
    finished = [event for event in decoder.feed(recording.body) if isinstance(event, Finished)]
    assert [event.usage and event.usage.cache_write_tokens for event in finished] == [0]


@pytest.mark.parametrize(
    ("diagnostics", "expected"),
    [
        (
            {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 900},
            CacheDiagnosis("tools_changed", 900),
        ),
        ({"type": "cache_hit"}, None),
        ({"type": "comparison_response_not_found"}, None),
        ("tools_changed", None),
        (None, None),
    ],
)
def test_the_reason_of_a_cache_miss_is_read(diagnostics: object, expected: CacheDiagnosis | None) -> None:
    assert read_cache_diagnosis(read_object({"prompt_cache_diagnostics": diagnostics}, Response)) == expected
