"""Calls and results: what goes in, what comes out, and what is said of it."""

from __future__ import annotations

from tollbridge.history.content import Changes
from tollbridge.history.tool_calls import MISSING_RESULT, ORPHAN_RESULT, pair_results
from tollbridge.types.messages import DataPart, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart

HI = TextPart("Hi")
CALL, OTHER = ToolCallPart("c1", "weather", {"city": "Oslo"}), ToolCallPart("c2", "news", {})
SUN, NEWS = ToolResultPart("c1", (TextPart("sun"),)), ToolResultPart("c2", (TextPart("none"),))
RAIN = ToolResultPart("c1", (TextPart("rain"),))
STAND_IN = ToolResultPart("c1", (TextPart(MISSING_RESULT),), is_error=True)


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def assistant(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def pair(*messages: Message) -> tuple[list[Message], tuple[str, ...]]:
    changes = Changes()
    return pair_results(messages, changes), changes.sentences


def test_a_legal_history_is_left_alone() -> None:
    history = [user(HI), assistant(HI, CALL, OTHER), user(SUN, NEWS), assistant(HI)]
    assert pair(*history) == (history, ())


def test_results_in_messages_of_their_own_are_one_answer() -> None:
    history = assistant(CALL, OTHER), user(SUN), user(NEWS)
    assert pair(*history) == ([assistant(CALL, OTHER), user(SUN, NEWS)], ())


def test_results_stand_in_the_order_of_their_calls() -> None:
    assert pair(assistant(CALL, OTHER), user(NEWS, SUN))[0] == [assistant(CALL, OTHER), user(SUN, NEWS)]


def test_words_beside_a_result_come_after_it() -> None:
    assert pair(assistant(CALL), user(HI, SUN)) == ([assistant(CALL), user(SUN, HI)], ())


def test_words_between_two_calls_come_between_their_results() -> None:
    made, _ = pair(assistant(CALL, HI, OTHER), user(SUN, NEWS))
    assert made == [assistant(CALL), user(SUN), assistant(HI, OTHER), user(NEWS)]


def test_a_call_without_a_result_gets_a_stand_in_that_says_so() -> None:
    made, changes = pair(assistant(CALL), user(HI))
    assert made == [assistant(CALL), user(STAND_IN, HI)]
    assert changes == ("Added a placeholder result for a call to weather.",)


def test_a_result_without_a_call_is_kept_as_text() -> None:
    made, changes = pair(user(SUN, HI))
    assert made == [user(TextPart(ORPHAN_RESULT), TextPart("sun"), HI)]
    assert changes == ("Converted a tool result without a call to text.",)


def test_a_result_that_came_first_is_put_after_its_call_and_not_told_twice() -> None:
    made, changes = pair(user(SUN), assistant(CALL), user(HI))
    assert made == [assistant(CALL), user(SUN, HI)]
    assert changes == ("Moved the result of weather after its call.",)


def test_a_second_result_of_one_call_is_not_lost() -> None:
    made, _ = pair(assistant(CALL), user(SUN), user(RAIN))
    assert made == [assistant(CALL), user(SUN), user(TextPart(ORPHAN_RESULT), TextPart("rain"))]


def test_a_call_told_twice_word_for_word_is_made_once() -> None:
    assert pair(assistant(CALL, CALL), user(SUN))[0] == [assistant(CALL), user(SUN)]


def test_an_id_that_is_used_in_every_turn_is_made_one_for_each_and_keeps_its_result() -> None:
    again = ToolCallPart("c1", "weather", {"city": "Rome"})
    made, changes = pair(assistant(CALL), user(SUN), assistant(again), user(RAIN))
    [new_id] = [part.call_id for part in made[2].parts if isinstance(part, ToolCallPart)]
    assert new_id != "c1"
    assert made[:2] == [assistant(CALL), user(SUN)]
    assert made[3] == user(ToolResultPart(new_id, RAIN.parts))
    assert changes == ("Replaced an invalid or duplicate call ID (weather).",)


def test_of_two_calls_with_one_id_the_later_unanswered_one_is_meant() -> None:
    again = ToolCallPart("c1", "weather", {"city": "Rome"})
    made, _ = pair(assistant(CALL), user(HI), assistant(again), user(RAIN))
    assert made[1] == user(STAND_IN, HI)
    assert [part.parts for part in made[-1].parts if isinstance(part, ToolResultPart)] == [RAIN.parts]


def test_a_longer_history_changes_no_id_of_the_shorter_one() -> None:
    bad = ToolCallPart("call 1", "weather", {})
    short, _ = pair(assistant(bad), user(HI))
    longer, _ = pair(assistant(bad), user(HI), assistant(ToolCallPart("c9", "weather", {}), bad))
    assert longer[: len(short)] == short


def test_an_image_the_model_made_stands_where_a_user_speaks() -> None:
    picture = DataPart(b"\x89PNG\r\n\x1a\n", "image/png")
    made, _ = pair(assistant(HI, picture), user(HI))
    assert made[0] == assistant(HI)
    assert made[1].role is Role.USER
    assert picture in made[1].parts
