from __future__ import annotations

from tollbridge.cli.conversations import Conversation, SavedConversation
from tollbridge.history.answer import join_parts
from tollbridge.types.messages import DataPart, Message, Part, Role, TextPart, ThinkingPart, ToolCallPart

HELLO = Message(Role.USER, (TextPart("Hello"),))
AGAIN = Message(Role.USER, (TextPart("Again"),))


def test_a_request_contains_the_whole_conversation() -> None:
    conversation = Conversation("m", system="Be brief.", parameters={"reasoning_effort": "low"})
    assert conversation.add(HELLO, [TextPart("Hi.")])
    request = conversation.request(AGAIN)
    assert request.model == "m"
    assert request.reasoning_effort == "low"
    assert request.messages == (
        Message(Role.SYSTEM, (TextPart("Be brief."),)),
        HELLO,
        Message(Role.ASSISTANT, (TextPart("Hi."),)),
        AGAIN,
    )


def test_a_prompt_without_an_answer_is_not_kept() -> None:
    conversation = Conversation("m")
    assert not conversation.add(HELLO, [])
    assert not conversation.add(HELLO, [ThinkingPart("Well")])
    assert conversation.request(AGAIN).messages == (AGAIN,)


def test_a_new_conversation_keeps_the_system_prompt() -> None:
    conversation = Conversation("m", system="Be brief.")
    conversation.add(HELLO, [TextPart("Hi.")])
    conversation.clear()
    assert [message.role for message in conversation.request(AGAIN).messages] == [Role.SYSTEM, Role.USER]


def test_a_saved_conversation_continues_under_its_id() -> None:
    first = Conversation("m")
    first.add(HELLO, [TextPart("Hi.")])
    second = Conversation("m")
    second.restore(first.save())
    assert second.request(AGAIN).conversation == first.request(AGAIN).conversation
    second.clear()
    assert second.request(AGAIN).conversation != first.request(AGAIN).conversation


def test_a_file_without_an_id_can_be_continued() -> None:
    conversation = Conversation("m")
    conversation.restore(SavedConversation(model="m", messages=(HELLO,)))
    assert conversation.request(AGAIN).conversation


def test_each_loaded_conversation_has_its_own_system_prompt() -> None:
    conversation = Conversation("m")
    for system in ("A", "B"):
        conversation.clear()
        conversation.restore(Conversation("m", system=system).save())
        assert conversation.request(HELLO).messages[0] == Message(Role.SYSTEM, (TextPart(system),))
    conversation.clear()
    assert conversation.request(HELLO).messages == (HELLO,)


def test_the_system_prompt_of_the_user_replaces_the_saved_one() -> None:
    conversation = Conversation("m", system="Mine")
    conversation.restore(Conversation("m", system="Saved").save())
    assert conversation.request(HELLO).messages[0] == Message(Role.SYSTEM, (TextPart("Mine"),))


def test_the_title_is_the_first_question() -> None:
    conversation = Conversation("m")
    conversation.add(HELLO, [TextPart("Hi.")])
    conversation.add(AGAIN, [TextPart("Hi.")])
    assert conversation.save().title == "Hello"


def test_deltas_are_joined_and_reasoning_signatures_kept() -> None:
    parts: list[Part] = [
        ThinkingPart("Let ", "r1"),
        ThinkingPart("me", "r1"),
        ThinkingPart("", "r1", {"encrypted_content": "x"}),
        ThinkingPart("more", "r2"),
        TextPart("a"),
        DataPart(b"png", "image/png"),
        TextPart("b"),
        ToolCallPart("c", "f", {}),
        TextPart("c"),
    ]
    assert join_parts(parts) == (
        ThinkingPart("Let me", "r1", {"encrypted_content": "x"}),
        ThinkingPart("more", "r2"),
        TextPart("ab"),
        ToolCallPart("c", "f", {}),
        TextPart("c"),
    )
