"""Answers to callers: chunks, one body, and errors. The expected shapes follow OpenAI's API reference."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.protocols.chat_completions.server_requests import CallerRequest, decode_request
from tollbridge.protocols.chat_completions.server_stream import (
    CompletionEncoder,
    encode_error,
    join_chunks,
    write_frames,
)
from tollbridge.types.errors import BridgeError, ContextTooLong, Disconnected, NotFound, RateLimited
from tollbridge.types.events import (
    Corrected,
    Event,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.messages import ThinkingPart, ToolCallPart
from tollbridge.types.usage import Usage

HEAD = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}


def caller(**fields: Any) -> CallerRequest:
    return decode_request({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields})


def encode(asked: CallerRequest, *events: Event, error: BridgeError | None = None) -> list[dict[str, Any]]:
    encoder = CompletionEncoder(asked, new_id=lambda: "chatcmpl-x", now=lambda: 1700000000.5)
    return [*encoder.start(), *encoder.encode(events), *encoder.finish(error)]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def test_a_stream_of_text() -> None:
    chunks = encode(caller(stream=True), TextDelta("Hello"), Finished("stop", usage=Usage(1, 2, 3)))
    assert chunks == [
        {
            **HEAD,
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
            ],
        },
        {**HEAD, "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]},
        {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]


def test_the_usage_is_the_last_chunk_if_the_caller_asks_for_it() -> None:
    asked = caller(stream=True, stream_options={"include_usage": True})
    usage = Usage(100, 20, 120, 60, 8, 30)
    *_, last = encode(asked, TextDelta("x"), Finished("stop", usage=usage))
    assert last == {
        **HEAD,
        "choices": [],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 8},
        },
    }


def test_calls_have_indexes_and_only_offered_ones_are_sent() -> None:
    chunks = encode(
        caller(stream=True),
        ToolCall("a", "weather", {"city": "Oslo"}),
        ToolCall("x", "search", {}, offered=False),
        ToolCall("b", "now", None),
        Finished("tool-calls"),
    )
    assert [delta["tool_calls"] for delta in deltas(chunks) if "tool_calls" in delta] == [
        [
            {
                "index": 0,
                "id": "a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
            }
        ],
        [{"index": 1, "id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_custom_tool_is_called_with_text() -> None:
    asked = caller(stream=True, tools=[{"type": "custom", "custom": {"name": "patch"}}])
    chunks = encode(asked, ToolCall("a", "patch", {"input": "*** Begin"}), Finished("tool-calls"))
    [call] = deltas(chunks)[1]["tool_calls"]
    assert call == {
        "index": 0,
        "id": "a",
        "type": "custom",
        "custom": {"name": "patch", "input": "*** Begin"},
    }


def test_a_caller_with_functions_gets_a_function_call() -> None:
    asked = caller(functions=[{"name": "now"}])
    body = join_chunks(encode(asked, ToolCall("a", "now", {}), Finished("tool-calls")))
    [choice] = body["choices"]
    assert choice["message"]["function_call"] == {"name": "now", "arguments": "{}"}
    assert choice["finish_reason"] == "function_call"


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content-filter", "content_filter"),
        ("tool-calls", "tool_calls"),
        ("other", "stop"),
        (None, "stop"),
    ],
)
def test_every_finish_reason_has_a_name(reason: Any, name: str) -> None:
    chunks = encode(caller(stream=True), Finished(reason))
    assert chunks[-1]["choices"][0]["finish_reason"] == name


def test_one_body_has_everything_that_the_chunks_have() -> None:
    body = join_chunks(
        encode(
            caller(),
            ReasoningDelta("Let ", "r"),
            ReasoningDelta("me.", "r"),
            ReasoningEnded("r"),
            TextDelta("See "),
            TextDelta("this."),
            Source("url", url="https://a.example", title="A"),
            File("image/png", b"png"),
            ToolCall("a", "now", {}),
            Finished("tool-calls", usage=Usage(1, 2, 3)),
        )
    )
    citation = {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 0}
    assert body == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "See this.",
                    "refusal": None,
                    "reasoning_content": "Let me.",
                    "annotations": [{"type": "url_citation", "url_citation": citation}],
                    "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}],
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def test_a_correction_of_text_that_was_sent_adds_nothing() -> None:
    events = TextDelta("Hello ab"), Corrected("ac", 2), TextDelta("!"), Finished("stop")
    streamed = deltas(encode(caller(stream=True), *events))
    assert streamed[1:] == [{"content": "Hello ab"}, {"content": "!"}, {}]
    [choice] = join_chunks(encode(caller(), *events))["choices"]
    assert choice["message"]["content"] == "Hello ac!"


def test_a_restarted_step_replaces_its_text_if_nothing_was_sent() -> None:
    events = TextDelta("Hello"), TextDelta("Good day", replaces=5), Finished("stop")
    [choice] = join_chunks(encode(caller(), *events))["choices"]
    assert choice["message"]["content"] == "Good day"
    assert deltas(encode(caller(stream=True), *events))[1:3] == [
        {"content": "Hello"},
        {"content": "Good day"},
    ]


def test_the_proof_of_reasoning_is_stored_with_the_corrected_text() -> None:
    events: list[Event] = [
        ReasoningDelta("Let mee", "r"),
        Corrected("me.", 3, "reasoning", "r"),
        ReasoningEnded("r", {"signature": "s"}),
        Finished("stop"),
    ]
    [choice] = join_chunks(encode(caller(), *events))["choices"]
    messages = [{"role": "user", "content": "Hi"}, choice["message"]]
    returned = decode_request({"model": "m", "messages": messages}).request
    assert returned.messages[1].parts == (ThinkingPart("Let me.", "r", {"signature": "s"}),)


def test_metadata_of_any_protocol_passes_through_the_caller() -> None:
    proof, signature = {"id": "rs_1", "encrypted_content": "abc"}, {"google": {"thoughtSignature": "s"}}
    body = join_chunks(
        encode(
            caller(),
            ReasoningDelta("One", "rs_1"),
            ReasoningEnded("rs_1", proof),
            ReasoningDelta("Two", "rs_2"),
            ReasoningEnded("rs_2", {"signature": "s2"}),
            ToolCall("a", "now", {}, metadata=signature),
            Finished("tool-calls"),
        )
    )
    [choice] = body["choices"]
    returned = decode_request(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}, choice["message"]]}
    )
    assert returned.request.messages[1].parts == (
        ThinkingPart("One", "rs_1", proof),
        ThinkingPart("Two", "rs_2", {"signature": "s2"}),
        ToolCallPart("a", "now", {}, signature),
    )


def test_an_error_ends_the_stream_in_the_form_of_an_error_response() -> None:
    error = RateLimited("Slow down.", status=429, code="rate_limit_exceeded")
    chunks = encode(caller(stream=True), TextDelta("Half"), error=error)
    assert (
        chunks[-1]
        == encode_error(error, 429)
        == {
            "error": {
                "message": "Slow down.",
                "type": "invalid_request_error",
                "param": None,
                "code": "rate_limit_exceeded",
            }
        }
    )
    assert join_chunks(chunks) == chunks[-1]


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (ContextTooLong("Too long."), 400, "invalid_request_error", "context_length_exceeded"),
        (
            ContextTooLong("Too long.", code="exceed_context_size_error"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (NotFound("No."), 404, "invalid_request_error", "model_not_found"),
        (Disconnected("Gone."), 502, "server_error", "disconnected"),
    ],
)
def test_an_error_has_the_code_that_callers_know(
    error: BridgeError, status: int, kind: str, code: str
) -> None:
    body = encode_error(error, status)["error"]
    assert (body["type"], body["code"]) == (kind, code)


def test_an_answer_without_an_end_is_an_error() -> None:
    assert "error" in encode(caller(stream=True), TextDelta("Half"))[-1]


def test_frames_are_server_sent_events() -> None:
    assert write_frames([{"a": "é\n"}, {}]) == 'data: {"a":"é\\n"}\n\ndata: {}\n\n'.encode()
