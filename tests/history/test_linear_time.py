"""The time to store an answer and to prepare a history grows with their size, not with its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.pumps import MAX_RATIO, find_ratio
from tests.turns import AnswerParts

from tollbridge.history.answer import apply_corrections, join_parts, parts_from_events
from tollbridge.history.normalize import normalize_request
from tollbridge.types.events import Corrected, Event, ReasoningDelta, ReasoningEnded, TextDelta
from tollbridge.types.messages import ChatRequest, Message, Origin, Role, TextPart, ThinkingPart, add_origin

ORIGIN = Origin.of("m", "http://127.0.0.1/v1")
LINE = "x" * 60


def join_long_answer(count: int) -> None:
    events: list[Event] = [ReasoningDelta(LINE, "r")] * count
    events += [ReasoningEnded("r", {"signature": "s"}), *[TextDelta(LINE)] * count]
    join_parts(parts_from_events(events))


def pack_long_reasoning(count: int) -> None:
    answer = AnswerParts(origin=ORIGIN)
    for _ in range(count):
        answer.take([ReasoningDelta(LINE, "r")])
    answer.take([ReasoningEnded("r", {"signature": "s"}), TextDelta("Hi")])
    answer.close()


def place_open_blocks(count: int) -> None:
    answer = AnswerParts(origin=ORIGIN)
    for number in range(count):
        answer.take([ReasoningDelta("x", f"r{number}"), TextDelta("y")])
    answer.close()


def correct_often(count: int) -> None:
    events: list[Event] = []
    for _ in range(count):
        events += [TextDelta("abc"), Corrected("abd", 3), ReasoningDelta("abc", "r", 2)]
    apply_corrections(events)


def join_returned_thinking(count: int) -> None:
    pieces = [ThinkingPart(LINE, "r")] * count
    end = ThinkingPart("", "r", add_origin(ORIGIN, {"signature": "s"}))
    answer = Message(Role.ASSISTANT, (*pieces, end, TextPart("Hi")))
    request = ChatRequest(model="m", messages=(Message(Role.USER, "Hi"), answer, Message(Role.USER, "Go on")))
    normalize_request(request, origin=ORIGIN)


def merge_messages(count: int) -> None:
    normalize_request(ChatRequest(model="m", messages=[Message(Role.USER, "Hi")] * count))


@pytest.mark.series
@pytest.mark.timed
@pytest.mark.parametrize(
    "work",
    [
        join_long_answer,
        pack_long_reasoning,
        place_open_blocks,
        correct_often,
        join_returned_thinking,
        merge_messages,
    ],
)
def test_twice_the_content_takes_about_twice_as_long(work: Callable[[int], None]) -> None:
    size, ratio = find_ratio(work, lambda size: size)
    assert ratio <= MAX_RATIO, f"{ratio:.1f} times as long for twice n = {size}"
