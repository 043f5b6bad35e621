"""Requests for servers that take less than the protocol has: every quirk, and that nothing said is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.core.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.profile import Profile
from tollbridge.gateways.openresponses.encode import encode_request

PNG = DataPart(b"\x89PNG\r\n\x1a\n" + bytes(22), "image/png")
PDF = DataPart(b"%PDF-1.4 and so on", "application/pdf", "a.pdf")
SKY = ToolResultPart("c1", (TextPart("The sky:"), PNG))
REQUEST = ChatRequest(
    model="m",
    messages=(
        Message(Role.SYSTEM, "Be kind."),
        Message(Role.USER, (TextPart("Look"), PNG, PDF)),
        Message(
            Role.ASSISTANT,
            (
                ThinkingPart("Hm.", metadata={"encrypted_content": "x"}),
                TextPart("I look."),
                ToolCallPart("c1", "look", {"at": "sky"}),
            ),
        ),
        Message(Role.USER, (SKY, TextPart("Well?"))),
    ),
    tools=(Tool("look", "Looks", {"type": "object"}),),
    tool_choice=NamedTool("look"),
    reasoning_effort="low",
    temperature=0.5,
    metadata={"a": "b"},
)


def body(**quirks: Any) -> dict[str, Any]:
    return encode_request(REQUEST, profile=Profile(**quirks))


def items(**quirks: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(**quirks)["input"]
    return found


def test_a_server_that_takes_everything_gets_what_anyone_gets() -> None:
    assert body() == encode_request(REQUEST)


def test_the_system_prompt_goes_where_the_server_looks_for_it() -> None:
    assert items()[0]["role"] == "developer"
    assert items(system="system")[0] == {"type": "message", "role": "system", "content": "Be kind."}
    told = body(system="instructions")
    assert (told["instructions"], told["input"][0]["role"]) == ("Be kind.", "user")
    first = items(system="user")[0]
    assert first["role"] == "user"
    assert [part.get("text") for part in first["content"]] == ["Be kind.", "Look", None, None]


def test_text_alone_is_a_list_of_parts_where_strings_are_refused() -> None:
    contents = {item["role"]: item["content"] for item in items(content="array") if "role" in item}
    assert contents["developer"] == [{"type": "input_text", "text": "Be kind."}]
    assert contents["assistant"] == [{"type": "output_text", "text": "I look."}]


def test_calls_and_results_are_told_as_text() -> None:
    found = items(calls=False, reasoning=False)
    assert [(item["type"], item["role"]) for item in found] == [
        ("message", "developer"),
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
    ]
    assert found[2]["content"] == 'I look.\n[Called the tool look (c1) with {"at":"sky"}]'
    texts = [part.get("text") for part in found[3]["content"]]
    assert texts == ["[The result of the tool call c1:]", "The sky:", None, "Well?"]


def test_images_of_results_stand_in_a_message_after_them() -> None:
    found = items(rich_results=False)
    result, moved, question = found[-3:]
    assert result["output"] == "The sky:\n[image, image/png, 30 bytes: below]"
    assert moved["role"] == "user"
    assert [part["type"] for part in moved["content"]] == ["input_text", "input_image"]
    assert question["content"] == "Well?"


def test_images_of_the_last_result_are_not_forgotten() -> None:
    request = ChatRequest(
        model="m",
        messages=(
            Message(Role.USER, "Look"),
            Message(Role.ASSISTANT, (ToolCallPart("c1", "look", {}),)),
            Message(Role.USER, (SKY,)),
        ),
    )
    last = encode_request(request, profile=Profile(rich_results=False))["input"][-1]
    assert last["content"][1]["type"] == "input_image"


@pytest.mark.parametrize(
    ("field", "note"),
    [
        ("images", "[image, image/png, 30 bytes, left out: the model takes no images]"),
        ("files", "[file, application/pdf, 18 bytes, left out: the model takes no files]"),
    ],
)
def test_a_note_stands_in_the_place_of_what_is_not_taken(field: str, note: str) -> None:
    content = items(**{field: False})[1]["content"]
    assert note in [part.get("text") for part in content]
    assert len(content) == 3


def test_with_neither_images_nor_files_a_message_is_a_string_again() -> None:
    assert isinstance(items(images=False, files=False)[1]["content"], str)


def test_tools_are_nested_where_the_server_wants_it() -> None:
    found = body(tools="nested")
    assert found["tools"][0]["type"] == "function"
    assert found["tools"][0]["function"]["name"] == "look"
    assert found["tool_choice"] == {"type": "function", "function": {"name": "look"}}


def test_what_is_refused_is_left_out_and_what_a_request_needs_is_not() -> None:
    found = body(leave_out=("temperature", "metadata", "model", "input"), store=False, include=False)
    assert not {"temperature", "metadata", "store", "include"} & set(found)
    assert {"model", "input", "stream", "reasoning"} <= set(found)


def test_reasoning_is_neither_sent_back_nor_asked_for_where_it_is_refused() -> None:
    found = body(reasoning=False)
    assert "reasoning" in [item["type"] for item in items()]
    assert "reasoning" not in [item["type"] for item in found["input"]]
    assert "include" not in found


def test_what_a_caller_insists_on_is_sent_all_the_same() -> None:
    request = ChatRequest(
        model="m", messages=(Message(Role.USER, "Hi"),), temperature=0.5, extra={"temperature": 0.7}
    )
    assert encode_request(request, profile=Profile(leave_out=("temperature",)))["temperature"] == 0.7


def test_one_model_of_a_server_may_differ() -> None:
    profile = Profile(models={"m": {"images": False}})
    assert "image_url" not in str(encode_request(REQUEST, profile=profile)["input"][1])
    assert encode_request(REQUEST, profile=Profile(models={"other": {"images": False}})) == body()
