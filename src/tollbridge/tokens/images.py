"""What an image costs: its width and height from the first bytes, and the formulas of the providers."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from math import ceil, sqrt

# How many tokens an image of this width and height costs.
Price = Callable[[int, int], int]

# Where the size of an image cannot be read: a screenshot.
UNREADABLE = (1280, 800)


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


def tiles(base: int, tile: int) -> Price:
    """OpenAI's tiles: into 2048 x 2048, the short side to 768, then squares of 512."""

    def price(width: int, height: int) -> int:
        scale = min(1.0, 2048 / max(width, height))
        scale = min(scale, 768 / min(width, height))
        return base + tile * ceil(width * scale / 512) * ceil(height * scale / 512)

    return price


def patches(budget: int, multiplier: float) -> Price:
    """OpenAI's patches of 32 pixels, as many as the budget lets in."""

    def price(width: int, height: int) -> int:
        count = ceil(width / 32) * ceil(height / 32)
        if count > budget:
            scale = sqrt(budget * 32 * 32 / (width * height))
            # Scaled again so that whole patches fit on both sides.
            across, down = width * scale / 32, height * scale / 32
            scale *= min(max(1, int(across)) / across, max(1, int(down)) / down)
            count = min(budget, ceil(width * scale / 32 - 1e-9) * ceil(height * scale / 32 - 1e-9))
        return ceil(count * multiplier)

    return price


def claude(edge: int, most: int) -> Price:
    """Anthropic's patches of 28 pixels, scaled down to the longest edge and the most tokens."""

    def price(width: int, height: int) -> int:
        scale = min(1.0, edge / max(width, height))
        count = ceil(width * scale / 28) * ceil(height * scale / 28)
        return min(count, most)

    return price


def gemini_tiles(width: int, height: int) -> int:
    if max(width, height) <= 384:
        return 258
    return 258 * ceil(width / 768) * ceil(height / 768)


def flat(tokens: int) -> Price:
    return lambda _width, _height: tokens


# The first pattern found in the model's id decides. Sources disagree on the multiplier of the big models
# that count patches (1.0 or 1.2): the dangerous side is to count too low, and the rest is learned.
PRICES: tuple[tuple[str, Price], ...] = (
    (r"gpt-4o-mini", tiles(2833, 5667)),
    (r"gpt-4\.1-nano|gpt-5(\.\d+)?-nano", patches(1536, 2.46)),
    (r"gpt-4\.1-mini|gpt-5(\.\d+)?-mini", patches(1536, 1.62)),
    (r"o4-mini", patches(1536, 1.72)),
    (r"computer-use", tiles(65, 129)),
    (r"\bo[13]\b", tiles(75, 150)),
    (r"gpt-5\.[23]", patches(1536, 1.2)),
    (r"gpt-5\.[4-9]|gpt-[6-9]", patches(2500, 1.2)),
    (r"gpt-5", tiles(70, 140)),
    (r"claude.*(opus-(4[.-][7-9]|[5-9])|(sonnet|haiku)-[5-9])", claude(2576, 4784)),
    (r"claude", claude(1568, 1568)),
    (r"gemini-[12]\b", gemini_tiles),
    (r"gemini", flat(1120)),
    (r"gemma", flat(256)),
)
_COMPILED = tuple((re.compile(pattern), price) for pattern, price in PRICES)
_USUAL = tiles(85, 170)


@lru_cache(maxsize=1024)
def price_of(model: str) -> Price:
    """The formula for a model; OpenAI's first one where nothing is documented."""
    lowered = model.lower()
    return next((price for pattern, price in _COMPILED if pattern.search(lowered)), _USUAL)


def image_tokens(model: str, data: bytes) -> int:
    width, height = size_of(data) or UNREADABLE
    return price_of(model)(width, height)
