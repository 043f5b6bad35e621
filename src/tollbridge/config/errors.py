"""Errors about settings, and messages about values of the wrong type."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tollbridge.types.errors import RequestError

_TYPE_MISMATCH = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
# The types as msgspec names them, for people who do not know Python.
_TYPE_NAMES = {
    "array": "a list",
    "bool": "a boolean",
    "decimal": "a number",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "a table",
    "str": "a string",
}
# The types whose values are named instead, if one is expected.
_VALUES = {"bool": "true or false"}


class SettingsUnusable(RequestError):
    """Raised when a settings file, an environment variable or an account cannot be used.

    `advice` says what to do, unless the message already does.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class SettingsError(RequestError):
    """Raised when a setting has an invalid value; `setting` is its full name, `problem` what is wrong."""

    def __init__(self, setting: str, problem: str, location: str) -> None:
        super().__init__(f"{setting}: {problem} ({location})")
        self.setting = setting
        self.problem = problem


def describe_mismatch(message: str) -> str:
    """Rewrite a validation message of msgspec without Python's type names.

    For example, "Expected `float | null`, got `str`" becomes "expected a number, got a string".
    """
    return _TYPE_MISMATCH.sub(
        lambda match: f"expected {_type_names(match[1], _VALUES)}, got {_type_names(match[2])}",
        message.replace("Invalid decimal string", "expected a number"),
    )


def _type_names(union: str, values: Mapping[str, str] = {}) -> str:
    names = union.split(" | ")
    if len(names) > 1:
        names = [name for name in names if name != "null"]  # TOML has no null
    return " or ".join(values.get(name) or _TYPE_NAMES.get(name, f"a {name}") for name in names)
