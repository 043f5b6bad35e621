"""The width and height of a picture, from its first bytes, and a small picture of our own."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable


def size_of(data: bytes) -> tuple[int, int] | None:
    """Width and height as PNG, JPEG, GIF, WebP or BMP bytes state them, or `None`."""
    try:
        for signature, read in _READERS:
            if data.startswith(signature):
                size = read(data)
                return size if size and min(size) > 0 else None
    except (struct.error, IndexError):  # cut short
        return None
    return None


def _png(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    if struct.unpack_from("<I", data, 14)[0] == 12:  # the header of OS/2
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)  # negative: stored from the top


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[8:16]
    if kind == b"WEBPVP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"WEBPVP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"WEBPVP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


# Markers that stand alone: TEM, and RST0 to EOI.
_LONE = frozenset({0x01, *range(0xD0, 0xDA)})
# Start of frame, all kinds of it; the three gaps are tables, not frames.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0xFF:  # padding
            at += 1
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif marker in _LONE:
            at += 2
        else:
            at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    return None


_READERS: tuple[tuple[bytes, Callable[[bytes], tuple[int, int] | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8", _jpeg),
    (b"GIF87a", _gif),
    (b"GIF89a", _gif),
    (b"RIFF", _webp),
    (b"BM", _bmp),
)


def draw_png(width: int = 2, height: int = 2, colour: tuple[int, int, int] = (210, 105, 30)) -> bytes:
    """A real PNG of one colour."""
    rows = (b"\x00" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
