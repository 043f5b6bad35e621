"""JSON as the world writes it: fast where it is right, forgiving where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

_read = msgspec.json.Decoder().decode
# Every escape, so that one which is itself escaped is not taken for one: a whole pair, half of one, another.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def with_whole_characters(data: bytes) -> bytes:
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


def write_whole(value: object) -> str:
    """The same without halves: what is sent to servers, some of which are strict readers."""
    text = write_json(value)
    return with_whole_characters(text.encode()).decode() if "\\ud" in text else text


def _plain(value: object) -> object:
    """Mappings of every make: read-only ones travel too."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing JSON can say")
