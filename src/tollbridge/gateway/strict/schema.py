"""Whether a request keeps to the schema; if not, a refusal that names the place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.strict import shapes
from tollbridge.gateway.validation import read_shape


def check_schema(given: Mapping[str, Any]) -> None:
    body = _with_whole_numbers(given)
    read_shape(body, shapes.Request, "")
    if isinstance(body.get("input"), list):
        for index, item in enumerate(body["input"]):
            _check_item(item, f"input[{index}]")
    for index, tool in enumerate(body.get("tools") or ()):
        read_shape(_object(tool, f"tools[{index}]"), shapes.FunctionTool, f"tools[{index}]")
    _check_choice(body.get("tool_choice"))
    form = (body.get("text") or {}).get("format")
    if form is not None:
        form = {"type": "json_schema", **form}  # the one shape of the schema that needs no type
        read_shape(form, _by_type(form, shapes.FORMATS, "text.format"), "text.format")


def _with_whole_numbers(value: Any) -> Any:
    """JSON has one kind of number: 16.0 is an integer."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_whole_numbers(each) for name, each in value.items()}
        case list():
            return [_with_whole_numbers(each) for each in value]
    return value


def _check_choice(choice: object) -> None:
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise _wrong("tool_choice", f"{choice[:80]!r} is neither none, auto nor required")
    if isinstance(choice, Mapping):
        read_shape(choice, _by_type(choice, shapes.CHOICES, "tool_choice"), "tool_choice")


def _check_item(given: object, param: str) -> None:
    item = _object(given, param)
    kind = item.get("type")
    if kind == "message":
        kind = item.get("role")
        if not isinstance(kind, str) or kind not in shapes.MESSAGES:
            raise _wrong(f"{param}.role", f"{kind!r} is none of {', '.join(shapes.MESSAGES)}")
        read_shape(item, shapes.MESSAGES[kind], param)
    else:
        kind = kind if kind is not None else "item_reference"
        shape = shapes.ITEMS.get(kind) if isinstance(kind, str) else None
        if shape is None:
            raise _wrong(f"{param}.type", f"{kind!r} is none of message, {', '.join(shapes.ITEMS)}")
        read_shape(item, shape, param)
    field, allowed = shapes.CONTENTS.get(kind, ("", {}))
    if isinstance(item.get(field), list):
        for index, part in enumerate(item[field]):
            at = f"{param}.{field}[{index}]"
            read_shape(_object(part, at), _by_type(part, allowed, at), at)


def _by_type(given: Mapping[str, Any], table: shapes.Table, param: str) -> type[msgspec.Struct]:
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in table:
        raise _wrong(f"{param}.type", f"{kind!r} is none of {', '.join(table)}")
    return table[kind]


def _object(given: object, param: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise _wrong(param, "it is not an object")
    return given


def _wrong(param: str, what: str) -> Refused:
    return Refused(400, "invalid_value", f"{param}: {what[:200]}.", param=param)
