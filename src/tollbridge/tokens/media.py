"""Count images, PDF documents and audio by the providers' formulas."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from math import ceil, sqrt
from typing import TypeVar

from tollbridge.types.media import detect_mime, image_size, is_text
from tollbridge.types.messages import DataPart
from tollbridge.types.models import ID_LIMIT

T = TypeVar("T")
# Returns the tokens of an image of this width and height.
Price = Callable[[int, int], int]

# The size assumed for an image whose size cannot be read: a screenshot.
DEFAULT_SIZE = (1280, 800)


def tiles(base: int, tile: int) -> Price:
    """OpenAI's tiles: scale down to 2048 x 2048, then the short side to 768, then count squares of 512."""

    def price(width: int, height: int) -> int:
        scale = min(1.0, 2048 / max(width, height))
        scale = min(scale, 768 / min(width, height))
        return base + tile * ceil(width * scale / 512) * ceil(height * scale / 512)

    return price


def patches(budget: int, multiplier: float) -> Price:
    """OpenAI's patches of 32 x 32 pixels. A larger image is scaled down until the patches fit the budget."""

    def price(width: int, height: int) -> int:
        count = ceil(width / 32) * ceil(height / 32)
        if count > budget:
            scale = sqrt(budget * 32 * 32 / (width * height))
            # Scale again, so that whole patches fit on both sides.
            across, down = width * scale / 32, height * scale / 32
            scale *= min(max(1, int(across)) / across, max(1, int(down)) / down)
            count = min(budget, ceil(width * scale / 32 - 1e-9) * ceil(height * scale / 32 - 1e-9))
        return ceil(count * multiplier)

    return price


def claude(edge: int, limit: int) -> Price:
    """Anthropic's patches of 28 x 28 pixels, scaled down to the longest edge, and at most `limit`."""

    def price(width: int, height: int) -> int:
        scale = min(1.0, edge / max(width, height))
        count = ceil(width * scale / 28) * ceil(height * scale / 28)
        return min(count, limit)

    return price


def gemini_tiles(width: int, height: int) -> int:
    """Gemini 1 and 2: tiles of 768 x 768 pixels; one tile for a small image."""
    if max(width, height) <= 384:
        return 258
    return 258 * ceil(width / 768) * ceil(height / 768)


def flat(tokens: int) -> Price:
    """The same number of tokens for every image."""
    return lambda _width, _height: tokens


# The first pattern found in the model id decides. Sources disagree on the multiplier of the large models that
# count patches (1.0 or 1.2). The higher one is used, because counting too low is worse; the rest is learned.
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
    (r"claude.{0,40}(opus-(4[.-][7-9]|[5-9])|(sonnet|haiku)-[5-9])", claude(2576, 4784)),
    (r"claude", claude(1568, 1568)),
    (r"gemini-[12]\b", gemini_tiles),
    (r"gemini", flat(1120)),
    (r"gemma", flat(256)),
    (r"", tiles(85, 170)),  # OpenAI's oldest formula, for models without documentation
)


@lru_cache(maxsize=1024)
def price_of(model: str) -> Price:
    return _find_entry(PRICES, model)


# Tokens per page of a PDF. Claude reads the text and an image of each page.
PAGE_TOKENS: tuple[tuple[str, int], ...] = (
    (r"claude", 3000),
    (r"gemini-[12]\b", 258),
    (r"gemini", 560),
    (r"", 1500),
)
# Tokens per second of audio.
SECOND_TOKENS: tuple[tuple[str, int], ...] = (
    (r"gemini", 32),
    (r"", 10),
)
# Bytes per second of compressed audio, at 128 kbit/s.
_BYTES_PER_SECOND = 16_000
# Bytes per page of a PDF, used if its page objects are compressed and cannot be counted.
_BYTES_PER_PAGE = 50_000
# The entries of PDF dictionaries that tell the number of pages, and the brackets around dictionaries. White
# space is limited, so that a file of it is read in linear time.
_PDF_ENTRIES = re.compile(rb"/Type\s{0,9}/(Pages?)(?![a-zA-Z])|/Count\s{1,9}(\d{1,6})|[<>]")


def text_of(part: DataPart) -> str | None:
    """Return the text of a part that is sent as text; `None` for any other part."""
    return part.data.decode("utf-8", "replace") if is_text(detect_mime(part.data, part.mime)) else None


def media_tokens(model: str, part: DataPart) -> int:
    """Return the tokens of a part by the provider's formula; 0 for types that are not sent at all."""
    mime = detect_mime(part.data, part.mime)
    if mime.startswith("image/"):
        return price_of(model)(*(image_size(part.data) or DEFAULT_SIZE))
    if mime == "application/pdf":
        return count_pages(part.data) * _find_entry(PAGE_TOKENS, model)
    if mime.startswith("audio/"):
        return round(audio_seconds(part.data) * _find_entry(SECOND_TOKENS, model))
    return 0


def _find_entry(table: tuple[tuple[str, T], ...], model: str) -> T:
    lowered = model[:ID_LIMIT].lower()
    return next(entry for pattern, entry in table if re.search(pattern, lowered))


def count_pages(pdf: bytes) -> int:
    """Return the number of pages of a PDF, at least one."""
    pages = counted = 0
    is_root, count = False, 0  # of the current dictionary
    for kind, number in _PDF_ENTRIES.findall(pdf):
        if kind == b"Page":
            pages += 1
        elif kind:
            is_root = True
        elif number:
            count = max(count, int(number))
        else:  # a bracket
            is_root, count = False, 0
        # The root of the page tree has the number of pages. The /Count of an outline counts bookmarks.
        counted = max(counted, count if is_root else 0)
    return max(pages, counted) or max(1, len(pdf) // _BYTES_PER_PAGE)


def audio_seconds(audio: bytes) -> float:
    """Return the duration of a WAV file by its header, of any other file by its size."""
    if audio[:4] == b"RIFF" and audio[8:12] == b"WAVE" and len(audio) >= 32:
        rate = struct.unpack_from("<I", audio, 28)[0]
        if rate:
            return float((len(audio) - 44) / rate)
    return len(audio) / _BYTES_PER_SECOND
