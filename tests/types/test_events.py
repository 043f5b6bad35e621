"""Events, usage and cost."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Usage,
)

COUNTS = st.none() | st.integers(0, 10**9)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (Usage(), False),
        (Usage(0, 0, 0), False),
        (Usage(0, 0, 0, 0, 0), False),
        (Usage(7, 0), True),
        (Usage(None, 7), True),
        (Usage(total_tokens=7), True),
    ],
)
def test_usage_of_only_zeros_is_unknown(usage: Usage, known: bool) -> None:
    assert usage.known is known


def test_adding_an_unknown_count_keeps_the_known_one() -> None:
    assert Usage(3, None, None, 1) + Usage(4, 5, 9) == Usage(7, 5, 9, 1, None)


def test_usage_converts_to_a_dict_with_all_counts() -> None:
    assert Usage(7, 0, None, 1).to_dict() == {
        "input_tokens": 7,
        "output_tokens": 0,
        "total_tokens": None,
        "cached_tokens": 1,
        "reasoning_tokens": None,
        "cache_write_tokens": None,
        "long_cache_write_tokens": None,
        "images": None,
        "web_searches": None,
    }


def test_unknown_stays_unknown() -> None:
    assert Usage() + Usage() == Usage()


def test_a_missing_total_is_computed_before_adding() -> None:
    assert (Usage(3, 4) + Usage(10, 10, 20)).total_tokens == 27


def test_cached_and_reasoning_tokens_are_not_added_to_the_total() -> None:
    assert (Usage(10, 5, 15, 8, 4) + Usage(1, 1, None, 1, 1)).total_tokens == 17


@given(USAGES, USAGES)
def test_the_order_of_adding_does_not_matter(one: Usage, other: Usage) -> None:
    assert one + other == other + one


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
