"""Framing: lines, server-sent events, codes, and invalid data."""

from __future__ import annotations

import pytest
from tests.protocols.ai_sdk.streams import DONE, FINISH, call, failures, full, full_of

from tollbridge.protocols.ai_sdk.stream import (
    DataDecoder,
    FullDecoder,
    LineDecoder,
    ModelDecoder,
    UiDecoder,
)
from tollbridge.types.events import Failed, Finished, ReasoningDelta, TextDelta, ToolCall


def test_a_line_that_is_not_json_is_one_error_and_decoding_continues() -> None:
    decoder = FullDecoder()
    body = b'{"type":"text-delta","text":"a"}\nnonsense\n<html>\n[1]\n{"type":"finish"}\n'
    events = decoder.feed(body) + decoder.close()
    assert events[:2] == [TextDelta("a"), Finished(None)]
    assert failures(events) == [
        "The stream contains data that is not JSON.",
        "The stream contains a chunk that is not an object.",
    ]


def test_a_truncated_last_line_is_a_disconnect_and_not_invalid_data() -> None:
    for decoder, body in (
        (FullDecoder(), b'{"type":"text-delta","text":"a"}\n{"type":"te'),
        (UiDecoder(), b'data: {"type":"text-delta","delta":"a"}\n\ndata: {"type":"te'),
        (DataDecoder(), b'0:"a"\n0:"b'),
    ):
        events = decoder.feed(body) + decoder.close()
        assert events[0] == TextDelta("a")
        assert failures(events) == ["The stream ended before the answer was complete."]


def test_a_last_line_without_a_line_end_is_decoded() -> None:
    assert full_of(b'{"type":"finish","finishReason":"stop"}') == [DONE]
    decoder = DataDecoder()
    events = decoder.feed(b'0:"a"\nd:{"finishReason":"stop"}') + decoder.close()
    assert events == [TextDelta("a"), DONE]


def test_a_stream_can_be_one_json_array() -> None:
    assert full_of(b'[{"type":"text-delta","text":"a"},{"type":"finish","finishReason":"stop"}]') == [
        TextDelta("a"),
        DONE,
    ]


def test_line_ends_blank_lines_and_a_byte_order_mark_change_nothing() -> None:
    body = (
        b'\xef\xbb\xbf{"type":"text-delta","text":"a"}\r\n\r\n  \n{"type":"finish","finishReason":"stop"}\r\n'
    )
    assert full_of(body) == [TextDelta("a"), DONE]


def test_the_done_marker_ends_the_stream_immediately() -> None:
    decoder = UiDecoder()
    assert decoder.feed(b'data: {"type":"text-delta","delta":"a"}\n\ndata: [DONE]\n\n') == [
        TextDelta("a"),
        Finished(None),
    ]
    assert decoder.is_finished
    assert decoder.feed(b'data: {"type":"text-delta","delta":"late"}\n\n') == []
    assert decoder.close() == []


@pytest.mark.parametrize("line", [b"x", b"0", b"0:", b"00:1", b"0:1", b'2:"a"', b"9:[]", b"d:3", b"\xff:{}"])
def test_an_invalid_line_of_a_data_stream_is_an_error(line: bytes) -> None:
    decoder = DataDecoder()
    events = decoder.feed(line + b'\n0:"on"\nd:{"finishReason":"stop"}\n') + decoder.close()
    assert [event for event in events if not isinstance(event, Failed)] == [TextDelta("on"), DONE]
    assert len(failures(events)) == (0 if line.endswith(b":{}") else 1), "an unknown code is no error"


def test_a_line_over_the_limit_ends_the_stream_with_an_error() -> None:
    for chunks in ([b"x" * 11], [b"x" * 6, b"x" * 6], [b"x" * 11 + b"\n"]):
        lines = LineDecoder(limit=10)
        assert [line for chunk in chunks for line in lines.feed(chunk)] == []
        assert lines.error is not None
        assert "10 bytes" in lines.error.message
        assert lines.feed(b"y\n") == []
    lines = LineDecoder(limit=10)
    assert lines.feed(b"x" * 10 + b"\n" + b"y" * 10 + b"\n") == [b"x" * 10, b"y" * 10]


def test_invalid_utf_8_is_replaced() -> None:
    assert full_of(b'{"type":"text-delta","text":"a\xff"}\n{"type":"finish"}\n')[0] == TextDelta("a\ufffd")


def test_json_nested_too_deeply_is_an_error() -> None:
    deep = b'{"type":"raw","rawValue":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    assert failures(full_of(deep)) == ["The stream contains data that is not JSON."]


def test_a_restarted_step_replaces_its_text() -> None:
    text, thought = (
        {"type": "text-delta", "text": "bad"},
        {"type": "reasoning-delta", "id": "r", "text": "hm"},
    )
    events = full(text, {"type": "start-step"}, text, thought, call(), {"type": "reset-step"}, text, FINISH)
    assert TextDelta("bad", replaces=3) in events
    assert ReasoningDelta("", "r", replaces=2) in events
    assert not [event for event in events if isinstance(event, ToolCall)], (
        "a call that had not left never does"
    )


def test_a_lone_surrogate_is_emitted_unchanged_at_the_end() -> None:
    assert full({"type": "text-delta", "text": "a\ud83d"}, FINISH) == [
        TextDelta("a"),
        TextDelta("\ud83d"),
        DONE,
    ]


REFUSED = b'{"error":{"message":"Slow down.","type":"rate_limit_exceeded"}}'


@pytest.mark.parametrize(
    ("body", "message", "kind"),
    [
        (REFUSED, "Slow down.", "rate_limited"),
        (b"\xef\xbb\xbf \n" + REFUSED.replace(b",", b",\n "), "Slow down.", "rate_limited"),
        (b'{"error":"No such model"}', "No such model", "server"),
        (b'{"message":"Sign in","statusCode":401}', "Sign in", "authentication"),
        (b'{"models":[]}', "The gateway's answer is not an AI SDK stream.", "protocol"),
        (REFUSED[:-9], "The gateway returned invalid or truncated JSON.", "protocol"),
    ],
)
@pytest.mark.parametrize("decoder", [UiDecoder, ModelDecoder])
def test_a_json_body_instead_of_a_stream_is_an_error(
    decoder: type[UiDecoder], body: bytes, message: str, kind: str
) -> None:
    for chunks in ([body], [body[at : at + 1] for at in range(len(body))]):
        stream_decoder = decoder()
        [failed] = [
            event for chunk in chunks for event in stream_decoder.feed(chunk)
        ] + stream_decoder.close()
        assert isinstance(failed, Failed)
        assert (failed.error.message, failed.error.kind) == (message, kind)


def test_a_body_over_the_limit_is_an_error() -> None:
    decoder = UiDecoder(limit=10)
    assert decoder.feed(b"{" + b" " * 9) == []
    [failed] = decoder.feed(b"}")
    assert isinstance(failed, Failed)
    assert "10 bytes" in failed.error.message
    assert decoder.close() == []
