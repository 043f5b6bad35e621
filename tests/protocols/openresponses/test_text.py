"""Text and reasoning of a response are emitted once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocols.openresponses.streams import (
    CALL,
    COMPLETED,
    Json,
    added,
    arguments,
    calls,
    completed,
    decode,
    done,
    text,
    text_of,
    texts_of,
)

from tollbridge.types.events import Corrected, Event, ReasoningDelta

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}


def message(words: str, **more: Any) -> Json:
    return {"type": "message", "content": [{"type": "output_text", "text": words}], **more}


def text_done(words: str, **more: Any) -> Json:
    return {"type": "response.output_text.done", "output_index": 0, "text": words, **more}


def thinking(name: str, words: str, **more: Any) -> Json:
    field = "text" if name.endswith(".done") else "delta"
    return {"type": f"response.{name}", "output_index": 0, "item_id": "rs_1", field: words, **more}


def part_done(type_: str, words: str, **more: Any) -> Json:
    part = {"type": type_, "text": words}
    place = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    return {"type": "response.content_part.done", **place, "part": part, **more}


def thoughts(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


@pytest.mark.parametrize("type_", ["output_text", "text", "summary_text", "reasoning", "reasoning_text"])
@pytest.mark.parametrize("names", [{}, {"item_id": "other"}, {"output_index": None}])
def test_a_part_of_reasoning_is_never_text_of_the_answer(type_: str, names: Json) -> None:
    events = decode(
        added(THOUGHT, 0),
        thinking("reasoning.delta", "A secr"),
        part_done(type_, "A secret.", **names),
        thinking("reasoning.done", "A secret."),
        done({**THOUGHT, "content": [{"type": type_, "text": "A secret."}]}, 0),
        text("Hi", output_index=1),
        COMPLETED,
    )
    assert texts_of(events) == ("Hi", "A secret.")


def test_a_part_of_reasoning_without_announcement_is_recognized_by_its_type() -> None:
    assert texts_of(decode(part_done("reasoning_text", "Hm."), COMPLETED)) == ("", "Hm.")


def test_a_part_of_a_message_is_text_even_if_reasoning_has_the_same_index() -> None:
    events = decode(
        thinking("reasoning.delta", "Hm."),
        text("Hel"),
        part_done("output_text", "Hello", item_id="msg_1"),
        COMPLETED,
    )
    assert texts_of(events) == ("Hello", "Hm.")


def test_raw_reasoning_and_its_summary_are_both_kept() -> None:
    whole = {
        **THOUGHT,
        "content": [{"type": "reasoning_text", "text": "Raw."}],
        "summary": [{"type": "summary_text", "text": "Sum."}],
    }
    events = decode(
        added(THOUGHT, 0),
        thinking("reasoning_text.delta", "Raw.", content_index=0),
        thinking("reasoning_text.done", "Raw.", content_index=0),
        thinking("reasoning_summary_text.delta", "Sum.", summary_index=0),
        thinking("reasoning_summary_text.done", "Sum.", summary_index=0),
        done(whole, 0),
        completed(whole),
    )
    assert thoughts(events) == "Raw.Sum."
    assert not [event for event in events if isinstance(event, Corrected)]


def test_a_message_announced_twice_with_two_ids_is_one_message() -> None:
    events = decode(
        added({"type": "message", "id": "a"}, 0),
        added({"type": "message", "id": "b"}, 0),
        text("Hello", item_id="c"),
        text_done("Hello", item_id="d"),
        done(message("Hello", id="e"), 0),
        completed(message("Hello", id="f")),
    )
    assert text_of(events) == "Hello"


@pytest.mark.parametrize("number", [None, 0, 1])
def test_a_part_with_another_index_or_none_is_the_same_part(number: int | None) -> None:
    numbered = {} if number is None else {"content_index": number}
    assert (
        text_of(decode(text("Hello", **numbered), text_done("Hello", content_index=1), COMPLETED)) == "Hello"
    )
    assert text_of(decode(text("Hel"), text_done("Hello", content_index=1), COMPLETED)) == "Hello"


def test_parts_with_an_index_only_at_their_end_are_not_repeated() -> None:
    events = decode(
        text("One. "),
        text_done("One. ", content_index=0),
        text("Two."),
        text_done("Two.", content_index=1),
        COMPLETED,
    )
    assert text_of(events) == "One. Two."


def test_parts_that_are_only_in_done_events_are_emitted() -> None:
    parts = [text_done(words, content_index=at) for at, words in enumerate(["One.", "Two."])]
    assert text_of(decode(*parts, COMPLETED)) == "One.Two."


def test_an_id_that_is_only_in_the_done_event_belongs_to_the_open_item() -> None:
    nameless = {"output_index": None, "item_id": None}
    events = decode(
        text("Hello", **nameless),
        text_done("Hello", item_id="msg_1", content_index=0),
        done(message("Hello", id="msg_1"), 0),
        arguments('{"city":"Oslo"}', **nameless),
        done(CALL),
        completed(message("Hello", id="msg_1"), CALL),
    )
    assert text_of(events) == "Hello"
    assert [call.call_id for call in calls(events)] == ["call_1"]


def test_messages_joined_in_the_final_response_are_not_repeated() -> None:
    events = decode(
        text("One. "), text("Two.", output_index=1, item_id="msg_2"), completed(message("One. Two.", id="x"))
    )
    assert text_of(events) == "One. Two."


def test_the_remainder_of_messages_joined_in_the_final_response_is_emitted() -> None:
    events = decode(
        text("One. "), text("Tw", output_index=1, item_id="msg_2"), completed(message("One. Two.", id="x"))
    )
    assert text_of(events) == "One. Two."


def test_a_message_that_is_only_in_the_final_response_is_emitted_in_order() -> None:
    assert text_of(decode(text("One. "), completed(message("One. "), message("Two.")))) == "One. Two."
    assert text_of(decode(text("Same."), completed(message("Same."), message("Same.")))) == "Same.Same."


def test_text_and_a_call_with_one_index_and_changing_ids_are_separate() -> None:
    events = decode(
        text("Hello", item_id="a"),
        arguments("{}", output_index=0, item_id="b"),
        text(" world", item_id="c"),
        text_done("Hello world", item_id="d", content_index=0),
        completed(message("Hello world", id="e"), {**CALL, "id": "f", "arguments": "{}"}),
    )
    assert text_of(events) == "Hello world"
    assert [(call.call_id, call.input) for call in calls(events)] == [("call_1", {})]


def test_corrected_text_is_not_repeated_by_the_final_response() -> None:
    events = decode(
        text("First. ", content_index=0),
        text("Helo", output_index=1, item_id="msg_2", content_index=0),
        text_done("Hello", output_index=1, item_id="msg_2", content_index=0),
        completed(message("First. Hello!")),
    )
    assert texts_of(events) == ("First. Hello!", "")
