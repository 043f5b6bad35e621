"""Callers of OpenResponses: a caller's request becomes a `ChatRequest`, and events become a response."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.testing.protocol import check_event_shapes, check_shape, check_stream

from tollbridge.history.reasoning import ReasoningPacker
from tollbridge.protocols.caller_request import CallerRequest, CallerTool
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.openresponses.caller import CODEC
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.types.errors import RateLimited, RequestError
from tollbridge.types.events import (
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Origin,
    OutputFormat,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    decode_metadata,
    encode_metadata,
    split_metadata,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
ORIGIN = Origin.of("demo", "http://127.0.0.1:1/v1")


def user(*parts: Any) -> Message:
    return Message(Role.USER, parts)


def assistant(*parts: Any) -> Message:
    return Message(Role.ASSISTANT, parts)


# --- Requests ---

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAME = st.from_regex(r"[a-zA-Z_-]{1,12}", fullmatch=True)
JSON = st.dictionaries(TEXT, st.integers() | TEXT | st.lists(st.booleans()), max_size=3)


@st.composite
def conversations(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXT) -> tuple[Message, ...]:
    """Conversations as an agent has them: questions, calls with results, pictures and answers."""
    messages = [Message(Role.SYSTEM, draw(texts))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        question: list[Any] = [TextPart(draw(texts))]
        if draw(st.booleans()):
            question.append(DataPart(PNG + draw(st.binary(max_size=8)), "image/png"))
        messages.append(user(*question))
        calls = [
            ToolCallPart(f"call_{turn}_{number}", draw(NAME), draw(JSON))
            for number in range(draw(st.integers(0, 3)))
        ]
        if calls:
            text = [TextPart(draw(texts))] if draw(st.booleans()) else []
            messages.append(assistant(*text, *calls))
            messages.append(user(*(ToolResultPart(call.call_id, draw(texts)) for call in calls)))
        messages.append(assistant(TextPart(draw(texts))))
    return tuple(messages)


@given(conversations(), st.floats(0, 2) | st.none(), st.integers(1, 9999) | st.none())
def test_a_request_survives_encoding_and_decoding(
    messages: tuple[Message, ...], temperature: float | None, limit: int | None
) -> None:
    request = ChatRequest(
        model="demo",
        messages=messages,
        tools=(Tool("look", "Looks.", {"type": "object", "properties": {"path": {"type": "string"}}}),),
        tool_choice=NamedTool("look"),
        parallel_tool_calls=False,
        reasoning_effort="low",
        reasoning_summary="auto",
        temperature=temperature,
        max_output_tokens=limit,
        output_format=OutputFormat("weather", {"type": "object"}, "The weather.", strict=True),
    )
    caller = CODEC.decode(json.loads(json.dumps(encode_request(request))))
    assert caller.stream
    assert caller.omissions == ()
    assert caller.request == request


def test_a_plain_string_is_a_user_message_after_the_instructions() -> None:
    body = {"model": "demo", "instructions": "Be brief.", "input": "Hello"}
    caller = CODEC.decode(body)
    assert caller.request.messages == (Message(Role.SYSTEM, "Be brief."), user("Hello"))
    assert not caller.stream


# The tools that Codex 0.166 declares: functions in namespaces, tools whose input is text, and web search.
CODEX_TOOLS = [
    {
        "type": "namespace",
        "name": "mcp__files",
        "description": "Files.",
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads.",
                "strict": False,
                "parameters": {"type": "object"},
            }
        ],
    },
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edits files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: hunk+"},
    },
    {"type": "web_search", "external_web_access": False},
]


def test_tools_of_other_types_are_converted_or_left_out() -> None:
    caller = CODEC.decode({"model": "demo", "input": "Hi", "tools": CODEX_TOOLS})
    names = [tool.name for tool in caller.request.tools]
    assert names == ["mcp__files__read", "apply_patch"]
    assert "start: hunk+" in caller.request.tools[1].description
    assert caller.tools == {
        "mcp__files__read": CallerTool("read", "mcp__files"),
        "apply_patch": CallerTool("apply_patch", None, custom=True),
    }
    assert caller.omissions == (
        "Left out tool of type 'web_search': the gateway's protocol has no equivalent.",
    )


def test_calls_of_converted_tools_return_in_the_form_of_the_caller() -> None:
    caller = CODEC.decode({"model": "demo", "input": "Hi", "tools": CODEX_TOOLS})
    events: list[Event] = [
        ToolCall("call_1", "mcp__files__read", {"path": "a.txt"}),
        ToolCall("call_2", "apply_patch", {"input": "*** Begin Patch"}),
        Finished("tool-calls"),
    ]
    output = encode_answer(events, caller)[-1]["response"]["output"]
    assert (output[0]["type"], output[0]["namespace"], output[0]["name"]) == (
        "function_call",
        "mcp__files",
        "read",
    )
    assert json.loads(output[0]["arguments"]) == {"path": "a.txt"}
    assert (output[1]["type"], output[1]["input"]) == ("custom_tool_call", "*** Begin Patch")
    # The caller sends both back with their results.
    results = [
        {"type": "function_call_output", "call_id": "call_1", "output": "text"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done"},
    ]
    body = {"model": "demo", "input": [{"role": "user", "content": "Hi"}, *output, *results]}
    assert CODEC.decode(body).request.messages[1:] == (
        assistant(
            ToolCallPart("call_1", "mcp__files__read", {"path": "a.txt"}),
            ToolCallPart("call_2", "apply_patch", {"input": "*** Begin Patch"}),
        ),
        user(ToolResultPart("call_1", "text"), ToolResultPart("call_2", "Done")),
    )


def test_unknown_items_and_contents_are_left_out_with_a_note() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_audio"}, {"type": "input_text", "text": "Hi"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]},
    ]
    caller = CODEC.decode({"model": "demo", "input": items})
    assert caller.request.messages[0] == user("Hi")
    assert len(caller.omissions) == 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": "Hi"}, "model must be"),
        ({"model": "demo", "input": 3}, "input must be"),
        ({"model": "demo", "input": [3]}, "input[0] must be"),
        ({"model": "demo", "input": [{"role": "robot", "content": ""}]}, "input[0].role must be"),
        (
            {"model": "demo", "input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "content[0].text",
        ),
        ({"model": "demo", "input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id must be"),
        ({"model": "demo", "input": "", "tools": [{"type": "function"}]}, "tools[0].name must be"),
        ({"model": "demo", "input": "", "max_output_tokens": True}, "max_output_tokens must be"),
        ({"model": "demo", "input": "", "reasoning": {"effort": 3}}, "reasoning.effort must be"),
        ({"model": "demo", "input": "", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_an_invalid_field_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        CODEC.decode(body)
    assert field in caught.value.message
    assert caught.value.message.startswith(f"{caught.value.param} ")


# --- Responses ---


def encode_answer(
    events: Iterable[Event], caller: CallerRequest | None = None, error: RateLimited | None = None
) -> list[dict[str, Any]]:
    body = {"model": "demo", "input": "Hi"}
    encoder = CODEC.encoder(caller or CODEC.decode(body))
    return [*encoder.start(), *encoder.encode(events), *encoder.finish(error)]


def decode_stream(events: list[dict[str, Any]]) -> list[Event]:
    decoder = decoder_for("openresponses")
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return [*decoder.feed(stream.encode()), *decoder.close()]


ANSWER: list[Event] = [
    ReasoningDelta("Let me ", "rs_1"),
    ReasoningDelta("think.", "rs_1"),
    ReasoningEnded("rs_1", {"signature": "abc"}),
    TextDelta("It is "),
    TextDelta("sunny."),
    ToolCall("call_1", "look", {"path": "a.txt"}),
    Finished("tool-calls", usage=Usage(10, 5, 15, 4, 2, 3), response_id="resp_9", model="demo"),
]


def test_the_events_match_the_specification() -> None:
    events = encode_answer(ANSWER)
    # Cache writes are an extension of the protocol that OpenAI's API has.
    assert events[-1]["response"]["usage"]["input_tokens_details"].pop("cache_write_tokens") == 3
    check_event_shapes(events)
    response = check_stream(events)
    check_shape(response, "ResponseResource")
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]


def test_a_client_decodes_the_answer_that_was_encoded() -> None:
    decoded = decode_stream(encode_answer(ANSWER))
    assert "".join(event.text for event in decoded if isinstance(event, TextDelta)) == "It is sunny."
    assert "".join(e.text for e in decoded if isinstance(e, ReasoningDelta)) == "Let me think."
    assert [(e.call_id, e.name, e.input) for e in decoded if isinstance(e, ToolCall)] == [
        ("call_1", "look", {"path": "a.txt"})
    ]
    finished = decoded[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "tool-calls"
    assert finished.usage is not None
    assert finished.usage.input_tokens == 10
    assert (finished.usage.cached_tokens, finished.usage.reasoning_tokens) == (4, 2)


def test_reasoning_returns_with_its_signature_and_its_origin() -> None:
    marked = ReasoningPacker(ORIGIN).take(ANSWER)
    output = encode_answer(marked)[-1]["response"]["output"]
    body = {"model": "demo", "input": [{"role": "user", "content": "Hi"}, *output]}
    [question, answer] = CODEC.decode(json.loads(json.dumps(body))).request.messages
    assert question == user("Hi")
    thinking = answer.parts[0]
    assert isinstance(thinking, ThinkingPart)
    assert thinking.text == "Let me think."
    bound, proof = split_metadata(thinking.metadata)
    assert bound is not None
    assert bound.origin == ORIGIN
    assert proof == {"signature": "abc"}


@pytest.mark.parametrize("text", ["", "gAAAA", "tollbridge:", "tollbridge:!!", "tollbridge:WzFd"])
def test_the_encrypted_content_of_another_server_is_no_envelope(text: str) -> None:
    assert decode_metadata(text) is None


def test_an_envelope_returns_its_metadata() -> None:
    metadata = {"signature": "äöü", "n": [1, None]}
    assert decode_metadata(encode_metadata(metadata)) == metadata


def test_an_answer_that_was_cut_is_incomplete() -> None:
    events = encode_answer([TextDelta("Half"), Finished("length", "incomplete", Usage(1, 1, 2))])
    response = check_stream(events)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"


def test_a_failure_keeps_what_arrived_before_it() -> None:
    error = RateLimited("Too many requests.", code="rate_limit_exceeded")
    events = encode_answer([TextDelta("Half")], error=error)
    response = check_stream(events)
    assert response["status"] == "failed"
    assert response["error"] == {"code": "rate_limit_exceeded", "message": "Too many requests."}
    assert response["output"][0]["content"][0]["text"] == "Half"
    decoded = decode_stream(events)
    assert isinstance(decoded[-1], Failed)
    assert decoded[-1].error.kind == "rate_limited"


DELTAS = st.one_of(
    st.builds(TextDelta, TEXT),
    st.builds(ReasoningDelta, TEXT, st.sampled_from(["rs_1", "rs_2"])),
    st.builds(ReasoningEnded, st.sampled_from(["rs_1", "rs_2"]), st.just({"signature": "s"})),
)


@given(st.lists(DELTAS, max_size=8))
def test_any_order_of_deltas_gives_a_valid_stream(deltas: list[Event]) -> None:
    events = encode_answer([*deltas, Finished("stop", usage=Usage(1, 1, 2))])
    check_event_shapes(events)
    check_stream(events)
    decoded = decode_stream(events)
    for kind in (TextDelta, ReasoningDelta):
        sent = "".join(event.text for event in deltas if isinstance(event, kind))
        received = "".join(event.text for event in decoded if isinstance(event, kind))
        assert received == sent
