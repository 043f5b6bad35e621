"""The 29 kinds of o200k token. Other tokenizers differ from o200k by kind, not by one factor.

Counting the kinds of a text's o200k tokens and weighting each comes within a few percent of tokenizers
whose vocabulary nobody published; the weights are learned from what providers report.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path

CATEGORIES = (
    # Lower-case ASCII letters inside a word, by length; the same after a space; capitals; mixed.
    *("w1", "w2", "w3_4", "w5_7", "w8p", "sw1_4", "sw5_7", "sw8p", "cap", "camel"),
    # Digits by length; line ends, up to four spaces, more spaces.
    *("dig1", "dig2", "dig3", "ws_nl", "ws_sp", "ws_long"),
    # Punctuation by length, and after a space.
    *("p1", "p2", "p3p", "sp_p"),
    # Scripts, symbols, and pieces of a character.
    *("han", "kana", "hangul", "cyr", "arab", "latinx", "otherscript", "emoji_sym", "partial"),
)
SIZE = len(CATEGORIES)
LATIN = frozenset({"w3_4", "w5_7", "w8p", "sw1_4", "sw5_7", "sw8p", "cap", "camel", "latinx"})

# Index of a category and how many tokens of it: a text has few kinds, and most sums are over few numbers.
Vector = tuple[tuple[int, int], ...]

_INDEX = {name: number for number, name in enumerate(CATEGORIES)}

# The last code point of each range, and what is in it; from the first beyond ASCII upwards.
_SCRIPTS: tuple[tuple[int, str], ...] = (
    (0x24F, "latinx"),
    (0x36F, "emoji_sym"),
    (0x3FF, "otherscript"),
    (0x52F, "cyr"),
    (0x5FF, "otherscript"),
    (0x6FF, "arab"),
    (0x74F, "otherscript"),
    (0x77F, "arab"),
    (0x10FF, "otherscript"),
    (0x11FF, "hangul"),
    (0x1FFF, "otherscript"),
    (0x2FFF, "emoji_sym"),
    (0x303F, "han"),
    (0x30FF, "kana"),
    (0x33FF, "emoji_sym"),
    (0x4DBF, "han"),
    (0x4DFF, "emoji_sym"),
    (0x9FFF, "han"),
    (0xABFF, "emoji_sym"),
    (0xD7AF, "hangul"),
    (0xFEFF, "emoji_sym"),
    (0xFFEF, "han"),
    (0x10FFFF, "emoji_sym"),
)
_BY_LENGTH = ("w1", "w1", "w2", "w3_4", "w3_4", "w5_7", "w5_7", "w5_7")
_BY_LENGTH_SPACED = ("sw1_4", "sw1_4", "sw1_4", "sw1_4", "sw1_4", "sw5_7", "sw5_7", "sw5_7")


def category(token: bytes) -> int:
    """The kind of one o200k token, given as its bytes."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return _INDEX["partial"]
    return _INDEX[_kind(text)]


def _kind(text: str) -> str:
    if not text.strip():
        if "\n" in text or "\r" in text:
            return "ws_nl"
        return "ws_sp" if len(text) <= 4 else "ws_long"
    spaced = text[0] == " "
    body = text[1:] if spaced else text
    return _ascii(body, spaced) if body.isascii() else script(body)


def _ascii(body: str, spaced: bool) -> str:
    length = len(body)
    if body.isalpha():
        if not body.islower():
            return "cap" if length == 1 or body[1:].islower() else "camel"
        if spaced:
            return _BY_LENGTH_SPACED[length] if length < 8 else "sw8p"
        return _BY_LENGTH[length] if length < 8 else "w8p"
    if body.isdigit():
        return f"dig{min(length, 3)}"
    if any(letter.isalnum() for letter in body):
        return "camel"
    if spaced:
        return "sp_p"
    return "p1" if length == 1 else "p2" if length == 2 else "p3p"


def script(body: str) -> str:
    """The script of a text that is not all ASCII: that of its first character beyond it."""
    point = next(code for code in map(ord, body) if code > 127)
    return next(name for last, name in _SCRIPTS if point <= last)


# The category of every token of o200k, one byte each, made by `table_of`: sorting all of them anew would
# take a third of a second at every start.
_TABLE = Path(__file__).with_name("o200k.categories")


def table_of(size: int, token_bytes: Callable[[int], bytes]) -> bytes:
    """The category of every token of a vocabulary; gaps and special tokens count as mixed letters."""

    def of(token: int) -> int:
        try:
            return category(token_bytes(token))
        except ValueError:
            return _INDEX["camel"]

    return bytes(map(of, range(size)))


@cache
def _table() -> bytes:
    return zlib.decompress(_TABLE.read_bytes())


def vector(ids: Sequence[int]) -> Vector:
    """How many of these o200k tokens are of each category."""
    if len(ids) < 2:
        return tuple((_table()[token], 1) for token in ids)
    kinds = bytes(itemgetter(*ids)(_table()))
    return tuple((kind, count) for kind in range(SIZE) if (count := kinds.count(kind)))
