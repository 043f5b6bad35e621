"""Read single fields of a caller's request body. An error names the field, also as its `param`.

`prefix` is the path of the object that contains the field, with the dot after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollbridge.types.errors import RequestError

_KIND_NAMES = {str: "a string", int: "a whole number", bool: "a boolean"}


def name_type(value: object) -> str:
    """Return the JSON type of a value: `a string`. Errors name it, because the value may be a prompt."""
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {str: "a string", int: "a number", float: "a decimal number", list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")


def invalid_field(field: str, expected: str, value: object = None) -> RequestError:
    """Return the error for a field with a wrong value. The message names the type of `value`, if given."""
    actual = "" if value is None else f", not {name_type(value)}"
    return RequestError(f"{field} must be {expected}{actual}.", status=400, code="invalid_type", param=field)


def read_optional(body: Mapping[str, Any], name: str, kind: type, prefix: str = "") -> Any:
    """Return a string, a whole number or a boolean; `None` if it is missing."""
    value = body.get(name)
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise invalid_field(f"{prefix}{name}", _KIND_NAMES[kind], value)
    return value


def read_text(body: Mapping[str, Any], name: str, prefix: str = "") -> str:
    """Return a required string."""
    value = body.get(name)
    if not isinstance(value, str):
        raise invalid_field(f"{prefix}{name}", "a string", value)
    return value


def read_number(body: Mapping[str, Any], name: str) -> float | None:
    """Return a number; `None` if it is missing."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise invalid_field(name, "a number", value)
    return value


def read_object(body: Mapping[str, Any], name: str, prefix: str = "") -> Mapping[str, Any]:
    """Return an object, which is empty if it is missing."""
    value = body.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise invalid_field(f"{prefix}{name}", "an object", value)
    return value or {}


def read_list(body: Mapping[str, Any], name: str, prefix: str = "") -> list[Any]:
    """Return an array, which is empty if it is missing."""
    value = body.get(name)
    if value is not None and not isinstance(value, list):
        raise invalid_field(f"{prefix}{name}", "an array", value)
    return value or []


def check_output_limit(body: Mapping[str, Any], *names: str) -> None:
    """Check the output limit of a caller's request, whose field has one of these names.

    Raises:
        RequestError: The limit is less than 1. The message names the field and the limit.
    """
    for name in names:
        limit = body.get(name)
        if isinstance(limit, int) and not isinstance(limit, bool) and limit < 1:
            message = f"{name} must be at least 1, not {limit}."
            raise RequestError(message, status=400, code="invalid_value", param=name)


def custom_tool_parameters(argument: str) -> dict[str, Any]:
    """Return the schema of a function that stands for a custom tool, whose input is one text."""
    return {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}


def add_grammar(description: str, grammar: object) -> str:
    """Add the grammar of a custom tool to its description, because a function has no grammar."""
    if not isinstance(grammar, Mapping) or not isinstance(grammar.get("definition"), str):
        return description
    syntax = grammar.get("syntax", "")
    return f"{description}\n\nThe input must match this {syntax} grammar:\n{grammar['definition']}"
