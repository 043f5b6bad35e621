"""Events: a closed union whose members can be told apart and cannot be changed."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from tollbridge.types.errors import StreamError
from tollbridge.types.events import (
    Corrected,
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
from tollbridge.types.usage import Usage

EVENTS: tuple[Event, ...] = (
    TextDelta("Hi"),
    ReasoningDelta("Hm", "rs_1"),
    Corrected("Hello", 4),
    ReasoningEnded("rs_1", {"encrypted_content": "abc"}),
    ToolCall("call_1", "weather", {"city": "Oslo"}),
    File("image/png", b"\x89PNG"),
    Source("url", url="https://example.com"),
    Data("data-plan", [1]),
    Finished("stop", usage=Usage(1, 2, 3)),
)


def test_every_event_is_tried_here() -> None:
    assert {type(event) for event in EVENTS} | {Failed} == set(get_args(Event))


@pytest.mark.parametrize(
    "event", [*EVENTS, Failed(StreamError("No."))], ids=lambda event: type(event).__name__
)
def test_an_event_cannot_be_changed(event: Any) -> None:
    with pytest.raises(AttributeError):
        setattr(event, event.__struct_fields__[0], "changed")


def test_events_written_as_json_are_told_apart_by_their_tags() -> None:
    told = tuple(type(event) for event in EVENTS)
    union: Any = (
        TextDelta | ReasoningDelta | Corrected | ReasoningEnded | ToolCall | File | Source | Data | Finished
    )
    read = msgspec.json.decode(msgspec.json.encode(EVENTS), type=tuple[union, ...])
    assert (tuple(map(type, read)), read) == (told, EVENTS)


def test_two_failures_of_the_same_kind_are_the_same_event() -> None:
    assert Failed(StreamError("No.")) == Failed(StreamError("No."))
    assert Failed(StreamError("No.")) != Failed(StreamError("Yes."))
    billed = StreamError("No.")
    billed.usage = Usage(1)
    assert Failed(StreamError("No.")) != Failed(billed)


def test_a_call_is_for_the_editor_unless_said_otherwise() -> None:
    assert ToolCall("call_1", "weather", {}).offered
