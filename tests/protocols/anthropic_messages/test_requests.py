"""Requests for the Messages API, as its documentation requires them."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import pytest

from tollbridge.policy.limits import DEFAULT_MAX_TOKENS, default_max_tokens
from tollbridge.protocols.anthropic_messages.requests import encode_request
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
USER = Message("user", "Hi")
WEATHER = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
ORIGIN = Origin.of("claude-opus-5", "https://api.anthropic.com/v1")


def encode(*messages: Message, model: str = "claude-opus-5", **options: Any) -> dict[str, Any]:
    return encode_request(ChatRequest(model=model, messages=messages or (USER,), **options))


def test_what_is_not_set_is_not_sent_except_the_required_limit() -> None:
    assert encode() == {
        "model": "claude-opus-5",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-haiku-20240307", 4_096),
        ("anthropic/claude-3.5-sonnet", 8_192),
        ("claude-3-5-haiku-latest", 8_192),
        ("claude-3-7-sonnet-latest", 32_000),
        ("claude-opus-4-20250514", 32_000),
        ("llama", 32_000),
    ],
)
def test_the_limit_is_one_that_the_model_accepts(model: str, limit: int) -> None:
    assert default_max_tokens(model) == limit


def test_system_messages_are_the_system_prompt_and_roles_alternate() -> None:
    body = encode(
        Message("system", "Be kind."),
        Message("user", "One"),
        Message("system", "Be brief."),
        Message("user", "Two"),
        Message("assistant", "Three"),
        USER,
    )
    assert body["system"] == [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in body["messages"][0]["content"]] == ["One", "Two"]


def test_a_system_prompt_of_one_text_is_a_string_and_holds_no_image() -> None:
    assert encode(Message("system", "Be kind."), USER)["system"] == "Be kind."
    with pytest.raises(RequestError, match="image/png"):
        encode(Message("system", [DataPart(PNG, "image/png")]), USER)


def test_tool_results_come_first_in_the_user_message() -> None:
    call = ToolCallPart("toolu_1", "get_weather", {"city": "Paris"})
    result = ToolResultPart("toolu_1", [TextPart("Sunny"), DataPart(PNG, "image/jpeg")], is_error=True)
    body = encode(USER, Message("assistant", [call]), Message("user", [TextPart("And?"), result]))
    _, answer, reply = body["messages"]
    assert answer["content"] == [
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
    ]
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
    assert reply["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": "Sunny"}, {"type": "image", "source": source}],
            "is_error": True,
        },
        {"type": "text", "text": "And?"},
    ]


def test_ids_and_arguments_of_other_providers_are_made_valid() -> None:
    call = ToolCallPart("call|1:é", "f", '{"a": 1}')
    body = encode(USER, Message("assistant", [call]), Message("user", [ToolResultPart("call|1:é", "done")]))
    encoded, result = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert re.fullmatch("[a-zA-Z0-9_-]+", encoded["id"])
    assert encoded["id"] == result["tool_use_id"]
    assert encoded["input"] == {"a": 1}
    other = encode(Message("assistant", [ToolCallPart("call_1__", "f", [1])]))["messages"][0]["content"][0]
    assert other["id"] != encoded["id"]
    assert other["input"] == {"input": [1]}


def test_files_are_documents_and_files_of_other_types_are_described() -> None:
    pdf, zipped = (
        DataPart(b"%PDF-1.7 x", "application/pdf", "a.pdf"),
        DataPart(b"PK\3\4", "application/zip", "a.zip"),
    )
    notes = DataPart(b"Some notes", "text/plain", "notes")
    document, described, plain = encode(Message("user", [pdf, zipped, notes]))["messages"][0]["content"]
    assert (document["type"], document["source"]["media_type"]) == ("document", "application/pdf")
    assert document["title"] == "a.pdf"
    assert described == {"type": "text", "text": "[a.zip, application/zip, 4 bytes, not sent]"}
    assert plain["source"] == {"type": "text", "media_type": "text/plain", "data": "Some notes"}
    assistant = encode(USER, Message("assistant", [DataPart(PNG, "image/png")]))["messages"][1]["content"]
    assert "image/png" in assistant


def test_thinking_is_sent_back_with_its_proof_only() -> None:
    parts: list[Part] = [
        ThinkingPart("Hm.", None, add_origin(ORIGIN, {"signature": "sig"})),
        ThinkingPart("", None, add_origin(ORIGIN, {"redacted_data": "abc"})),
        ThinkingPart("unsigned", None, add_origin(ORIGIN, None)),
        ThinkingPart("of nobody"),
        ThinkingPart("of another protocol", None, add_origin(ORIGIN, {"encrypted_content": "x"})),
        TextPart("Hello"),
    ]
    body = encode(USER, Message("assistant", parts), USER)
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "abc"},
        {"type": "thinking", "thinking": "unsigned", "signature": ""},
        {"type": "text", "text": "Hello"},
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "encoded"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (NamedTool("get_weather"), None, {"type": "tool", "name": "get_weather"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", True, {"type": "any", "disable_parallel_tool_use": False}),
    ],
)
def test_tool_choices(choice: Any, parallel: bool | None, encoded: Any) -> None:
    body = encode(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == encoded
    schema = WEATHER.parameters
    assert body["tools"] == [{"name": "get_weather", "description": "The weather", "input_schema": schema}]


def test_a_tool_without_parameters_has_an_object_as_schema() -> None:
    [tool] = encode(tools=[Tool("now")])["tools"]
    assert tool == {"name": "now", "input_schema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("model", "adaptive"),
    [
        ("claude-opus-5", True),
        ("claude-opus-4-6", True),
        ("anthropic/claude-opus-4.7", True),
        ("claude-sonnet-5-20260901", True),
        ("gpt-oss", True),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-sonnet-4-20250514", False),
        ("claude-opus-4-1-20250805", False),
        ("anthropic/claude-haiku-4.5", False),
        ("claude-sonnet-4-5@20250929", False),
    ],
)
def test_the_effort_is_adaptive_thinking_or_a_budget(model: str, adaptive: bool) -> None:
    body = encode(model=model, reasoning_effort="medium")
    if adaptive:
        assert body["thinking"] == {"type": "adaptive"}
        assert body["output_config"] == {"effort": "medium"}
    else:
        assert body["thinking"] == {"type": "enabled", "budget_tokens": 12_288}
        assert "output_config" not in body


def test_the_budget_is_at_least_1024_and_less_than_the_limit() -> None:
    old = "claude-3-7-sonnet-latest"
    for limit, budget in ((1_500, 1_024), (8_000, 4_000), (64_000, 24_576)):
        body = encode(model=old, reasoning_effort="high", max_output_tokens=limit)
        assert body["thinking"]["budget_tokens"] == budget
    assert "thinking" not in encode(model=old, reasoning_effort="high", max_output_tokens=1_024)
    assert encode(model=old, reasoning_effort="none")["thinking"] == {"type": "disabled"}


def test_structured_output_and_the_user_id() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    body = encode(
        output_format=OutputFormat("answer", schema),
        reasoning_effort="low",
        metadata={"user_id": "u1", "project": "p"},
    )
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert body["metadata"] == {"user_id": "u1"}


def test_extra_fields_win_and_add_tools() -> None:
    extra = {
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
        "output_config": {"task_budget": {"type": "tokens", "total": 9}},
        "tools": [
            {"name": "get_weather", "strict": True},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "betas": ["a-2026"],
    }
    body = encode(tools=[WEATHER], reasoning_effort="high", extra=extra)
    assert body["stop_sequences"] == ["END"]
    assert body["thinking"] == extra["thinking"]
    assert body["output_config"] == extra["output_config"]
    assert body["tools"][0]["strict"] is True
    assert body["tools"][1] == {"type": "web_search_20250305", "name": "web_search"}
    assert "betas" not in body
    assert "strict" not in encode(tools=[WEATHER])["tools"][0]  # the tool itself is not changed


def test_the_last_of_equal_parts_is_the_cache_breakpoint() -> None:
    point = {"type": "ephemeral", "ttl": "1h"}
    same = TextPart("Go on.")
    points = {part_digest(same): point, part_digest(TextPart("Be kind.")): {"type": "ephemeral"}}
    body = encode(
        Message("system", "Be kind."),
        Message("user", [same]),
        Message("assistant", "Yes."),
        Message("user", [same]),
        cache_points=points,
    )
    assert body["system"] == [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    # Not a plain string: the message must not change when the breakpoint moves to a later one.
    assert body["messages"][0]["content"] == [{"type": "text", "text": "Go on."}]
    assert body["messages"][2]["content"] == [{"type": "text", "text": "Go on.", "cache_control": point}]


def test_fields_that_the_server_does_not_accept_are_not_sent() -> None:
    body = encode(temperature=0.5, top_p=0.5, quirks=Quirks(without=frozenset({"temperature"})))
    assert "temperature" not in body
    assert body["top_p"] == 0.5
