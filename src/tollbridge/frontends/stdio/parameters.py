"""Decode the parameters of the editor's requests, leniently where that cannot change their meaning.

Parts of unknown types become `Unknown`, so that a new version of VS Code does not make every chat fail.
`null` is read as an omitted field, and `[]` as an empty object, which is how Lua and PHP encode it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tollbridge.frontends.vscode.wire import Unknown
from tollbridge.types.text import limit_text_depth

Params = TypeVar("Params")

_OBJECTS = (msgspec.inspect.StructType, msgspec.inspect.DictType)


class NotUtf8(Exception):
    """Raised when the parameters are not valid UTF-8."""


def read_parameters(raw: msgspec.Raw, shape: type[Params]) -> Params:
    """Decode the parameters of a request. Objects and arrays that are nested too deeply are empty.

    Raises:
        msgspec.ValidationError: The parameters do not have this shape.
        NotUtf8: The parameters are not valid UTF-8.
    """
    try:
        try:
            return _decode(raw, shape)
        except RecursionError:  # one tool result or schema must not block the whole conversation
            return _decode(msgspec.Raw(limit_text_depth(bytes(raw))), shape)
    except UnicodeDecodeError as error:
        raise NotUtf8 from error


def _decode(raw: msgspec.Raw, shape: type[Params]) -> Params:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError:
        params = msgspec.json.decode(raw)
    return msgspec.convert(_adapt(params, msgspec.inspect.type_info(shape)), shape)


def _adapt(value: Any, kind: msgspec.inspect.Type) -> Any:
    """Return the value with the changes of the module's description, wherever it has this type."""
    match kind:
        case msgspec.inspect.UnionType():
            # At most one type of a union is a list; parts are objects that their `type` tells apart.
            kinds = kind.types
            if value == [] and not any(isinstance(member, msgspec.inspect.ListType) for member in kinds):
                objects = (member for member in kinds if isinstance(member, _OBJECTS))
                return _adapt(value, next(objects, msgspec.inspect.AnyType()))
            for member in kinds:
                if _matches(value, member):
                    return _adapt(value, member)
            is_part = any(getattr(member, "cls", None) is Unknown for member in kinds)
            if is_part and isinstance(value, dict) and isinstance(value.get("type"), str):
                return {"type": "unknown", "name": value["type"]}
            return value
        case msgspec.inspect.StructType() if value == [] or isinstance(value, dict):
            fields = dict(value)
            for field in kind.fields:
                name = field.encode_name
                if name not in fields:
                    continue
                if fields[name] is None and not field.required:
                    del fields[name]  # every optional field that may be null has null as its default
                else:
                    fields[name] = _adapt(fields[name], field.type)
            return fields
        case msgspec.inspect.DictType() if value == []:
            return {}
        case msgspec.inspect.ListType() if isinstance(value, list):
            return [_adapt(item, kind.item_type) for item in value]
        case _:
            return value


def _matches(value: Any, kind: msgspec.inspect.Type) -> bool:
    """Return whether this member of a union is meant by a value."""
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(value, dict):
        return kind.tag_field is None or value.get(kind.tag_field) == kind.tag
    return isinstance(kind, msgspec.inspect.ListType) and isinstance(value, list)
