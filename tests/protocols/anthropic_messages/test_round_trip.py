"""Conversations and answers survive the way there and back, and nothing takes more than linear time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pumps import MAX_RATIO, find_ratio
from tests.recorded_streams import events_of

from tollbridge.protocols.anthropic_messages.caller import CODEC as PROTOCOL
from tollbridge.protocols.anthropic_messages.requests import encode_request
from tollbridge.protocols.anthropic_messages.stream import StreamDecoder
from tollbridge.protocols.caller_request import CallerRequest
from tollbridge.types.events import (
    Event,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
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
    OutputFormat,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
    part_digest,
)

ORIGIN = Origin.of("claude-opus-5", "https://api.anthropic.com/v1")
CODEC = CallerRequest(request=ChatRequest(model="m", messages=[Message("user", "Hi")]))
relaxed = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
inputs = st.dictionaries(words, scalars | st.lists(scalars, max_size=2), max_size=3)
texts = words.map(TextPart)
files = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda size: DataPart(draw_png(*size), "image/png")),
    words.map(lambda text: DataPart(b"%PDF-" + text.encode(), "application/pdf", "a.pdf")),
    st.builds(DataPart, words.map(str.encode), st.just("text/plain"), st.none() | words),
)
thinking = st.one_of(
    st.builds(
        lambda text, sig: ThinkingPart(text, None, add_origin(ORIGIN, {"signature": sig})), words, words
    ),
    st.builds(lambda data: ThinkingPart("", None, add_origin(ORIGIN, {"redacted_data": data})), words),
    st.builds(lambda text: ThinkingPart(text, None, add_origin(ORIGIN, None)), words),
)
calls = st.builds(ToolCallPart, names, names, inputs)
results = st.builds(ToolResultPart, names, st.lists(texts | files, max_size=3), st.booleans())
system_messages = st.lists(texts, min_size=1, max_size=2).map(
    lambda parts: Message(Role.SYSTEM, tuple(parts))
)
user_messages = st.builds(
    lambda first, rest: Message(Role.USER, (*first, *rest)),
    st.lists(results, max_size=2),
    st.lists(texts | files, min_size=1, max_size=3),
)
assistant_messages = st.builds(
    lambda parts: Message(Role.ASSISTANT, tuple(parts)),
    st.lists(st.one_of(texts, thinking, calls), min_size=1, max_size=4),
)
conversations = st.builds(
    lambda system, turns, last: (*system, *(message for turn in turns for message in turn), last),
    st.lists(
        st.builds(lambda parts: Message(Role.SYSTEM, tuple(parts)), st.lists(texts, min_size=1, max_size=2)),
        max_size=1,
    ),
    st.lists(st.tuples(user_messages, assistant_messages), max_size=3),
    user_messages,
)
schemas = st.just({"type": "object", "properties": {"a": {"type": "string"}}})
tools = st.lists(
    st.builds(Tool, names, words | st.just(""), schemas), max_size=2, unique_by=lambda tool: tool.name
)


@st.composite
def requests(draw: st.DrawFn) -> ChatRequest:
    chosen = tuple(draw(tools))
    choices: list[Any] = [None, "auto", "required", *(NamedTool(tool.name) for tool in chosen)]
    messages = draw(conversations)
    # A part that occurs twice has its breakpoint at the last place only.
    marked = draw(
        st.lists(st.sampled_from([part for message in messages for part in message.parts]), max_size=3)
    )
    return ChatRequest(
        model="claude-opus-5",
        messages=messages,
        tools=chosen,
        tool_choice=draw(st.sampled_from(choices)) if chosen else None,
        max_output_tokens=draw(st.integers(1, 64_000)),
        temperature=draw(st.none() | st.floats(0, 1)),
        output_format=draw(st.none() | st.builds(OutputFormat, st.just("answer"), schemas)),
        cache_points={part_digest(part): {"type": "ephemeral"} for part in marked} or None,
        extra=draw(st.none() | st.fixed_dictionaries({"stop_sequences": st.lists(words, min_size=1)})),
    )


@given(requests())
@relaxed
def test_a_request_survives_a_round_trip(request: ChatRequest) -> None:
    body = json.loads(json.dumps(encode_request(request)))
    caller = PROTOCOL.decode(body, native=ORIGIN)
    assert caller.request == request
    assert caller.stream
    assert caller.omissions == ()
    assert encode_request(caller.request) == body  # the bytes that a prompt cache has seen do not change


@given(requests())
@relaxed
def test_for_other_gateways_the_conversation_is_the_same(request: ChatRequest) -> None:
    decoded = PROTOCOL.decode(encode_request(request)).request
    assert [message.role for message in decoded.messages] == [message.role for message in request.messages]
    for message, original in zip(decoded.messages, request.messages, strict=True):
        shown = [part for part in message.parts if not isinstance(part, ThinkingPart)]
        assert shown == [part for part in original.parts if not isinstance(part, ThinkingPart)]


counts = st.integers(0, 10**6)
usages = st.builds(
    lambda fresh, read, written, output, thought: Usage(
        fresh + read + written, output, fresh + read + written + output, read, thought, written
    ),
    *(st.integers(1, 10**6), counts, counts, counts, counts),
)
reasoning_blocks: st.SearchStrategy[list[Any]] = st.one_of(
    st.builds(
        lambda text, sig: [ReasoningDelta(text), ReasoningEnded(None, {"signature": sig})], words, words
    ),
    st.builds(lambda data: [ReasoningEnded(None, {"redacted_data": data})], words),
    st.builds(lambda text: [ReasoningDelta(text), ReasoningEnded(None, None)], words),
)
answer_calls = st.builds(
    lambda at, name, value: [ToolCall(f"toolu_{at}", name, value)], counts, names, inputs
)
blocks: st.SearchStrategy[list[Any]] = st.one_of(
    st.lists(words.map(TextDelta), min_size=1, max_size=3), reasoning_blocks, answer_calls
)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = [
        event for block in draw(st.lists(blocks, min_size=1, max_size=5)) for event in block
    ]
    if any(isinstance(event, ToolCall) for event in events):
        end = Finished("tool-calls", "finish", draw(usages))
    else:
        reasons = [("stop", "finish"), ("length", "incomplete"), ("content-filter", "incomplete")]
        reason, ended = draw(st.sampled_from(reasons))
        end = Finished(reason, ended, draw(usages))  # type: ignore[arg-type]
    return [*events, end]


def joined(events: list[Event]) -> list[Event]:
    """Return the events as `events_of` does, without the ids that each encoding creates."""

    class Replay:
        is_finished = False
        unknown: Mapping[str, int] = {}
        billing = None

        def feed(self, _chunk: bytes) -> list[Event]:
            return events

        def close(self) -> list[Event]:
            return []

    return [
        Finished(event.reason, event.ended, event.usage) if isinstance(event, Finished) else event
        for event in events_of(Replay(), [b""])
    ]


@given(answers(), st.data())
@relaxed
def test_an_answer_survives_its_stream_however_it_is_split(answer: list[Event], data: st.DataObject) -> None:
    encoder = PROTOCOL.encoder(CODEC)
    body = PROTOCOL.write([*encoder.start(), *encoder.encode(answer), *encoder.finish()])
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    chunks = [body[a:b] for a, b in pairwise([0, *sorted(cuts), len(body)])]
    assert joined(events_of(StreamDecoder(), chunks)) == joined(answer)


@given(answers())
@relaxed
def test_an_answer_survives_its_body(answer: list[Event]) -> None:
    encoder = PROTOCOL.encoder(CODEC)
    encoder.start()
    encoder.encode(answer)
    encoder.finish()
    decoder = StreamDecoder()
    decoder.feed(json.dumps(encoder.body()).encode())
    assert joined(decoder.close()) == joined(answer)


# --- Linear time ---


def frames(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def feed(data: bytes) -> None:
    decoder = StreamDecoder()
    decoder.feed(data)
    decoder.close()


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def open_calls(size: int) -> bytes:
    return frames(delta(at, type="input_json_delta", partial_json="{") for at in range(size))


def pieces_of_one_call(size: int) -> bytes:
    piece = delta(0, type="input_json_delta", partial_json="[" * 9)
    return frames([piece, {"type": "ping"}] * size)


def unknown_blocks(size: int) -> bytes:
    start = {"type": "content_block_start"}
    return frames({**start, "index": at, "content_block": {"type": f"x{at}"}} for at in range(size))


def citations(size: int) -> bytes:
    return frames(
        delta(0, type="citations_delta", citation={"url": f"https://e.com/{at}"}) for at in range(size)
    )


def marked_messages(size: int) -> dict[str, Any]:
    messages = [
        {
            "role": ("user", "assistant")[at % 2],
            "content": [{"type": "text", "text": str(at), "cache_control": {"type": "ephemeral"}}],
        }
        for at in range(size)
    ]
    return {"model": "m", "messages": messages}


def long_signature(size: int) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": "", "signature": "tollbridge:" + "A" * (400 * size)}
    return {"model": "m", "messages": [{"role": "assistant", "content": [block]}]}


def long_call_id(size: int) -> ChatRequest:
    return ChatRequest(model="m", messages=[Message("user", [ToolResultPart("|" * (100 * size), "x")])])


def long_model_name(size: int) -> ChatRequest:
    model = "claude-opus-4" * (50 * size)
    return ChatRequest(model=model, messages=[Message("user", "x")], reasoning_effort="low")


def convert(body: dict[str, Any]) -> None:
    encode_request(PROTOCOL.decode(body, native=ORIGIN).request)


PUMPS: list[tuple[Callable[[int], Any], Callable[[Any], object]]] = [
    (open_calls, feed),
    (pieces_of_one_call, feed),
    (unknown_blocks, feed),
    (citations, feed),
    (marked_messages, convert),
    (long_signature, convert),
    (long_call_id, encode_request),
    (long_model_name, encode_request),
]


@pytest.mark.series
@pytest.mark.timed
@pytest.mark.parametrize(("pump", "action"), PUMPS)
def test_twice_the_input_takes_at_most_about_twice_the_time(
    pump: Callable[[int], Any], action: Callable[[Any], object]
) -> None:
    size, ratio = find_ratio(action, pump)
    assert ratio <= MAX_RATIO, f"{ratio:.1f} times as long for twice n = {size}"
