"""A corpus of texts of the kinds that editors send, taken from the installed packages."""

from __future__ import annotations

import difflib
import random
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

# The number of chunks per kind of text, at most, and their approximate sizes in characters.
CHUNK_LIMIT = 120
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
    """Return chunks by kind of text. The same packages and seed give the same chunks."""
    rng = random.Random(seed)
    site = Path(sysconfig.get_path("purelib"))
    kinds = {kind: _chunks(_files(site, patterns, rng), rng) for kind, patterns in _FILES.items()}
    kinds |= {kind: _chunks(_translations(site, code), rng) for kind, code in _LANGUAGES.items()}
    kinds["log"] = [_log(kinds, rng) for _ in range(CHUNK_LIMIT // 2)]
    kinds["diff"] = [_diff(kinds["python"], rng) for _ in range(CHUNK_LIMIT // 2)]
    kinds["listing"] = [_numbered(chunk) for chunk in kinds["python"][: CHUNK_LIMIT // 2]]
    return {kind: chunks for kind, chunks in kinds.items() if chunks}


def _files(site: Path, patterns: tuple[str, ...], rng: random.Random) -> Iterator[str]:
    paths = sorted(path for pattern in patterns for path in site.rglob(pattern) if path.is_file())
    rng.shuffle(paths)
    for path in paths:
        if 400 <= path.stat().st_size <= 400_000:
            yield path.read_text("utf-8", "replace")


def _translations(site: Path, code: str) -> Iterator[str]:
    for path in sorted(site.rglob(f"{code}/LC_MESSAGES/*.po")):
        lines = (first or next_ for first, next_ in _SENTENCE.findall(path.read_text("utf-8", "replace")))
        yield "\n".join(line.replace("\\n", "\n").replace('\\"', '"') for line in lines if not line.isascii())


def _chunks(texts: Iterator[str], rng: random.Random) -> list[str]:
    chunks: list[str] = []
    for text in texts:
        start = 0
        for _ in range(8):
            size = round(rng.choice(SIZES) * rng.uniform(0.7, 1.4))
            if chunk := text[start : start + size].strip():
                chunks.append(chunk)
            start += size
            if start >= len(text) or len(chunks) >= CHUNK_LIMIT:
                break
        if len(chunks) >= CHUNK_LIMIT:
            return chunks
    return chunks


def _log(kinds: dict[str, list[str]], rng: random.Random) -> str:
    words = re.findall(r"\w+", rng.choice(kinds["markdown"]))[:40] or ["started"]
    lines = [
        f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:"
        f"{rng.randint(0, 59):02}:{rng.uniform(0, 59):06.3f}Z {rng.choice(_LEVELS)} "
        f"[{rng.getrandbits(32):08x}] {' '.join(rng.choices(words, k=rng.randint(3, 9)))} "
        f"took={rng.uniform(0, 900):.1f}ms status={rng.choice((200, 204, 404, 500))}"
        for _ in range(rng.randint(5, 40))
    ]
    return "\n".join(lines)


def _diff(sources: list[str], rng: random.Random) -> str:
    before = rng.choice(sources).splitlines()
    change: Callable[[str], str] = lambda line: line.replace("self", "this") + "  # changed"  # noqa: E731
    after = [change(line) if rng.random() < 0.1 else line for line in before if rng.random() > 0.05]
    return "\n".join(difflib.unified_diff(before, after, "a/module.py", "b/module.py", lineterm=""))


def _numbered(source: str) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(source.splitlines(), 1))
