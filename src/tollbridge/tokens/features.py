"""Token features of a text: how many o200k tokens of each of 29 categories it has.

Other tokenizers differ from o200k by category, not by one factor. A weighted sum of the categories comes
within a few percent of tokenizers whose vocabulary is not published; the weights are learned from the usage
that providers report.

`count_categories` counts the tokens that the o200k tokenizer has made. `estimate_categories` is the fallback
if no vocabulary can be loaded: it estimates the same categories from the characters, so that the same weights
apply.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path

CATEGORIES = (
    # Lower-case ASCII letters by length; the same after a space; capitalised; mixed.
    *("w1", "w2", "w3_4", "w5_7", "w8p", "sw1_4", "sw5_7", "sw8p", "cap", "camel"),
    # Digits by length; line ends; up to four spaces; more spaces.
    *("dig1", "dig2", "dig3", "ws_nl", "ws_sp", "ws_long"),
    # Punctuation by length, and after a space.
    *("p1", "p2", "p3p", "sp_p"),
    # Scripts, symbols, and parts of a character.
    *("han", "kana", "hangul", "cyr", "arab", "latinx", "otherscript", "emoji_sym", "partial"),
)
SIZE = len(CATEGORIES)
LATIN = frozenset({"w3_4", "w5_7", "w8p", "sw1_4", "sw5_7", "sw8p", "cap", "camel", "latinx"})

# Pairs of a category's index and a number of tokens. Sparse, because most texts have few categories.
Vector = tuple[tuple[int, int], ...]

_INDEX = {name: index for index, name in enumerate(CATEGORIES)}

# The last code point of each range and its category, ascending from the first code point after ASCII.
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
# The category of a lower-case word, by its length.
_BY_LENGTH = ("w1", "w1", "w2", "w3_4", "w3_4", "w5_7", "w5_7", "w5_7")
_BY_LENGTH_SPACED = ("sw1_4", "sw1_4", "sw1_4", "sw1_4", "sw1_4", "sw5_7", "sw5_7", "sw5_7")


def categorize(token: bytes) -> int:
    """Return the index of the category of one o200k token, given as its bytes."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return _INDEX["partial"]
    return _INDEX[_category_of(text)]


def _category_of(text: str) -> str:
    if not text.strip():
        if "\n" in text or "\r" in text:
            return "ws_nl"
        return "ws_sp" if len(text) <= 4 else "ws_long"
    spaced = text[0] == " "
    body = text[1:] if spaced else text
    return _ascii_category(body, spaced) if body.isascii() else _script_category(body)


def _ascii_category(body: str, spaced: bool) -> str:
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


def _script_category(body: str) -> str:
    """Return the category of the first character that is not ASCII."""
    code_point = next(code for code in map(ord, body) if code > 127)
    return next(name for last, name in _SCRIPTS if code_point <= last)


# The category of every o200k token, one byte each, as made by `build_table` and compressed by zlib. Building
# the table takes a third of a second, too long for every start.
_TABLE_PATH = Path(__file__).with_name("o200k.categories")


def build_table(size: int, token_bytes: Callable[[int], bytes]) -> bytes:
    """Return the category of every token of a vocabulary; gaps and special tokens count as mixed letters.

    Args:
        size: The size of the vocabulary.
        token_bytes: Returns the bytes of a token id, or raises `ValueError`.
    """

    def categorize_id(token: int) -> int:
        try:
            return categorize(token_bytes(token))
        except ValueError:
            return _INDEX["camel"]

    return bytes(map(categorize_id, range(size)))


@cache
def _table() -> bytes:
    return zlib.decompress(_TABLE_PATH.read_bytes())


def count_categories(ids: Sequence[int]) -> Vector:
    """Count the o200k tokens with these ids by category."""
    if len(ids) < 2:
        return tuple((_table()[token], 1) for token in ids)
    kinds = bytes(itemgetter(*ids)(_table()))
    return tuple((kind, count) for kind in range(SIZE) if (count := kinds.count(kind)))


# --- Estimating without a tokenizer ---

_PUNCTUATION = r"!-/:-@\[-`{-~"
# Runs of characters, split as o200k splits them: a word with the space or punctuation before it, up to three
# digits, punctuation with the line end after it, spaces, a script.
_RUNS = re.compile(
    rf"[ \t{_PUNCTUATION}]?[A-Z]*[a-z\u00c0-\u024f]+|[ \t{_PUNCTUATION}]?[A-Z]+|\d{{1,3}}"
    rf"| ?[{_PUNCTUATION}]+[\r\n]*|[ \t]*[\r\n]+|[ \t]+(?![^ \t])|[ \t]"
    r"|[\u3400-\u9fff\u3000-\u303f\uff00-\uffef]+|[\u3040-\u30ff]+| ?[\uac00-\ud7af]+"
    r"| ?[\u0400-\u052f]+| ?[\u0600-\u06ff]+| ?[\u0370-\u03ff\u0530-\u05ff\u0700-\u10ff\u1200-\u1fff]+|."
)

# A run of the category is one token up to this many characters; each further character adds this many tokens.
# Measured on source code, documentation and data.
_RUN_LENGTHS: dict[str, tuple[int, float]] = {
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
# No word is longer than this. Letters beyond it are random, and each adds this many tokens.
_WORD_LIMIT, _RANDOM_SLOPE = 20, 0.42
_LETTERS = frozenset({"w8p", "sw8p", "cap", "camel"})
# How often the punctuation before a word is a token of its own.
_PUNCTUATION_SHARE = 0.35
# The category of the further tokens of a longer run; "w3_4" for all others.
_FURTHER = {name: name for name in ("han", "kana", "hangul", "cyr", "arab", "latinx", "otherscript", "p3p")}
_FURTHER |= {"sp_p": "p3p", "ws_long": "ws_long", "ws_nl": "ws_nl", "emoji_sym": "partial"}


def estimate_categories(text: str) -> Vector:
    """Estimate from its characters what `Tokenizer.vector` would return. The text has no lone surrogates."""
    totals: dict[int, float] = {}
    for run, times in Counter(_RUNS.findall(text)).items():
        kind, further = _estimate_run(run)
        totals[kind] = totals.get(kind, 0.0) + times
        if further:
            further_kind = _INDEX[_FURTHER.get(CATEGORIES[kind], "w3_4")]
            totals[further_kind] = totals.get(further_kind, 0.0) + further * times
    return tuple((kind, round(count)) for kind, count in sorted(totals.items()))


def _estimate_run(run: str) -> tuple[int, float]:
    """Return the category of a run's first token, and the number of further tokens."""
    kind = categorize(run.encode()) if run.isascii() else _INDEX[_script_category(run)]
    name = CATEGORIES[kind]
    length = len(run) - (run[0] == " " and len(run) > 1)
    limit, slope = _RUN_LENGTHS.get(name, (length, 0.0))
    if name == "emoji_sym":
        return kind, 0.5
    if name not in _LETTERS:
        return kind, max(0, length - limit) * slope
    punctuated = len(run) > 1 and run[0] != " " and not run[0].isalnum()
    word = max(0, min(length, _WORD_LIMIT) - limit) * slope
    return kind, _PUNCTUATION_SHARE * punctuated + word + max(0, length - _WORD_LIMIT) * _RANDOM_SLOPE
