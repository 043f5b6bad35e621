"""The settings file: its settings, their lines, and changes to it."""

from __future__ import annotations

import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

from tollbridge.config.errors import SettingsUnusable
from tollbridge.config.names import split_name
from tollbridge.transport.files import make_folder, replace_file

# Bytes. Settings files are a page or two; editing one of this size takes up to 0.7 s.
SIZE_LIMIT = 64 * 1024


class SettingsFile:
    """A settings file that was read; its text is empty if it does not exist. `table` has its settings.

    Raises:
        SettingsUnusable: If the text is not valid TOML.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._text = text
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _file_error(path, f"is not valid TOML: {error}") from None
        except RecursionError:
            raise _file_error(path, "is nested too deeply") from None

    # Editing and line numbers need tomlkit, which is imported only then (`toml_text`).

    @cached_property
    def _lines(self) -> dict[tuple[str, ...], int]:
        from tollbridge.config.toml_text import find_lines

        return find_lines(self._text)

    def locate(self, setting: str) -> str:
        """Return the file and the line of a setting, or of the innermost table that contains it."""
        keys = tuple(split_name(setting))
        while keys:
            if keys in self._lines:
                return f"the file {self.path}, line {self._lines[keys]}"
            keys = keys[:-1]
        return f"the file {self.path}"

    def __contains__(self, setting: str) -> bool:
        value: Any = self.table
        for key in split_name(setting):
            if not isinstance(value, dict) or key not in value:
                return False
            value = value[key]
        return True

    def with_value(self, setting: str, literal: str | None) -> SettingsFile:
        """Return the file with one setting changed, added or removed. Nothing is written.

        `literal` is the value, as TOML; `None` removes the setting.

        Raises:
            SettingsUnusable: If what should contain the setting is not a table.
        """
        from tollbridge.config.toml_text import change_value

        try:
            text = change_value(self._text, split_name(setting), literal)
        except ValueError as error:
            raise SettingsUnusable(
                f"{setting} cannot be changed in {self.path}: {error}.", "Run `tollbridge config edit`."
            ) from None
        return SettingsFile(self.path, text)

    def write(self) -> None:
        """Replace the file. A link stays a link, and the permissions stay as they are.

        Raises:
            SettingsUnusable: If the file cannot be written.
        """
        path = self.path.resolve()
        try:
            make_folder(path.parent)
            mode = path.stat().st_mode if path.exists() else None
            replace_file(path, self._text.encode())
            if mode is not None:
                path.chmod(mode)
        except OSError as error:
            raise SettingsUnusable(f"Cannot write {self.path}: {error.strerror or error}.") from None


def read_file(path: Path, *, required: bool = False) -> SettingsFile:
    """Read the settings file. It is empty if it does not exist and is not required.

    Raises:
        SettingsUnusable: If the file cannot be read, or is missing although it is required.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        if required:
            advice = "Create it, or set TOLLBRIDGE_CONFIG to another file."
            raise SettingsUnusable(f"Settings file {path} not found.", advice) from None
        return SettingsFile(path, "")
    except OSError as error:
        raise _file_error(path, f"cannot be read: {error.strerror}") from None
    if len(data) > SIZE_LIMIT:
        raise _file_error(path, f"is larger than {SIZE_LIMIT >> 10} KiB")
    try:
        return SettingsFile(path, data.decode())
    except UnicodeDecodeError as error:
        raise _file_error(path, f"is not UTF-8 text (byte {error.start})") from None


def _file_error(path: Path, problem: str) -> SettingsUnusable:
    advice = "Fix it, or set TOLLBRIDGE_CONFIG to another file."
    return SettingsUnusable(f"The settings file {path} {problem}.", advice)
