"""What messages and tools consist of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.tokens.conversations import assistant, request, result, system, user
from tollbridge.tokens.prompts import Content, last_word_of_user, read_message, read_toolset
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


def test_a_call_is_its_name_and_its_compact_arguments() -> None:
    content = read(ToolCallPart("call_1", "read", {"path": "a"}))
    assert content.calls == 1
    assert content.text == read(TextPart("read"), TextPart('{"path":"a"}')).text


def test_a_result_is_all_its_parts() -> None:
    content = read(ToolResultPart("call_1", (TextPart("hello"), PNG, DataPart(b"world", "text/plain"))))
    assert content == Content(text=((0, 2),), media=765, calls=1)


def test_thinking_is_counted_apart() -> None:
    content = read(ThinkingPart("hello world"), TextPart("hello"))
    assert content == Content(text=((0, 1),), thinking=((0, 2),), thinks=True)


def test_names_count() -> None:
    named = read_message(TEXTS, family_of(GPT), GPT, Message(Role.USER, (TextPart("hello"),), "Ada"))
    assert named.text == ((0, 2),)


def test_tools_are_counted_as_the_json_they_are_sent_as() -> None:
    tools = (Tool("read", "Reads.", {"type": "object"}), Tool("write"))
    asked = request([], tools, GPT)
    toolset = read_toolset(TEXTS, family_of(GPT), asked)
    assert toolset.count == 2
    written = (
        '{"name":"read","description":"Reads.","parameters":{"type":"object"}}',
        '{"name":"write","description":"","parameters":null}',
    )
    assert toolset.text == read(*map(TextPart, written)).text


def test_the_schema_of_the_answer_counts() -> None:
    asked = replace(request([], (), GPT), output_format=OutputFormat("x", {"type": "object"}))
    assert read_toolset(TEXTS, family_of(GPT), asked).text == read(TextPart('{"type":"object"}')).text


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([], -1),
        ([system("s"), assistant("a")], -1),
        ([system("s"), user("u"), assistant("a"), result("c", "r")], 1),
        ([user("u"), assistant("a"), user("v")], 2),
    ],
)
def test_the_results_of_tools_are_not_the_users_word(messages: list[Message], place: int) -> None:
    assert last_word_of_user(messages) == place
