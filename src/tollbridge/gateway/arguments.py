"""A JSON value made to satisfy a JSON Schema, as well as can be without searching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_DEEPEST = 12
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

    def _of_type(self, kind: str, schema: Schema, name: str, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                items = schema.get("items", {"type": "string"})
                count = max(int(schema.get("minItems", 0)), 1)
                most = int(schema.get("maxItems", count))
                return [self.make(items, name, depth + 1) for _ in range(min(count, most))]
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        return self._string(schema, name)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        wanted = list(required) if isinstance(required, list) else []
        if self._full:
            wanted = [*wanted, *(name for name in properties if name not in wanted)]
        return {name: self.make(properties.get(name), name, depth + 1) for name in wanted}

    def _string(self, schema: Schema, name: str) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = self._hint(name) or name
        text = text.ljust(int(schema.get("minLength", 0)), ".")
        most = schema.get("maxLength")
        return text[: int(most)] if most is not None else text

    def _resolve(self, schema: Schema) -> Schema:
        """The schema with references followed, `allOf` merged and the first alternative chosen."""
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if isinstance(reference, str):
                schema = _follow(self._root, reference)
            elif isinstance(schema.get("allOf"), list):
                schema = self._merge(schema)
            elif isinstance(alternatives := schema.get("anyOf") or schema.get("oneOf"), list):
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                chosen = next((one for one in alternatives if one.get("type") != "null"), alternatives[0])
                schema = {**rest, **chosen}
            else:
                break
        return schema

    def _merge(self, schema: Schema) -> Schema:
        merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        for part in (self._resolve(one) for one in schema["allOf"]):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", []), *part.get("required", [])]
            merged = {**merged, **part}
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = list(dict.fromkeys(required))
        return merged


def _guess_type(schema: Schema) -> str:
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _follow(root: Schema, reference: str) -> Schema:
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _number(schema: Schema, whole: bool) -> int | float:
    least = schema.get("minimum")
    if (above := schema.get("exclusiveMinimum")) is not None:
        least = above + 1
    most = schema.get("maximum")
    if (below := schema.get("exclusiveMaximum")) is not None:
        most = below - 1
    value: int | float = 1
    if least is not None and value < least:
        value = least
    if most is not None and value > most:
        value = most
    step = schema.get("multipleOf")
    if step:
        value = -(-value // step) * step
    return int(value) if whole else value
