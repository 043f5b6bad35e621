"""What can be said of an image from its first bytes, and a tiny image of our own."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib

import msgspec

from tollbridge.core.media import sniff


class Picture(msgspec.Struct, frozen=True):
    """`size` is width and height in pixels, where the bytes tell."""

    mime: str
    size: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.mime} of unknown size"
        return f"{self.mime}, {self.size[0]} × {self.size[1]} pixels"


def split_data_url(url: str) -> tuple[str, bytes]:
    """The label and the bytes of a base64 `data:` URL; raises `ValueError` where it is not one."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ValueError("not a base64 data URL")
    try:
        return head[5:-7] or "text/plain", base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise ValueError("its base64 is broken") from error


def read_picture(data: bytes) -> Picture | None:
    """What the bytes show, or `None` where they are no image we know."""
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        return None
    measure = _MEASURES.get(mime)
    try:
        return Picture(mime, measure(data) if measure else None)
    except (struct.error, IndexError):
        return Picture(mime)


def _measure_png(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _measure_gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _measure_jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        # Start-of-frame markers hold the size; C4, C8 and CC share their range and do not.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None


def _measure_webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = struct.unpack_from("<I", data, 21)[0]
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return (
                int.from_bytes(data[24:27], "little") + 1,
                int.from_bytes(data[27:30], "little") + 1,
            )
    return None


_MEASURES = {
    "image/png": _measure_png,
    "image/gif": _measure_gif,
    "image/jpeg": _measure_jpeg,
    "image/webp": _measure_webp,
}


def draw_png(width: int = 2, height: int = 2, colour: tuple[int, int, int] = (210, 105, 30)) -> bytes:
    """A real PNG of one colour."""
    rows = (b"\x00" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
