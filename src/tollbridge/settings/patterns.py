"""Patterns that name models: `anthropic/*`, `*-preview`. Upper and lower case are one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

_Value = TypeVar("_Value")


def matches(pattern: str, model: str) -> bool:
    """`*` is anything, `/` too; `?` one character. A name without its maker is enough: `gpt-5`."""
    pattern, model = pattern.lower(), model.lower()
    return fnmatchcase(model, pattern) or (
        "/" not in pattern and fnmatchcase(model.rpartition("/")[2], pattern)
    )


def any_matches(patterns: Iterable[str], model: str) -> bool:
    return any(matches(pattern, model) for pattern in patterns)


def matching(table: Mapping[str, _Value], model: str) -> list[_Value]:
    """The values whose patterns name the model, the most general first: the last word is the closest."""
    found = [(pattern, value) for pattern, value in table.items() if matches(pattern, model)]
    found.sort(key=lambda item: _closeness(item[0]))
    return [value for _, value in found]


def _closeness(pattern: str) -> tuple[bool, int]:
    """How closely a pattern names a model: without wildcards, then by the letters it gives."""
    return not set("*?[") & set(pattern), len(pattern.replace("*", ""))
