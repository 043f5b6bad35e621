"""Pairing tool calls with their results."""

from __future__ import annotations

from tollbridge.history.contents import Changes
from tollbridge.history.pairing import MISSING_RESULT, ORPHAN_RESULT, pair_results
from tollbridge.types.messages import DataPart, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart

HI = TextPart("Hi")
CALL, OTHER = ToolCallPart("c1", "weather", {"city": "Oslo"}), ToolCallPart("c2", "news", {})
SUN, NEWS = ToolResultPart("c1", (TextPart("sun"),)), ToolResultPart("c2", (TextPart("none"),))
RAIN = ToolResultPart("c1", (TextPart("rain"),))
PLACEHOLDER = ToolResultPart("c1", (TextPart(MISSING_RESULT),), is_error=True)


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def assistant(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def pair(*messages: Message) -> tuple[list[Message], tuple[str, ...]]:
    changes = Changes()
    return pair_results(messages, changes), changes.sentences


def test_a_valid_history_is_not_changed() -> None:
    history = [user(HI), assistant(HI, CALL, OTHER), user(SUN, NEWS), assistant(HI)]
    assert pair(*history) == (history, ())


def test_results_in_separate_messages_are_merged() -> None:
    history = assistant(CALL, OTHER), user(SUN), user(NEWS)
    assert pair(*history) == ([assistant(CALL, OTHER), user(SUN, NEWS)], ())


def test_results_are_put_in_the_order_of_their_calls() -> None:
    assert pair(assistant(CALL, OTHER), user(NEWS, SUN))[0] == [assistant(CALL, OTHER), user(SUN, NEWS)]


def test_text_next_to_a_result_is_put_after_it() -> None:
    assert pair(assistant(CALL), user(HI, SUN)) == ([assistant(CALL), user(SUN, HI)], ())


def test_text_between_two_calls_stays_between_their_results() -> None:
    paired, _ = pair(assistant(CALL, HI, OTHER), user(SUN, NEWS))
    assert paired == [assistant(CALL), user(SUN), assistant(HI, OTHER), user(NEWS)]


def test_a_call_without_a_result_gets_a_placeholder() -> None:
    paired, changes = pair(assistant(CALL), user(HI))
    assert paired == [assistant(CALL), user(PLACEHOLDER, HI)]
    assert changes == ("Added a placeholder result for a call to weather.",)


def test_a_result_without_a_call_becomes_text() -> None:
    paired, changes = pair(user(SUN, HI))
    assert paired == [user(TextPart(ORPHAN_RESULT), TextPart("sun"), HI)]
    assert changes == ("Converted a tool result without a call to text.",)


def test_a_result_before_its_call_is_moved_after_it() -> None:
    paired, changes = pair(user(SUN), assistant(CALL), user(HI))
    assert paired == [assistant(CALL), user(SUN, HI)]
    assert changes == ("Moved the result of weather after its call.",)


def test_a_second_result_of_a_call_becomes_text() -> None:
    paired, _ = pair(assistant(CALL), user(SUN), user(RAIN))
    assert paired == [assistant(CALL), user(SUN), user(TextPart(ORPHAN_RESULT), TextPart("rain"))]


def test_a_duplicate_call_is_removed() -> None:
    assert pair(assistant(CALL, CALL), user(SUN))[0] == [assistant(CALL), user(SUN)]


def test_a_reused_id_is_replaced_in_the_later_call_and_its_result() -> None:
    again = ToolCallPart("c1", "weather", {"city": "Rome"})
    paired, changes = pair(assistant(CALL), user(SUN), assistant(again), user(RAIN))
    [new_id] = [part.call_id for part in paired[2].parts if isinstance(part, ToolCallPart)]
    assert new_id != "c1"
    assert paired[:2] == [assistant(CALL), user(SUN)]
    assert paired[3] == user(ToolResultPart(new_id, RAIN.parts))
    assert changes == ("Replaced an invalid or duplicate call ID (weather).",)


def test_a_result_belongs_to_the_latest_unanswered_call_with_its_id() -> None:
    again = ToolCallPart("c1", "weather", {"city": "Rome"})
    paired, _ = pair(assistant(CALL), user(HI), assistant(again), user(RAIN))
    assert paired[1] == user(PLACEHOLDER, HI)
    assert [part.parts for part in paired[-1].parts if isinstance(part, ToolResultPart)] == [RAIN.parts]


def test_a_longer_history_does_not_change_earlier_ids() -> None:
    bad = ToolCallPart("call 1", "weather", {})
    short, _ = pair(assistant(bad), user(HI))
    longer, _ = pair(assistant(bad), user(HI), assistant(ToolCallPart("c9", "weather", {}), bad))
    assert longer[: len(short)] == short


def test_a_generated_image_is_moved_to_a_user_message() -> None:
    picture = DataPart(b"\x89PNG\r\n\x1a\n", "image/png")
    paired, _ = pair(assistant(HI, picture), user(HI))
    assert paired[0] == assistant(HI)
    assert paired[1].role is Role.USER
    assert picture in paired[1].parts
