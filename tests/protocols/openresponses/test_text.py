"""Every word of an answer is told once, as what it is."""

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
    done,
    kept,
    said,
    text,
    told,
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
def test_a_part_of_reasoning_is_never_the_answer_whatever_its_type(type_: str, names: Json) -> None:
    events = told(
        added(THOUGHT, 0),
        thinking("reasoning.delta", "A secr"),
        part_done(type_, "A secret.", **names),
        thinking("reasoning.done", "A secret."),
        done({**THOUGHT, "content": [{"type": type_, "text": "A secret."}]}, 0),
        text("Hi", output_index=1),
        COMPLETED,
    )
    assert kept(events) == ("Hi", "A secret.")


def test_a_part_of_reasoning_that_nobody_announced_is_known_by_its_type() -> None:
    assert kept(told(part_done("reasoning_text", "Hm."), COMPLETED)) == ("", "Hm.")


def test_a_part_of_a_message_is_text_where_reasoning_has_the_same_index() -> None:
    events = told(
        thinking("reasoning.delta", "Hm."),
        text("Hel"),
        part_done("output_text", "Hello", item_id="msg_1"),
        COMPLETED,
    )
    assert kept(events) == ("Hello", "Hm.")


def test_raw_reasoning_and_its_summary_are_both_kept() -> None:
    whole = {
        **THOUGHT,
        "content": [{"type": "reasoning_text", "text": "Raw."}],
        "summary": [{"type": "summary_text", "text": "Sum."}],
    }
    events = told(
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


def test_a_message_announced_twice_under_changing_ids_is_one() -> None:
    events = told(
        added({"type": "message", "id": "a"}, 0),
        added({"type": "message", "id": "b"}, 0),
        text("Hello", item_id="c"),
        text_done("Hello", item_id="d"),
        done(message("Hello", id="e"), 0),
        completed(message("Hello", id="f")),
    )
    assert said(events) == "Hello"


@pytest.mark.parametrize("number", [None, 0, 1])
def test_a_part_is_the_same_under_another_number_or_none(number: int | None) -> None:
    numbered = {} if number is None else {"content_index": number}
    assert said(told(text("Hello", **numbered), text_done("Hello", content_index=1), COMPLETED)) == "Hello"
    assert said(told(text("Hel"), text_done("Hello", content_index=1), COMPLETED)) == "Hello"


def test_parts_that_only_their_end_numbers_are_not_told_again() -> None:
    events = told(
        text("One. "),
        text_done("One. ", content_index=0),
        text("Two."),
        text_done("Two.", content_index=1),
        COMPLETED,
    )
    assert said(events) == "One. Two."


def test_parts_that_are_told_only_at_their_end_are_all_told() -> None:
    parts = [text_done(words, content_index=at) for at, words in enumerate(["One.", "Two."])]
    assert said(told(*parts, COMPLETED)) == "One.Two."


def test_names_that_come_only_at_the_end_are_those_of_the_item_that_had_none() -> None:
    nameless = {"output_index": None, "item_id": None}
    events = told(
        text("Hello", **nameless),
        text_done("Hello", item_id="msg_1", content_index=0),
        done(message("Hello", id="msg_1"), 0),
        arguments('{"city":"Oslo"}', **nameless),
        done(CALL),
        completed(message("Hello", id="msg_1"), CALL),
    )
    assert said(events) == "Hello"
    assert [call.call_id for call in calls(events)] == ["call_1"]


def test_messages_that_the_final_answer_makes_one_are_not_told_again() -> None:
    events = told(
        text("One. "), text("Two.", output_index=1, item_id="msg_2"), completed(message("One. Two.", id="x"))
    )
    assert said(events) == "One. Two."


def test_the_rest_of_messages_that_the_final_answer_makes_one_is_told() -> None:
    events = told(
        text("One. "), text("Tw", output_index=1, item_id="msg_2"), completed(message("One. Two.", id="x"))
    )
    assert said(events) == "One. Two."


def test_a_message_that_only_the_final_answer_has_is_told_after_those_before_it() -> None:
    assert said(told(text("One. "), completed(message("One. "), message("Two.")))) == "One. Two."
    assert said(told(text("Same."), completed(message("Same."), message("Same.")))) == "Same.Same."


def test_text_and_a_call_at_one_index_under_changing_ids_stay_apart() -> None:
    events = told(
        text("Hello", item_id="a"),
        arguments("{}", output_index=0, item_id="b"),
        text(" world", item_id="c"),
        text_done("Hello world", item_id="d", content_index=0),
        completed(message("Hello world", id="e"), {**CALL, "id": "f", "arguments": "{}"}),
    )
    assert said(events) == "Hello world"
    assert [(call.call_id, call.input) for call in calls(events)] == [("call_1", {})]


def test_text_that_was_corrected_is_known_again_in_the_final_answer() -> None:
    events = told(
        text("First. ", content_index=0),
        text("Helo", output_index=1, item_id="msg_2", content_index=0),
        text_done("Hello", output_index=1, item_id="msg_2", content_index=0),
        completed(message("First. Hello!")),
    )
    assert kept(events) == ("First. Hello!", "")
