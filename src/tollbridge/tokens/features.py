"""Token features of a text: how many o200k tokens of each cluster it has.

Other tokenizers differ from o200k by the kind of text, not by one factor. Each of 29 categories of tokens
(words by length, digits, punctuation, scripts) is divided into clusters, of whose tokens real tokenizers make
similar numbers of tokens. A weighted sum of the clusters comes within a few percent of tokenizers whose
vocabulary is not published; the weights are learned from the usage that providers report.

`TokenTable.find_clusters` looks up the tokens that the o200k tokenizer has made. `estimate_categories` is the
fallback if no vocabulary can be loaded: it estimates the categories from the characters.
"""

from __future__ import annotations

import re
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path
from zlib import adler32

import msgspec

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

# Pairs of a cluster's index and a number of tokens. Sparse, because most texts have few clusters.
Vector = tuple[tuple[int, int], ...]
# The features of a text: the cluster of every token, or the number of tokens by cluster.
Features = bytes | Vector

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


# --- The table of clusters ---

# For fewer tokens than this, a loop is faster than functions that take all tokens at once.
_SHORT = 32
# For fewer tokens than this, adding floats is faster than adding fixed-point numbers.
_LONG = 75
# Made by `bench/tokens/training.py`.
TABLE_PATH = Path(__file__).with_name("o200k.table")


class TokenTable(msgspec.Struct, frozen=True):
    """Clusters of o200k tokens, and what known tokenizers make of them.

    A weight is the number of tokens that a tokenizer makes of one o200k token of a cluster. After the weights
    of the clusters, every list of weights has those of the categories, which are averages.

    Attributes:
        sources: The tokenizers and the texts that the table was made from.
        clusters: The cluster of every o200k token, one byte each.
        categories: The category of every weight.
        mean: The mean weights of the known tokenizers, as 32-bit floats.
        directions: The directions in which their weights differ, each as long as their standard deviation.
        known: The weights of some tokenizers.
    """

    sources: str
    clusters: bytes
    categories: bytes
    mean: bytes
    directions: tuple[bytes, ...]
    known: dict[str, bytes]

    @property
    def size(self) -> int:
        """The number of weights."""
        return len(self.categories)

    @property
    def digest(self) -> str:
        """Identifies the clusters and the directions."""
        checksum = zlib.crc32(self.clusters)
        for row in self.directions:
            checksum = zlib.crc32(row, checksum)
        return f"{checksum:08x}"

    def pack(self) -> bytes:
        return zlib.compress(msgspec.msgpack.encode(self), 9)

    @classmethod
    def unpack(cls, data: bytes) -> TokenTable:
        return msgspec.msgpack.decode(zlib.decompress(data), type=cls)

    def find_clusters(self, ids: Sequence[int]) -> bytes:
        """Return the cluster of every o200k token with these ids."""
        clusters = self.clusters
        if len(ids) < _SHORT:
            return bytes([clusters[token] for token in ids])
        return bytes(itemgetter(*ids)(clusters))

    def estimate(self, text: str) -> Vector:
        """Estimate the categories of a text from its characters, as weights of this table."""
        first = self.size - SIZE
        return tuple((first + kind, count) for kind, count in estimate_categories(text))


def add_vectors(vectors: Iterable[Vector]) -> Vector:
    totals: dict[int, int] = {}
    for vector in vectors:
        for kind, count in vector:
            totals[kind] = totals.get(kind, 0) + count
    return tuple(totals.items())


def count_features(features: Features) -> Vector:
    """Count the tokens by cluster, if they are not counted yet."""
    return tuple(Counter(features).items()) if isinstance(features, bytes) else features


class ClusterWeights:
    """The weights of clusters, in tokens. Without weights, each token counts 1.

    The sum over a long text adds fixed-point numbers of 24 bits, six bits of all tokens at a time. This takes
    a third of the time of adding floats. Each weight is rounded to a ten-millionth of their range.

    Args:
        values: The weight of each cluster, and of each category of `TokenTable.estimate`.
    """

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values

    def total(self, features: Features) -> float:
        """Return the sum of the weights of all tokens."""
        values = self._values
        if not values:
            return len(features) if isinstance(features, bytes) else sum([amount for _, amount in features])
        if not isinstance(features, bytes):
            return sum([amount * values[cluster] for cluster, amount in features])
        if len(features) < _LONG:
            return sum([values[cluster] for cluster in features])
        lowest, unit, tables = self._fixed_point
        blocks = range(0, len(features), _BLOCK)
        units = sum([_add_digits(features[start : start + _BLOCK], *tables) for start in blocks])
        return lowest * len(features) + units * unit

    @cached_property
    def _fixed_point(self) -> tuple[float, float, tuple[bytes, bytes, bytes, bytes]]:
        """The lowest weight, the unit in which the others exceed it, and tables of these differences.

        Each table has six bits of every difference, the lowest first.
        """
        values = self._values[:256]
        lowest = min(values)
        unit = (max(values) - lowest) / 0xFFFFFF or 1.0
        units = [round((value - lowest) / unit) for value in values]
        units += [0] * (256 - len(units))
        first, second, third, fourth = (
            bytes(number >> shift & 0x3F for number in units) for shift in (0, 6, 12, 18)
        )
        return lowest, unit, (first, second, third, fourth)


# The lower half of the Adler-32 checksum is the sum of the bytes modulo 65,521: their sum, if there are at
# most this many, of at most six bits each.
_BLOCK = 65_520 // 0x3F


def _add_digits(block: bytes, first: bytes, second: bytes, third: bytes, fourth: bytes) -> int:
    """Return the sum of numbers, given tables of their digits."""
    translate = block.translate
    return (
        (adler32(translate(first), 0) & 0xFFFF)
        + ((adler32(translate(second), 0) & 0xFFFF) << 6)
        + ((adler32(translate(third), 0) & 0xFFFF) << 12)
        + ((adler32(translate(fourth), 0) & 0xFFFF) << 18)
    )


@cache
def shipped_table() -> TokenTable:
    """Return the table of this package, loaded on first use."""
    return TokenTable.unpack(TABLE_PATH.read_bytes())


def unpack_floats(data: bytes) -> list[float]:
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


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
    """Estimate from its characters how many tokens of each category o200k would make of a text.

    The text has no lone surrogates.
    """
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
