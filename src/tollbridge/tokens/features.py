"""Counting without a tokenizer: about how many o200k tokens of each category the characters would make.

The last resort, when no vocabulary can be loaded. It speaks in the same categories as the tokenizer does,
so the same weights, and all that was learned of them, still apply.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path

# SECTION The 29 kinds of o200k token. Other tokenizers differ from o200k by kind, not by one factor.
#
# Counting the kinds of a text's o200k tokens and weighting each comes within a few percent of tokenizers
# whose vocabulary nobody published; the weights are learned from what providers report.

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


# SECTION Counting without a tokenizer: about how many o200k tokens of each category the characters would make.
#
# The last resort, when no vocabulary can be loaded. It speaks in the same categories as the tokenizer does,
# so the same weights, and all that was learned of them, still apply.

_PUNCTUATION = r"!-/:-@\[-`{-~"
# Runs as o200k itself cuts them: a word with the sign or space before it, three digits, punctuation with
# the line end after it, space, a script.
_RUNS = re.compile(
    rf"[ \t{_PUNCTUATION}]?[A-Z]*[a-z\u00c0-\u024f]+|[ \t{_PUNCTUATION}]?[A-Z]+|\d{{1,3}}"
    rf"| ?[{_PUNCTUATION}]+[\r\n]*|[ \t]*[\r\n]+|[ \t]+(?![^ \t])|[ \t]"
    r"|[\u3400-\u9fff\u3000-\u303f\uff00-\uffef]+|[\u3040-\u30ff]+| ?[\uac00-\ud7af]+"
    r"| ?[\u0400-\u052f]+| ?[\u0600-\u06ff]+| ?[\u0370-\u03ff\u0530-\u05ff\u0700-\u10ff\u1200-\u1fff]+|."
)


# A run of the category is one token up to so many characters, and each one beyond is this much more.
# Measured on source code, documentation and data.
_FREE: dict[str, tuple[int, float]] = {
    "sw8p": (8, 0.06),
    "w5_7": (6, 0.10),
    "w8p": (6, 0.15),
    "cap": (7, 0.10),
    "camel": (3, 0.10),
    "p3p": (3, 0.10),
    "sp_p": (3, 0.10),
    "han": (1, 0.60),
    "kana": (1, 0.45),
    "hangul": (1, 0.45),
    "cyr": (5, 0.13),
    "arab": (3, 0.20),
    "latinx": (3, 0.16),
    "otherscript": (2, 0.25),
    "ws_long": (100, 0.012),
    "ws_nl": (20, 0.05),
}
# No word is this long: letters in no order make about this many tokens each.
_WORD, _NOISE = 20, 0.42
_NOISY = frozenset({"w8p", "sw8p", "cap", "camel"})
# How often the sign before a word is a token of its own.
_APART = 0.35
# What the further tokens of a longer run are; letters otherwise.
_REST = {name: name for name in ("han", "kana", "hangul", "cyr", "arab", "latinx", "otherscript", "p3p")}
_REST |= {"sp_p": "p3p", "ws_long": "ws_long", "ws_nl": "ws_nl", "emoji_sym": "partial"}


def character_vector(text: str) -> Vector:
    """About what `Tokenizer.vector` would say. Takes any text without lone surrogates."""
    totals: dict[int, float] = {}
    for run, times in Counter(_RUNS.findall(text)).items():
        kind, more = _tokens(run)
        totals[kind] = totals.get(kind, 0.0) + times
        if more:
            rest = _INDEX[_REST.get(CATEGORIES[kind], "w3_4")]
            totals[rest] = totals.get(rest, 0.0) + more * times
    return tuple((kind, round(count)) for kind, count in sorted(totals.items()))


def _tokens(run: str) -> tuple[int, float]:
    """The category of a run's first token, and how many tokens more it makes."""
    kind = category(run.encode()) if run.isascii() else _INDEX[script(run)]
    name = CATEGORIES[kind]
    length = len(run) - (run[0] == " " and len(run) > 1)
    free, slope = _FREE.get(name, (length, 0.0))
    if name == "emoji_sym":
        return kind, 0.5
    if name not in _NOISY:
        return kind, max(0, length - free) * slope
    signed = len(run) > 1 and run[0] != " " and not run[0].isalnum()
    return kind, (
        _APART * signed + max(0, min(length, _WORD) - free) * slope + max(0, length - _WORD) * _NOISE
    )
