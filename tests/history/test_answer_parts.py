"""Converting events to parts, and joining the parts of a streamed answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.history.answer import CITATION, LINK, apply_corrections, join_parts, parts_from_events
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
from tollbridge.types.media import draw_png
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart

PNG = draw_png()
PROOF = {"encrypted_content": "abc"}

EVENT_PARTS: list[tuple[Event, list[Part]]] = [
    (TextDelta("Hi"), [TextPart("Hi")]),
    (ReasoningDelta("Hm", "rs_1"), [ThinkingPart("Hm", "rs_1")]),
    (ReasoningEnded("rs_1", PROOF), [ThinkingPart("", "rs_1", PROOF)]),
    (ReasoningEnded("rs_1"), []),
    (ToolCall("c1", "weather", {"city": "Oslo"}), [ToolCallPart("c1", "weather", {"city": "Oslo"})]),
    (ToolCall("c1", "now", {}), [ToolCallPart("c1", "now", {})]),
    (ToolCall("c1", "now", None), [ToolCallPart("c1", "now", {})]),
    (ToolCall("c1", "patch", ""), [ToolCallPart("c1", "patch", {"input": ""})]),
    (ToolCall("c1", "patch", "*** Begin"), [ToolCallPart("c1", "patch", {"input": "*** Begin"})]),
    (ToolCall("c1", "search", {"q": "x"}, offered=False), []),
    (File("image/png", PNG, name="a.png"), [DataPart(PNG, "image/png", "a.png")]),
    (TextDelta(""), []),
    (Corrected("Hello", 2), []),
    (ReasoningDelta(""), []),
    (File("image/png", url="https://example.com/a.png"), [DataPart(b"https://example.com/a.png", LINK)]),
    (Finished("stop"), []),
    (Failed(StreamError("No.")), []),
]


@pytest.mark.parametrize(("event", "parts"), EVENT_PARTS)
def test_each_event_becomes_its_parts(event: Event, parts: list[Part]) -> None:
    assert parts_from_events([event]) == parts


def test_reasoning_can_be_excluded() -> None:
    events: list[Event] = [ReasoningDelta("Hm"), ReasoningEnded("rs_1", PROOF), TextDelta("Hi")]
    assert parts_from_events(events, reasoning=False) == [TextPart("Hi")]


@pytest.mark.parametrize(
    ("event", "mime", "value"),
    [
        (
            Source("url", "s1", "https://example.com", "Example"),
            CITATION,
            {"type": "citation", "sourceId": "s1", "url": "https://example.com", "title": "Example"},
        ),
        (
            Source("document", filename="a.pdf", mime="application/pdf"),
            CITATION,
            {"type": "citation", "filename": "a.pdf", "mediaType": "application/pdf"},
        ),
        (Data("data-plan", {"step": 1}), "application/vnd.vercel.plan+json", {"step": 1}),
        (Data("plan", [None, "é"]), "application/vnd.vercel.plan+json", [None, "é"]),
    ],
)
def test_sources_and_data_become_json_parts(event: Event, mime: str, value: Any) -> None:
    (part,) = parts_from_events([event])
    assert isinstance(part, DataPart)
    assert (part.mime, json.loads(part.data)) == (mime, value)


def test_parts_keep_the_order_of_their_events() -> None:
    events: list[Event] = [TextDelta("a"), ToolCall("c", "now", {}), TextDelta("b"), Finished("stop")]
    assert parts_from_events(events) == [TextPart("a"), ToolCallPart("c", "now", {}), TextPart("b")]


def test_adjacent_texts_are_joined() -> None:
    call = ToolCallPart("c", "now", {})
    parts: list[Part] = [TextPart("a"), TextPart("b"), call, TextPart("c")]
    assert join_parts(parts) == (TextPart("ab"), call, TextPart("c"))


def test_thinking_parts_with_one_id_are_joined_up_to_their_metadata() -> None:
    parts = [ThinkingPart("H", "rs_1"), ThinkingPart("m", "rs_1"), ThinkingPart("", "rs_1", PROOF)]
    assert join_parts([*parts, ThinkingPart("So", "rs_1")]) == (
        ThinkingPart("Hm", "rs_1", PROOF),
        ThinkingPart("So", "rs_1"),
    )
    assert join_parts([ThinkingPart("a", "rs_1"), ThinkingPart("b", "rs_2")]) == (
        ThinkingPart("a", "rs_1"),
        ThinkingPart("b", "rs_2"),
    )


def test_files_are_dropped_when_parts_are_joined() -> None:
    assert join_parts([TextPart("a"), DataPart(PNG, "image/png"), TextPart("b")]) == (TextPart("ab"),)
    assert join_parts([]) == ()


def corrected(*events: Event) -> list[Event]:
    return apply_corrections(events)


def test_a_delta_that_replaces_text_removes_it_from_the_answer() -> None:
    """A backend restarted a step: the text before the tool call of the earlier step stays."""
    call = ToolCall("c1", "f", {})
    events = corrected(TextDelta("Kept. "), call, TextDelta("Wro"), TextDelta("ng."), TextDelta("Right.", 6))
    assert events == [TextDelta("Kept. "), call, TextDelta("Right.")]
    assert corrected(TextDelta("abcdef"), TextDelta("X", 2)) == [TextDelta("abcd"), TextDelta("X")]
    assert corrected(TextDelta("ab"), TextDelta("X", 100)) == [TextDelta("X")]


def test_a_correction_takes_the_position_of_the_text_it_replaces() -> None:
    call = ToolCall("c1", "f", {})
    events = corrected(TextDelta("A"), TextDelta("wrong"), call, Corrected("right", 5))
    assert events == [TextDelta("A"), TextDelta("right"), call]
    assert corrected(TextDelta("Awrong"), call, Corrected("right", 5)) == [TextDelta("Aright"), call]


def test_text_and_reasoning_are_corrected_separately() -> None:
    events = corrected(
        ReasoningDelta("Hmm", "rs_1"),
        TextDelta("Hi"),
        Corrected("Hm", 3, "reasoning", "rs_1"),
        Corrected("Ho", 2),
        ReasoningDelta("Ha", "rs_1", 1),
    )
    assert events == [ReasoningDelta("H", "rs_1"), TextDelta("Ho"), ReasoningDelta("Ha", "rs_1")]


@given(st.lists(st.tuples(st.sampled_from("tcx"), st.text("ab", max_size=4), st.integers(0, 6)), max_size=12))
def test_the_corrected_text_is_what_remains_after_every_replacement(
    steps: list[tuple[str, str, int]],
) -> None:
    text, events = "", list[Event]()
    for kind, new, count in steps:
        if kind == "x":
            events.append(ToolCall("c", "f", {}))
            continue
        events.append(TextDelta(new, count) if kind == "t" else Corrected(new, count))
        text = (text[:-count] if count else text) + new
    events = apply_corrections(events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
    assert not any(isinstance(event, Corrected) for event in events)
    assert sum(isinstance(event, ToolCall) for event in events) == sum(kind == "x" for kind, *_ in steps)
