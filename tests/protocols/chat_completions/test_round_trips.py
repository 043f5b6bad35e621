"""Laws of both directions: what is encoded decodes to the same, however it is split, in linear time."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.chat_completions.chunks import (
    DONE,
    call,
    calls_chunk,
    chunk,
    frame,
    proofs,
    tool_calls,
)
from tests.pumps import MAX_RATIO, compare
from tests.recorded_streams import events_of

from tollbridge.protocols.answer import AnswerEncoder
from tollbridge.protocols.caller_request import CallerRequest
from tollbridge.protocols.chat_completions.caller import CODEC
from tollbridge.protocols.chat_completions.requests import encode_messages, encode_request
from tollbridge.protocols.chat_completions.stream import StreamDecoder
from tollbridge.protocols.chat_completions.wire import REASONING_TEXTS
from tollbridge.types.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
    Usage,
    split_failure,
)
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
    decode_metadata,
)

# Surrogates are replaced before a request is encoded.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAME = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
IMAGE = st.builds(lambda w, h: DataPart(draw_png(w, h), "image/png"), st.integers(1, 3), st.integers(1, 3))
PDF = st.builds(lambda body, name: DataPart(b"%PDF-" + body, "application/pdf", name), st.binary(), NAME)
PROOF = st.none() | st.one_of(
    st.builds(lambda entries: {"reasoning_details": entries}, st.lists(OBJECT, min_size=1, max_size=2)),
    st.builds(lambda entries: {"thinking_blocks": entries}, st.lists(OBJECT, min_size=1, max_size=2)),
    st.builds(lambda text: {"reasoning_opaque": text}, TEXT),
)


# --- Conversations ---


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """Return a question, an answer with or without calls, and the results of the calls."""
    question: list[Part] = [TextPart(draw(TEXT)), *draw(st.lists(IMAGE | PDF, max_size=2))]
    calls = [
        ToolCallPart(draw(st.uuids()).hex, draw(NAME), draw(OBJECT)) for _ in range(draw(st.integers(0, 3)))
    ]
    answer: list[Part] = []
    if draw(st.booleans()):
        answer.append(ThinkingPart(draw(TEXT), draw(st.sampled_from(REASONING_TEXTS)), draw(PROOF)))
    if not calls or draw(st.booleans()):
        answer.append(TextPart(draw(TEXT)))
    messages = [Message(Role.USER, question), Message(Role.ASSISTANT, [*answer, *calls])]
    if calls:
        messages.append(Message(Role.USER, [ToolResultPart(part.call_id, draw(TEXT)) for part in calls]))
    return messages


@settings(max_examples=300, deadline=None)
@given(st.none() | TEXT, st.lists(exchanges(), min_size=1, max_size=3))
def test_a_conversation_survives_there_and_back(system: str | None, turns: list[list[Message]]) -> None:
    conversation = [message for turn in turns for message in turn]
    if system:
        conversation.insert(0, Message(Role.SYSTEM, system))
    body = json.loads(json.dumps({"model": "m", "messages": encode_messages(conversation)}))
    caller = CODEC.decode(body)
    assert list(caller.request.messages) == conversation
    assert caller.omissions == ()


@settings(max_examples=200, deadline=None)
@given(
    tools=st.lists(st.builds(Tool, NAME, TEXT, st.just({"type": "object", "properties": {}})), max_size=3),
    effort=st.none() | st.sampled_from(["low", "high"]),
    limit=st.none() | st.integers(16, 10**6),
    temperature=st.none() | st.floats(0, 2),
    output=st.none() | st.builds(OutputFormat, NAME, OBJECT, st.none() | TEXT, st.none() | st.booleans()),
    extra=st.none() | st.fixed_dictionaries({"seed": st.integers(), "stop": st.lists(TEXT)}),
    data=st.data(),
)
def test_options_survive_there_and_back(
    tools: list[Tool],
    effort: str | None,
    limit: int | None,
    temperature: float | None,
    output: OutputFormat | None,
    extra: dict[str, Any] | None,
    data: st.DataObject,
) -> None:
    distinct = list({tool.name: tool for tool in tools}.values())
    names = [NamedTool(tool.name) for tool in distinct]
    choice: Any = data.draw(st.sampled_from([None, "auto", "none", "required", *names])) if distinct else None
    request = ChatRequest(
        model=data.draw(st.sampled_from(["m", "gpt-5"])),
        messages=[Message("user", "Hi")],
        tools=distinct,
        tool_choice=choice,
        parallel_tool_calls=data.draw(st.none() | st.booleans()) if distinct else None,
        reasoning_effort=effort,
        max_output_tokens=limit,
        temperature=temperature,
        output_format=output,
        extra=extra,
    )
    native = Origin.of("m", "http://here/v1")
    caller = CODEC.decode(json.loads(json.dumps(encode_request(request))), native=native)
    assert caller.request == request
    assert caller.stream
    assert caller.body["stream_options"] == {"include_usage": True}


# --- Answers ---

USAGE = st.none() | st.builds(
    lambda i, o, cached, reasoning, written: Usage(i, o, i + o, cached, reasoning, written),
    *(st.integers(1, 1000), st.integers(1, 1000)),
    *(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    if draw(st.booleans()):
        metadata = draw(st.none() | OBJECT.filter(bool))
        events += [ReasoningDelta(text, "r") for text in draw(st.lists(TEXT, min_size=1, max_size=3))]
        events.append(ReasoningEnded("r", metadata))
    events += [TextDelta(text) for text in draw(st.lists(TEXT, max_size=4))]
    calls = [ToolCall(draw(st.uuids()).hex, draw(NAME), draw(OBJECT)) for _ in range(draw(st.integers(0, 3)))]
    reason: FinishReason = "tool-calls" if calls else draw(st.sampled_from(["stop", "length"]))
    ended: Any = "incomplete" if reason == "length" else "finish"
    return [*events, *calls, Finished(reason, ended, draw(USAGE), response_id="chatcmpl-id", model="m")]


def make_encoder(caller: CallerRequest) -> AnswerEncoder:
    with patch("secrets.token_hex", return_value="id"):
        return CODEC.encoder(caller)


def joined(events: list[Event]) -> list[Event]:
    """Return events with joined deltas, and with the id of reasoning as the caller sees it."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        match event, last:
            case TextDelta(text), TextDelta(before):
                result[-1] = TextDelta(before + text)
            case ReasoningDelta(text), ReasoningDelta(before):
                result[-1] = ReasoningDelta(before + text, "reasoning_content")
            case ReasoningDelta(text), _:
                result.append(ReasoningDelta(text, "reasoning_content"))
            case ReasoningEnded(_, metadata), _:
                result.append(ReasoningEnded("reasoning_content", metadata))
            case _:
                result.append(event)
    return result


