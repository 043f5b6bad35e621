"""Keep phrases that are hard to understand out of the code's texts and the documentation.

The check reads the string literals, docstrings and comments of the source, and all of the documentation. Of
the tests, it reads the docstrings, the comments and the names of the tests, which are sentences; their other
strings are data. If a phrase is right in one file, add the file and the exact phrase to `ALLOWED`.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
THIS_FILE = Path(__file__)  # has the phrases that it looks for
PYTHON = ("src/**/*.py",)
TESTS = ("tests/**/*.py",)
TYPESCRIPT = ("extension/src/**/*.ts",)
TEXT = (
    "*.md",
    "Makefile",
    "docs/**/*.md",
    "editors/**/*.lua",
    "editors/**/*.md",
    "extension/*.md",
    "extension/package.json",
    "src/**/*.toml",
)

# A pattern (a space matches any white space, and case is ignored), and what to write instead.
PHRASES = {
    r"\banew\b": '"again", or "start a new …"',
    r"\bin all\b(?=\s*(?:[.,;:)]|$))": '"total"',
    r"\botherwise than\b|\bcounts? otherwise\b|\b(?:be|is|are|put|puts it) otherwise\b": '"differently"',
    r"\btold\b": '"reported", "sent as", "shown"',
    r"\bone a (?:line|request|turn|model|file)\b|\ba line each\b": '"one per line"',
    r"\btakes? (?:none\b|no\b(?! (?:arguments?|parameters?|effect|action)\b))": '"does not accept"',
    r"\bcode of today\b|\btoday['’]s code\b": '"the current version"',
    r"\bblot(?:s|ted|ting)?\b": '"redact", "remove"',
    r"\bheed(?:s|ed|ing)?\b": '"use", "respect"',
    r"\bunharmed\b": '"unchanged"',
    r"\bbeforehand\b": '"in advance", "before the request"',
    r"\bmistakes? of ours\b": '"an internal error", "a bug in Tollbridge"',
    r"\bmakes? no sense\b": '"is invalid"',
    r"\b(?:dollars|\$) a million\b": '"per million"',
    r"\bleave (?:it|them) out\b": '"remove it"',
    r"\bsay (?:which one|less)\b": '"choose", "shorten the prompt"',
    r"\bknown are\b": '"valid values:"',
    r"\bthe system['’]s (?:keyring|place)\b": '"the system keyring", "the platform data directory"',
    r"\bthe (?:toll|walk)\b|\bcross(?:es|ed)? the bridge\b": '"usage and cost", "the request flow"',
    r"\bcarr(?:y|ies|ied) across\b": '"send", "translate"',
    r"\b(?:heal|mend)(?:s|ed|ing)?\b": '"repair", "fix"',
    r"\bwhoever\b": '"the caller", "the client"',
    r"\bwhat (?:was|is|has been) said\b": '"the text", "the messages"',
    r"\bwhere (?:it|none|nothing|one) (?:is|was) (?:asked|given|set|named)\b": '"if omitted", "if requested"',
    r"\bin the place of\b": '"instead of"',
    r"\bbeg[ia]ns? again\b": '"restart", "start over"',
}
# Names that say neither what a value is nor what a function does: participles and metaphors.
UNCLEAR_NAMES = frozenset({"asked", "crossing", "found", "given", "greet", "heard", "made", "said", "told"})
# (file, exact phrase) pairs that are correct as they are.
ALLOWED: frozenset[tuple[str, str]] = frozenset()

_PATTERNS = {re.compile(phrase.replace(" ", r"\s+"), re.IGNORECASE): hint for phrase, hint in PHRASES.items()}
# Most files have none of these words and need not be parsed.
_ANY_UNCLEAR_NAME = re.compile(rf"\b_*(?:{'|'.join(sorted(UNCLEAR_NAMES))})_*\b")
_TYPESCRIPT_TEXT = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.DOTALL
)


class Text(NamedTuple):
    """A text in a file, and the number of its first line."""

    line: int
    text: str


class Hit(NamedTuple):
    file: str
    line: int
    phrase: str
    hint: str

    def __str__(self) -> str:
        return f'{self.file}:{self.line}: "{self.phrase}": write {self.hint}'


def python_texts(source: str) -> Iterator[Text]:
    """Yield the strings and comments of a Python file."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in kinds:
            yield Text(token.start[0], token.string)


