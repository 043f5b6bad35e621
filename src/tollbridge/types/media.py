"""The width and height of a picture, from its first bytes, and a small picture of our own."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from hashlib import blake2s

# SECTION What kind of file some bytes are. Labels lie; the first bytes do not.

# Signatures at their offsets, and what they mean together. Two letters alone (BM) open many a text.
_SIGNATURES: tuple[tuple[tuple[tuple[int, bytes], ...], str], ...] = (
    (((0, b"\x89PNG\r\n\x1a\n"),), "image/png"),
    (((0, b"\xff\xd8\xff"),), "image/jpeg"),
    (((0, b"GIF87a"),), "image/gif"),
    (((0, b"GIF89a"),), "image/gif"),
    (((0, b"RIFF"), (8, b"WEBP")), "image/webp"),
    (((4, b"ftypavif"),), "image/avif"),
    (((4, b"ftypheic"),), "image/heic"),
    (((0, b"BM"), (6, b"\0\0\0\0")), "image/bmp"),
    (((0, b"II*\x00"),), "image/tiff"),
    (((0, b"MM\x00*"),), "image/tiff"),
    (((0, b"%PDF-"),), "application/pdf"),
)
# Every image has a zero byte this early, no text has one at all.
_HEAD = 64
UNKNOWN = "application/octet-stream"
# Text under another name, and what is written in text whatever it is about: no gateway sees an SVG, every
# model reads one.
_TEXTS = frozenset({"application/javascript", "application/json", "application/xml", "application/yaml"})
_WRITTEN = ("+json", "+xml", "+yaml")
# What belongs to one vendor is for its own programs, our reasoning among it: no model is to read that.
_PRIVATE = "application/vnd."


def fingerprint(data: bytes) -> str:
    """A name for some bytes, short enough to remember thousands."""
    return blake2s(data, digest_size=12).hexdigest()


def sniff(data: bytes) -> str | None:
    """The mime type the bytes themselves show, or `None` where they show none."""
    for signatures, mime in _SIGNATURES:
        if all(data.startswith(signature, offset) for offset, signature in signatures):
            return mime
    return None


def display_mime(data: bytes, label: str) -> str:
    """The mime type to show a file as: an image, JSON, text, or what it is called where it is none of them.

    The label is believed where the bytes bear it out: text that is called a picture is shown as text.
    """
    label = label.partition(";")[0].strip().lower()
    is_json = label == "application/json" or label.endswith("+json")
    is_image = label.startswith("image/") and label != "image/svg+xml"
    found = sniff(data)
    if found is not None or not (is_json or is_image or label in ("", UNKNOWN)):
        return found or label
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return label if is_image else UNKNOWN
    if not text.lstrip().startswith(("{", "[")) and not is_json:
        return "text/plain"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text/plain"
    return label if is_json else "application/json"


def is_text(mime: str) -> bool:
    """Whether a model reads it as text. The mime type is bare and in small letters, as `true_mime` has it."""
    written = mime.endswith(_WRITTEN) and not mime.startswith(_PRIVATE)
    return mime.startswith("text/") or mime in _TEXTS or written


def detect_mime(data: bytes, label: str) -> str:
    """The mime type to believe, bare and in small letters: that of the bytes, or the label where they are
    silent. A text about pictures ("GIF89a is…") stays a text."""
    bare = label.partition(";")[0].strip().lower() or UNKNOWN
    if bare.startswith("text/") and b"\0" not in data[:_HEAD]:
        return bare
    return sniff(data) or bare


# SECTION The width and height of a picture, from its first bytes, and a small picture of our own.


def image_size(data: bytes) -> tuple[int, int] | None:
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