def decode_details(events: list[Event]) -> list[Event]:
    """Return events with the metadata that the encoder stored in details."""

    def open_metadata(event: Event) -> Event:
        if isinstance(event, ReasoningEnded) and event.metadata:
            [detail] = event.metadata["reasoning_details"]
            return ReasoningEnded(event.id, (decode_metadata(detail["data"]) or {})["metadata"])
        return event

    return [open_metadata(event) for event in events]


@settings(max_examples=300, deadline=None)
@given(answers(), st.lists(st.integers(0, 100_000), max_size=8))
def test_an_answer_survives_any_split_of_its_bytes(events: list[Event], cuts: list[int]) -> None:
    request_body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    caller = CODEC.decode({**request_body, "stream_options": {"include_usage": True}})
    encoder = make_encoder(caller)
    body = CODEC.write([*encoder.start(), *encoder.encode(events)]) + CODEC.write_end(encoder.finish())
    edges = [0, *sorted(cut % len(body) for cut in cuts), len(body)]
    decoded = events_of(StreamDecoder(), [body[a:b] for a, b in pairwise(edges)])
    assert decode_details(decoded) == joined(events)


@settings(max_examples=100, deadline=None)
@given(answers())
def test_an_answer_survives_in_one_body(events: list[Event]) -> None:
    caller = CODEC.decode({"model": "m", "messages": [{"role": "user", "content": "x"}]})
    encoder = make_encoder(caller)
    encoder.start()
    encoder.encode(events)
    encoder.finish()
    decoded = events_of(StreamDecoder(), [json.dumps(encoder.body()).encode()])
    assert decode_details(decoded) == joined(events)


