"""The shape of a conversation, and the other fields of a request."""

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


def normalize(*messages: Message, **fields: Any) -> NormalizedRequest:
    return normalize_request(ChatRequest(model="m", messages=messages, **fields))


@pytest.mark.parametrize("parts", ["", " \n", ()])
@pytest.mark.parametrize("role", list(Role))
def test_empty_messages_are_removed(role: Role, parts: Any) -> None:
    assert normalize(Message(role, parts), HI).request.messages == (HI,)


def test_whitespace_between_texts_is_kept() -> None:
    parts: tuple[Part, ...] = (TextPart("a"), TextPart(" "), TextPart("b"))
    assert normalize(HI, Message(Role.ASSISTANT, parts)).request.messages[1].parts == parts


def test_adjacent_user_messages_are_merged_without_a_note() -> None:
    normalized = normalize(HI, Message(Role.USER, "there"))
    assert normalized.request.messages == (Message(Role.USER, (TextPart("Hi"), TextPart("there"))),)
    assert normalized.changes == ()
    assert normalized.counts == {"joined": 1}


def test_adjacent_answers_are_merged_with_a_blank_line() -> None:
    normalized = normalize(HI, Message(Role.ASSISTANT, "One."), Message(Role.ASSISTANT, "Two."))
    text = "".join(part.text for part in normalized.request.messages[1].parts if isinstance(part, TextPart))
    assert text == "One.\n\nTwo."


@pytest.mark.parametrize(
    "messages", [(), (Message(Role.SYSTEM, "Be."),), (Message(Role.ASSISTANT, "Hello"),)]
)
def test_a_conversation_without_a_user_message_gets_one(messages: tuple[Message, ...]) -> None:
    normalized = normalize(*messages)
    assert normalized.request.messages[-1] == Message(Role.USER, "Continue.")
    assert len(normalized.changes) == 1


def test_tools_are_renamed_together_with_their_calls_and_the_choice() -> None:
    call = Message(Role.ASSISTANT, (ToolCallPart("c1", "read file", {}),))
    normalized = normalize(HI, call, tools=(Tool("read file"),), tool_choice=NamedTool("read file"))
    [tool] = normalized.request.tools
    [sent] = normalized.request.messages[1].parts
    assert isinstance(sent, ToolCallPart)
    assert sent.name == tool.name != "read file"
    assert normalized.request.tool_choice == NamedTool(tool.name)
    assert normalized.names.back(tool.name) == "read file"


def test_a_duplicate_tool_is_removed() -> None:
    normalized = normalize(HI, tools=(Tool("a", "first"), Tool("a", "second")))
    assert [tool.description for tool in normalized.request.tools] == ["first"]
    assert len(normalized.changes) == 1


def test_a_schema_without_a_type_gets_one() -> None:
    [tool] = normalize(HI, tools=(Tool("a", "", {"properties": {}}),)).request.tools
    assert tool.parameters == {"type": "object", "properties": {}}


def test_metadata_is_truncated_to_its_limits() -> None:
    normalized = normalize(HI, metadata={str(number): "x" * 600 for number in range(20)})
    assert normalized.request.metadata == {str(number): "x" * 512 for number in range(16)}
    assert len(normalized.changes) == 1


def test_a_too_small_output_limit_is_raised() -> None:
    assert normalize(HI, max_output_tokens=1).request.max_output_tokens == 16
    assert normalize(HI, max_output_tokens=17).changes == ()
    low = ChatRequest(model="m", messages=(HI,), max_output_tokens=1)
    normalized = normalize_request(low, min_output_tokens=1)
    assert (normalized.request.max_output_tokens, normalized.changes) == (1, ())
