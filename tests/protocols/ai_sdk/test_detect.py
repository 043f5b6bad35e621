"""Detection of AI SDK streams, and of streams of other protocols."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollbridge.protocols.ai_sdk import AI_SDK as AI_SDK_PROTOCOL
from tollbridge.protocols.detect import (
    START_LIMIT,
    DetectingDecoder,
    GuardedDecoder,
    decoder_for,
    detect_by_start,
)
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Event

RECORDINGS = Path(__file__).parents[2] / "recordings"
PROTOCOLS = {".full.jsonl": "ai-sdk-full", ".ui.ds.txt": "ai-sdk-data", ".ui.sse": "ai-sdk-ui"}
AI_SDK = [
    (path, protocol)
    for suffix, protocol in PROTOCOLS.items()
    for path in sorted((RECORDINGS / "aisdk").glob(f"*/*{suffix}"))
    if path.stat().st_size
]
OTHERS = sorted(
    path
    for path in (RECORDINGS / "openresponses").rglob("*")
    if path.is_file() and path.suffix in (".sse", ".json", ".body", ".http") and path.stat().st_size
)


@pytest.mark.parametrize(
    ("path", "protocol"), AI_SDK, ids=[f"{path.parent.name}/{path.name}" for path, _ in AI_SDK]
)
def test_a_recorded_stream_is_detected_by_its_first_bytes(path: Path, protocol: str) -> None:
    assert detect_by_start(path.read_bytes(), complete=True) == protocol


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_a_stream_of_another_protocol_is_not_detected(path: Path) -> None:
    assert detect_by_start(path.read_bytes(), complete=True) == ""


def test_model_chunks_are_distinguished_from_the_ui_stream() -> None:
    start = b'data: {"type":"stream-start","warnings":[]}\n\n'
    assert detect_by_start(start, complete=False) == "ai-sdk-model"


@pytest.mark.parametrize(
    ("start", "protocol"),
    [
        (b': stream-open\n\ndata: {"type":"start"}\n\n', "ai-sdk-ui"),
        (b'\xef\xbb\xbf{"type":"start"}\n', "ai-sdk-full"),
        (b'data:{"type":"error","errorText":"x"}\r\n\r\n', "ai-sdk-ui"),
        (b'event: message\ndata: {"type":"start"}\n\n', "ai-sdk-ui"),
        (b'data:\n\ndata: {"type":"start"}\n\n', "ai-sdk-ui"),
        (b'data: {"type":\ndata: "start"}\n\n', "ai-sdk-ui"),
        (b'data: {"type":"new"}\n\ndata: {"type":"start"}\n\n', "ai-sdk-ui"),
        (b'data: {"type":"new"}\n\ndata: {"type":"stream-start"}\n\n', "ai-sdk-model"),
        (b'{"type":"new"}\n{"type":"start"}\n', "ai-sdk-full"),
        (b'[{"type":"new"},{"type":"start"}]\n', "ai-sdk-full"),
        (b'event: ping\ndata: {"type":"ping"}\n\ndata: {"type":"response.created"}\n\n', ""),
        (b'event: error\ndata: {"type":"error","error":{"message":"x"}}\n\n', ""),
        (b'data: {"type":"ping"}\n\ndata: {"type":"text-start"}\n\n', "ai-sdk-ui"),
        (b'data: {"type":"keepalive"}\n\ndata: {"type":"response.created"}\n\n', ""),
        (b'data: {"type":"data-progress","data":1}\n\n', "ai-sdk-ui"),
        (b'3:""\n', "ai-sdk-data"),
        (b'[{"type":"start"},{"type":"finish"}]\n', "ai-sdk-full"),
        (b'[{"error":{"message":"x"}}]\n', ""),
        (b"data: [DONE]\n\n", ""),
        (b'event: response.created\ndata: {"type":"response.created"}\n\n', ""),
        (b'data: {"type":"error","code":"x","message":"y","sequence_number":0}\n\n', ""),
        (b'{"id":"resp_1","object":"response","output":[]}\n', ""),
        (b"<html>\n", ""),
        (b"a: b\n", ""),
    ],
)
def test_a_stream_is_detected_by_its_first_chunk_of_a_known_type(start: bytes, protocol: str) -> None:
    assert detect_by_start(start, complete=False) == protocol


@pytest.mark.parametrize(
    "start", [b'data: {"type":"sta', b'data: {"type":"new"}\n\n', b'{"type":"new"}\n{"type":"sta']
)
def test_an_incomplete_or_unknown_chunk_is_not_enough_for_detection(start: bytes) -> None:
    assert detect_by_start(start, complete=False) is None
    assert detect_by_start(start, complete=True) == ""


NEW = {
    "ai-sdk-ui": b'event: message\ndata: {"type":"new"}\n\ndata:\n\n',
    "ai-sdk-full": b'{"type":"new"}\n',
}


@pytest.mark.parametrize(("name", "protocol"), [("ui.sse", "ai-sdk-ui"), ("full.jsonl", "ai-sdk-full")])
def test_a_recorded_stream_after_an_unknown_chunk_decodes_to_the_same_events(
    name: str, protocol: str
) -> None:
    body = (RECORDINGS / "aisdk/7.0.169" / f"plain-text.{name}").read_bytes()
    whole = _events([body])
    assert _events([NEW[protocol] + body]) == whole
    assert _events([bytes([byte]) for byte in NEW[protocol]] + [body]) == whole


def test_the_buffer_for_unknown_chunks_is_limited() -> None:
    decoder = DetectingDecoder()
    for _ in range(START_LIMIT // 1024 + 2):
        decoder.feed(b'data: {"type":"new","is":"' + b"x" * 1024 + b'"}\n\n')
    assert len(decoder._start) <= START_LIMIT


@pytest.mark.parametrize(
    ("header", "protocol"),
    [("X-Vercel-AI-Data-Stream", "ai-sdk-data"), ("x-vercel-ai-ui-message-stream", "ai-sdk-ui")],
)
def test_a_header_selects_the_protocol(header: str, protocol: str) -> None:
    guarded = decoder_for("auto", 200, {header: "v1"})
    assert isinstance(guarded, GuardedDecoder)
    assert type(guarded.decoder) is type(AI_SDK_PROTOCOL.decoders[protocol]())


def test_an_unknown_protocol_is_an_error_that_lists_the_supported_ones() -> None:
    with pytest.raises(RequestError, match="ai-sdk-full"):
        decoder_for("ai-sdk")


def test_the_buffer_for_the_first_line_is_limited() -> None:
    decoder = DetectingDecoder()
    for _ in range(START_LIMIT // 1024 + 2):
        decoder.feed(b"x" * 1024)
    assert len(decoder._start) <= START_LIMIT


def _events(chunks: list[bytes]) -> list[Event]:
    decoder = decoder_for("auto")
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


@given(st.sampled_from([path for path, _ in AI_SDK if "tool-call" in path.name]), st.data())
@settings(max_examples=40, deadline=None)
def test_detection_does_not_depend_on_where_the_bytes_are_split(path: Path, data: st.DataObject) -> None:
    body = path.read_bytes()
    edges = [0, *sorted(data.draw(st.sets(st.integers(0, 80), max_size=5))), len(body)]
    whole = [event for event in _events([body]) if type(event).__name__ != "TextDelta"]
    cut = [
        event
        for event in _events([body[a:b] for a, b in pairwise(edges)])
        if type(event).__name__ != "TextDelta"
    ]
    assert cut == whole
