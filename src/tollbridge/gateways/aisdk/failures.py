"""Errors in a stream: what the SDK serialises of them, down to one sentence and a kind.

A serialised error often holds the whole request, prompt included, and seldom its own message. So it is never
shown as it is: the message is searched for in the places where the versions keep it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tollbridge.core.errors import BridgeError
from tollbridge.gateways.aisdk import wire
from tollbridge.gateways.refusal import error_from

_DEPTH = 6  # of objects inside objects; deeper than any version nests


def read_failure(chunk: wire.Chunk) -> BridgeError:
    """The error of an `error` chunk: `errorText` in the UI stream, any JSON value in the others."""
    value = chunk.get("errorText")
    return failure_from(value if value is not None else chunk.get("error"))


def failure_from(value: object) -> BridgeError:
    layers = list(_layers(value, _DEPTH))
    message = next((text for layer in layers if (text := _message(layer))), None)
    status = next((number for layer in layers if (number := _status(layer)) is not None), None)
    code = next((text for layer in layers if (text := _code(layer))), None)
    if message is None:
        message = _by_name(layers)
    return error_from({"message": message, "type": code}, status=status)


def _layers(value: object, depth: int) -> Iterator[Mapping[str, Any]]:
    """The objects of an error, outermost first: itself, `error`, `data`, the response's body, `cause`."""
    if isinstance(value, str):
        value = _parsed(value) or {"message": value}
    if not isinstance(value, Mapping) or depth == 0:
        return
    yield value
    for name in ("error", "data", "responseBody", "cause"):
        inner = value.get(name)
        if isinstance(inner, Mapping):
            yield from _layers(inner, depth - 1)
        elif isinstance(inner, str):
            # A response's body is shown only for a message inside it; as text it could be anything.
            found = _parsed(inner) if name == "responseBody" else _parsed(inner) or {"message": inner}
            yield from _layers(found, depth - 1)


def _parsed(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _message(layer: Mapping[str, Any]) -> str | None:
    message = layer.get("message")
    return message if isinstance(message, str) and message.strip() else None


def _status(layer: Mapping[str, Any]) -> int | None:
    status = layer.get("statusCode", layer.get("status"))
    return status if isinstance(status, int) and 400 <= status < 600 else None


def _code(layer: Mapping[str, Any]) -> str | None:
    """The most telling code: `code`, or `type` unless it only says that this is an error."""
    for name in ("code", "type"):
        code = layer.get(name)
        if isinstance(code, str) and code not in ("", "error"):
            return code
    return None


def _by_name(layers: list[Mapping[str, Any]]) -> str:
    """`JSON.stringify(new Error("x"))` is `{}`: then a name, a tool or a status is all that is left."""
    outer = layers[0] if layers else {}
    name, tool = wire.first_text(outer, "name"), wire.first_text(outer, "toolName")
    if name and tool:
        return f"{name} in the tool “{tool}”; the stream gave no message."
    if name:
        return f"{name}; the stream gave no message."
    return "The stream reported an error and gave no message."
