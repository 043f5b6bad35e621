"""What a part that is not text costs: images, documents, sound."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from math import ceil, sqrt

from tollbridge.types.media import detect_mime, image_size, is_text
from tollbridge.types.messages import DataPart

# SECTION What an image costs, from its width and height: the formulas of the providers.

# How many tokens an image of this width and height costs.
Price = Callable[[int, int], int]

# Where the size of an image cannot be read: a screenshot.
UNREADABLE = (1280, 800)


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
    width, height = image_size(data) or UNREADABLE
    return price_of(model)(width, height)


# SECTION What a part that is not text costs: images, documents, sound.

# Tokens of one page of a PDF. Claude reads the text and a picture of each page.
PAGE: tuple[tuple[str, int], ...] = (
    (r"claude", 3000),
    (r"gemini-[12]\b", 258),
    (r"gemini", 560),
    (r"", 1500),
)
# Tokens of one second of sound.
SECOND: tuple[tuple[str, int], ...] = (
    (r"gemini", 32),
    (r"", 10),
)
# What a second of compressed sound usually weighs: 128 kbit.
_BYTES_OF_A_SECOND = 16_000
# A PDF keeps its pages in plain sight or inside compressed objects; these many bytes are a usual page then.
_BYTES_OF_A_PAGE = 50_000
_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
# The root of the pages says how many there are; an outline's /Count is about bookmarks.
_PAGES = re.compile(rb"/Type\s*/Pages\b[^<>]*?/Count\s+(\d{1,6})|/Count\s+(\d{1,6})[^<>]*?/Type\s*/Pages\b")


def text_of(part: DataPart) -> str | None:
    """The text of a part that is sent as text."""
    return part.data.decode("utf-8", "replace") if is_text(detect_mime(part.data, part.mime)) else None


def media_tokens(model: str, part: DataPart) -> int:
    """What the provider's formula says. What no gateway takes is not sent, and costs nothing."""
    mime = detect_mime(part.data, part.mime)
    if mime.startswith("image/"):
        return image_tokens(model, part.data)
    if mime == "application/pdf":
        return pages(part.data) * _rate(PAGE, model)
    if mime.startswith("audio/"):
        return round(seconds(part.data) * _rate(SECOND, model))
    return 0


def _rate(table: tuple[tuple[str, int], ...], model: str) -> int:
    lowered = model.lower()
    return next(rate for pattern, rate in table if re.search(pattern, lowered))


def pages(pdf: bytes) -> int:
    """The pages of a PDF, at least one."""
    named = len(_PAGE.findall(pdf))
    counted = max((int(before or after) for before, after in _PAGES.findall(pdf)), default=0)
    return max(named, counted) or max(1, len(pdf) // _BYTES_OF_A_PAGE)


def seconds(sound: bytes) -> float:
    """How long a WAV is by its own header, anything else by its weight."""
    if sound[:4] == b"RIFF" and sound[8:12] == b"WAVE" and len(sound) >= 32:
        rate = struct.unpack_from("<I", sound, 28)[0]
        if rate:
            return float((len(sound) - 44) / rate)
    return len(sound) / _BYTES_OF_A_SECOND
