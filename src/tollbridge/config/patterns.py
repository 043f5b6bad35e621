"""Patterns for model names in the settings: `anthropic/*`, `*-preview`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

_Value = TypeVar("_Value")


def matches(pattern: str, model: str) -> bool:
    """Return whether a model name matches a pattern, ignoring case.

    `*` matches any characters, including `/`; `?` matches one character. A pattern without `/` also matches
    the name without its provider: `gpt-5` matches `openai/gpt-5`.
    """
    pattern, model = pattern.lower(), model.lower()
    return fnmatchcase(model, pattern) or (
        "/" not in pattern and fnmatchcase(model.rpartition("/")[2], pattern)
    )


def any_matches(patterns: Iterable[str], model: str) -> bool:
    return any(matches(pattern, model) for pattern in patterns)


def matching(table: Mapping[str, _Value], model: str) -> list[_Value]:
    """Return the values whose patterns match the model, from the most general to the most specific.

    Patterns without wildcards are the most specific, then the longer ones.
    """
    patterns = [pattern for pattern in table if matches(pattern, model)]
    patterns.sort(key=lambda pattern: (not set("*?[") & set(pattern), len(pattern.replace("*", ""))))
    return [table[pattern] for pattern in patterns]
