"""Calls are emitted once, and offered only if they are complete and have no result."""

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
    decode,
    done,
    text,
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
def test_a_call_truncated_before_its_arguments_is_not_offered(status: str, broken: str) -> None:
    events = decode(added(OPENED), ended(status, {**CALL, "arguments": broken}))
    assert offered(events) == [False]
    assert not [event for event in events if isinstance(event, Failed)]


def test_a_call_of_a_response_truncated_after_its_arguments_is_offered() -> None:
    assert calls(decode(added(OPENED), ended("incomplete", CALL))) == [OSLO]


def test_a_call_that_ended_before_truncation_is_offered_even_without_arguments() -> None:
    cut = ended("incomplete", NO_ARGUMENTS)
    assert calls(decode(added(OPENED), done(NO_ARGUMENTS), cut)) == [ToolCall("call_1", "weather", {})]


def test_a_completed_call_of_a_failed_response_is_not_offered() -> None:
    for call in (NO_ARGUMENTS, CALL):
        assert offered(decode(added(OPENED), done(NO_ARGUMENTS), ended("failed", call))) == [False]


def test_an_open_call_of_a_cancelled_response_is_not_offered() -> None:
    cancelled = ended("cancelled", {**CALL, "status": "completed"})
    assert offered(decode(added(OPENED), arguments(ARGUMENTS), cancelled)) == [False]
    assert offered(decode(done(CALL), cancelled)) == [True]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failed_or_cancelled_call_of_a_complete_response_is_not_offered(status: str) -> None:
    given_up = {**CALL, "status": status}
    for events in (decode(done(given_up), completed(given_up)), decode(completed(given_up))):
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
def test_a_call_executed_by_the_server_is_not_offered(stream: list[Json]) -> None:
    events = decode(*stream)
    assert offered(events) == [False]
    assert reason(events) == "stop"


def test_a_call_emitted_before_its_result_stays_offered() -> None:
    events = decode(done(CALL), text("It is sunny.", output_index=3), completed(CALL, answer()))
    assert offered(events) == [True]
    assert reason(events) == "tool-calls"


def test_only_the_calls_without_a_result_are_offered() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_2"}
    events = decode(done(CALL, 0), done(other, 1), done(answer(), 2), COMPLETED)
    assert [(call.call_id, call.offered) for call in calls(events)] == [("call_1", False), ("call_2", True)]
    assert reason(events) == "tool-calls"


def test_calls_are_emitted_before_later_events() -> None:
    events = decode(done(CALL, 0), text("Now I wait.", output_index=1), COMPLETED)
    assert events[:2] == [OSLO, TextDelta("Now I wait.")]


def test_a_call_that_is_only_in_the_final_response_is_emitted() -> None:
    first = {**CALL, "id": "fc_0", "call_id": "call_0", "name": "place"}
    events = decode(added(OPENED, 0), done(CALL, 0), completed(first, CALL))
    assert sorted((call.call_id, call.name) for call in calls(events)) == [
        ("call_0", "place"),
        ("call_1", "weather"),
    ]


def test_two_calls_of_the_final_response_with_one_id_are_two_calls() -> None:
    events = decode(completed(CALL, {**CALL, "call_id": "call_2"}))
    assert [call.call_id for call in calls(events)] == ["call_1", "call_2"]


@pytest.mark.parametrize("proof", [{"thought_signature": "s"}, {"extra_content": {"google": {"x": "s"}}}])
def test_call_signatures_can_be_in_the_announcement_only(proof: Any) -> None:
    arguments_done = {"type": "response.function_call_arguments.done", "output_index": 1}
    for stream in (
        [added({**OPENED, **proof}), {**arguments_done, "arguments": ARGUMENTS}, COMPLETED],
        [added({**OPENED, **proof}), done(CALL), COMPLETED],
    ):
        assert [call.metadata for call in calls(decode(*stream))] == [proof]
