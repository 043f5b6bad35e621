"""Requests to Chat Completions servers. The expected bodies follow OpenAI's API reference."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tollbridge.protocols.chat_completions.requests import encode_messages, encode_request
from tollbridge.types.errors import RequestError
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Origin,
    OutputFormat,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
    part_digest,
)
from tollbridge.types.quirks import Quirks

PNG = draw_png()
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"
HERE = Origin.of("m", "http://here/v1")
WEATHER = Tool("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def ask(**fields: Any) -> dict[str, Any]:
    model = fields.pop("model", "m")
    return encode_request(ChatRequest(model=model, messages=[Message("user", "Hi")], **fields))


def assistant(*parts: Any) -> dict[str, Any]:
    [message] = encode_messages([Message(Role.ASSISTANT, parts)])
    return message


def test_options_that_are_not_set_are_not_sent() -> None:
    assert ask() == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_options_have_the_names_of_the_protocol() -> None:
    body = ask(
        max_output_tokens=50,
        temperature=0.5,
        top_p=0.9,
        reasoning_effort="low",
        reasoning_summary="auto",  # not part of the protocol
        metadata={"a": "b"},
        output_format=OutputFormat("answer", {"type": "object"}, strict=True),
        extra={"stop": ["\n"], "seed": 1, "prompt_cache_key": "k"},
    )
    for name in ("model", "messages", "stream", "stream_options"):
        del body[name]
    assert body == {
        "max_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
        "metadata": {"a": "b"},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
        },
        "stop": ["\n"],
        "seed": 1,
        "prompt_cache_key": "k",
    }


@pytest.mark.parametrize("model", ["o3", "o4-mini", "gpt-5.2", "openai/gpt-5-nano", "openai/o1"])
def test_newer_models_of_openai_get_max_completion_tokens(model: str) -> None:
    body = ask(model=model, max_output_tokens=50)
    assert body["max_completion_tokens"] == 50
    assert "max_tokens" not in body


@pytest.mark.parametrize("model", ["gpt-4o", "openai/gpt-oss-20b", "qwen3", "phi-o3", "llama-4/o"])
def test_other_models_get_max_tokens(model: str) -> None:
    assert ask(model=model, max_output_tokens=50)["max_tokens"] == 50


@pytest.mark.parametrize("model", ["o3", "m"])
def test_fields_that_the_server_does_not_accept_are_left_out(model: str) -> None:
    quirks = Quirks(without=frozenset({"max_output_tokens", "reasoning", "temperature", "stream_options"}))
    body = ask(model=model, max_output_tokens=50, reasoning_effort="low", temperature=0.5, quirks=quirks)
    assert set(body) == {"model", "messages", "stream"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        (NamedTool("weather"), {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_tools_and_the_choice_among_them(choice: Any, sent: Any) -> None:
    body = ask(tools=[WEATHER, Tool("now")], tool_choice=choice, parallel_tool_calls=False)
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        },
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert body["tool_choice"] == sent
    assert body["parallel_tool_calls"] is False


def test_a_choice_of_an_unknown_tool_is_an_error() -> None:
    with pytest.raises(RequestError, match="nothing"):
        ask(tools=[WEATHER], tool_choice=NamedTool("nothing"))


def test_system_messages_become_one_message_at_the_start() -> None:
    messages = [Message("system", "One"), Message("user", "Hi"), Message("system", ["Two", "Three"])]
    assert encode_messages(messages) == [
        {"role": "system", "content": "One\n\nTwo\nThree"},
        {"role": "user", "content": "Hi"},
    ]


def test_an_image_in_a_system_message_is_an_error() -> None:
    with pytest.raises(RequestError, match="image/png"):
        encode_messages([Message("system", [DataPart(PNG, "image/png")])])


def test_images_and_files_are_data_urls_with_the_type_of_their_bytes() -> None:
    parts: list[Part] = [
        TextPart("Look"),
        DataPart(PNG, "image/jpeg"),
        DataPart(b"%PDF-1.4", "application/pdf", "a.pdf"),
        DataPart(b"hello", "text/plain"),
    ]
    assert encode_messages([Message("user", parts)]) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": URL}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQ="},
                },
                {"type": "text", "text": "hello"},
            ],
        }
    ]


def test_empty_texts_and_messages_are_not_sent() -> None:
    messages = [Message("system", ["", ""]), Message("user", ["", "Hi"]), Message("assistant", [""])]
    assert encode_messages(messages) == [{"role": "user", "content": "Hi"}]


def test_text_can_be_sent_as_an_array() -> None:
    quirks = Quirks(text_as="array")
    messages = [Message("system", "S"), Message("user", "U"), Message("assistant", "A")]
    assert [message["content"] for message in encode_messages(messages, quirks)] == [
        [{"type": "text", "text": text}] for text in "SUA"
    ]


def test_an_answer_with_calls_and_its_results() -> None:
    calls = (ToolCallPart("c1", "weather", {"city": "Oslo"}), ToolCallPart("c2", "now", None))
    results = (ToolResultPart("c1", "Sunny"), ToolResultPart("c2", ("No clock",), is_error=True))
    history = [
        Message("assistant", ("I look. ", *calls)),
        Message("user", (TextPart("And?"), *results)),
    ]
    assert encode_messages(history) == [
        {
            "role": "assistant",
            "content": "I look. ",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                },
                {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: No clock"},
        {"role": "user", "content": "And?"},
    ]


def test_the_images_of_tool_results_follow_after_all_results() -> None:
    history = [
        Message(
            "user",
            (
                ToolResultPart("c1", ("Here", DataPart(PNG, "image/png"))),
                ToolResultPart("c2", "Text"),
                TextPart("And?"),
            ),
        )
    ]
    first, second, user = encode_messages(history)
    assert first["content"] == f"Here\n[image/png, {len(PNG)} bytes: below]"
    assert second == {"role": "tool", "tool_call_id": "c2", "content": "Text"}
    assert user == {
        "role": "user",
        "content": [
            {"type": "text", "text": "[From a tool result:]"},
            {"type": "image_url", "image_url": {"url": URL}},
            {"type": "text", "text": "And?"},
        ],
    }


@pytest.mark.parametrize("model", ["anthropic/claude-4.6", "gpt-4o"])
def test_cache_points_are_sent_only_for_models_that_need_them(model: str) -> None:
    system, same, result = TextPart("Long"), TextPart("Same"), ToolResultPart("c", "Sunny")
    history = [
        Message("system", [TextPart("First"), system]),
        Message("user", [same]),
        Message("assistant", [same, ToolCallPart("c", "now", {})]),
        Message("user", [result, TextPart("And?")]),
    ]
    points = {part_digest(part): {"type": "ephemeral"} for part in (system, same, result)}
    request = ChatRequest(model=model, messages=history, cache_points=points)
    contents = [message["content"] for message in encode_request(request)["messages"]]
    if model == "gpt-4o":
        assert contents == ["First\nLong", "Same", "Same", "Sunny", "And?"]
        return

    def text(value: str, **mark: Any) -> dict[str, Any]:
        return {"type": "text", "text": value, **mark}

    mark = {"cache_control": {"type": "ephemeral"}}
    assert contents == [
        [text("First"), text("Long", **mark)],
        "Same",  # only the last one of equal parts
        [text("Same", **mark)],
        [text("Sunny", **mark)],
        "And?",
    ]


def test_an_answer_of_only_calls_has_the_content_null() -> None:
    assert assistant(ToolCallPart("c", "now", {}))["content"] is None


def test_a_file_in_an_answer_becomes_a_note() -> None:
    assert assistant(TextPart("See: "), DataPart(PNG, "image/png"))["content"] == (
        f"See: [image/png: {len(PNG)} bytes]"
    )


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
@pytest.mark.parametrize("bound", [False, True])
def test_reasoning_returns_in_the_field_it_came_in(field: str, bound: bool) -> None:
    metadata = add_origin(HERE, None) if bound else None
    message = assistant(ThinkingPart("Hm", field, metadata), TextPart("Yes"))
    assert message == {"role": "assistant", "content": "Yes", field: "Hm"}


@pytest.mark.parametrize(
    "proof",
    [
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "abc", "id": "r"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "S"}]},
        {"reasoning_opaque": "op"},
    ],
)
def test_proofs_return_unchanged_without_the_mark_of_their_origin(proof: dict[str, Any]) -> None:
    message = assistant(ThinkingPart("Hm", "reasoning", add_origin(HERE, proof)), TextPart("Yes"))
    assert message == {"role": "assistant", "content": "Yes", "reasoning": "Hm", **proof}


def test_the_proofs_of_several_blocks_return_as_one_list() -> None:
    blocks = [{"type": "reasoning.encrypted", "data": data} for data in "ab"]
    parts = [ThinkingPart("", "reasoning", {"reasoning_details": [block]}) for block in blocks]
    assert assistant(*parts, TextPart("Yes"))["reasoning_details"] == blocks


def test_reasoning_of_mistral_returns_as_content() -> None:
    assert assistant(ThinkingPart("Hm", "content"), TextPart("Yes"))["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
        {"type": "text", "text": "Yes"},
    ]


def test_reasoning_of_another_protocol_is_sent_only_if_its_server_does_not_sign() -> None:
    plain = ThinkingPart("Hm", "rs_1", add_origin(HERE, None))
    assert assistant(plain, TextPart("Yes"))["reasoning_content"] == "Hm"
    for metadata in (None, {"encrypted_content": "abc"}, add_origin(HERE, {"signature": "s"})):
        message = assistant(ThinkingPart("Hm", "rs_1", metadata), TextPart("Yes"))
        assert message == {"role": "assistant", "content": "Yes"}


def test_the_signature_of_a_call_returns() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    [call] = assistant(ToolCallPart("c", "now", {}, {"extra_content": extra}))["tool_calls"]
    assert call["extra_content"] == extra
