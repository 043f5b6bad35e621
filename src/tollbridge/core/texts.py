"""Texts that a wire can carry: whole characters, and no longer than it takes."""

from __future__ import annotations

from typing import Any

# As the protocol limits one text, the data URL of an image and the data of a file, in characters.
MAX_TEXT = 10_485_760
MAX_IMAGE_URL = 20_971_520
MAX_FILE_DATA = 33_554_432


def mended(text: str) -> str:
    """Halves of a character are joined where they meet; one that is alone is shown as what it is, unknown."""
    if text.isascii():
        return text
    try:
        text.encode()  # much faster than looking for them
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def whole(value: Any) -> Any:
    """A JSON value with all of its texts mended."""
    match value:
        case str():
            return mended(value)
        case list():
            return [whole(each) for each in value]
        case dict():
            return {mended(name): whole(each) for name, each in value.items()}
    return value


def can_be_key(text: str) -> bool:
    """Whether a header can carry it, and so a key be it."""
    return text.isascii() and text.isprintable() and " " not in text


def pieces(text: str, limit: int = MAX_TEXT) -> list[str]:
    """The text in pieces of at most `limit` characters; most texts are one."""
    if len(text) <= limit:
        return [text]
    return [text[at : at + limit] for at in range(0, len(text), limit)]
