"""A thousand random texts of the kinds that editors send; a fixed seed makes them the same every time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

COUNT = 1_000

_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
# Ranges of code points: scripts, symbols and emoji.
_SCRIPTS = {
    "han": (0x4E00, 0x9FA5),
    "kana": (0x3041, 0x30FA),
    "hangul": (0xAC00, 0xD7A3),
    "cyrillic": (0x410, 0x44F),
    "greek": (0x3B1, 0x3C9),
    "arabic": (0x627, 0x64A),
    "hebrew": (0x5D0, 0x5EA),
    "devanagari": (0x905, 0x939),
    "thai": (0xE01, 0xE2E),
    "accents": (0xC0, 0x17F),
    "arrows": (0x2190, 0x21FF),
    "emoji": (0x1F300, 0x1F5FF),
}
_COMMON_WORDS = (
    "the of and to in is that for it as was with be by on not he this are or his from at which but have an "
    "they return import function class public static void const let error request response model stream "
    "token value string number list name type data file path user message context window editor gateway "
    "bridge"
).split()
_SIGNS = (
    *("()", "[]", "{}", "=>", "->", "!=", "==", "::", "..."),
    *("/*", "*/", "//", "#", "&&", "||", "<<", ">>="),
)


def _word(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(_COMMON_WORDS)
    return "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 5)))


def _prose(rng: random.Random) -> str:
    words = [_word(rng) for _ in range(rng.randint(5, 80))]
    for index in range(0, len(words), rng.randint(4, 12)):
        words[index] = words[index].capitalize()
        words[index - 1] += rng.choice((".", ",", "?", "!", ";", ":", ".\n\n", "'s", "'LL", "’t"))
    return " ".join(words)


def _code(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(3, 25)):
        names = [
            rng.choice(("{}", "{}_{}", "{}{}", "__{}__", "{}.{}", "{}()")).format(
                _word(rng), _word(rng).title()
            )
            for _ in range(rng.randint(1, 5))
        ]
        signs = [rng.choice(_SIGNS) for _ in names]
        indent = rng.choice((" " * 4, "\t", " " * 8, "  ", "")) * rng.randint(0, 3)
        lines.append(indent + " ".join(f"{name} {sign}" for name, sign in zip(names, signs, strict=True)))
    return rng.choice(("\n", "\r\n")).join(lines)


def _data(rng: random.Random) -> str:
    rows = [
        {_word(rng): rng.choice((_word(rng), rng.randint(0, 10**9), rng.random(), None, True))}
        for _ in range(rng.randint(2, 20))
    ]
    return json.dumps(rows, indent=rng.choice((None, 1, 2, 4)))


def _log(rng: random.Random) -> str:
    return "\n".join(
        f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:00:"
        f"{rng.uniform(0, 59):06.3f}Z [{rng.getrandbits(32):08x}] {_word(rng).upper()} "
        f"{rng.randint(0, 99_999)}ms {_word(rng)}=0x{rng.getrandbits(20):X}"
        for _ in range(rng.randint(1, 15))
    )


def _script(rng: random.Random) -> str:
    first, last = _SCRIPTS[rng.choice(sorted(_SCRIPTS))]
    words = [
        "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8)))
        for _ in range(rng.randint(1, 40))
    ]
    return rng.choice((" ", "", "、", "\n")).join(words)


def _mixture(rng: random.Random) -> str:
    generators = (_prose, _code, _data, _log, _script)
    pieces = [rng.choice(generators)(rng)[: rng.randint(1, 80)] for _ in range(rng.randint(2, 8))]
    return rng.choice(("", " ", "\n", "\t", "   ", "\n\n\n", "\u00a0", "\u200d")).join(pieces)


_GENERATORS: tuple[Callable[[random.Random], str], ...] = (_prose, _code, _data, _log, _script, _mixture)


def chunks() -> list[str]:
    """Return the texts."""
    rng = random.Random(2026)
    return [_GENERATORS[number % len(_GENERATORS)](rng) for number in range(COUNT)]
