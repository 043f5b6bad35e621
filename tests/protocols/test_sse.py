"""Frames are decoded by the WHATWG rules, wherever the bytes are split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollbridge.protocols import sse
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, SseDecoder


def decode(chunks: list[bytes], limit: int = FRAME_LIMIT) -> list[Frame]:
    decoder = SseDecoder(limit)
    return [frame for chunk in chunks for frame in decoder.feed(chunk)] + decoder.close()


def decode_by_the_standard(stream: bytes) -> list[Frame]:
    """Decode a complete stream with the algorithm of the standard."""
    stream = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    frames: list[Frame] = []
    event, data = b"", list[bytes]()
    # Unlike in the standard, a last frame without its blank line is returned: the gateway has sent it.
    for line in [*stream.split(b"\n"), b"", b""]:
        if line == b"":
            if data:
                frames.append((event, b"\n".join(data)))
            event, data = b"", []
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    return frames


CASES: dict[str, tuple[bytes, list[Frame]]] = {
    "lines end with LF": (b"data: 1\n\ndata: 2\n\n", [(b"", b"1"), (b"", b"2")]),
    "lines end with CRLF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [(b"", b"1"), (b"", b"2")]),
    "lines end with CR": (b"data: 1\r\rdata: 2\r\r", [(b"", b"1"), (b"", b"2")]),
    "line ends of all kinds are mixed": (
        b"data: 1\r\ndata: 2\n\rdata: 3\r\r\n",
        [(b"", b"1\n2"), (b"", b"3")],
    ),
    "a frame has a name": (b"event: e\ndata: 1\n\n", [(b"e", b"1")]),
    "named and nameless frames take turns": (
        b"event: e\ndata: 1\n\ndata: 2\n\nevent: f\ndata: 3\n\n",
        [(b"e", b"1"), (b"", b"2"), (b"f", b"3")],
    ),
    "the name comes after the data": (b"data: 1\nevent: e\n\n", [(b"e", b"1")]),
    "a byte order mark is no part of the first line": (b"\xef\xbb\xbfdata: 1\n\n", [(b"", b"1")]),
    "a byte order mark elsewhere is part of its line": (
        b"data: 1\n\n\xef\xbb\xbfdata: 2\n\ndata: 3\n\n",
        [(b"", b"1"), (b"", b"3")],
    ),
    "comments are nothing": (b": ping\n\ndata: 1\n: ping\n\n", [(b"", b"1")]),
    "many comments are nothing": (b": ping\n" * 9 + b"data: 1\n" + b":\n" * 9 + b"\n", [(b"", b"1")]),
    "a blank line between many comments ends a frame": (
        b"data: 1\n" + b": ping\n" * 9 + b"\n" + b": ping\n" * 9 + b"data: 2\n\n",
        [(b"", b"1"), (b"", b"2")],
    ),
    "comments after a CR do not join it to the next line end": (
        b"data: 1\r" + b":\n" * 9 + b"\ndata: 2\r\n\r\n",
        [(b"", b"1"), (b"", b"2")],
    ),
    "several data lines are one text": (b"data: 1\ndata: 2\ndata:\n\n", [(b"", b"1\n2\n")]),
    "the space after the colon may be missing": (
        b"data:1\n\nevent:e\ndata:2\n\n",
        [(b"", b"1"), (b"e", b"2")],
    ),
    "only one space belongs to the colon": (b"data:  1\n\n", [(b"", b" 1")]),
    "data may be empty": (b"data:\n\ndata: \n\n", [(b"", b""), (b"", b"")]),
    "a field without a colon has an empty value": (b"data\n\n", [(b"", b"")]),
    "a frame without data is nothing": (b"event: e\n\nid: 7\n\ndata: 1\n\n", [(b"", b"1")]),
    "unknown fields are nothing": (b"id: 7\nretry: 10\nfoo: bar\ndata: 1\n\n", [(b"", b"1")]),
    "a field whose name only ends in data is unknown": (b"xdata: 1\n\ndata: 2\n\n", [(b"", b"2")]),
    "the last frame is not ended": (b"data: 1\n\ndata: 2", [(b"", b"1"), (b"", b"2")]),
    "the last frame is half ended": (b"data: 1\n\nevent: e\ndata: 2\n", [(b"", b"1"), (b"e", b"2")]),
    "blank lines in a row": (b"\n\n\ndata: 1\n\n\n\ndata: 2\n\n\n", [(b"", b"1"), (b"", b"2")]),
    "line separators of Unicode are text": (
        "data: a\u2028b\u2029c\u0085d\x0b\x0ce\n\n".encode(),
        [(b"", "a\u2028b\u2029c\u0085d\x0b\x0ce".encode())],
    ),
    "nothing at all": (b"", []),
}


@pytest.mark.parametrize("case", CASES)
def test_frames_are_decoded_by_the_standard(case: str) -> None:
    stream, frames = CASES[case]
    assert decode([stream]) == frames
    assert decode_by_the_standard(stream) == frames


@pytest.mark.parametrize("case", CASES)
def test_frames_are_the_same_byte_by_byte(case: str) -> None:
    stream, frames = CASES[case]
    assert decode([stream[at : at + 1] for at in range(len(stream))]) == frames


# Pieces of streams that are difficult to parse; any sequence of them is a stream.
FRAMES = [b"data: x\n\n", b"event: e\ndata: y\n\n"]
FIELDS = [b"data: x", b"data:", b"data", b"event: e", b"event:", b": c", b"id: 1"]
RUNS = [b": c\n" * 5, b":\n\n" * 5, b":\r" * 5]
ENDS = [b"\n", b"\n\n", b"\n\n\n\n", b"\r", b"\r\n", b"\r\n\r\n"]
OTHERS = [b" ", b"\xef\xbb\xbf", "é\u2028".encode(), b"\xff", b"{}"]
PIECES = st.sampled_from([*FRAMES, *FIELDS, *RUNS, *ENDS, *OTHERS])
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


@settings(max_examples=1000)
@given(STREAMS, st.data())
def test_the_result_does_not_depend_on_where_the_bytes_are_split(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=8))
    edges = [0, *sorted(cuts), len(stream)]
    assert decode([stream[a:b] for a, b in pairwise(edges)]) == decode_by_the_standard(stream)


@settings(max_examples=500)
@given(STREAMS, st.data())
def test_the_result_does_not_depend_on_when_a_long_frame_is_decoded_line_by_line(
    stream: bytes, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=8))
    edges = [0, *sorted(cuts), len(stream)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "BUFFER_LIMIT", data.draw(st.integers(0, 20)))
        assert decode([stream[a:b] for a, b in pairwise(edges)]) == decode_by_the_standard(stream)


@settings(max_examples=500)
@given(STREAMS)
def test_the_payloads_of_a_block_are_the_data_of_its_frames(stream: bytes) -> None:
    decoder, whole = SseDecoder(), SseDecoder()
    block = decoder.buffer(stream)
    payloads = decoder.extract_payloads(block) if block else None
    if payloads is not None:
        assert payloads == [data for _, data in whole.feed(stream)]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_frame_over_the_limit_is_an_error_that_names_the_limit(size: int) -> None:
    stream = b"data: first\n\n" + b"data: " + b"x" * 200 + b"\n\ndata: last\n\n"
    decoder = SseDecoder(limit=100)
    frames = [f for at in range(0, len(stream), size) for f in decoder.feed(stream[at : at + size])]
    assert frames + decoder.close() == [(b"", b"first")]
    assert decoder.error is not None
    assert "100 bytes" in decoder.error.message


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_frame_of_exactly_the_limit_is_accepted(ends: bytes, size: int) -> None:
    frame = b"data: " + b"x" * 93  # 99 bytes, and one for the end of the line
    stream = (frame + ends + ends) * 3
    decoder = SseDecoder(limit=100)
    frames = [f for at in range(0, len(stream), size) for f in decoder.feed(stream[at : at + size])]
    assert frames == [(b"", b"x" * 93)] * 3
    assert decoder.error is None


def test_a_comment_without_end_is_limited() -> None:
    decoder = SseDecoder(limit=100)
    for _ in range(50):
        decoder.feed(b": keep alive ")
    assert decoder.error is not None


def test_comments_do_not_count_as_part_of_a_frame() -> None:
    decoder = SseDecoder(limit=100)
    for _ in range(50):
        assert decoder.feed(b": keep alive\n") == []
    assert decoder.feed(b"data: 1\n\n") == [(b"", b"1")]
    assert decoder.error is None


def test_many_lines_without_a_frame_are_not_kept() -> None:
    """Else they would all be decoded at once, for seconds, when the frame or the stream ends."""
    decoder = SseDecoder()
    for _ in range(100):
        decoder.feed(b": keep alive\n" * 1000)
    kept = sum(map(len, decoder._buffer)) + sum(map(len, decoder._lines._partial))
    assert kept <= sse.BUFFER_LIMIT + 13_000
    assert decoder.close() == []


def test_after_a_long_frame_the_fast_paths_are_used_again() -> None:
    decoder = SseDecoder()
    image = b"data: " + b"x" * 100_000
    assert decoder.feed(image[:70_000]) == []
    assert decoder.feed(image[70_000:] + b"\n\n") == [(b"", b"x" * 100_000)]
    block = decoder.buffer(b"data: 1\n\ndata: 2\n\n")
    assert decoder.extract_payloads(block) == [b"1", b"2"]


def test_decoding_time_of_a_large_frame_in_small_pieces_is_linear() -> None:
    # Joining the buffer at every piece would copy the frame a thousand times: 16 GB in this test.
    decoder = SseDecoder()
    piece = b"x" * 1024
    decoder.feed(b"data: ")
    for _ in range(32 * 1024):
        assert decoder.feed(piece) == []
    assert [len(data) for _, data in decoder.feed(b"\n\n")] == [32 * 1024 * 1024]
