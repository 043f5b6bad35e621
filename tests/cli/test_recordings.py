from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import pytest

from tollbridge.cli.replay import decompress, find_headers, read_headers, replay_response
from tollbridge.protocols.detect import GuardedDecoder
from tollbridge.types.events import Event


@pytest.mark.parametrize(
    ("text", "status", "headers"),
    [
        (
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\n\r\n",
            429,
            {"retry-after": "3"},
        ),
        ("HTTP/2 200\nContent-Type: text/event-stream\n", 200, {"content-type": "text/event-stream"}),
        (
            "HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
            "HTTP/1.1 503 Busy\r\nX-A: 1:2\r\n\r\n",
            503,
            {"x-a": "1:2"},
        ),
        ("content-type: application/json", None, {"content-type": "application/json"}),
        ("nonsense", None, {}),
        ("", None, {}),
    ],
)
def test_the_headers_of_the_last_response_are_used(
    text: str, status: int | None, headers: dict[str, str]
) -> None:
    assert read_headers(text) == (status, headers)


def test_headers_are_read_from_the_file_with_the_same_name(tmp_path: Path) -> None:
    body = tmp_path / "a.b-stream.sse"
    body.write_bytes(b'{"error": {"message": "Too long."}}')
    assert find_headers(body) == (None, {})
    (tmp_path / "a.b-stream.headers").write_bytes(b"HTTP/1.1 400\r\nX-Odd: caf\xe9\r\n")
    assert find_headers(body) == (400, {"x-odd": "café"})
    error = replay_response(body, "auto").error
    assert error is not None
    assert (error.status, error.message) == (400, "Too long.")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_the_bytes_of_the_file_are_decoded_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    chunks: list[bytes] = []

    def feed(_decoder: GuardedDecoder, data: bytes) -> list[Event]:
        chunks.append(data)
        return []

    monkeypatch.setattr(GuardedDecoder, "feed", feed)
    body = b"".join(b"data: %d\r\n\r\n" % number for number in range(20_000))
    (tmp_path / "a.sse").write_bytes(compress(body))
    (tmp_path / "a.headers").write_text("HTTP/1.1 200\nContent-Encoding: gzip\n")
    replay_response(tmp_path / "a.sse", "auto")
    assert b"".join(chunks) == body
    assert len(chunks) > 1


def test_a_headers_file_is_not_its_own_headers(tmp_path: Path) -> None:
    (tmp_path / "a.headers").write_text("HTTP/1.1 400\n")
    assert find_headers(tmp_path / "a.headers") == (None, {})


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(b"body" * 100, mtime=0), "gzip"),
        (gzip.compress(b"body" * 100, mtime=0), "GZIP"),
        (zlib.compress(b"body" * 100), "deflate"),
        (brotli.compress(b"body" * 100), "br"),
        (b"body" * 100, "gzip"),
        (b"body" * 100, "br"),
        (b"body" * 100, "identity"),
        (b"body" * 100, ""),
    ],
)
def test_a_compressed_body_is_decompressed(body: bytes, encoding: str) -> None:
    assert decompress(body, encoding) == b"body" * 100


def test_a_truncated_body_is_decompressed_as_far_as_possible() -> None:
    whole = bytes(range(256)) * 100
    assert whole.startswith(decompress(gzip.compress(whole)[:-20], "gzip")[:200])
    assert len(decompress(gzip.compress(whole)[:-20], "gzip")) > 0
