"""Arguments of tool calls that are not JSON: mended where there is one way to read them, else kept as text.

Two strengths. What a model has just said is mended only where nothing can be lost by it, because a tool will
run with the result: arguments that break off are not completed. What stands in a history is only read again,
so there a text that breaks off is closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tollbridge.core.json import read_json, write_json
from tollbridge.core.texts import mended, whole

# The one key of an object that carries arguments which make no sense (docs/decisions/broken-calls.md).
INVALID = "_invalid_arguments"
# Longer texts are carried as they are: mending reads them several times.
MEND_LIMIT = 1024 * 1024

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}


def wrap(text: str) -> dict[str, Any]:
    """Arguments that no tool can run with, as an object that says so to whoever validates it."""
    return {INVALID: text}


def mend(text: str, *, complete: bool = False) -> dict[str, Any] | None:
    """The object a text means, or `None`. With `complete`, one that breaks off is closed where it ends."""
    if not text.strip():
        return {}
    if len(text) > MEND_LIMIT:
        return _object(text)
    readings = [text, _unfenced(text), _without_trailing_commas(text)]
    if complete:
        readings.append(_without_trailing_commas(_closed(text)))
    for reading in readings:
        found = _object(reading)
        if found is not None:
            return found
    return None


def legal_input(given: Any) -> tuple[dict[str, Any], bool]:
    """What a call in a history was made with, as an object JSON can say; and whether it had to be changed."""
    if given is None:
        return {}, False
    if isinstance(given, Mapping):
        return _plain(given)
    if isinstance(given, str):
        text = mended(given)
        found = mend(text, complete=True)
        return (wrap(text) if found is None else whole(found)), True
    try:
        return whole(wrap(write_json(given))), True
    except (ValueError, OverflowError):
        return whole(wrap(_shown(given))), True


def _plain(given: Mapping[Any, Any]) -> tuple[dict[str, Any], bool]:
    """JSON's own idea of the object: what it cannot say is shown in Python's words for it."""
    try:
        text = write_json(given)
        found = read_json(text)
    except (ValueError, OverflowError):
        return whole(wrap(_shown(given))), True
    if "\\ud" in text:  # only what holds half a character is written with escapes
        return whole(found), True
    return found, False


def _shown(given: object) -> str:
    try:
        return repr(given)
    except RecursionError:
        return "[nested too deeply to be shown]"


def _object(text: str) -> dict[str, Any] | None:
    """The object, also where it is JSON inside a JSON string, holds raw line breaks, or is said twice."""
    value: Any = text
    for _ in range(3):  # a string in a string in a string: deeper than any server nests
        if not isinstance(value, str):
            break
        value = _one_value(value)
    return value if isinstance(value, dict) else None


def _one_value(text: str) -> Any:
    """The one value in a text. An empty object before the real one is how some adapters begin."""
    decoder = json.JSONDecoder(strict=False)
    found: Any = None
    rest = text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        if found is not None and found not in ({}, value):
            return None
        found, rest = value, rest[end:].strip()
    return found


def _unfenced(text: str) -> str:
    fenced = _FENCE.match(text)
    return fenced[1] if fenced else text


def _without_trailing_commas(text: str) -> str:
    """Commas outside strings that stand before a closing bracket."""
    kept: list[str] = []
    for piece, is_string in _pieces(text):
        kept.append(piece if is_string else re.sub(r",(\s*[}\]])", r"\1", piece))
    return "".join(kept)


def _closed(text: str) -> str:
    """The text with its string and brackets closed in the order they were opened."""
    pieces = list(_pieces(text))
    open_: list[str] = []
    for piece, is_string in pieces:
        for mark in "" if is_string else piece:
            if mark in _CLOSERS:
                open_.append(_CLOSERS[mark])
            elif open_ and mark == open_[-1]:
                open_.pop()
    last, is_string = pieces[-1] if pieces else ("", False)
    if is_string and not _ends(last):
        text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", text) + '"'
    text = text.rstrip().removesuffix(",")
    if text.endswith(":"):
        text += " null"
    return text + "".join(reversed(open_))


def _pieces(text: str) -> list[tuple[str, bool]]:
    """The text cut into strings, quotes included, and what is between them. The last string may be open."""
    found: list[tuple[str, bool]] = []
    at = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', text, re.DOTALL):
        found += [(text[at : match.start()], False), (match[0], True)]
        at = match.end()
    return [*found, (text[at:], False)] if text[at:] else found


def _ends(string: str) -> bool:
    """Whether the last quote of a string closes it."""
    if len(string) < 2 or not string.endswith('"'):
        return False
    slashes = len(string[:-1]) - len(string[:-1].rstrip("\\"))
    return slashes % 2 == 0
