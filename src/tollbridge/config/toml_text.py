"""Change single values in a TOML text and find their lines. Comments and layout stay as they are.

tomlkit takes long to import (`docs/decisions/tomlkit.md`), so this module is imported by the functions that
edit a file or need a line number, and not to read the settings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable

from tollbridge.config.file import SIZE_LIMIT

Keys = tuple[str, ...]

# A line break, or the mark of a value while its line is looked up. A TOML text cannot contain NUL.
_LINE_OR_MARK = re.compile(r"\n|\0(\d+)\0")


def change_value(text: str, keys: Sequence[str], literal: str | None) -> str:
    """Return a TOML text with one value changed, added or removed.

    Args:
        text: A TOML document.
        keys: The names of the tables that contain the value, and its own name.
        literal: The value, as TOML; `None` removes the value or the table of that name.

    Raises:
        ValueError: The text or the literal is not valid TOML, one of the tables is something else, or the
            text before or after the change is too large.
    """
    try:
        _check_size(text)
        expected, document = tomllib.loads(text), tomlkit.parse(text)
        value, item = None, None
        if literal is not None:
            assignment = f"value = {literal}\n"
            value, item = tomllib.loads(assignment)["value"], tomlkit.parse(assignment)["value"]
        _change(expected, keys, value, lambda _: {})
        _change(document, keys, item, lambda is_super: tomlkit.table(is_super_table=is_super))
        changed = document.as_string()
        _check_size(changed)
        actual = tomllib.loads(changed)
    except (TOMLKitError, RecursionError) as error:
        raise ValueError(str(error)) from error
    # A defect of tomlkit must not damage the file. Compared as JSON, in which NaN equals itself.
    if _encode(actual) != _encode(expected):
        raise ValueError("the tables of the file are written in an unusual order")
    return changed.rstrip("\n") + "\n" if changed else ""


def _check_size(text: str) -> None:
    if len(text.encode()) > SIZE_LIMIT:
        raise ValueError(f"the file would be larger than {SIZE_LIMIT >> 10} KiB")


def _change(table: Any, keys: Sequence[str], value: Any, make_table: Callable[[bool], Any]) -> None:
    """Change one value of a document: to `value`, or remove it if that is `None`."""
    *parents, name = keys
    for depth, key in enumerate(parents, 1):
        if key not in table:
            if value is None:
                return
            # A table that contains only another table needs no header.
            table[key] = make_table(depth < len(parents))
        table = table[key]
        if not isinstance(table, dict):
            raise ValueError(f"{key} is not a table")
    if value is not None:
        table[name] = value
    elif name in table:
        del table[name]


def _encode(table: dict[str, Any]) -> bytes:
    return msgspec.json.encode(_without_empty(table), order="deterministic")


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
