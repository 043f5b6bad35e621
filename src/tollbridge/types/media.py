"""File contents: the mime type and the image size, read from the first bytes.

The label of a file is often wrong (VS Code labels PNG bytes `image/jpeg`), so the bytes decide.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2s

# The bytes at certain offsets that identify a format. BMP needs a second test: many texts begin with "BM".
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
# Every image has a zero byte within its first 64 bytes; a text has none.
_HEAD = 64
UNKNOWN = "application/octet-stream"
# Mime types outside `text/` that are text. SVG is among them: gateways do not accept it as an image, but
# models can read it as text.
_TEXT_TYPES = frozenset({"application/javascript", "application/json", "application/xml", "application/yaml"})
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
# Vendor types (among them the reasoning packs of Tollbridge) are for programs, not for models.
_VENDOR_PREFIX = "application/vnd."


def split_data_url(url: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of a base64 `data:` URL.

    Raises:
        ValueError: The text is not a base64 `data:` URL.
    """
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ValueError("not a base64 data URL")
    try:
        return head[5:-7] or "text/plain", base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise ValueError("its base64 is invalid") from error


def fingerprint(data: bytes) -> str:
    """Return a short digest that identifies some bytes."""
    return blake2s(data, digest_size=12).hexdigest()


def sniff(data: bytes) -> str | None:
    """Return the mime type that the first bytes identify, or `None`."""
    for signatures, mime in _SIGNATURES:
        if all(data.startswith(signature, offset) for offset, signature in signatures):
            return mime
    return None


def display_mime(data: bytes, label: str) -> str:
    """Return the mime type under which an editor should display a file.

    It is the type that the bytes identify. If they identify none, it is the label, unless the content
    contradicts it: text that is labelled as an image is `text/plain` or JSON.
    """
    label = label.partition(";")[0].strip().lower()
    is_json = label == "application/json" or label.endswith("+json")
    is_image = label.startswith("image/") and label != "image/svg+xml"
    detected = sniff(data)
    if detected is not None or not (is_json or is_image or label in ("", UNKNOWN)):
        return detected or label
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
    """Return whether models can read a file as text.

    Args:
        mime: A mime type in lower case and without parameters, as `detect_mime` returns it.
    """
    has_text_suffix = mime.endswith(_TEXT_SUFFIXES) and not mime.startswith(_VENDOR_PREFIX)
    return mime.startswith("text/") or mime in _TEXT_TYPES or has_text_suffix


def detect_mime(data: bytes, label: str) -> str:
    """Return the mime type of a file in lower case and without parameters.

    It is the type that the bytes identify, or the label if they identify none. A text that begins with an
    image signature ("GIF89a is…") stays a text.
    """
    bare = label.partition(";")[0].strip().lower() or UNKNOWN
    if bare.startswith("text/") and b"\0" not in data[:_HEAD]:
        return bare
    return sniff(data) or bare


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, JPEG, GIF, WebP or BMP image, or `None` if it cannot be read."""
    read = _SIZE_READERS.get(sniff(data) or "")
    try:
        size = read(data) if read else None
    except (struct.error, IndexError):  # truncated file
        return None
    return size if size and min(size) > 0 else None


def _unpack_size(layout: str, offset: int, data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(layout, data, offset)
    return width, height


def _bmp_size(data: bytes) -> tuple[int, int]:
    is_old = struct.unpack_from("<I", data, 14)[0] == 12  # the OS/2 header
    width, height = _unpack_size("<HH" if is_old else "<ii", 18, data)
    return width, abs(height)  # negative: the rows are stored from the top down


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[8:16]
    if kind == b"WEBPVP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"WEBPVP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"WEBPVP8 ":
        width, height = _unpack_size("<HH", 26, data)
        return width & 0x3FFF, height & 0x3FFF
    return None


# JPEG markers without a length: TEM, and RST0 to EOI.
_MARKERS_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xDA)})
# JPEG start-of-frame markers. The three gaps are tables.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    offset = 2
    while offset + 9 <= len(data):
        marker = data[offset + 1]
        if data[offset] != 0xFF or marker == 0xFF:  # padding
            offset += 1
        elif marker in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, offset + 5)
            return width, height
        elif marker in _MARKERS_WITHOUT_LENGTH:
            offset += 2
        else:
            offset += 2 + max(2, struct.unpack_from(">H", data, offset + 2)[0])
    return None


_SIZE_READERS: dict[str, Callable[[bytes], tuple[int, int] | None]] = {
    "image/png": partial(_unpack_size, ">II", 16),
    "image/jpeg": _jpeg_size,
    "image/gif": partial(_unpack_size, "<HH", 6),
    "image/webp": _webp_size,
    "image/bmp": _bmp_size,
}


def draw_png(width: int = 2, height: int = 2, colour: tuple[int, int, int] = (210, 105, 30)) -> bytes:
    """Return a valid PNG image of one colour."""
    return encode_png(width, 3, [bytes(colour) * width] * height)


def encode_png(width: int, channels: int, rows: Sequence[bytes]) -> bytes:
    """Return rows of pixels as a PNG image.

    Args:
        width: The number of pixels of a row.
        channels: The bytes of a pixel: 1 (grey), 2 (grey and alpha), 3 (RGB) or 4 (RGB and alpha).
        rows: The pixels.
    """
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, len(rows), 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(_filter_rows(rows, channels), 9)), (b"IEND", b""))
    image = b"\x89PNG\r\n\x1a\n"
    for name, body in chunks:
        image += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return image


def _filter_rows(rows: Sequence[bytes], channels: int) -> bytes:
    """Return the differences to the pixels on the left, which are smaller when compressed than the pixels."""
    filtered = {  # equal rows are filtered once
        row: b"\x01" + bytes(a - b & 0xFF for a, b in zip(row, bytes(channels) + row, strict=False))
        for row in dict.fromkeys(rows)
    }
    return b"".join(filtered[row] for row in rows)
