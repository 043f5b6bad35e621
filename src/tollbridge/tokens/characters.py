"""Counting without a tokenizer: about how many o200k tokens of each category the characters would make.

The last resort, when no vocabulary can be loaded. It speaks in the same categories as the tokenizer does,
so the same weights, and all that was learned of them, still apply.
"""

from __future__ import annotations

import re
from collections import Counter

from tollbridge.tokens.categories import CATEGORIES, Vector, category, script

_PUNCTUATION = r"!-/:-@\[-`{-~"
# Runs as o200k itself cuts them: a word with the sign or space before it, three digits, punctuation with
# the line end after it, space, a script.
_RUNS = re.compile(
    rf"[ \t{_PUNCTUATION}]?[A-Z]*[a-z\u00c0-\u024f]+|[ \t{_PUNCTUATION}]?[A-Z]+|\d{{1,3}}"
    rf"| ?[{_PUNCTUATION}]+[\r\n]*|[ \t]*[\r\n]+|[ \t]+(?![^ \t])|[ \t]"
    r"|[\u3400-\u9fff\u3000-\u303f\uff00-\uffef]+|[\u3040-\u30ff]+| ?[\uac00-\ud7af]+"
    r"| ?[\u0400-\u052f]+| ?[\u0600-\u06ff]+| ?[\u0370-\u03ff\u0530-\u05ff\u0700-\u10ff\u1200-\u1fff]+|."
)

_INDEX = {name: number for number, name in enumerate(CATEGORIES)}

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