WIRE_NAMES = ("choices", "delta", "content", "tool_calls", "function", "arguments", "index", "id", "name",
              "usage", "error", "reasoning", "reasoning_details", "thinking_blocks", "message", "images",
              "finish_reason", "function_call", "annotations", "type", "text")  # fmt: skip
WIRE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "x", "{}", "stop", "thinking"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WIRE_NAMES), inner, max_size=4)
    ),
    max_leaves=15,
)


@settings(max_examples=500, deadline=None)
@given(st.lists(WIRE | st.binary(max_size=20), max_size=5), st.booleans())
def test_no_input_raises_and_failures_come_last(values: list[Any], at_once: bool) -> None:
    chunks = [value if isinstance(value, bytes) else frame(json.dumps(value)) for value in values]
    decoder = StreamDecoder()
    pieces = [b"".join(chunks)] if at_once else chunks
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()
    before, failure = split_failure(events)
    assert all(isinstance(event, Failed) for event in events[len(before) :])
    assert failure is not None or isinstance(events[-1], Finished)


# --- Linear time ---

PUMPS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "text": lambda n: [chunk(content="word ")] * n,
    "arguments": lambda n: [
        calls_chunk(call(0, '{"a": "', id="c", name="f")),
        *[calls_chunk(call(0, "word "))] * n,
        calls_chunk(call(0, '"}')),
    ],
    "arguments that repeat the name": lambda n: [
        *[calls_chunk(call(0, '{"a": {}', name="f"))] * n,
    ],
    "calls": lambda n: [calls_chunk(call(i, "{}", id=f"c{i}", name="f")) for i in range(n)],
    "calls without indexes": lambda n: [
        calls_chunk(call(None, "{}", id=f"c{i}", name="f")) for i in range(n)
    ],
    "calls with one id": lambda n: [calls_chunk(call(i, "{}", id="c", name="f")) for i in range(n)],
    "details": lambda n: (
        [chunk(reasoning="x", reasoning_details=[{"type": "reasoning.text", "text": "word ", "index": 0}])]
        * n
    ),
    "blocks": lambda n: [chunk(thinking_blocks=[{"type": "thinking", "thinking": "word "}])] * n,
    "blocks with signatures": lambda n: (
        [chunk(thinking_blocks=[{"type": "thinking", "thinking": "word ", "signature": "s"}])] * n
    ),
    "images": lambda n: [
        chunk(images=[{"image_url": {"url": f"data:image/png;base64,{b64encode(str(i).encode()).decode()}"}}])
        for i in range(n)
    ],
}


def decode(body: bytes) -> None:
    decoder = StreamDecoder()
    decoder.feed(body)
    assert decoder.is_finished


def make_body(name: str, count: int) -> bytes:
    return b"".join(map(frame, [*PUMPS[name](count), chunk("stop")])) + frame(DONE)


@pytest.mark.series
@pytest.mark.timed
@pytest.mark.parametrize("name", PUMPS)
def test_decoding_takes_linear_time(name: str) -> None:
    assert compare(decode, make_body(name, 4_000), make_body(name, 8_000)) <= MAX_RATIO


def test_every_pump_reaches_its_code() -> None:
    def read(name: str) -> list[Event]:
        body = b"".join(map(frame, [*PUMPS[name](3), chunk("stop")])) + frame(DONE)
        return events_of(StreamDecoder(), [body])

    assert [len(tool_calls(read(name))) for name in PUMPS if name.startswith("calls")] == [3, 3, 3]
    assert tool_calls(read("arguments"))[0].input == {"a": "word word word "}
    assert len(proofs(read("details"))[0]["reasoning_details"]) == 1
    assert len(proofs(read("blocks with signatures"))[0]["thinking_blocks"]) == 3
