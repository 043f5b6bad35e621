"""Read the fields of a JSON object from outside, whose types may be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Fields:
    """Tolerant access to a JSON object: a method returns the value if it has the right type, else nothing."""

    __slots__ = ("raw",)

    def __init__(self, raw: object) -> None:
        self.raw: Mapping[str, Any] = raw if isinstance(raw, dict) else {}

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __contains__(self, name: str) -> bool:
        return name in self.raw

    def text(self, name: str) -> str | None:
        value = self.raw.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        value = self.raw.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value) if len(value) < 10 else None
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def inner(self, name: str) -> Fields:
        return Fields(self.raw.get(name))

    def list(self, name: str) -> list[Fields]:
        value = self.raw.get(name)
        return [Fields(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []
