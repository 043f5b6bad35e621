"""What a part that is not text costs: images, documents, sound."""

from __future__ import annotations

import re
import struct

from tollbridge.core.media import is_text, true_mime
from tollbridge.core.messages import DataPart
from tollbridge.tokens.images import image_tokens

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
    return part.data.decode("utf-8", "replace") if is_text(true_mime(part.data, part.mime)) else None


def media_tokens(model: str, part: DataPart) -> int:
    """What the provider's formula says. What no gateway takes is not sent, and costs nothing."""
    mime = true_mime(part.data, part.mime)
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
