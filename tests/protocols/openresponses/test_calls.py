"""Calls are told once, and offered only where they are whole and still to be answered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocols.openresponses.streams import (
    ARGUMENTS,
    CALL,
    COMPLETED,
    OPENED,
    OSLO,
    Json,
    added,
    arguments,
    calls,
    completed,
    done,
    text,
    told,
)

from tollbridge.types.events import Event, Failed, Finished, TextDelta, ToolCall

NO_ARGUMENTS = {**CALL, "arguments": ""}


def ended(status: str, *output: Json) -> Json:
    return {"type": f"response.{status}", "response": {"status": status, "output": list(output)}}


def offered(events: list[Event]) -> list[bool]:
    return [call.offered for call in calls(events)]


def reason(events: list[Event]) -> str | None:
    return next(event.reason for event in events if isinstance(event, Finished))


@pytest.mark.parametrize("status", ["incomplete", "cancelled"])
@pytest.mark.parametrize("broken", ["", '{"pa', "[1]"])
def test_a_call_whose_answer_was_cut_before_its_arguments_is_not_offered(status: str, broken: str) -> None:
    events = told(added(OPENED), ended(status, {**CALL, "arguments": broken}))
    assert offered(events) == [False]
    assert not [event for event in events if isinstance(event, Failed)]


def test_a_call_whose_answer_was_cut_after_its_arguments_is_offered() -> None:
    assert calls(told(added(OPENED), ended("incomplete", CALL))) == [OSLO]


def test_a_call_that_ended_before_its_answer_was_cut_is_offered_without_arguments_too() -> None:
    cut = ended("incomplete", NO_ARGUMENTS)
    assert calls(told(added(OPENED), done(NO_ARGUMENTS), cut)) == [ToolCall("call_1", "weather", {})]


def test_a_call_of_an_answer_that_failed_is_not_offered_though_it_ended() -> None:
    for call in (NO_ARGUMENTS, CALL):
        assert offered(told(added(OPENED), done(NO_ARGUMENTS), ended("failed", call))) == [False]


def test_a_call_that_was_open_when_the_answer_was_cancelled_is_not_offered() -> None:
    cancelled = ended("cancelled", {**CALL, "status": "completed"})
    assert offered(told(added(OPENED), arguments(ARGUMENTS), cancelled)) == [False]
    assert offered(told(done(CALL), cancelled)) == [True]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_call_that_was_given_up_is_not_offered_though_its_answer_is_complete(status: str) -> None:
    given_up = {**CALL, "status": status}
    for events in (told(done(given_up), completed(given_up)), told(completed(given_up))):
        assert offered(events) == [False]
        assert reason(events) == "stop"


def answer(call_id: str = "call_1", type_: str = "function_call_output") -> Json:
    return {"type": type_, "id": f"o_{call_id}", "call_id": call_id, "output": "Sunny."}


@pytest.mark.parametrize(
    "stream",
    [
        [done(CALL), added(answer(), 2), done(answer(), 2), text("It is sunny."), COMPLETED],
        [done(CALL), completed(CALL, answer())],
        [completed(CALL, answer())],
    ],
    ids=["streamed", "at the end", "one body"],
)
def test_a_call_that_the_server_answered_is_not_offered(stream: list[Json]) -> None:
    events = told(*stream)
    assert offered(events) == [False]
    assert reason(events) == "stop"


def test_a_call_that_was_told_before_its_answer_was_known_stays_offered() -> None:
    events = told(done(CALL), text("It is sunny.", output_index=3), completed(CALL, answer()))
    assert offered(events) == [True]
    assert reason(events) == "tool-calls"


def test_of_several_calls_those_that_nobody_answered_are_offered() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_2"}
    events = told(done(CALL, 0), done(other, 1), done(answer(), 2), COMPLETED)
    assert [(call.call_id, call.offered) for call in calls(events)] == [("call_1", False), ("call_2", True)]
    assert reason(events) == "tool-calls"


def test_calls_are_told_before_what_follows_them() -> None:
    events = told(done(CALL, 0), text("Now I wait.", output_index=1), COMPLETED)
    assert events[:2] == [OSLO, TextDelta("Now I wait.")]


def test_a_call_that_only_the_final_answer_has_is_told_though_another_follows_it() -> None:
    first = {**CALL, "id": "fc_0", "call_id": "call_0", "name": "place"}
    events = told(added(OPENED, 0), done(CALL, 0), completed(first, CALL))
    assert sorted((call.call_id, call.name) for call in calls(events)) == [
        ("call_0", "place"),
        ("call_1", "weather"),
    ]


def test_two_calls_of_the_final_answer_under_one_id_are_two() -> None:
    events = told(completed(CALL, {**CALL, "call_id": "call_2"}))
    assert [call.call_id for call in calls(events)] == ["call_1", "call_2"]


@pytest.mark.parametrize("proof", [{"thought_signature": "s"}, {"extra_content": {"google": {"x": "s"}}}])
def test_what_the_model_needs_to_know_its_call_may_stand_in_the_announcement_alone(proof: Any) -> None:
    arguments_done = {"type": "response.function_call_arguments.done", "output_index": 1}
    for stream in (
        [added({**OPENED, **proof}), {**arguments_done, "arguments": ARGUMENTS}, COMPLETED],
        [added({**OPENED, **proof}), done(CALL), COMPLETED],
    ):
        assert [call.metadata for call in calls(told(*stream))] == [proof]
