"""The settings file: TOML, and the line each setting stands on."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tollbridge.settings.checking import SettingsUnusable, quoted

# A settings file of a person is a page or two.
SIZE_LIMIT = 1024 * 1024


class SettingsFile:
    """What a file says, and where."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _unusable(path, f"is not TOML: {error}") from None
        except RecursionError:
            raise _unusable(path, "is nested too deeply") from None
        self._lines = find_lines(text)

    def locate(self, setting: str) -> str:
        """Where a setting stands, or the table it should stand in."""
        name = setting
        while name:
            if name in self._lines:
                return f"the file {self.path}, line {self._lines[name]}"
            name = _joined(split_name(name)[:-1])
        return f"the file {self.path}"


def read_file(path: Path, *, required: bool = False) -> SettingsFile | None:
    """The file, or `None` where there is none and none was asked for."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        if required:
            advice = "Make it, or name another with TOLLBRIDGE_CONFIG."
            raise SettingsUnusable(f"There is no settings file {path}.", advice) from None
        return None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    if len(data) > SIZE_LIMIT:
        raise _unusable(path, f"is larger than {SIZE_LIMIT >> 20} MiB")
    try:
        return SettingsFile(path, data.decode())
    except UnicodeDecodeError as error:
        raise _unusable(path, f"is not UTF-8 text (byte {error.start})") from None


def _unusable(path: Path, why: str) -> SettingsUnusable:
    advice = "Correct it, or name another with TOLLBRIDGE_CONFIG."
    return SettingsUnusable(f"The settings file {path} {why}.", advice)


def find_lines(text: str) -> dict[str, int]:
    """The line of every setting and table, by its full name. Lines inside long strings may be taken for
    settings that do not exist, which nobody asks for."""
    lines: dict[str, int] = {}
    table: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = split_name(stripped.strip("[").partition("]")[0])
            lines.setdefault(_joined(table), number)
        elif "=" in stripped and not stripped.startswith("#"):
            name = split_name(_before_equals(stripped))
            for depth in range(1, len(name) + 1):
                lines.setdefault(_joined([*table, *name[:depth]]), number)
    return lines


def split_name(name: str) -> list[str]:
    """`models."a/b.c".name` is three steps."""
    steps: list[str] = [""]
    quote = ""
    for character in name:
        if quote:
            if character == quote:
                quote = ""
            else:
                steps[-1] += character
        elif character in "\"'":
            quote = character
        elif character == ".":
            steps.append("")
        elif not character.isspace():
            steps[-1] += character
    return steps


def _joined(steps: list[str]) -> str:
    return ".".join(quoted(step) for step in steps)


def _before_equals(line: str) -> str:
    quote = ""
    for place, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "=":
            return line[:place]
    return line
