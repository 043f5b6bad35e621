"""Text and JSON that can be sent: surrogates, limits of size and depth, and tolerant readers of JSON.

The JSON reader is fast for valid input and falls back to a tolerant parser for bad UTF-8 and lone surrogates.
The depth of nested values is limited, because parsers and encoders are recursive: without a limit, it depends
on the stack of the caller whether a value can be read, and a value that was read cannot always be written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

# The limits of the OpenResponses protocol for one text, the data URL of an image and the data of a file, in
# characters.
MAX_TEXT = 10_485_760
MAX_IMAGE_URL = 20_971_520
MAX_FILE_DATA = 33_554_432
# The most levels of a nested value: tool arguments, a schema, metadata. No real one has more than about 30.
MAX_DEPTH = 200
# Replaces tool arguments that are nested too deeply. It is not JSON, so the call is invalid and not run.
TOO_DEEP = f"[The arguments are nested more than {MAX_DEPTH} levels deep.]"
# The most levels of a JSON text, which has some levels of its own around such a value.
_MAX_TEXT_DEPTH = MAX_DEPTH + 20
# Texts with more objects and arrays are not made shallower, because that takes about 1 µs for each.
_MAX_BRACKETS = 50_000
_CONTAINERS = (dict, list)
# With fewer items, a loop finds the containers among them faster than their types do.
_FEW_ITEMS = 16


def replace_surrogates(text: str) -> str:
    """Join adjacent surrogate halves to one character; replace lone surrogates with U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()  # much faster than a search for surrogates
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def replace_surrogates_deep(value: Any) -> Any:
    """Apply `replace_surrogates` to all strings in a JSON value."""
    match value:
        case str():
            return replace_surrogates(value)
        case list():
            return [replace_surrogates_deep(item) for item in value]
        case dict():
            return {replace_surrogates(name): replace_surrogates_deep(item) for name, item in value.items()}
    return value


def is_valid_key(text: str) -> bool:
    """Return whether a text can be an API key: printable ASCII without spaces, as a header requires."""
    return text.isascii() and text.isprintable() and " " not in text


def split_text(text: str, limit: int = MAX_TEXT) -> list[str]:
    """Split a text into pieces of at most `limit` characters."""
    if len(text) <= limit:
        return [text]
    return [text[start : start + limit] for start in range(0, len(text), limit)]


_read = msgspec.json.Decoder().decode


def join_escaped_surrogates(data: bytes) -> bytes:
    r"""Replace escaped lone surrogates in JSON text with `\ufffd`; keep escaped pairs.

    JavaScript writes a lone surrogate when it cuts a string within an emoji. Strict parsers reject the whole
    text because of it.
    """
    # Every escape is matched, so that an escaped backslash is not read as the start of one: a surrogate pair,
    # a lone surrogate (group 1), or any other escape.
    return re.sub(
        rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
        lambda match: match[0] if match[1] is None else rb"\ufffd",
        data,
        flags=re.DOTALL,
    )


def read_json(data: bytes | str) -> Any:
    """Parse a JSON value. Lone surrogates and invalid UTF-8 are accepted.

    Raises:
        ValueError: The text is not JSON, or is nested too deeply.
    """
    reason = ""
    try:
        value = _read(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        import json  # not at the top: few texts need it, and the start of the sidecar is measured

        try:
            value = json.loads(text)
        except RecursionError:
            reason = "nested too deeply"
        except ValueError as error:
            reason = str(error)
    if not reason and _may_be_deep(data) and exceeds_depth(value, _MAX_TEXT_DEPTH):
        reason = "nested too deeply"
    if reason:
        # Not chained to the original error, which holds the whole text: it may contain a secret.
        raise ValueError(reason)
    return value


def _may_be_deep(data: bytes | str) -> bool:
    """Return whether a JSON text has enough brackets for `_MAX_TEXT_DEPTH`: most have far fewer."""
    if len(data) <= 2 * _MAX_TEXT_DEPTH:
        return False
    if isinstance(data, str):
        return data.count("{") + data.count("[") > _MAX_TEXT_DEPTH
    return data.count(b"{") + data.count(b"[") > _MAX_TEXT_DEPTH


def read_json_to_depth(data: bytes) -> Any:
    """Parse a JSON value like `read_json`. Objects and arrays that are nested too deeply are empty.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        return read_json(data)
    except ValueError:
        limited = limit_text_depth(data)
        if limited is data:
            raise
    return read_json(limited)


def exceeds_depth(value: object, limit: int = MAX_DEPTH) -> bool:
    """Return whether objects and arrays are nested more than `limit` levels deep."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(limit):
        if not level:
            return False
        children = [item.values() if isinstance(item, dict) else item for item in level]
        level = [
            child
            for items in children
            if len(items) < _FEW_ITEMS or any(issubclass(kind, _CONTAINERS) for kind in set(map(type, items)))
            for child in items
            if isinstance(child, _CONTAINERS)
        ]
    return bool(level)


def limit_depth(value: Any, limit: int = MAX_DEPTH) -> Any:
    """Return a copy of a JSON value in which the objects and arrays at level `limit` are empty."""
    match value:
        case dict():
            return {name: limit_depth(item, limit - 1) for name, item in value.items()} if limit > 1 else {}
        case list():
            return [limit_depth(item, limit - 1) for item in value] if limit > 1 else []
    return value


def limit_text_depth(data: bytes) -> bytes:
    """Return a JSON text in which objects and arrays that are nested too deeply for `read_json` are empty.

    The text need not be valid JSON: it is not parsed, so that any depth is possible. A text with too many
    brackets is returned unchanged.
    """
    if data.count(b"{") + data.count(b"[") > _MAX_BRACKETS:
        return data
    pieces: list[bytes] = []
    depth = start = 0
    # A token is a bracket, or a string, which can contain brackets.
    for token in re.finditer(rb'[{}\[\]]|"(?:[^"\\]|\\.)*+"?', data, re.DOTALL):
        bracket = token[0]
        if bracket in b"{[":
            depth += 1
            if depth == _MAX_TEXT_DEPTH:
                pieces.append(data[start : token.start()])
                pieces.append(b"{}" if bracket == b"{" else b"[]")
        elif bracket in b"}]":
            if depth == _MAX_TEXT_DEPTH:
                start = token.end()
            depth = max(0, depth - 1)
    if depth < _MAX_TEXT_DEPTH:
        pieces.append(data[start:])
    return b"".join(pieces) if len(pieces) > 1 else data


def write_json(value: object) -> str:
    """Encode a value as JSON text. A lone surrogate, which UTF-8 cannot encode, is written as its escape.

    Raises:
        ValueError: The value is not JSON serializable.
    """
    try:
        try:
            return msgspec.json.encode(value, enc_hook=_encode_mapping).decode()
        except UnicodeEncodeError:
            import json

            return json.dumps(msgspec.to_builtins(value, enc_hook=_encode_mapping))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def write_valid_json(value: object) -> str:
    """Encode a value as JSON text without lone surrogates, which some servers reject."""
    text = write_json(value)
    return join_escaped_surrogates(text.encode()).decode() if "\\ud" in text else text


def _encode_mapping(value: object) -> object:
    """Convert any mapping (for example a `MappingProxyType`) to a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def read_mapping(value: object) -> Mapping[str, Any]:
    """Return a value that is a mapping; an empty mapping for any other value."""
    return value if isinstance(value, Mapping) else {}


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
