"""Images that a model generates: saved as files, and shown in the chat by a text.

VS Code's chat shows no image parts of an answer. In a text, it shows images of local files in a local window,
and elsewhere only those that are embedded as `data:` URLs. A path in backticks becomes a link to the file.

The few formats of PNG that image models produce are decoded here and not with Pillow: its wheel has 7 MB,
more than twice the size of Tollbridge itself, and only the preview in a remote window needs it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeGuard
from urllib.parse import quote

from tollbridge.frontends.vscode.limits import LIMITS
from tollbridge.transport.files import make_folder, replace_file
from tollbridge.types.media import detect_mime, encode_png
from tollbridge.types.messages import DataPart, Part

# The formats that are saved, with their suffixes. SVG is not among them: it can contain scripts.
SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}

_START = "![Image]("
_LINK = re.compile(r"!\[Image\]\(file://[^()!\s]*/(image-[0-9a-f]{16}\.(?:png|jpg|gif|webp))\)")
_EMBEDDED = re.compile(r"!\[Image\]\(data:image/[a-z]{1,9};base64,[A-Za-z0-9+/=]*\)")


class ImageWriter:
    """Saves the images of one answer and writes texts that show them in VS Code's chat.

    Args:
        folder: The folder in which images are saved.
        embed: Embed images in the text, for a chat that cannot show local files. Of a large PNG image, a
            smaller preview is embedded; other large images are only linked.
    """

    def __init__(self, folder: Path, *, embed: bool) -> None:
        self._folder = folder
        self._embed = embed
        self._room = LIMITS.embedded_characters

    def write(self, data: bytes) -> str:
        """Save an image and return a text with it and a link to its file; see `save_image`."""
        path = save_image(self._folder, data)
        if path is None:
            return ""
        # The path is quoted, so that it has no parentheses: see `_LINK`.
        link = f"{_START}file://{quote('/' + path.as_posix().removeprefix('/'))})"
        image = self._embed_image(data) if self._embed else link
        return "\n\n".join(("", *filter(None, (image, f"`{path}`")), ""))

    def _embed_image(self, data: bytes) -> str:
        """Return the image as Markdown, within two thirds of the room that is left, or an empty text."""
        size = self._room // 2  # bytes: base64 makes four characters of three
        if len(data) > size:
            data = shrink_png(data, size) or b""
        if not data:
            return ""
        image = f"{_START}data:{detect_mime(data, '')};base64,{base64.b64encode(data).decode()})"
        self._room -= len(image)
        return image


def is_image(part: Part) -> TypeGuard[DataPart]:
    return isinstance(part, DataPart) and part.mime in SUFFIXES


def save_image(folder: Path, data: bytes) -> Path | None:
    """Save an image and return its path; `None` if it is too large or has another format.

    The name depends only on the content, and the format is detected from it.

    Raises:
        OSError: The file cannot be written.
    """
    suffix = SUFFIXES.get(detect_mime(data, ""))
    if suffix is None or len(data) > LIMITS.image_bytes:
        return None
    path = folder / f"image-{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
    if not path.exists():
        make_folder(folder)
        replace_file(path, data)
        _delete_oldest(folder, path)
    return path


def shorten_images(text: str) -> str:
    """Remove embedded images, and the folders of linked ones: they are of no use to a model."""
    if _START not in text:
        return text
    return _LINK.sub(r"![Image](\1)", _EMBEDDED.sub("![Image]", text))


def shrink_png(data: bytes, size: int) -> bytes | None:
    """Return a PNG image with at most `size` bytes; `None` if the image cannot be read or is too large.

    Only 8 bits per channel, without a palette and without interlacing, can be read.
    """
    try:
        width, height, channels, rows = _read_png(data)
    except (ValueError, struct.error, zlib.error):
        return None
    for side in LIMITS.preview_sides:
        factor = min(-(-max(width, height) // side), width, height)
        small = _average(rows, factor, channels)
        for bits in LIMITS.preview_bits:
            mask = 0x100 - (1 << (8 - bits))
            masked = [bytes(value & mask for value in row) for row in small]
            preview = encode_png(len(masked[0]) // channels, channels, masked)
            if len(preview) <= size:
                return preview
    return None


def _read_png(data: bytes) -> tuple[int, int, int, list[bytearray]]:
    """Return the width, the height, the number of channels and the rows of pixels, or raise `ValueError`."""
    width, height, depth, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    channels = {0: 1, 2: 3, 4: 2, 6: 4}.get(colour)
    if channels is None or depth != 8 or interlaced:
        raise ValueError("unsupported format")
    stride = width * channels
    if not 0 < stride * height <= LIMITS.previewed_bytes:
        raise ValueError("unsupported size")
    compressed = b"".join(body for name, body in _iterate_chunks(data) if name == b"IDAT")
    pixels = zlib.decompressobj().decompress(compressed, (stride + 1) * height)
    if len(pixels) != (stride + 1) * height:
        raise ValueError("incomplete")
    rows, above = [], bytearray(stride)
    for start in range(0, len(pixels), stride + 1):
        above = _unfilter(pixels[start], bytearray(pixels[start + 1 : start + 1 + stride]), above, channels)
        rows.append(above)
    return width, height, channels, rows


def _iterate_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 8
    while position + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        yield name, data[position + 8 : position + 8 + length]
        position += length + 12


def _unfilter(kind: int, row: bytearray, above: bytearray, channels: int) -> bytearray:
    """Undo the filter of a row, see https://www.w3.org/TR/png-3/#9Filters. Changes and returns the row."""
    match kind:
        case 0:
            pass
        case 1:
            for n in range(channels, len(row)):
                row[n] = row[n] + row[n - channels] & 0xFF
        case 2:
            row[:] = bytes(a + b & 0xFF for a, b in zip(row, above, strict=True))
        case 3:
            for n, up in enumerate(above):
                left = row[n - channels] if n >= channels else 0
                row[n] = row[n] + (left + up >> 1) & 0xFF
        case 4:
            left = corner = 0
            for n, up in enumerate(above):
                if n >= channels:
                    left, corner = row[n - channels], above[n - channels]
                by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                if by_left <= by_up and by_left <= by_corner:
                    nearest = left
                else:
                    nearest = up if by_up <= by_corner else corner
                row[n] = row[n] + nearest & 0xFF
        case _:
            raise ValueError("unknown filter")
    return row


def _average(rows: Sequence[bytearray], factor: int, channels: int) -> list[list[int]]:
    """Return rows in which each pixel is the average of a square. What is left at the edges is dropped."""
    area = factor * factor
    averages = []
    for group in zip(*[iter(rows)] * factor, strict=False):
        sums = list(map(sum, zip(*group, strict=True)))
        columns = [
            [sum(values) // area for values in zip(*[iter(sums[channel::channels])] * factor, strict=False)]
            for channel in range(channels)
        ]
        averages.append([value for pixel in zip(*columns, strict=True) for value in pixel])
    return averages


def _delete_oldest(folder: Path, latest: Path) -> None:
    images = [path for path in folder.iterdir() if path.suffix[1:] in SUFFIXES.values() and path != latest]
    sizes = {path: path.stat() for path in images}
    total = latest.stat().st_size + sum(status.st_size for status in sizes.values())
    for path in sorted(images, key=lambda image: sizes[image].st_mtime):
        if total <= LIMITS.image_folder_bytes:
            break
        path.unlink(missing_ok=True)
        total -= sizes[path].st_size
