"""A corpus of what editors send, made of the packages that happen to be installed."""

from __future__ import annotations

import difflib
import random
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

# Chunks of one kind of text, at most so many, of about these many characters.
MOST = 120
SIZES = (300, 900, 2500, 6000)

_LANGUAGES = {
    "chinese": "zh_Hans",
    "japanese": "ja",
    "russian": "ru",
    "arabic": "ar",
    "korean": "ko",
    "german": "de",
    "french": "fr",
}
_FILES = {
    "python": ("*.py",),
    "javascript": ("*.js", "*.mjs", "*.ts"),
    "c": ("*.h", "*.c", "*.pyx"),
    "markdown": ("*.md", "METADATA"),
    "json": ("*.json",),
    "html": ("*.html", "*.css"),
}
_LEVELS = ("INFO", "WARN", "ERROR")
_SENTENCE = re.compile(r'^msgstr(?:\[\d\])? "(.+)"$|^"(.+)"$', re.MULTILINE)


def corpus(seed: int = 0) -> dict[str, list[str]]:
    """Chunks by kind, the same for the same packages and seed."""
    chance = random.Random(seed)
    site = Path(sysconfig.get_path("purelib"))
    kinds = {kind: _chunks(_files(site, patterns, chance), chance) for kind, patterns in _FILES.items()}
    kinds |= {kind: _chunks(_catalogues(site, code), chance) for kind, code in _LANGUAGES.items()}
    kinds["log"] = [_log(kinds, chance) for _ in range(MOST // 2)]
    kinds["diff"] = [_diff(kinds["python"], chance) for _ in range(MOST // 2)]
    kinds["listing"] = [_numbered(chunk) for chunk in kinds["python"][: MOST // 2]]
    return {kind: chunks for kind, chunks in kinds.items() if chunks}


def _files(site: Path, patterns: tuple[str, ...], chance: random.Random) -> Iterator[str]:
    paths = sorted(path for pattern in patterns for path in site.rglob(pattern) if path.is_file())
    chance.shuffle(paths)
    for path in paths:
        if 400 <= path.stat().st_size <= 400_000:
            yield path.read_text("utf-8", "replace")


def _catalogues(site: Path, code: str) -> Iterator[str]:
    for path in sorted(site.rglob(f"{code}/LC_MESSAGES/*.po")):
        found = (one or other for one, other in _SENTENCE.findall(path.read_text("utf-8", "replace")))
        yield "\n".join(line.replace("\\n", "\n").replace('\\"', '"') for line in found if not line.isascii())


def _chunks(texts: Iterator[str], chance: random.Random) -> list[str]:
    found: list[str] = []
    for text in texts:
        at = 0
        for _ in range(8):
            size = round(chance.choice(SIZES) * chance.uniform(0.7, 1.4))
            if chunk := text[at : at + size].strip():
                found.append(chunk)
            at += size
            if at >= len(text) or len(found) >= MOST:
                break
        if len(found) >= MOST:
            return found
    return found


def _log(kinds: dict[str, list[str]], chance: random.Random) -> str:
    words = re.findall(r"\w+", chance.choice(kinds["markdown"]))[:40] or ["started"]
    lines = [
        f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:"
        f"{chance.randint(0, 59):02}:{chance.uniform(0, 59):06.3f}Z {chance.choice(_LEVELS)} "
        f"[{chance.getrandbits(32):08x}] {' '.join(chance.choices(words, k=chance.randint(3, 9)))} "
        f"took={chance.uniform(0, 900):.1f}ms status={chance.choice((200, 204, 404, 500))}"
        for _ in range(chance.randint(5, 40))
    ]
    return "\n".join(lines)


def _diff(sources: list[str], chance: random.Random) -> str:
    before = chance.choice(sources).splitlines()
    change: Callable[[str], str] = lambda line: line.replace("self", "this") + "  # changed"  # noqa: E731
    after = [change(line) if chance.random() < 0.1 else line for line in before if chance.random() > 0.05]
    return "\n".join(difflib.unified_diff(before, after, "a/module.py", "b/module.py", lineterm=""))


def _numbered(source: str) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(source.splitlines(), 1))
