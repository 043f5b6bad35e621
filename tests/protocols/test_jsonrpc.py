"""JSON-RPC frames and messages, split anywhere, valid and invalid."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.protocols import jsonrpc
from tollbridge.protocols.jsonrpc import Call, Fault, InvalidMessage, Reader


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def read(data: bytes, **options: int) -> list[Call | InvalidMessage]:
    return Reader(**options).feed(data)


def only_fault(messages: list[Call | InvalidMessage]) -> InvalidMessage:
    (bad,) = messages
    assert isinstance(bad, InvalidMessage)
    return bad


CALLS = [
    {"jsonrpc": "2.0", "id": 1, "method": "count", "params": {"text": "wörter\u2028"}},
    {"jsonrpc": "2.0", "method": "settings", "params": [1]},
    {"jsonrpc": "2.0", "id": "a", "method": "status"},
]
STREAM = b"".join(map(frame, CALLS))


def test_requests_and_notifications_are_read() -> None:
    first, second, third = read(STREAM)
    assert isinstance(first, Call)
    assert (first.id, first.method) == (1, "count")
    assert msgspec.json.decode(first.params) == {"text": "wörter\u2028"}
    assert second == Call("settings", msgspec.Raw(b"[1]"), None)
    assert third == Call("status", msgspec.Raw(b"null"), "a")


@given(st.sets(st.integers(0, len(STREAM))))
def test_messages_do_not_depend_on_where_the_bytes_are_split(cuts: set[int]) -> None:
    reader = Reader()
    edges = [0, *sorted(cuts), len(STREAM)]
    messages = [call for a, b in pairwise(edges) for call in reader.feed(STREAM[a:b])]
    assert messages == read(STREAM)
    assert reader.idle


@given(st.binary())
def test_any_bytes_give_messages_or_faults_and_never_an_exception(data: bytes) -> None:
    read(data)


@given(st.binary(max_size=300))
def test_any_body_gives_a_message_or_a_fault_and_the_next_frame_is_read(body: bytes) -> None:
    *_, last = read(frame(body) + frame(CALLS[2]))
    assert last == Call("status", msgspec.Raw(b"null"), "a")


def test_other_headers_are_ignored_and_header_names_are_case_insensitive() -> None:
    body = json.dumps(CALLS[2]).encode()
    header = b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:%d\r\n\r\n" % len(
        body
    )
    assert len(read(header + body)) == 1


@pytest.mark.parametrize(
    "header", [b"Length: 5\r\n\r\n", b"Content-Length: five\r\n\r\n", b"Content-Length: -1\r\n\r\n"]
)
def test_a_header_without_a_length_loses_the_framing(header: bytes) -> None:
    bad = only_fault(read(header + STREAM))
    assert bad.unrecoverable
    assert bad.fault.code == jsonrpc.PARSE_ERROR
    assert "Content-Length" in bad.fault.message


def test_a_header_that_never_ends_loses_the_framing() -> None:
    reader = Reader()
    assert reader.feed(b"x" * jsonrpc.MAX_HEADER_BYTES) == []
    bad = only_fault(reader.feed(b"x"))
    assert bad.unrecoverable
    assert str(jsonrpc.MAX_HEADER_BYTES) in bad.fault.message
    assert reader.feed(STREAM) == []


def test_a_frame_over_the_limit_is_skipped_and_reported_with_its_id() -> None:
    big = {"jsonrpc": "2.0", "id": 7, "method": "chat", "params": "x" * 2000}
    bad, *rest = read(frame(big) + STREAM, max_frame_bytes=1000)
    assert isinstance(bad, InvalidMessage)
    assert (bad.id, bad.fault.code, bad.unrecoverable) == (7, jsonrpc.INVALID_REQUEST, False)
    assert "1000" in bad.fault.message
    assert rest == read(STREAM)


def test_a_frame_over_the_limit_is_not_buffered() -> None:
    reader = Reader(max_frame_bytes=1000)
    reader.feed(b"Content-Length: 1000000000\r\n\r\n")
    for _ in range(100):
        assert reader.feed(b"x" * 100_000) == []
    assert len(reader._buffer) == 0


@pytest.mark.parametrize(
    ("body", "code", "call_id"),
    [
        (b'{"jsonrpc":"2.0","id":4,"method":"chat","params":{', jsonrpc.PARSE_ERROR, 4),
        (b'{"jsonrpc":"2.0","id":"q","meth', jsonrpc.PARSE_ERROR, "q"),
        (b'\xff\xfe{"a":1}', jsonrpc.PARSE_ERROR, None),
        (b"", jsonrpc.PARSE_ERROR, None),
        (b'{"a":' * 100_000, jsonrpc.PARSE_ERROR, None),
        (b"[]", jsonrpc.INVALID_REQUEST, None),
        (b"3", jsonrpc.INVALID_REQUEST, None),
        (b'{"id":4,"method":"chat"}', jsonrpc.INVALID_REQUEST, 4),
        (b'{"jsonrpc":"2.0","id":4,"method":5}', jsonrpc.INVALID_REQUEST, 4),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', jsonrpc.INVALID_REQUEST, None),
    ],
)
def test_a_frame_without_a_valid_message_is_reported_and_the_next_is_read(
    body: bytes, code: int, call_id: jsonrpc.Id | None
) -> None:
    bad, *rest = read(frame(body) + STREAM)
    assert isinstance(bad, InvalidMessage)
    assert (bad.fault.code, bad.id, bad.unrecoverable) == (code, call_id, False)
    assert rest == read(STREAM)


def test_responses_are_ignored() -> None:
    assert read(frame({"jsonrpc": "2.0", "id": 1, "result": 3})) == []


def test_a_lone_surrogate_is_written_as_an_escape_sequence() -> None:
    call = jsonrpc.encode_notification("$/progress", {"text": "a\ud800"})
    head, _, body = call.partition(b"\r\n\r\n")
    assert head == b"Content-Length: %d" % len(body)
    assert json.loads(body)["params"] == {"text": "a\ud800"}


def test_the_content_length_is_in_bytes() -> None:
    assert (
        jsonrpc.encode_result(1, "é")
        == b'Content-Length: 38\r\n\r\n{"jsonrpc":"2.0","id":1,"result":"\xc3\xa9"}'
    )
    written = jsonrpc.encode_fault(None, Fault(jsonrpc.PARSE_ERROR, "no", {"kind": "protocol"}))
    assert json.loads(written.partition(b"\r\n\r\n")[2]) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "no", "data": {"kind": "protocol"}},
    }
    (call,) = read(jsonrpc.encode_notification("$/progress", {"token": 1}))
    assert call == Call("$/progress", msgspec.Raw(b'{"token":1}'))
