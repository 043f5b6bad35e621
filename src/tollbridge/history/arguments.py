"""Arguments of tool calls that are not JSON.

They are repaired if there is only one way to read them, and kept as text otherwise. A new call of a model is
repaired only if nothing can be lost, because a tool runs with the result: truncated arguments are not
completed. In a history, where arguments are only read, truncated arguments are completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tollbridge.types.text import read_json, replace_surrogates, replace_surrogates_deep, write_json

# The key of an object that holds invalid arguments as text (docs/decisions/invalid-tool-arguments.md).
INVALID = "_invalid_arguments"
# Longer texts are not repaired, because that parses them several times.
REPAIR_LIMIT = 1024 * 1024

# A Markdown code fence, which has the language on the first line.
_FENCE = "```"
_SPACE = re.compile(r"\s*")
# A JSON string, which may be open at the end. Possessive: a long string needs no memory for backtracking.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}


def wrap_arguments(text: str) -> dict[str, Any]:
    """Return invalid arguments as an object, which the tool's validation will reject."""
    return {INVALID: text}


def repair_arguments(text: str, *, complete: bool = False) -> dict[str, Any] | None:
    """Parse arguments that may not be valid JSON.

    Args:
        complete: Whether to complete truncated arguments by closing their strings and brackets.

    Returns:
        The object, or `None` if the text cannot be read as one object.
    """
    if not text.strip():
        return {}
    if len(text) > REPAIR_LIMIT:
        return _parse_object(text)
    candidates = [text, _remove_fence(text), _remove_trailing_commas(text)]
    if complete:
        candidates.append(_remove_trailing_commas(_complete(text)))
    for candidate in candidates:
        arguments = _parse_object(candidate)
        if arguments is not None:
            return arguments
    return None


def valid_input(value: Any) -> tuple[dict[str, Any], bool]:
    """Convert the input of a call in a history to a JSON object. Return it, and whether it differs."""
    if value is None:
        return {}, False
    if isinstance(value, str):
        text = replace_surrogates(value)
        arguments = repair_arguments(text, complete=True)
        return (wrap_arguments(text) if arguments is None else replace_surrogates_deep(arguments)), True
    try:
        text = write_json(value)
        arguments = read_json(text) if isinstance(value, Mapping) else None
    except (ValueError, OverflowError):  # not JSON serializable
        try:
            text, arguments = repr(value), None
        except RecursionError:
            text, arguments = "[nested too deeply to be shown]", None
    if arguments is None:
        return replace_surrogates_deep(wrap_arguments(text)), True
    # Only texts with lone surrogates are written with escapes.
    return (replace_surrogates_deep(arguments), True) if "\\ud" in text else (arguments, False)


def _parse_object(text: str) -> dict[str, Any] | None:
    """Parse an object, also if it is JSON within a JSON string, contains raw line breaks, or is repeated."""
    value: Any = text
    for _ in range(3):  # no known server nests strings deeper
        if not isinstance(value, str):
            break
        value = _parse_single_value(value)
    return value if isinstance(value, dict) else None


def _parse_single_value(text: str) -> Any:
    """Parse the only value of a text. Some adapters send an empty object before the real one."""
    decoder = json.JSONDecoder(strict=False)
    result: Any = None
    text = text.strip()
    end = 0
    while end < len(text):
        try:
            value, end = decoder.raw_decode(text, end)
        except (ValueError, RecursionError):
            return None
        if result is not None and result not in ({}, value):
            return None
        result = value
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # always matches
    return result


def _remove_fence(text: str) -> str:
    """Remove the Markdown code fence around a text."""
    first, line_end, rest = text.strip().partition("\n")
    is_fenced = first.startswith(_FENCE) and first[len(_FENCE) :].strip() in ("", "json")
    content, last_line_end, last = rest.rpartition("\n")
    return content if line_end and is_fenced and last_line_end and last.strip() == _FENCE else text


def _remove_trailing_commas(text: str) -> str:
    """Remove commas before a closing bracket, except in strings."""
    return "".join(
        piece if is_string else re.sub(r",(\s*[}\]])", r"\1", piece) for piece, is_string in _tokenize(text)
    )


def _complete(text: str) -> str:
    """Close the open string and the open brackets of a truncated text."""
    pieces = _tokenize(text)
    closers: list[str] = []
    for piece, is_string in pieces:
        for character in "" if is_string else piece:
            if character in _CLOSERS:
                closers.append(_CLOSERS[character])
            elif closers and character == closers[-1]:
                closers.pop()
    last, is_string = pieces[-1] if pieces else ("", False)
    # The last quote closes the string unless an odd number of backslashes precedes it.
    backslashes = len(last[:-1]) - len(last[:-1].rstrip("\\"))
    is_closed = len(last) > 1 and last.endswith('"') and backslashes % 2 == 0
    if is_string and not is_closed:
        text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", text) + '"'
    text = text.rstrip().removesuffix(",")
    if text.endswith(":"):
        text += " null"
    return text + "".join(reversed(closers))


def _tokenize(text: str) -> list[tuple[str, bool]]:
    """Split a text into strings (with their quotes; `True`) and the pieces between them (`False`).

    The last string may be open.
    """
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in _STRING.finditer(text):
        pieces += [(text[end : match.start()], False), (match[0], True)]
        end = match.end()
    return [*pieces, (text[end:], False)] if text[end:] else pieces
