"""The features of messages and tools."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.tokens.samples import assistant, request, result, system, user
from tollbridge.tokens.prompts import Content, find_last_user_message, read_message, read_toolset
from tollbridge.tokens.tokenizers import TextFeatures, family_of
from tollbridge.types.messages import (
    DataPart,
    Message,
    OutputFormat,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

GPT = "openai/gpt-4o"
TEXTS = TextFeatures()
PNG = DataPart(bytes.fromhex("89504e470d0a1a0a0000000d49484452" + "00000400" * 2), "image/png")


def read(*parts: Part) -> Content:
    return read_message(TEXTS, family_of(GPT), GPT, Message(Role.USER, parts))


def test_text_is_counted() -> None:
    assert read(TextPart("hello world"), TextPart("")) == Content(text=((0, 2),))


def test_a_tool_call_is_counted_as_its_name_and_its_compact_arguments() -> None:
    content = read(ToolCallPart("call_1", "read", {"path": "a"}))
    assert content.calls == 1
    assert content.text == read(TextPart("read"), TextPart('{"path":"a"}')).text


def test_a_tool_result_is_counted_with_all_its_parts() -> None:
    content = read(ToolResultPart("call_1", (TextPart("hello"), PNG, DataPart(b"world", "text/plain"))))
    assert content == Content(text=((0, 2),), media=765, calls=1)


def test_thinking_is_counted_separately() -> None:
    content = read(ThinkingPart("hello world"), TextPart("hello"))
    assert content == Content(text=((0, 1),), thinking=((0, 2),), has_thinking=True)


def test_the_name_of_a_message_is_counted() -> None:
    named = read_message(TEXTS, family_of(GPT), GPT, Message(Role.USER, (TextPart("hello"),), "Ada"))
    assert named.text == ((0, 2),)


def test_tools_are_counted_as_the_json_they_are_sent_as() -> None:
    tools = (Tool("read", "Reads.", {"type": "object"}), Tool("write"))
    chat_request = request([], tools, GPT)
    toolset = read_toolset(TEXTS, family_of(GPT), chat_request)
    assert toolset.count == 2
    schemas = (
        '{"name":"read","description":"Reads.","parameters":{"type":"object"}}',
        '{"name":"write","description":"","parameters":null}',
    )
    assert toolset.text == read(*map(TextPart, schemas)).text


def test_the_output_schema_is_counted() -> None:
    chat_request = replace(request([], (), GPT), output_format=OutputFormat("x", {"type": "object"}))
    assert read_toolset(TEXTS, family_of(GPT), chat_request).text == read(TextPart('{"type":"object"}')).text


@pytest.mark.parametrize(
    ("messages", "index"),
    [
        ([], -1),
        ([system("s"), assistant("a")], -1),
        ([system("s"), user("u"), assistant("a"), result("c", "r")], 1),
        ([user("u"), assistant("a"), user("v")], 2),
    ],
)
def test_tool_results_do_not_count_as_user_messages(messages: list[Message], index: int) -> None:
    assert find_last_user_message(messages) == index
