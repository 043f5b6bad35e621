"""The outer form of a conversation, and of the request around it."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.history.normalize import NormalizedRequest, normalize_request
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    NamedTool,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
)

HI = Message(Role.USER, "Hi")


def made(*messages: Message, **fields: Any) -> NormalizedRequest:
    return normalize_request(ChatRequest(model="m", messages=messages, **fields))


@pytest.mark.parametrize("parts", ["", " \n", ()])
@pytest.mark.parametrize("role", list(Role))
def test_messages_that_say_nothing_are_left_out(role: Role, parts: Any) -> None:
    assert made(Message(role, parts), HI).request.messages == (HI,)


def test_blanks_between_words_stay() -> None:
    parts: tuple[Part, ...] = (TextPart("a"), TextPart(" "), TextPart("b"))
    assert made(HI, Message(Role.ASSISTANT, parts)).request.messages[1].parts == parts


def test_two_messages_of_the_user_in_a_row_are_one_and_nobody_is_told() -> None:
    done = made(HI, Message(Role.USER, "there"))
    assert done.request.messages == (Message(Role.USER, (TextPart("Hi"), TextPart("there"))),)
    assert done.changes == ()
    assert done.counts == {"joined": 1}


def test_two_answers_in_a_row_stay_apart_for_the_eye() -> None:
    done = made(HI, Message(Role.ASSISTANT, "One."), Message(Role.ASSISTANT, "Two."))
    said = "".join(part.text for part in done.request.messages[1].parts if isinstance(part, TextPart))
    assert said == "One.\n\nTwo."


@pytest.mark.parametrize(
    "messages", [(), (Message(Role.SYSTEM, "Be."),), (Message(Role.ASSISTANT, "Hello"),)]
)
def test_a_conversation_without_a_question_gets_one(messages: tuple[Message, ...]) -> None:
    done = made(*messages)
    assert done.request.messages[-1] == Message(Role.USER, "Continue.")
    assert len(done.changes) == 1


def test_tools_are_renamed_together_with_their_calls_and_the_choice() -> None:
    call = Message(Role.ASSISTANT, (ToolCallPart("c1", "read file", {}),))
    done = made(HI, call, tools=(Tool("read file"),), tool_choice=NamedTool("read file"))
    [tool] = done.request.tools
    [sent] = done.request.messages[1].parts
    assert isinstance(sent, ToolCallPart)
    assert sent.name == tool.name != "read file"
    assert done.request.tool_choice == NamedTool(tool.name)
    assert done.names.back(tool.name) == "read file"


def test_a_tool_that_is_offered_twice_is_offered_once() -> None:
    done = made(HI, tools=(Tool("a", "first"), Tool("a", "second")))
    assert [tool.description for tool in done.request.tools] == ["first"]
    assert len(done.changes) == 1


def test_a_schema_says_that_arguments_are_an_object() -> None:
    [tool] = made(HI, tools=(Tool("a", "", {"properties": {}}),)).request.tools
    assert tool.parameters == {"type": "object", "properties": {}}


def test_metadata_keeps_to_its_limits() -> None:
    done = made(HI, metadata={str(number): "x" * 600 for number in range(20)})
    assert done.request.metadata == {str(number): "x" * 512 for number in range(16)}
    assert len(done.changes) == 1


def test_the_least_answer_is_asked_for() -> None:
    assert made(HI, max_output_tokens=1).request.max_output_tokens == 16
    assert made(HI, max_output_tokens=17).changes == ()
