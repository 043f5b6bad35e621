"""JSON as the world writes it: fast where it is right, forgiving where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

# SECTION Texts that a wire can carry: whole characters, and no longer than it takes.

# As the protocol limits one text, the data URL of an image and the data of a file, in characters.
MAX_TEXT = 10_485_760
MAX_IMAGE_URL = 20_971_520
MAX_FILE_DATA = 33_554_432


def replace_surrogates(text: str) -> str:
    """Halves of a character are joined where they meet; one that is alone is shown as what it is, unknown."""
    if text.isascii():
        return text
    try:
        text.encode()  # much faster than looking for them
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def replace_surrogates_deep(value: Any) -> Any:
    """A JSON value with all of its texts mended."""
    match value:
        case str():
            return replace_surrogates(value)
        case list():
            return [replace_surrogates_deep(each) for each in value]
        case dict():
            return {replace_surrogates(name): replace_surrogates_deep(each) for name, each in value.items()}
    return value


def is_valid_key(text: str) -> bool:
    """Whether a header can carry it, and so a key be it."""
    return text.isascii() and text.isprintable() and " " not in text


def split_text(text: str, limit: int = MAX_TEXT) -> list[str]:
    """The text in pieces of at most `limit` characters; most texts are one."""
    if len(text) <= limit:
        return [text]
    return [text[at : at + limit] for at in range(0, len(text), limit)]


# SECTION JSON as the world writes it: fast where it is right, forgiving where it is not.

_read = msgspec.json.Decoder().decode
# Every escape, so that one which is itself escaped is not taken for one: a whole pair, half of one, another.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def join_escaped_surrogates(data: bytes) -> bytes:
    """JSON whose halves of surrogate pairs, which JavaScript writes of an emoji it has cut, are replaced.

    A strict reader refuses all of a text for one of them.
    """
    return _ESCAPES.sub(lambda found: found[0] if found[1] is None else rb"\ufffd", data)


def read_json(data: bytes | str) -> Any:
    """A JSON value. Raises `ValueError` for what is none; lone surrogates and bad UTF-8 are let through."""
    try:
        return _read(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text)
    except RecursionError:
        why = "nested too deeply"
    except ValueError as error:
        why = str(error)
    # Not from within: that error holds the whole text, which may be anyone's secret.
    raise ValueError(why)


def write_json(value: object) -> str:
    """The value as JSON text. A lone surrogate, which UTF-8 cannot hold, is written as its escape.

    Raises `ValueError` for what JSON cannot say.
    """
    try:
        try:
            return msgspec.json.encode(value, enc_hook=_plain).decode()
        except UnicodeEncodeError:
            return json.dumps(msgspec.to_builtins(value, enc_hook=_plain))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def write_valid_json(value: object) -> str:
    """The same without halves: what is sent to servers, some of which are strict readers."""
    text = write_json(value)
    return join_escaped_surrogates(text.encode()).decode() if "\\ud" in text else text


def _plain(value: object) -> object:
    """Mappings of every make: read-only ones travel too."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing JSON can say")
