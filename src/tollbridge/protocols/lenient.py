"""Read JSON objects of gateways as structs, leniently: a value of the wrong type counts as missing.

None of the tested servers follows its specification exactly, and one wrong field must not cost the rest of an
object. A struct for `read_object` has a default for every field, and its fields are text, numbers, other such
structs and lists of them: each is `X | None`, in this order. `Any` accepts everything.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from tollbridge.types.events import MAX_COUNT

Object = TypeVar("Object", bound=msgspec.Struct)

# A number of tokens or requests. Negative and implausible numbers count as missing.
Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)] | None
# Longer strings of digits are not numbers: no index and no count is as long.
_MAX_DIGITS = 9


def first_count(*counts: int | None) -> int | None:
    """Return the first count that is reported."""
    return next((count for count in counts if count is not None), None)


def read_object(value: object, kind: type[Object]) -> Object:
    """Convert a JSON value to a struct. What is not an object is a struct with its defaults."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if not isinstance(value, dict):
            return kind()
    # A field has the wrong type, so each is converted on its own.
    fields = {name: _read_field(value[key], type_) for name, key, type_ in _list_fields(kind) if key in value}
    return kind(**{name: field for name, field in fields.items() if field is not None})


@cache
def _list_fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """Return the name of each field of a struct, its key in JSON, and its type without `None`."""
    fields = msgspec.structs.fields(kind)
    return [(field.name, field.encode_name, (*get_args(field.type), Any)[0]) for field in fields]


def _read_field(value: object, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return read_object(value, kind) if isinstance(value, dict) else None
    if get_origin(kind) is list:
        (item_kind,) = get_args(kind)
        items = value if isinstance(value, list) else []
        return [read_object(item, item_kind) for item in items if isinstance(item, dict)]
    for candidate in (value, _parse_number(value)):
        try:
            return msgspec.convert(candidate, kind)
        except msgspec.ValidationError:
            continue
    return None


def _parse_number(value: object) -> int | None:
    """Return the number in a text of digits, or a floating-point number without fraction, as an integer."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None
