"""Text and JSON that can be sent: surrogates, size limits, and a tolerant JSON reader.

The JSON reader is fast for valid input and falls back to a tolerant parser for bad UTF-8 and lone surrogates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

# The limits of the OpenResponses protocol for one text, the data URL of an image and the data of a file, in
# characters.
MAX_TEXT = 10_485_760
MAX_IMAGE_URL = 20_971_520
MAX_FILE_DATA = 33_554_432


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


# --- JSON ---

_read = msgspec.json.Decoder().decode
# Matches every escape, so that an escaped backslash is not read as the start of one: a surrogate pair, a lone
# surrogate (group 1), or any other escape.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def join_escaped_surrogates(data: bytes) -> bytes:
    r"""Replace escaped lone surrogates in JSON text with `\ufffd`; keep escaped pairs.

    JavaScript writes a lone surrogate when it cuts a string within an emoji. Strict parsers reject the whole
    text because of it.
    """
    return _ESCAPES.sub(lambda match: match[0] if match[1] is None else rb"\ufffd", data)


def read_json(data: bytes | str) -> Any:
    """Parse a JSON value. Lone surrogates and invalid UTF-8 are accepted.

    Raises:
        ValueError: The text is not JSON, or is nested too deeply.
    """
    try:
        return _read(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text)
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:
        reason = str(error)
    # Not chained to the original error, which holds the whole text: it may contain a secret.
    raise ValueError(reason)


def write_json(value: object) -> str:
    """Encode a value as JSON text. A lone surrogate, which UTF-8 cannot encode, is written as its escape.

    Raises:
        ValueError: The value is not JSON serializable.
    """
    try:
        try:
            return msgspec.json.encode(value, enc_hook=_encode_mapping).decode()
        except UnicodeEncodeError:
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
