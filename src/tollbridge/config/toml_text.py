"""Change single values in a TOML text and find their lines. Comments and layout stay as they are.

tomlkit takes long to import (`docs/decisions/tomlkit.md`), so this module is imported by the functions that
edit a file or need a line number, and not to read the settings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

import msgspec
import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable

Keys = tuple[str, ...]

# A line break, or the mark of a value while its line is looked up. A TOML text cannot contain NUL.
_LINE_OR_MARK = re.compile(r"\n|\0(\d+)\0")


def set_value(text: str, keys: Sequence[str], literal: str) -> str:
    """Return a TOML text with one value changed or added.

    Args:
        text: A valid TOML document.
        keys: The names of the tables that contain the value, and its own name.
        literal: The value, as TOML.

    Raises:
        ValueError: The text or the literal is not valid TOML, or one of the tables is something else.
    """
    expected = tomllib.loads(text)
    parent = expected
    for key in keys[:-1]:
        parent = parent.setdefault(key, {})
        if not isinstance(parent, dict):
            raise ValueError(f"{key} is not a table")
    parent[keys[-1]] = tomllib.loads(f"value = {literal}")["value"]
    document = tomlkit.parse(text)
    table: Any = document
    for depth, key in enumerate(keys[:-1], 1):
        if key not in table:
            # A table that contains only another table needs no header.
            table[key] = tomlkit.table(is_super_table=depth < len(keys) - 1)
        table = table[key]
    table[keys[-1]] = tomlkit.parse(f"value = {literal}\n")["value"]
    return _write(document, expected)


def remove_value(text: str, keys: Sequence[str]) -> str:
    """Return a TOML text without one value or table.

    Raises:
        ValueError: The text is not valid TOML.
    """
    expected, document = tomllib.loads(text), tomlkit.parse(text)
    for tables in (expected, document):
        table: Any = tables
        for key in keys[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if not isinstance(table, dict) or keys[-1] not in table:
            return text
        del table[keys[-1]]
    return _write(document, expected)


def _write(document: tomlkit.TOMLDocument, expected: dict[str, Any]) -> str:
    """Return the text of a document, after a check that it means what was wanted."""
    text = document.as_string()
    # Compared as JSON, in which NaN equals itself.
    actual, wanted = (
        msgspec.json.encode(_without_empty(table), order="deterministic")
        for table in (tomllib.loads(text), expected)
    )
    if actual != wanted:
        raise ValueError("the tables of the file are written in an unusual order")
    return text.rstrip("\n") + "\n" if text else ""


def _without_empty(value: Any) -> Any:
    """Remove empty tables: one without a header ends with the last value in it."""
    if not isinstance(value, dict):
        return value
    table = {key: _without_empty(inner) for key, inner in value.items()}
    return {key: inner for key, inner in table.items() if inner != {}}


def find_lines(text: str) -> dict[Keys, int]:
    """Return the line of every value and table, by its keys; nothing if the text cannot be parsed.

    Every value is marked, and the marks are looked up in the text that tomlkit writes.
    """
    marked: list[Keys] = []
    try:
        document = tomlkit.parse(text)
        _mark_values(document, (), marked)
        marked_text = document.as_string()
    except (TOMLKitError, RecursionError):
        return {}
    lines: dict[Keys, int] = {}
    line = 1
    for match in _LINE_OR_MARK.finditer(marked_text):
        if match[1] is None:
            line += 1
            continue
        keys = marked[int(match[1])]
        for depth in range(1, len(keys) + 1):
            lines.setdefault(keys[:depth], line)
    return lines


def _mark_values(container: Container, prefix: Keys, marked: list[Keys]) -> None:
    """Put the index of its keys in `marked` before each value and each header of a table."""
    for key, item in container.body:
        if key is not None:
            keys = (*prefix, key.key)
            item.trivia.indent += f"\0{len(marked)}\0"
            marked.append(keys)
            if isinstance(item, AbstractTable):
                _mark_values(item.value, keys, marked)
