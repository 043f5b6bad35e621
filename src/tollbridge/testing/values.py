"""Create values that satisfy a JSON Schema: arguments of tools and structured answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tollbridge.types.text import read_mapping

Schema = Mapping[str, Any]

_MAX_DEPTH = 12
_MAX_LENGTH = 10_000  # of texts and lists
_FORMATS: dict[str, str] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def make_value(
    schema: Any,
    hint: Callable[[str], str | None] = lambda _name: None,
    full: bool = False,
) -> Any:
    """Create a value that satisfies a JSON Schema, as far as possible without a search.

    Args:
        schema: The schema. It can be invalid: parts of the wrong type are ignored.
        hint: Returns a text for a string field by its name. Without a hint, the text is the name.
        full: Whether to include optional fields.
    """
    return _Maker(schema if isinstance(schema, Mapping) else {}, hint, full).make(schema, "value", 0)


class _Maker:
    def __init__(self, root: Schema, hint: Callable[[str], str | None], full: bool) -> None:
        self._root = root
        self._hint = hint
        self._full = full

    def make(self, schema: Any, name: str, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return name  # `true` and the absent schema allow anything
        schema = self._resolve(schema)
        for field in ("const", "default"):
            if field in schema:
                return schema[field]
        for field in ("enum", "examples"):
            if isinstance(schema.get(field), list) and schema[field]:
                return schema[field][0]
        if depth > _MAX_DEPTH:
            return None
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((option for option in kind if option != "null"), "null")
        if not kind:
            is_object = "properties" in schema or "required" in schema
            kind = "object" if is_object else "array" if "items" in schema else "string"
        match kind:
            case "object":
                properties = read_mapping(schema.get("properties"))
                names = _names(schema.get("required"))
                if self._full:
                    names = [*names, *(field for field in properties if field not in names)]
                return {field: self.make(properties.get(field), field, depth + 1) for field in names}
            case "array":
                count = max(_bound(schema, "minItems", 0), 1)
                count = min(count, _bound(schema, "maxItems", count))
                items = schema.get("items", {"type": "string"})
                return [self.make(items, name, depth + 1) for _ in range(count)]
            case "integer" | "number":
                return _number(schema, is_integer=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        if example := _FORMATS.get(str(schema.get("format"))):
            return example
        text = (self._hint(name) or name).ljust(_bound(schema, "minLength", 0), ".")
        return text[: _bound(schema, "maxLength", len(text))]

    def _resolve(self, schema: Schema) -> Schema:
        """Follow references, merge `allOf` and choose the first alternative."""
        for _ in range(_MAX_DEPTH):
            alternatives = [
                option for option in _list(schema, "anyOf", "oneOf") if isinstance(option, Mapping)
            ]
            if isinstance(reference := schema.get("$ref"), str):
                schema = _follow(self._root, reference)
            elif "allOf" in schema:
                schema = _merge(schema)
            elif alternatives:
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                not_null = [option for option in alternatives if option.get("type") != "null"]
                schema = {**rest, **(not_null or alternatives)[0]}
            else:
                break
        return schema


def _merge(schema: Schema) -> Schema:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in (part for part in _list(schema, "allOf") if isinstance(part, Mapping)):
        properties = {**read_mapping(merged.get("properties")), **read_mapping(part.get("properties"))}
        required = [*_names(merged.get("required")), *_names(part.get("required"))]
        merged = {**merged, **part, "properties": properties, "required": list(dict.fromkeys(required))}
    return merged


# Schemas can be invalid. A value of the wrong type counts as missing.


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _list(schema: Schema, *fields: str) -> list[Any]:
    return next((schema[field] for field in fields if isinstance(schema.get(field), list)), [])


def _bound(schema: Schema, field: str, default: int) -> int:
    value = schema.get(field)
    return value if isinstance(value, int) and 0 <= value <= _MAX_LENGTH else default


def _follow(root: Schema, reference: str) -> Schema:
    schema: Any = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}


def _number(schema: Schema, is_integer: bool) -> int | float:
    minimum = _limit(schema, "minimum", "exclusiveMinimum", 1)
    maximum = _limit(schema, "maximum", "exclusiveMaximum", -1)
    value: int | float = 1
    if minimum is not None:
        value = max(value, minimum)
    if maximum is not None:
        value = min(value, maximum)
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and step > 0:
        value = -(-value // step) * step
    return int(value) if is_integer else value


def _limit(schema: Schema, inclusive: str, exclusive: str, step: int) -> int | float | None:
    if isinstance(limit := schema.get(exclusive), int | float):
        return limit + step
    limit = schema.get(inclusive)
    return limit if isinstance(limit, int | float) else None
