"""Events: a closed union of immutable types."""

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


def test_the_examples_cover_every_event() -> None:
    assert {type(event) for event in EVENTS} | {Failed} == set(get_args(Event))


@pytest.mark.parametrize(
    "event", [*EVENTS, Failed(StreamError("No."))], ids=lambda event: type(event).__name__
)
def test_an_event_cannot_be_changed(event: Any) -> None:
    with pytest.raises(AttributeError):
        setattr(event, event.__struct_fields__[0], "changed")


def test_encoded_events_are_distinguished_by_their_tags() -> None:
    types = tuple(type(event) for event in EVENTS)
    union: Any = (
        TextDelta | ReasoningDelta | Corrected | ReasoningEnded | ToolCall | File | Source | Data | Finished
    )
    decoded = msgspec.json.decode(msgspec.json.encode(EVENTS), type=tuple[union, ...])
    assert (tuple(map(type, decoded)), decoded) == (types, EVENTS)


def test_failures_with_equal_errors_are_equal() -> None:
    assert Failed(StreamError("No.")) == Failed(StreamError("No."))
    assert Failed(StreamError("No.")) != Failed(StreamError("Yes."))
    billed = StreamError("No.")
    billed.usage = Usage(1)
    assert Failed(StreamError("No.")) != Failed(billed)


def test_a_call_is_offered_by_default() -> None:
    assert ToolCall("call_1", "weather", {}).offered
