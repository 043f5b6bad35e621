from __future__ import annotations

from tollbridge.cli.run_turn import Conversation
from tollbridge.history.answer import join_parts
from tollbridge.types.messages import DataPart, Message, Part, Role, TextPart, ThinkingPart, ToolCallPart

HELLO = Message(Role.USER, (TextPart("Hello"),))
AGAIN = Message(Role.USER, (TextPart("Again"),))


def test_a_request_contains_the_whole_conversation() -> None:
    conversation = Conversation("m", system="Be brief.", effort="low")
    assert conversation.add(HELLO, [TextPart("H"), TextPart("i.")])
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
