"""The requests of callers: what agents and SDKs send, whatever the gateway behind it speaks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tollbridge.protocols.anthropic_messages.requests import NATIVE_MIME, encode_request
from tollbridge.protocols.anthropic_messages.server_requests import CallerRequest, decode_request
from tollbridge.protocols.anthropic_messages.wire import pack_proof
from tollbridge.types.errors import RequestError
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    DataPart,
    Message,
    NamedTool,
    Origin,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
)

ORIGIN = Origin.of("claude-opus-5", "https://api.anthropic.com/v1")
PNG = draw_png()
EPHEMERAL = {"type": "ephemeral"}
# The shape of a request of Claude Code 2.1, with its texts shortened.
CLAUDE_CODE: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 32000,
    "stream": True,
    "temperature": 1,
    "metadata": {"user_id": '{"device_id":"d","session_id":"s"}'},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "system": [
        {"type": "text", "text": "You are Claude Code."},
        {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "tools": [
        {
            "name": "Read",
            "description": "Reads",
            "input_schema": {"type": "object"},
            "eager_input_streaming": True,
        },
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": "Fix it"}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
                {"type": "redacted_thinking", "data": "Emwk"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "/a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "1: x"}],
                    "cache_control": EPHEMERAL,
                }
            ],
        },
    ],
}
HEADERS = {"anthropic-beta": "claude-code-20250219, context-management-2025-06-27"}


def decode(native: Origin | None = None, **fields: Any) -> CallerRequest:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}], **fields}
    return decode_request(body, native=native)


def content(*blocks: Any, native: Origin | None = None) -> tuple[Any, ...]:
    caller = decode(native, messages=[{"role": "user", "content": list(blocks)}])
    return tuple(part for message in caller.request.messages for part in message.parts)


def test_an_agents_request_is_understood() -> None:
    caller = decode_request(CLAUDE_CODE, headers=HEADERS)
    request = caller.request
    assert caller.stream
    assert request.messages == (
        Message("system", ["You are Claude Code.", "Rules."]),
        Message("user", ["<system-reminder>", "Fix it"]),
        Message(
            "assistant",
            [
                ThinkingPart("Hm.", None, {"signature": "EqQB"}),
                ThinkingPart("", None, {"redacted_data": "Emwk"}),
                TextPart("I look."),
                ToolCallPart("toolu_1", "Read", {"path": "/a"}),
            ],
        ),
        Message("user", [ToolResultPart("toolu_1", "1: x")]),
    )
    assert request.tools == (Tool("Read", "Reads", {"type": "object"}),)
    assert (request.max_output_tokens, request.temperature, request.reasoning_effort) == (32000, 1, "medium")
    assert request.extra is None  # the gateway would not know them
    assert caller.extra["context_management"] == CLAUDE_CODE["context_management"]
    assert caller.extra["metadata"] == CLAUDE_CODE["metadata"]
    assert caller.extra["betas"] == ["claude-code-20250219", "context-management-2025-06-27"]
    assert caller.omissions == ("Left out the tool web_search: only the provider can run it.",)


def test_for_a_gateway_of_the_same_protocol_nothing_is_lost() -> None:
    caller = decode_request(CLAUDE_CODE, native=ORIGIN, headers=HEADERS)
    assert caller.omissions == ()
    body = encode_request(caller.request)
    assert body == CLAUDE_CODE


def test_reasoning_has_the_origin_of_a_gateway_of_the_same_protocol() -> None:
    message = decode_request(CLAUDE_CODE, native=ORIGIN).request.messages[2]
    assert message.parts[0] == ThinkingPart("Hm.", None, add_origin(ORIGIN, {"signature": "EqQB"}))


def test_a_proof_that_the_gateway_itself_packed_is_its_own_signature() -> None:
    signature = pack_proof({"encrypted_content": "gAAA"}, "rs_1")
    block = {"type": "thinking", "thinking": "Hm.", "signature": signature}
    messages = [{"role": "assistant", "content": [block]}]
    request = decode(ORIGIN, messages=messages).request
    assert request.messages[0].parts == (
        ThinkingPart("Hm.", None, add_origin(ORIGIN, {"signature": signature})),
    )
    assert encode_request(request)["messages"] == messages


@pytest.mark.parametrize("system", ["Be kind.", [{"type": "text", "text": "Be kind."}]])
def test_the_system_prompt_is_a_string_or_blocks(system: Any) -> None:
    assert decode(system=system).request.messages[0] == Message("system", "Be kind.")


def test_a_system_message_within_the_conversation_keeps_its_place() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}]
    assert decode(messages=messages).request.messages[1] == Message("system", "Be brief.")


def test_images_and_documents_are_files() -> None:
    data = b64encode(PNG).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": data}}
    pdf_data = b64encode(b"%PDF-1.7").decode()
    pdf = {
        "type": "document",
        "title": "Plan",
        "source": {"type": "base64", "media_type": "application/pdf", "data": pdf_data},
    }
    notes = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Notes"}}
    assert content(image, pdf, notes) == (
        DataPart(PNG, "image/png"),
        DataPart(b"%PDF-1.7", "application/pdf", "Plan"),
        DataPart(b"Notes", "text/plain"),
    )


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {
            "type": "search_result",
            "source": "https://example.com",
            "title": "T",
            "content": [{"type": "text", "text": "C"}],
        },
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "invented_later", "x": 1},
    ],
)
def test_blocks_that_only_this_protocol_has_are_kept_or_described(block: dict[str, Any]) -> None:
    [kept] = content(block, native=ORIGIN)
    assert kept.mime == NATIVE_MIME
    caller = decode(ORIGIN, messages=[{"role": "user", "content": [block]}])
    assert encode_request(caller.request)["messages"][0]["content"] == [block]
    [described] = content(block)
    assert described.text.startswith(f"[{block['type']}")
    caller = decode(messages=[{"role": "user", "content": [block]}])
    [omission] = caller.omissions
    assert block["type"] in omission


def test_a_search_result_and_a_url_stay_readable() -> None:
    result = {
        "type": "search_result",
        "source": "https://e.com",
        "title": "T",
        "content": [{"type": "text", "text": "C"}],
    }
    assert content(result) == (TextPart("[search_result T https://e.com]\nC"),)
    image = {"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}}
    assert content(image) == (TextPart("[image https://e.com/a.png]"),)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ("auto", None)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", False)),
        ({"type": "none"}, ("none", None)),
        ({"type": "tool", "name": "f"}, (NamedTool("f"), None)),
        ({"type": "tool", "name": "left_out"}, (None, None)),
        ({"type": "invented_later"}, (None, None)),
        (None, (None, None)),
    ],
)
def test_tool_choices(choice: Any, expected: Any) -> None:
    request = decode(tools=[{"name": "f", "input_schema": {"type": "object"}}], tool_choice=choice).request
    assert (request.tool_choice, request.parallel_tool_calls) == expected


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": {"type": "adaptive"}}, "high"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, "high"),
    ],
)
def test_thinking_is_an_effort(fields: dict[str, Any], effort: str | None) -> None:
    caller = decode(**fields)
    assert caller.request.reasoning_effort == effort
    native = encode_request(decode(ORIGIN, **fields).request)
    assert {name: native[name] for name in fields} == fields  # as the caller sent it


@pytest.mark.parametrize("field", ["output_config", "output_format"])
def test_structured_output_by_its_name_and_by_that_of_its_beta(field: str) -> None:
    output_format = {"type": "json_schema", "schema": {"type": "object"}}
    fields: dict[str, Any] = {field: {"format": output_format} if field == "output_config" else output_format}
    caller = decode(**fields)
    assert caller.request.output_format is not None
    assert caller.request.output_format.schema == {"type": "object"}
    assert not caller.extra


def test_fields_that_change_the_answer_are_named_when_they_are_left_out() -> None:
    caller = decode(stop_sequences=["END"], top_k=5, metadata={"user_id": "u"})
    assert [line.split()[4].rstrip(":") for line in caller.omissions] == ["stop_sequences", "top_k"]
    assert decode(ORIGIN, stop_sequences=["END"]).request.extra == {"stop_sequences": ["END"]}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"messages": []},
        {"model": "m"},
        {"model": 3, "messages": []},
        {"model": "m", "messages": ["Hi"]},
        {"model": "m", "messages": [{"role": "tool", "content": "x"}]},
        {"model": "m", "messages": [], "max_tokens": "many"},
    ],
)
def test_a_body_that_is_no_request_is_refused(body: Any) -> None:
    with pytest.raises(RequestError):
        decode_request(body)


@pytest.mark.parametrize("native", [None, ORIGIN], ids=["other", "native"])
@pytest.mark.parametrize(
    "blocks",
    [
        *("", None, 3, [3], [{}], [{"x": 1}], [{"name": {}}], [{"name": "f"}, {"name": "f", "x": 1}]),
        *([{"type": kind}] for kind in ("text", "image", "tool_use", "tool_result", "thinking", "document")),
        [{"type": "tool_result", "content": [{"x": 1}]}],
    ],
)
def test_odd_content_does_not_fail_the_request(blocks: Any, native: Origin | None) -> None:
    messages = [{"role": role, "content": blocks} for role in ("user", "assistant", "user")]
    options = {"tools": blocks, "tool_choice": blocks, "thinking": blocks, "output_config": blocks}
    caller = decode(native, messages=messages, **options)
    assert caller.request.model == "m"
    encode_request(caller.request)
    decode(native, system=blocks)
