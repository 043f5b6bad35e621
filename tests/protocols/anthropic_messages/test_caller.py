"""Callers of the Messages API: their requests, and the answers to them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, get_args

import pytest

from tollbridge.frontends.http.answers import error_response
from tollbridge.history.normalize import normalize_request
from tollbridge.history.reasoning import ReasoningPacker
from tollbridge.protocols.anthropic_messages.answer import ERRORS
from tollbridge.protocols.anthropic_messages.caller import CODEC as PROTOCOL
from tollbridge.protocols.anthropic_messages.requests import NATIVE_MIME, encode_request
from tollbridge.protocols.anthropic_messages.stream import StreamDecoder
from tollbridge.protocols.anthropic_messages.wire import pack_proof
from tollbridge.protocols.caller_request import CallerRequest
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    InvalidRequest,
    Kind,
    NetworkFailed,
    NotAuthenticated,
    Overloaded,
    RateLimited,
    RequestError,
    ServerFailed,
    TimedOut,
)
from tollbridge.types.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    ChatRequest,
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
    return PROTOCOL.decode(body, native=native)


def content(*blocks: Any, native: Origin | None = None) -> tuple[Any, ...]:
    caller = decode(native, messages=[{"role": "user", "content": list(blocks)}])
    return tuple(part for message in caller.request.messages for part in message.parts)


def test_an_agents_request_is_understood() -> None:
    caller = PROTOCOL.decode(CLAUDE_CODE, headers=HEADERS)
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
    caller = PROTOCOL.decode(CLAUDE_CODE, native=ORIGIN, headers=HEADERS)
    assert caller.omissions == ()
    body = encode_request(caller.request)
    assert body == CLAUDE_CODE


def test_reasoning_has_the_origin_of_a_gateway_of_the_same_protocol() -> None:
    message = PROTOCOL.decode(CLAUDE_CODE, native=ORIGIN).request.messages[2]
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
        PROTOCOL.decode(body)


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


ANSWER_ORIGIN = Origin.of("openai/gpt-5.4", "https://ai-gateway.vercel.sh/v1")
CODEC = CallerRequest(request=ChatRequest(model="claude-opus-5", messages=[Message("user", "Hi")]))
END = Finished("stop", usage=Usage(1203, 9, 1212, 1000, 4, 200))


def encode(*events: Event, error: BridgeError | None = None) -> list[dict[str, Any]]:
    encoder = PROTOCOL.encoder(CODEC)
    return [*encoder.start(), *encoder.encode(events), *encoder.finish(error)]


def encode_body(*events: Event) -> dict[str, Any]:
    encoder = PROTOCOL.encoder(CODEC)
    encoder.start()
    encoder.encode(events)
    encoder.finish()
    return encoder.body()


def kinds(wire_events: list[dict[str, Any]]) -> list[str]:
    return [
        event["content_block"]["type"]
        if "content_block" in event
        else event.get("delta", event).get("type", "end")
        for event in wire_events
    ]


def test_a_stream_has_the_documented_sequence_of_events() -> None:
    wire_events = encode(ReasoningDelta("Hm."), ReasoningEnded(), TextDelta("Hel"), TextDelta("lo"), END)
    assert [event["type"] for event in wire_events] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in wire_events if "index" in event] == [0, 0, 0, 1, 1, 1, 1]
    message = wire_events[0]["message"]
    assert message["model"] == "claude-opus-5"
    assert message["id"].startswith("msg_")
    assert wire_events[-2]["usage"] == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 1000,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }


def test_frames_have_the_name_of_the_event() -> None:
    frames = PROTOCOL.write(encode(TextDelta("“\u2028\ud800”"), END)).decode()
    assert "\nevent: content_block_delta\ndata: {" in frames
    assert frames.startswith("event: message_start\n")
    for line in frames.split("\n"):
        if line.startswith("data: "):
            json.loads(line[6:])


@pytest.mark.parametrize(
    ("reason", "calls", "stop_reason"),
    [
        ("stop", 0, "end_turn"),
        ("length", 0, "max_tokens"),
        ("content-filter", 0, "refusal"),
        ("tool-calls", 1, "tool_use"),
        ("stop", 1, "tool_use"),
        ("length", 1, "max_tokens"),
        ("other", 0, "end_turn"),
        (None, 0, "end_turn"),
    ],
)
def test_stop_reasons(reason: FinishReason | None, calls: int, stop_reason: str) -> None:
    wire_events = encode(*[ToolCall("c", "f", {})] * calls, Finished(reason))
    assert wire_events[-2]["delta"]["stop_reason"] == stop_reason


def test_a_call_is_streamed_and_is_an_object_in_the_body() -> None:
    call = ToolCall("call_1", "get_weather", {"city": "Paris"})
    _, start, delta, stop, *_ = encode(call, Finished("tool-calls"))
    assert start["content_block"] == {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}
    assert json.loads(delta["delta"]["partial_json"]) == {"city": "Paris"}
    assert stop["type"] == "content_block_stop"
    body = encode_body(call, Finished("tool-calls"))
    assert body["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}}
    ]
    assert body["stop_reason"] == "tool_use"


def test_a_call_that_is_repaired_after_the_end_still_arrives() -> None:
    wire_events = encode(END, ToolCall("c", "f", {}))
    assert kinds(wire_events).count("tool_use") == 1
    assert wire_events[-1] == {"type": "message_stop"}


def test_calls_that_the_caller_must_not_run_are_left_out_and_text_arguments_are_wrapped() -> None:
    assert "tool_use" not in kinds(encode(ToolCall("c", "web_search", {}, offered=False), END))
    body = encode_body(ToolCall("c", "custom", "text"), END)
    assert body["content"][0]["input"] == {"input": "text"}


@pytest.mark.parametrize(
    ("proof", "block_id"),
    [
        ({"signature": "EqQB"}, None),
        ({"encrypted_content": "gAAA", "id": "rs_1"}, "rs_1"),
        (add_origin(ANSWER_ORIGIN, {"signature": "EqQB"}), None),
        (add_origin(ANSWER_ORIGIN, {"encrypted_content": "gAAA"}), "rs_1"),
        (add_origin(ANSWER_ORIGIN, None), None),
    ],
)
@pytest.mark.parametrize("text", ["Hm.", ""])
def test_any_proof_survives_a_caller_that_does_not_know_it(
    proof: Any, block_id: str | None, text: str
) -> None:
    events: list[Event] = [
        *([ReasoningDelta(text, block_id)] if text else []),
        ReasoningEnded(block_id, proof),
    ]
    body = encode_body(*events, TextDelta("Hi"), END)
    caller = PROTOCOL.decode({"model": "m", "messages": [{"role": "assistant", "content": body["content"]}]})
    assert caller.request.messages[0].parts[0] == ThinkingPart(text, block_id, proof)


def test_own_signatures_and_redacted_data_are_passed_on_as_they_are() -> None:
    body = encode_body(
        ReasoningDelta("Hm."),
        ReasoningEnded(None, {"signature": "EqQB"}),
        ReasoningEnded(None, {"redacted_data": "Emwk"}),
        END,
    )
    assert body["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "Emwk"},
    ]


def test_the_parts_of_a_summary_are_one_block_and_other_ids_are_another() -> None:
    body = encode_body(
        ReasoningDelta("A", "rs_1"), ReasoningDelta("B", "rs_1:1"), ReasoningDelta("C", "rs_2"), END
    )
    assert [block["thinking"] for block in body["content"]] == ["A\n\nB", "C"]


def test_citations_belong_to_the_text_and_files_are_left_out() -> None:
    source = Source("url", url="https://e.com", title="E")
    wire_events = encode(TextDelta("See"), source, File("image/png", b"x"), Data("d", 1), END)
    [citation] = [event["delta"]["citation"] for event in wire_events if "citation" in event.get("delta", {})]
    assert (citation["url"], citation["title"]) == ("https://e.com", "E")
    assert kinds(wire_events) == [
        *("message_start", "text", "text_delta", "citations_delta"),
        *("content_block_stop", "end", "message_stop"),
    ]


def test_a_body_has_only_the_text_that_was_not_replaced() -> None:
    events: list[Event] = [
        ReasoningDelta("Hm?"),
        Corrected("Hm.", 3, "reasoning"),
        TextDelta("Hello"),
        TextDelta(" wor"),
        TextDelta("p!", replaces=5),
        Corrected(".", 1),
    ]
    body = encode_body(*events, END)
    assert [block.get("thinking", block.get("text")) for block in body["content"]] == ["Hm.", "Hellp."]


def test_reasoning_and_the_metadata_of_calls_return_only_to_the_model_that_made_them() -> None:
    call = ToolCall("call_1", "f", {"a": 1}, metadata={"thought_signature": "T1"})
    reasoning: list[Event] = [
        ReasoningDelta("Hm.", "rs_1"),
        ReasoningEnded("rs_1", {"encrypted_content": "gAAA"}),
    ]
    events = ReasoningPacker(ANSWER_ORIGIN).take([*reasoning, call, Finished("tool-calls")])
    body = encode_body(*events)
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "2"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": body["content"]},
        {"role": "user", "content": [result]},
    ]
    request = PROTOCOL.decode({"model": "m", "messages": messages}).request
    answer = normalize_request(request, origin=ANSWER_ORIGIN).request.messages[1].parts
    thought = ThinkingPart("Hm.", "rs_1", add_origin(ANSWER_ORIGIN, {"encrypted_content": "gAAA"}))
    assert answer == (thought, ToolCallPart("call_1", "f", {"a": 1}, {"thought_signature": "T1"}))
    elsewhere = Origin.of("claude-opus-5", "https://api.anthropic.com/v1")
    answer = normalize_request(request, origin=elsewhere).request.messages[1].parts
    assert answer == (ToolCallPart("call_1", "f", {"a": 1}),)


def test_an_answer_without_an_end_has_no_body() -> None:
    with pytest.raises(ServerFailed):
        encode_body(TextDelta("Hel"))


# Statuses and types: https://platform.claude.com/docs/en/api/errors
@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (NotAuthenticated("x"), 401, "authentication_error"),
        (InvalidRequest("x", status=402), 402, "billing_error"),
        (InvalidRequest("x", status=413), 413, "request_too_large"),
        (RequestError("x"), 400, "invalid_request_error"),
        (RateLimited("x"), 429, "rate_limit_error"),
        (Overloaded("x", status=503), 529, "overloaded_error"),
        (TimedOut("x"), 504, "timeout_error"),
        (NetworkFailed("x"), 502, "api_error"),
    ],
)
def test_errors_have_the_form_of_the_protocol(error: BridgeError, status: int, type_: str) -> None:
    error.retry_after, error.request_id = 1.5, "req_1"
    reply = error_response(PROTOCOL, error)
    assert reply.status == status
    assert isinstance(reply.body, bytes)
    assert json.loads(reply.body) == {
        "type": "error",
        "error": {"type": type_, "message": "x"},
        "request_id": "req_1",
    }
    assert (reply.headers["retry-after"], reply.headers["request-id"]) == ("2", "req_1")


def test_a_prompt_that_is_too_long_is_reported_in_the_words_that_callers_know() -> None:
    error = ContextTooLong("Shorten it.", tokens=210_000, limit=200_000)
    message = PROTOCOL.encode_error(error, 400)["error"]["message"]
    assert message == "prompt is too long: 210000 tokens > 200000 maximum. Shorten it."


def test_an_error_ends_the_stream_and_is_decoded_as_the_same_kind() -> None:
    frames = PROTOCOL.write(encode(TextDelta("Hel"), error=Overloaded("Busy.")))
    decoder = StreamDecoder()
    text, failed = decoder.feed(frames)
    assert text == TextDelta("Hel")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Overloaded)


def test_every_kind_of_error_has_a_status_and_a_type() -> None:
    assert set(ERRORS) == set(get_args(Kind))
