"""What a tool answered, in the form that each version of the AI SDK takes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Literal

from tollbridge.core.json import read_json
from tollbridge.core.media import is_text, true_mime
from tollbridge.core.messages import DataPart, TextPart, ToolResultPart

Json = dict[str, Any]
Target = Literal[5, 6, 7]

# `content` has no type of its own for a failure.
ERROR_MARK = "Error:"


def encode_output(result: ToolResultPart, target: Target) -> Json:
    """`{type, value}`: one text or one JSON value stays what it is, anything more is `content`."""
    if len(result.parts) == 1:
        [part] = result.parts
        if isinstance(part, TextPart):
            return {"type": "error-text" if result.is_error else "text", "value": part.text}
        if _mime(part) == "application/json":
            try:
                return {"type": "error-json" if result.is_error else "json", "value": _json(part.data)}
            except ValueError:
                return {"type": "error-text" if result.is_error else "text", "value": _text(part.data)}
    if not result.parts:
        return {"type": "error-text" if result.is_error else "text", "value": ""}
    content = [item for part in result.parts for item in _items(part, target)]
    if not result.is_error:
        return {"type": "content", "value": content}
    if all(item["type"] == "text" for item in content):
        return {"type": "error-text", "value": "\n".join(item["text"] for item in content)}
    return {"type": "content", "value": [{"type": "text", "text": ERROR_MARK}, *content]}


def texts_of(part: DataPart) -> list[str]:
    """What a file says, after its name; nothing where it is no text."""
    if not is_text(_mime(part)):
        return []
    return [*([f"[{part.name}]"] if part.name else []), _text(part.data)]


def _items(part: TextPart | DataPart, target: Target) -> list[Json]:
    """A file's name stands in a text before it where its own form has no place for one."""
    texts = [part.text] if isinstance(part, TextPart) else texts_of(part)
    if isinstance(part, TextPart) or texts:
        return [{"type": "text", "text": text} for text in texts]
    mime, name = _mime(part), [{"type": "text", "text": f"[{part.name}]"}] if part.name else []
    data = b64encode(part.data).decode()
    named = {"filename": part.name} if part.name else {}
    if target == 7:
        return [{"type": "file", "data": {"type": "data", "data": data}, "mediaType": mime, **named}]
    if target == 6 and not mime.startswith("image/"):
        return [{"type": "file-data", "data": data, "mediaType": mime, **named}]
    kind = "media" if target == 5 else "image-data"
    return [*name, {"type": kind, "data": data, "mediaType": mime}]


def _mime(part: DataPart) -> str:
    return true_mime(part.data, part.mime)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    """The value, or `ValueError` for what is no JSON. Python would read NaN and infinity as well."""
    value = read_json(data)
    json.dumps(value, allow_nan=False)
    return value
