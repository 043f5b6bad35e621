"""A thousand texts of the kinds that editors send, always the same ones: made by chance, with a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

COUNT = 1_000

_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
# Ranges of code points: scripts, signs and pictures that texts are made of.
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
_KNOWN = (
    "the of and to in is that for it as was with be by on not he this are or his from at which but have an "
    "they return import function class public static void const let error request response model stream "
    "token value string number list name type data file path user message context window editor gateway "
    "bridge"
).split()
_SIGNS = (
    *("()", "[]", "{}", "=>", "->", "!=", "==", "::", "..."),
    *("/*", "*/", "//", "#", "&&", "||", "<<", ">>="),
)


def _word(chance: random.Random) -> str:
    if chance.random() < 0.6:
        return chance.choice(_KNOWN)
    return "".join(chance.choice(_CONSONANTS) + chance.choice(_VOWELS) for _ in range(chance.randint(1, 5)))


def _prose(chance: random.Random) -> str:
    words = [_word(chance) for _ in range(chance.randint(5, 80))]
    for place in range(0, len(words), chance.randint(4, 12)):
        words[place] = words[place].capitalize()
        words[place - 1] += chance.choice((".", ",", "?", "!", ";", ":", ".\n\n", "'s", "'LL", "’t"))
    return " ".join(words)


def _code(chance: random.Random) -> str:
    lines = []
    for _ in range(chance.randint(3, 25)):
        names = [
            chance.choice(("{}", "{}_{}", "{}{}", "__{}__", "{}.{}", "{}()")).format(
                _word(chance), _word(chance).title()
            )
            for _ in range(chance.randint(1, 5))
        ]
        signs = [chance.choice(_SIGNS) for _ in names]
        indent = chance.choice((" " * 4, "\t", " " * 8, "  ", "")) * chance.randint(0, 3)
        lines.append(indent + " ".join(f"{name} {sign}" for name, sign in zip(names, signs, strict=True)))
    return chance.choice(("\n", "\r\n")).join(lines)


def _data(chance: random.Random) -> str:
    rows = [
        {_word(chance): chance.choice((_word(chance), chance.randint(0, 10**9), chance.random(), None, True))}
        for _ in range(chance.randint(2, 20))
    ]
    return json.dumps(rows, indent=chance.choice((None, 1, 2, 4)))


def _log(chance: random.Random) -> str:
    return "\n".join(
        f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:00:"
        f"{chance.uniform(0, 59):06.3f}Z [{chance.getrandbits(32):08x}] {_word(chance).upper()} "
        f"{chance.randint(0, 99_999)}ms {_word(chance)}=0x{chance.getrandbits(20):X}"
        for _ in range(chance.randint(1, 15))
    )


def _script(chance: random.Random) -> str:
    first, last = _SCRIPTS[chance.choice(sorted(_SCRIPTS))]
    words = [
        "".join(chr(chance.randint(first, last)) for _ in range(chance.randint(1, 8)))
        for _ in range(chance.randint(1, 40))
    ]
    return chance.choice((" ", "", "、", "\n")).join(words)


def _anything(chance: random.Random) -> str:
    makers = (_prose, _code, _data, _log, _script)
    pieces = [chance.choice(makers)(chance)[: chance.randint(1, 80)] for _ in range(chance.randint(2, 8))]
    return chance.choice(("", " ", "\n", "\t", "   ", "\n\n\n", "\u00a0", "\u200d")).join(pieces)


_MAKERS: tuple[Callable[[random.Random], str], ...] = (_prose, _code, _data, _log, _script, _anything)


def chunks() -> list[str]:
    chance = random.Random(2026)
    return [_MAKERS[number % len(_MAKERS)](chance) for number in range(COUNT)]
