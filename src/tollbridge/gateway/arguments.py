"""A JSON value made to satisfy a JSON Schema, as well as can be without searching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_DEEPEST = 12
_MOST = 10_000  # the longest text or list that is made because a schema asks for it
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


def _no_hint(_name: str) -> str | None:
    return None


def make_value(
    schema: Any,
    hint: Callable[[str], str | None] = _no_hint,
    name: str = "value",
    full: bool = False,
) -> Any:
    """`hint` gives a text for a free string field of that name; `full` fills optional fields too."""
    return _Maker(schema if isinstance(schema, Mapping) else {}, hint, full).make(schema, name, 0)


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
        if depth > _DEEPEST:
            return None
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((one for one in kind if one != "null"), "null")
        return self._of_type(kind or _guess_type(schema), schema, name, depth)

    def _of_type(self, kind: object, schema: Schema, name: str, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                count = max(_bound(schema, "minItems", 0), 1)
                count = min(count, _bound(schema, "maxItems", count))
                items = schema.get("items", {"type": "string"})
                return [self.make(items, name, depth + 1) for _ in range(count)]
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        return self._string(schema, name)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        wanted = _names(schema.get("required"))
        if self._full:
            wanted = [*wanted, *(name for name in properties if name not in wanted)]
        return {name: self.make(properties.get(name), name, depth + 1) for name in wanted}

    def _string(self, schema: Schema, name: str) -> str:
        known = _FORMATS.get(str(schema.get("format")))
        if known is not None:
            return known
        text = (self._hint(name) or name).ljust(_bound(schema, "minLength", 0), ".")
        return text[: _bound(schema, "maxLength", len(text))]

    def _resolve(self, schema: Schema) -> Schema:
        """The schema with references followed, `allOf` merged and the first alternative chosen."""
        for _ in range(_DEEPEST):
            alternatives = [one for one in _list(schema, "anyOf", "oneOf") if isinstance(one, Mapping)]
            if isinstance(reference := schema.get("$ref"), str):
                schema = _follow(self._root, reference)
            elif "allOf" in schema:
                schema = _merge(schema)
            elif alternatives:
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                useful = [one for one in alternatives if one.get("type") != "null"]
                schema = {**rest, **(useful or alternatives)[0]}
            else:
                break
        return schema


def _merge(schema: Schema) -> Schema:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in (one for one in _list(schema, "allOf") if isinstance(one, Mapping)):
        properties = {**_mapping(merged.get("properties")), **_mapping(part.get("properties"))}
        required = [*_names(merged.get("required")), *_names(part.get("required"))]
        merged = {**merged, **part, "properties": properties, "required": list(dict.fromkeys(required))}
    return merged


# Schemas come from strangers: what is not of its right type is taken as not said.


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _list(schema: Schema, *fields: str) -> list[Any]:
    return next((schema[field] for field in fields if isinstance(schema.get(field), list)), [])


def _bound(schema: Schema, field: str, default: int) -> int:
    value = schema.get(field)
    return value if isinstance(value, int) and 0 <= value <= _MOST else default


def _guess_type(schema: Schema) -> str:
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _follow(root: Schema, reference: str) -> Schema:
    found: Any = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _number(schema: Schema, whole: bool) -> int | float:
    least = _limit(schema, "minimum", "exclusiveMinimum", 1)
    most = _limit(schema, "maximum", "exclusiveMaximum", -1)
    value: int | float = 1
    if least is not None:
        value = max(value, least)
    if most is not None:
        value = min(value, most)
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and step > 0:
        value = -(-value // step) * step
    return int(value) if whole else value


def _limit(schema: Schema, plain: str, exclusive: str, inwards: int) -> int | float | None:
    if isinstance(limit := schema.get(exclusive), int | float):
        return limit + inwards
    limit = schema.get(plain)
    return limit if isinstance(limit, int | float) else None
