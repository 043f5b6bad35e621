"""Histories made legal: what goes in, what comes out, and what is said of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollbridge.core.messages import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.history import MISSING, legal

HI = TextPart("Hi")
CALL, OTHER = ToolCallPart("c1", "weather", {"city": "Oslo"}), ToolCallPart("c2", "news", {})
SUN, NEWS = ToolResultPart("c1", (TextPart("sun"),)), ToolResultPart("c2", (TextPart("none"),))


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def assistant(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def test_a_legal_history_is_left_alone() -> None:
    history = [
        Message(Role.SYSTEM, (TextPart("Be kind."),)),
        user(HI, DataPart(b"\0", "image/png")),
        assistant(ThinkingPart("Hm"), TextPart("I look."), CALL, OTHER),
        user(SUN, NEWS),
        assistant(TextPart("Sun.")),
        Message(Role.USER, (HI,), "Ada"),
    ]
    assert legal(history) == (history, [])


def test_results_in_messages_of_their_own_are_one_answer() -> None:
    assert legal([assistant(CALL, OTHER), user(SUN), user(NEWS)]) == (
        [assistant(CALL, OTHER), user(SUN, NEWS)],
        [],
    )


def test_results_stand_in_the_order_of_their_calls() -> None:
    assert legal([assistant(CALL, OTHER), user(NEWS, SUN)])[0] == [assistant(CALL, OTHER), user(SUN, NEWS)]


def test_words_beside_a_result_come_after_it() -> None:
    mended, changes = legal([assistant(CALL), user(HI, SUN)])
    assert (mended, changes) == ([assistant(CALL), user(SUN), user(HI)], [])


def test_a_call_without_a_result_gets_a_stand_in_that_says_so() -> None:
    mended, changes = legal([assistant(CALL), user(HI)])
    stand_in = ToolResultPart("c1", (TextPart(MISSING),), is_error=True)
    assert mended == [assistant(CALL), user(stand_in), user(HI)]
    assert changes == ["A call of weather had no result; a stand-in says so."]


def test_a_result_without_a_call_is_kept_as_text() -> None:
    mended, changes = legal([user(SUN, HI)])
    assert mended == [user(TextPart("[Result of a tool]"), TextPart("sun"), HI)]
    assert changes == ["A tool result without its call was kept as text."]


def test_a_result_that_came_first_is_put_after_its_call_and_not_told_twice() -> None:
    mended, changes = legal([user(SUN), assistant(CALL), user(HI)])
    assert mended == [assistant(CALL), user(SUN), user(HI)]
    assert changes == ["A tool result that came before its call was put after it."]


def test_a_second_result_of_one_call_is_not_lost() -> None:
    rain = ToolResultPart("c1", (TextPart("rain"),))
    mended, changes = legal([assistant(CALL), user(SUN), user(rain)])
    assert mended == [assistant(CALL), user(SUN), user(TextPart("[Result of a tool]"), TextPart("rain"))]
    assert changes == ["A second result of one call was kept as text."]


def test_a_call_made_twice_under_one_id_is_made_once() -> None:
    mended, changes = legal([assistant(CALL, CALL), user(SUN)])
    assert mended == [assistant(CALL), user(SUN)]
    assert changes == ["A second call with the id of an earlier one (weather) was left out."]


@pytest.mark.parametrize("message", [user(), user(TextPart("")), assistant(TextPart(""), TextPart(""))])
def test_messages_with_nothing_in_them_are_left_out(message: Message) -> None:
    assert legal([message, user(HI)]) == ([user(HI)], [])


IDS = st.sampled_from(["c1", "c2", "c3"])
PARTS: st.SearchStrategy[Part] = (
    st.builds(TextPart, st.text(max_size=3))
    | st.builds(ToolCallPart, IDS, st.just("weather"), st.just({}))
    | st.builds(
        ToolResultPart, IDS, st.lists(st.builds(TextPart, st.text(max_size=3)), max_size=2).map(tuple)
    )
)
ROLES = st.sampled_from([Role.USER, Role.ASSISTANT])
HISTORIES = st.lists(st.builds(Message, ROLES, st.lists(PARTS, max_size=4).map(tuple)), max_size=5)


def texts(messages: list[Message]) -> Counter[str]:
    found: Counter[str] = Counter()
    for message in messages:
        for part in message.parts:
            inner = part.parts if isinstance(part, ToolResultPart) else (part,)
            found.update(each.text for each in inner if isinstance(each, TextPart) and each.text)
    return found


@settings(deadline=None)
@given(HISTORIES)
def test_any_history_is_paired_in_order_and_loses_no_text(history: list[Message]) -> None:
    mended, changes = legal(history)
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in mended:
        if open_calls:  # answered in the very next message, all of them
            assert [part.call_id for part in message.parts if isinstance(part, ToolResultPart)] == open_calls
            open_calls = []
            continue
        assert not any(isinstance(part, ToolResultPart) for part in message.parts)
        open_calls = [part.call_id for part in message.parts if isinstance(part, ToolCallPart)]
        assert not seen & set(open_calls)
        seen |= set(open_calls)
    assert not open_calls
    # One result object given twice counts once; all else is there.
    assert set(texts(history)) <= set(texts(mended))
    assert legal(mended) == (mended, [])
    if changes == []:
        assert texts(mended) == texts(history)
