"""The parameters of a call as an editor sends them; parts of kinds nobody told us of do not spoil them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

Shape = TypeVar("Shape")

_RESULT_PARTS = frozenset({"text", "data", "promptTsx", "unknown"})
_PARTS = _RESULT_PARTS | {"thinking", "toolCall", "toolResult"}


class NotText(Exception):
    """The bytes are not UTF-8."""


def read_parameters(raw: msgspec.Raw, shape: type[Shape]) -> Shape:
    """Raises `msgspec.ValidationError` for what does not fit, and `NotText`."""
    try:
        return _read(raw, shape)
    except UnicodeDecodeError as error:
        raise NotText from error


def _read(raw: msgspec.Raw, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError:
        given = msgspec.json.decode(raw)
        unknown = list(_unknown_parts(given))
        if not unknown:
            raise
    for part in unknown:
        name = str(part.get("type", ""))
        part.clear()
        part.update(type="unknown", name=name)
    return msgspec.convert(given, shape)


def _unknown_parts(given: Any) -> Iterator[dict[str, Any]]:
    """In the messages of a chat, or among the items of a count."""
    for field in ("messages", "items"):
        for message in _list(given, field):
            for part in _list(message, "content"):
                yield from _unknown(part, _PARTS)
                for inner in _list(part, "content"):
                    yield from _unknown(inner, _RESULT_PARTS)


def _unknown(part: Any, known: frozenset[str]) -> Iterator[dict[str, Any]]:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind not in known:
        yield part


def _list(value: Any, field: str) -> list[Any]:
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