def read_test_texts(source: str) -> Iterator[Text]:
    """Yield the docstrings and comments of a test file, and the names of its tests as sentences."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and (docstring := ast.get_docstring(node, clean=False)):
                yield Text(first.lineno, docstring)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, node.name.replace("_", " "))


def typescript_texts(source: str) -> Iterator[Text]:
    """Yield the strings and comments of a TypeScript file."""
    for match in _TYPESCRIPT_TEXT.finditer(source):
        yield Text(source.count("\n", 0, match.start()) + 1, match[0])


def find_phrases(file: str, texts: Iterator[Text]) -> Iterator[Hit]:
    for start, text in texts:
        for pattern, hint in _PATTERNS.items():
            for match in pattern.finditer(text):
                yield Hit(file, start + text.count("\n", 0, match.start()), " ".join(match[0].split()), hint)


@functools.cache
def all_hits() -> list[Hit]:
    hits: list[Hit] = []
    readers = (
        (PYTHON, python_texts),
        (TESTS, read_test_texts),
        (TYPESCRIPT, typescript_texts),
        (TEXT, whole_text),
    )
    for patterns, read in readers:
        for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path != THIS_FILE):
            name = path.relative_to(ROOT).as_posix()
            hits += find_phrases(name, read(path.read_text(encoding="utf-8")))
    return hits


def assigned_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the names that a Python file assigns or defines, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def whole_text(source: str) -> Iterator[Text]:
    yield Text(1, source)


def test_no_text_has_a_phrase_of_the_list() -> None:
    hits = [hit for hit in all_hits() if (hit.file, hit.phrase) not in ALLOWED]
    assert not hits, f"{len(hits)} phrases to write in plain English:\n" + "\n".join(map(str, sorted(hits)))


def test_no_variable_or_function_has_an_unclear_name() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {name}: name the thing, such as `settings` or `matches`"
        for pattern in (*PYTHON, *TESTS)
        for path in sorted(ROOT.glob(pattern))
        if _ANY_UNCLEAR_NAME.search(source := path.read_text(encoding="utf-8"))
        for line, name in assigned_names(source)
        if name.strip("_") in UNCLEAR_NAMES
    ]
    assert not hits, "\n".join(hits)


def test_every_exception_is_still_needed() -> None:
    assert {(hit.file, hit.phrase) for hit in all_hits()} >= ALLOWED


def test_strings_and_comments_of_python_are_checked_and_names_are_not() -> None:
    source = 'told = 1  # begun anew\n\n\ndef heed():\n    """Mends\n    nothing, one a\n    line."""\n'
    hits = [(hit.line, hit.phrase) for hit in find_phrases("x.py", python_texts(source))]
    assert sorted(hits) == [(1, "anew"), (5, "Mends"), (6, "one a line")]


def test_strings_and_comments_of_typescript_are_checked_and_names_are_not() -> None:
    source = "const told = 'it is anew'; // unharmed\n/* one\n is told */ const b = `it\n heeds`;\n"
    hits = [(hit.line, hit.phrase) for hit in find_phrases("x.ts", typescript_texts(source))]
    assert sorted(hits) == [(1, "anew"), (1, "unharmed"), (3, "told"), (4, "heeds")]


def test_comments_docstrings_and_names_of_tests_are_checked_and_data_is_not() -> None:
    source = 'x = "anew"  # unharmed\n\n\ndef test_a_file_is_mended():\n    """Heeds it."""\n'
    hits = [(hit.line, hit.phrase) for hit in find_phrases("x.py", read_test_texts(source))]
    assert sorted(hits) == [(1, "unharmed"), (4, "mended"), (5, "Heeds")]


def test_ordinary_uses_of_the_same_words_are_allowed() -> None:
    text = "In all cases it takes no arguments; otherwise it fails. Walk the tree. A tollbridge. Amend it."
    assert not list(find_phrases("x.md", whole_text(text)))
