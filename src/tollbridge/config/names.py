"""Full names of settings, such as `models."a/b.c".name`: the keys of nested tables, joined by dots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any


def quote_name(name: str) -> str:
    """Return a name as it is written in TOML, in quotes unless it can be a bare key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def split_name(full_name: str) -> list[str]:
    """Split a dotted name, respecting quotes: `models."a/b.c".name` has three keys."""
    keys: list[str] = [""]
    quote = ""
    for character in full_name:
        if quote:
            if character == quote:
                quote = ""
            else:
                keys[-1] += character
        elif character in "\"'":
            quote = character
        elif character == ".":
            keys.append("")
        elif not character.isspace():
            keys[-1] += character
    return keys


def iter_values(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a nested table with its full name. An empty table counts as a value."""
    for name, value in table.items():
        full_name = f"{prefix}{quote_name(name)}"
        if isinstance(value, Mapping) and value:
            yield from iter_values(value, f"{full_name}.")
        else:
            yield full_name, value
