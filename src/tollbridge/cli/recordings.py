"""Recorded response bytes on disk, with the status and headers kept beside them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import msgspec

from tollbridge.core.errors import RequestError

LIMIT = 512 * 1024 * 1024
_CHUNK = 1 << 16
_STATUS = re.compile(r"HTTP/[\d.]+ (\d{3})\b")


class Recording(msgspec.Struct, frozen=True):
    """`status` is `None` and `headers` empty where no `.headers` file lies beside the body."""

    path: Path
    status: int | None = None
    headers: dict[str, str] = {}

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces, unpacked where it was kept as it travelled. Raises OSError and RequestError."""
        with self.path.open("rb") as file:
            kept = file.read(LIMIT + 1)
        if len(kept) > LIMIT:
            raise RequestError(f"{self.path} is longer than {LIMIT >> 20} MiB, the most that is replayed.")
        body = unpacked(kept, self.headers.get("content-encoding", ""))
        for start in range(0, len(body), _CHUNK):
            yield body[start : start + _CHUNK]


def open_recording(path: Path) -> Recording:
    """Raises OSError where the headers are there and cannot be read."""
    beside = path.parent / f"{path.stem}.headers"
    if beside == path or not beside.exists():
        return Recording(path)
    status, headers = read_headers(beside.read_text(encoding="latin-1"))
    return Recording(path, status, headers)


def read_headers(text: str) -> tuple[int | None, dict[str, str]]:
    """Status and headers (names in lower case) of the last reply: proxies and 1xx write theirs before it."""
    status: int | None = None
    headers: dict[str, str] = {}
    for line in re.split(r"\r?\n", text):
        if found := _STATUS.match(line):
            status, headers = int(found[1]), {}
        elif ":" in line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return status, headers


def unpacked(body: bytes, encoding: str) -> bytes:
    """The body without its content encoding. Most recorders take that off and keep the header, so a body
    that is not packed is taken as it is; one that was cut gives what can be had."""
    unpack = _UNPACKERS.get(encoding.lower())
    if unpack is None:
        return body
    try:
        return unpack(body)
    except (zlib.error, brotli.error):
        return body


_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: zlib.decompressobj(wbits=31).decompress(body),
    "deflate": lambda body: zlib.decompressobj().decompress(body),
    "br": lambda body: bytes(brotli.Decompressor().process(body)),
}
