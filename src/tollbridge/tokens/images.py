"""What an image costs, from its width and height: the formulas of the providers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from math import ceil, sqrt

from tollbridge.core.pictures import size_of

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
    width, height = size_of(data) or UNREADABLE
    return price_of(model)(width, height)
