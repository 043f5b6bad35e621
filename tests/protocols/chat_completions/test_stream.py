"""Text, reasoning, endings, usage and errors of a response."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from typing import Any

import pytest
from tests.protocols.chat_completions.chunks import (
    DONE,
    call,
    calls_chunk,
    chunk,
    decode,
    decode_at_once,
    decode_message,
    failure,
    finished,
    frame,
    proofs,
    usage_chunk,
)
from tests.recorded_streams import events_of

from tollbridge.protocols.chat_completions.stream import StreamDecoder
from tollbridge.protocols.chat_completions.wire import read_usage
from tollbridge.protocols.detect import decoder_for
from tollbridge.types.errors import Disconnected, Overloaded, RateLimited, ServerFailed, StreamError
from tollbridge.types.events import (
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.media import draw_png
from tollbridge.types.text import Fields

STOP = chunk("stop")
END = Finished("stop", response_id="chatcmpl-1", model="m")


def test_deltas_of_one_read_become_one_event() -> None:
    decoder = StreamDecoder()
    assert decoder.feed(frame(chunk(role="assistant", content=""))) == []
    deltas = b"".join(frame(chunk(content=word)) for word in ("a ", "b ", "c"))
    assert decoder.feed(deltas) == [TextDelta("a b c")]
    thoughts = b"".join(frame(chunk(reasoning_content=word)) for word in ("d", "e"))
    assert decoder.feed(thoughts) == [ReasoningDelta("de", "reasoning_content")]


def test_an_answer_in_one_read_is_the_same_as_chunk_by_chunk() -> None:
    chunks = (chunk(reasoning="Hm"), chunk(content="Hello"), chunk(content=" you"), STOP, DONE)
    assert (
        decode(*chunks)
        == decode_at_once(*chunks)
        == [
            ReasoningDelta("Hm", "reasoning"),
            ReasoningEnded("reasoning"),
            TextDelta("Hello you"),
            END,
        ]
    )


@pytest.mark.parametrize(
    ("field", "event"),
    [
        ("content", TextDelta("x")),
        ("reasoning_content", ReasoningDelta("x", "reasoning_content")),
        ("reasoning", ReasoningDelta("x", "reasoning")),
        ("refusal", TextDelta("x")),
    ],
)
def test_one_read_can_contain_text_and_arguments(field: str, event: Event) -> None:
    decoder = StreamDecoder()
    decoder.feed(frame(calls_chunk(call(0, "", id="c", name="now"))))
    arguments = [frame(calls_chunk(call(0, piece))) for piece in ('{"a": ', "1}")]
    assert decoder.feed(arguments[0] + frame(chunk(**{field: "x"})) + arguments[1]) == [event]
    assert ToolCall("c", "now", {"a": 1}) in decoder.feed(frame(STOP) + frame(DONE))


def test_a_refusal_is_text() -> None:
    assert decode(chunk(refusal="I can"), chunk(refusal="not."), STOP, DONE) == [TextDelta("I cannot."), END]
    assert decode_message(content=None, refusal="No.") == [TextDelta("No."), END]


# --- Reasoning ---


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_has_the_name_of_its_field_as_id(field: str) -> None:
    events = decode(chunk(**{field: "Let me "}), chunk(**{field: "see."}), chunk(content="Yes"), STOP, DONE)
    assert events == [ReasoningDelta("Let me see.", field), ReasoningEnded(field), TextDelta("Yes"), END]


def test_the_same_reasoning_in_two_fields_is_emitted_once() -> None:
    events = decode_at_once(
        chunk(role="assistant", content=""),
        chunk(reasoning_content="A", reasoning="A"),
        chunk(reasoning_content="B", reasoning="B", content=""),
        STOP,
        DONE,
    )
    assert events[0] == ReasoningDelta("AB", "reasoning_content")
    decoder = StreamDecoder()
    decoder.feed(frame(chunk(content="")))
    both = b"".join(frame(chunk(reasoning_content=text, reasoning=text)) for text in "AB")
    assert decoder.feed(both) == [ReasoningDelta("AB", "reasoning_content")]


def test_openrouters_details_are_collected_and_their_text_is_not_repeated() -> None:
    def detail(**fields: Any) -> list[Any]:
        return [{"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, **fields}]

    encrypted = {"type": "reasoning.encrypted", "data": "abc", "id": "rs_1", "index": 1}
    events = decode(
        chunk(reasoning="Let ", reasoning_details=detail(text="Let ")),
        chunk(reasoning="me.", reasoning_details=detail(text="me.")),
        chunk(reasoning_details=detail(text="", signature="SIG")),
        chunk(reasoning_details=[encrypted]),
        chunk(content="Yes"),
        STOP,
        DONE,
    )
    [whole] = detail(text="Let me.", signature="SIG")
    assert events == [
        ReasoningDelta("Let me.", "reasoning"),
        ReasoningEnded("reasoning", {"reasoning_details": [whole, encrypted]}),
        TextDelta("Yes"),
        END,
    ]


def test_details_that_follow_the_text_do_not_repeat_it() -> None:
    detail = {"type": "reasoning.text", "text": "Let me.", "signature": "SIG", "index": 0}
    events = decode(chunk(reasoning="Let me."), chunk(reasoning_details=[detail]), STOP, DONE)
    assert events == [
        ReasoningDelta("Let me.", "reasoning"),
        ReasoningEnded("reasoning", {"reasoning_details": [detail]}),
        END,
    ]


def test_details_without_a_text_field_supply_the_text() -> None:
    summary = {"type": "reasoning.summary", "summary": "Thought.", "index": 0}
    events = decode(chunk(reasoning_details=[summary]), chunk(content="Yes"), STOP, DONE)
    assert events[:2] == [
        ReasoningDelta("Thought.", "reasoning_details"),
        ReasoningEnded("reasoning_details", {"reasoning_details": [summary]}),
    ]


def test_litellms_thinking_blocks_are_collected_with_their_signatures() -> None:
    def block(thinking: str, signature: str | None) -> list[Any]:
        return [{"type": "thinking", "thinking": thinking, "signature": signature}]

    redacted = {"type": "redacted_thinking", "data": "xyz"}
    events = decode(
        chunk(reasoning_content="One", thinking_blocks=block("One", None)),
        chunk(reasoning_content="", thinking_blocks=block("", "S1")),
        chunk(thinking_blocks=[redacted]),
        chunk(reasoning_content="Two", thinking_blocks=block("Two", None)),
        chunk(thinking_blocks=block("", "S2")),
        calls_chunk(call(0, "{}", id="c", name="now"), finish_reason="tool_calls"),
        DONE,
    )
    blocks = [*block("One", "S1"), redacted, *block("Two", "S2")]
    assert events[0] == ReasoningDelta("OneTwo", "reasoning_content")
    assert proofs(events) == [{"thinking_blocks": blocks}]


def test_the_blocks_of_a_whole_message_are_not_joined() -> None:
    blocks = [{"type": "thinking", "thinking": text, "signature": None} for text in ("One", "Two")]
    events = decode_message(content="Yes", reasoning_content="OneTwo", thinking_blocks=blocks)
    assert proofs(events) == [{"thinking_blocks": blocks}]


def test_a_proof_that_arrives_after_the_text_precedes_the_tool_calls() -> None:
    encrypted = {"type": "reasoning.encrypted", "data": "abc", "index": 0}
    events = decode(
        chunk(content="I will look."),
        calls_chunk(call(0, "{}", id="c", name="now")),
        chunk(reasoning_details=[encrypted]),
        chunk("tool_calls"),
        DONE,
    )
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["TextDelta", "ReasoningEnded", "ToolCall", "Finished"]
    assert proofs(events) == [{"reasoning_details": [encrypted]}]


def test_copilots_opaque_reasoning_is_kept() -> None:
    events = decode(chunk(reasoning_text="Hm"), chunk(reasoning_opaque="op"), chunk(content="x"), STOP, DONE)
    assert proofs(events) == [{"reasoning_opaque": "op"}]


def test_content_can_be_a_list_of_thinking_and_text_as_mistral_sends_it() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    events = decode(chunk(content=[thinking]), chunk(content=[{"type": "text", "text": "Hi"}]), STOP, DONE)
    assert events == [ReasoningDelta("Hm", "content"), ReasoningEnded("content"), TextDelta("Hi"), END]


# --- Images and sources ---


def test_images_and_citations_are_emitted_once() -> None:
    png = draw_png()
    encoded = b64encode(png).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}}
    cite = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
    events = decode(
        chunk(content="See", images=[image], annotations=[cite]),
        chunk(images=[image], annotations=[cite]),
        STOP,
        DONE,
    )
    assert events == [
        TextDelta("See"),
        File("image/png", png),
        Source("url", url="https://a.example", title="A"),
        END,
    ]


# --- Endings ---


@pytest.mark.parametrize(
    ("name", "reason", "ended"),
    [
        ("stop", "stop", "finish"),
        ("length", "length", "incomplete"),
        ("content_filter", "content-filter", "incomplete"),
        ("tool_calls", "stop", "finish"),  # without any call
        ("something_new", "other", "finish"),
    ],
)
def test_every_finish_reason_has_its_meaning(name: str, reason: str, ended: str) -> None:
    end = finished(decode(chunk(content="x"), chunk(name), DONE))
    assert (end.reason, end.ended) == (reason, ended)


def test_done_may_be_missing() -> None:
    usage = usage_chunk(prompt_tokens=2, completion_tokens=1)
    assert finished(decode(chunk(content="x"), STOP, usage)).usage == Usage(2, 1, 3)
    assert decode(chunk(content="x"), STOP) == [TextDelta("x"), END]


@pytest.mark.parametrize("end", [[], [DONE]])
def test_a_stream_without_a_finish_reason_is_an_error(end: list[str]) -> None:
    events = decode(chunk(content="x"), *end)
    assert events[0] == TextDelta("x")
    assert isinstance(failure(events).error, Disconnected)


def test_usage_and_done_complete_an_answer_without_a_finish_reason() -> None:
    events = decode(chunk(content="x"), usage_chunk(prompt_tokens=2, completion_tokens=1), DONE)
    assert finished(events).reason is None
    assert finished(events).usage == Usage(2, 1, 3)


def test_nothing_follows_done() -> None:
    decoder = StreamDecoder()
    decoder.feed(frame(STOP) + frame(DONE))
    assert decoder.is_finished
    assert decoder.feed(frame(chunk(content="late"))) == []
    assert decoder.close() == []


def test_a_message_that_repeats_the_streamed_text_is_not_emitted_again() -> None:
    repeated = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    assert decode(chunk(content="Hello"), repeated, DONE) == [TextDelta("Hello"), END]


def test_a_stream_can_consist_of_one_whole_message() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    assert decode(whole, DONE) == [TextDelta("Hello"), Finished("stop")]


def test_only_the_first_choice_is_used() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    decoder = StreamDecoder()
    events = events_of(decoder, [frame(chunk(content="x")), frame(other), frame(STOP), frame(DONE)])
    assert events == [TextDelta("x"), END]
    assert decoder.unknown == {"choice": 1}


def test_comments_and_chunks_without_choices_are_skipped() -> None:
    filter_results = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}  # Azure
    body = b": OPENROUTER PROCESSING\n\n" + frame(filter_results) + frame(chunk(content="x"))
    events = events_of(StreamDecoder(), [body, b": keep-alive\n\n", frame(STOP), frame(DONE)])
    assert events == [TextDelta("x"), END]


# --- Usage ---


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                "completion_tokens_details": {"reasoning_tokens": 8},
            },
            Usage(100, 20, 120, 60, 8, 30),
        ),
        (  # DeepSeek
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
            Usage(9, 1, 10, 4),
        ),
        (  # Anthropic's names, forwarded by a proxy
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 5,
            },
            Usage(9, 1, 10, 4, None, 5),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 3}, Usage(9, 1, 10, 3)),  # Moonshot
        (  # xAI: the reasoning tokens are only in the total
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 35,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(10, 25, 35, None, 20),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": "many", "completion_tokens": -1}, None),
    ],
)
def test_usage_is_read_under_every_name(usage: dict[str, Any], expected: Usage | None) -> None:
    assert read_usage(Fields(usage)) == expected


@pytest.mark.parametrize("place", ["last chunk", "finish chunk", "every chunk", "choice", "groq"])
def test_usage_is_read_in_every_place(place: str) -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    text, stop, last = chunk(content="x"), chunk("stop"), usage_chunk(**counts)
    match place:
        case "last chunk":
            chunks = [text, stop, last]
        case "finish chunk":
            chunks = [text, {**stop, "usage": counts}]
        case "every chunk":
            first = {**counts, "completion_tokens": 1, "total_tokens": 4}
            chunks = [{**text, "usage": first}, {**stop, "usage": counts}]
        case "choice":
            chunks = [text, {**stop, "choices": [{**stop["choices"][0], "usage": counts}]}]
        case _:
            chunks = [text, {**stop, "x_groq": {"usage": counts}}]
    events = decode(*chunks, DONE)
    assert events[0] == TextDelta("x")
    assert finished(events).usage == Usage(3, 2, 5)


@pytest.mark.parametrize("place", ["chunk", "choice"])
def test_usage_beside_text_is_read(place: str) -> None:
    text: Any = chunk(content="y")
    target = text if place == "chunk" else text["choices"][0]
    target["usage"] = {"prompt_tokens": 3, "completion_tokens": 2}
    events = decode(chunk(content="x"), text, STOP, DONE)
    assert events[0] == TextDelta("xy")
    assert finished(events).usage == Usage(3, 2, 5)


# --- Errors ---


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "Slow down.", "type": "rate_limit_error", "code": 429}}, RateLimited),
        ({"error": {"message": "Broken.", "code": 500}}, ServerFailed),
        ({"object": "error", "message": "Broken.", "code": 500}, ServerFailed),  # vLLM
        ({**chunk("error"), "error": {"code": 503, "message": "No provider."}}, Overloaded),  # OpenRouter
        ({"choices": [{"index": 0, "error": {"code": 429, "message": "Slow down."}}]}, RateLimited),
        (chunk("error"), ServerFailed),
        ({**chunk(content="more"), "error": {"message": "Broken.", "code": 500}}, ServerFailed),
        (
            {
                "choices": [
                    {"index": 0, "delta": {"content": ""}, "error": {"code": 500, "message": "Broken."}}
                ]
            },
            ServerFailed,
        ),
    ],
)
def test_an_error_in_the_stream_is_the_last_event(error: dict[str, Any], kind: type[Exception]) -> None:
    events = decode(chunk(content="Half"), error, DONE)
    assert events[0] == TextDelta("Half")
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, kind)
    assert sum(isinstance(event, Failed) for event in events) == 1


def test_a_call_before_an_error_is_not_offered() -> None:
    half = calls_chunk(call(0, "{}", id="c", name="now"))
    events = decode(half, {"error": {"message": "Broken.", "code": 500}})
    assert events[0] == ToolCall("c", "now", {}, offered=False)
    assert isinstance(events[-1], Failed)


def test_a_failure_has_the_usage_reported_before_it() -> None:
    broken = {"error": {"message": "Broken.", "code": 500}}
    events = decode(chunk(content="x"), usage_chunk(prompt_tokens=3, completion_tokens=1), broken)
    assert failure(events).error.usage == Usage(3, 1, 4)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "No.", "code": 400}}',
        b'{"detail": "Not found"}',
        b'{"object": "list", "data": []}',
        b"[1, 2]",
        b'{"choices": [',
        b"<html>",
        b"data: {broken\n\n",
        b'data: {"type": "response.created"}\n\n',
        b"",
    ],
)
def test_any_other_body_is_one_failure(body: bytes) -> None:
    events = events_of(StreamDecoder(), [body])
    assert [type(event) for event in events] == [Failed]


def test_invalid_data_between_chunks_is_an_error_unless_the_answer_is_complete() -> None:
    events = events_of(StreamDecoder(), [frame(chunk(content="x")) + b"data: <html>\n\n"])
    assert isinstance(failure(events).error, StreamError)
    body = frame(chunk(content="x")) + b"data: <html>\n\n" + frame(STOP) + frame(DONE)
    assert events_of(StreamDecoder(), [body]) == [TextDelta("x"), END]


def test_a_body_that_exceeds_the_limit_is_an_error() -> None:
    events = events_of(StreamDecoder(limit=100), [b'{"choices": [', b" " * 200])
    assert "limit of 100" in failure(events).error.message


@pytest.mark.parametrize("streamed", [True, False])
def test_the_protocol_is_detected(streamed: bool) -> None:
    body = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}
    data = frame(chunk(content="x")) + frame(STOP) if streamed else json.dumps(body).encode()
    events: list[Event] = events_of(decoder_for("auto"), [data])
    assert events[0] == TextDelta("x")
    assert finished(events).reason == "stop"


# --- Wrong values ---

FULL: list[Any] = [
    {
        **chunk(
            role="assistant",
            content=[{"type": "text", "text": "x"}, {"type": "thinking", "thinking": [{"text": "Hm"}]}],
            refusal="No",
            reasoning="Hm",
            reasoning_details=[{"type": "reasoning.text", "text": "Hm", "signature": "s", "index": 0}],
            thinking_blocks=[{"type": "thinking", "thinking": "Hm", "signature": "s"}],
            reasoning_opaque="o",
            images=[{"image_url": {"url": "data:image/png;base64,AAAA"}}],
            annotations=[
                {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
            ],
            tool_calls=[call(0, "{}", id="c", name="now", extra_content={"a": 1})],
            function_call={"name": "now", "arguments": "{}"},
        ),
        "x_groq": {"usage": {"prompt_tokens": 1}},
    },
    chunk(content="text"),
    chunk(reasoning_content="text"),
    calls_chunk(call(0, "")),
    {**chunk("stop"), "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}},
]
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "x", "", [], [1], [[]], {}, {"type": "x"}, {"a": [1]})


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every object and array with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((value, key), *places(inner))]


@pytest.mark.parametrize("at_once", [True, False])
def test_any_wrong_value_is_skipped_or_one_failure(at_once: bool) -> None:
    read = decode_at_once if at_once else decode
    for number in range(len(places(FULL))):
        for wrong in WRONG:
            chunks = deepcopy(FULL)
            place, key = places(chunks)[number]
            place[key] = wrong
            events = read(*chunks, DONE)
            ends = [event for event in events if isinstance(event, Finished | Failed)]
            assert ends
            assert events[-len(ends) :] == ends
