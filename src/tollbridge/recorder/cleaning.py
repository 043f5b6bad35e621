"""The lines of a recording made fit to be shown: no keys, and no content where that was asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from tollbridge.core.json import read_json, write_json
from tollbridge.recorder import redact
from tollbridge.recorder.lines import Begun, Ended, Line, Received, Sent


def cleaned(lines: Sequence[Line], keys: Collection[str], *, redacted: bool) -> list[Line]:
    """The same lines, as many, clean."""
    found = [clean_line(line, keys, redacted=redacted) for line in lines]
    for places in _answers(lines):
        body = b"".join(_data(lines[place]) for place in places)
        # An answer is cleaned whole: what must go may have come in pieces.
        body = redact.hide_keys(body, keys)
        if redacted:
            body = redact.hide_content(body)
        start = 0
        for place in places:
            size = len(_data(lines[place]))
            found[place] = Received(lines[place].at, body[start : start + size])
            start += size
    return found


def _answers(lines: Sequence[Line]) -> list[list[int]]:
    """Where the bytes of each answer stand."""
    found: list[list[int]] = [[]]
    for place, line in enumerate(lines):
        if isinstance(line, Sent):
            found.append([])
        elif isinstance(line, Received):
            found[-1].append(place)
    return [places for places in found if places]


def _data(line: Line) -> bytes:
    return line.data if isinstance(line, Received) else b""


def clean_line(line: Line, keys: Collection[str], *, redacted: bool) -> Line:
    """A line that is not of the answer's bytes."""
    if isinstance(line, Received):
        return line
    plain: dict[str, Any] = read_json(redact.hide_keys(write_json(line).encode(), keys))
    return msgspec.convert(_without_content(line, plain) if redacted else plain, type(line))


def _without_content(line: Line, plain: dict[str, Any]) -> dict[str, Any]:
    match line:
        case Begun():
            hidden = {name: _hidden(plain.get(name)) for name in ("request", "said")}
            return plain | hidden | {"redacted": True}
        case Sent():
            return plain | {"body": redact.hide_content(plain["body"].encode()).decode()}
        case Ended(error=error) if error and "message" in error:
            told = redact.hide_content(str(error["message"]).encode()).decode()
            return plain | {"error": plain["error"] | {"message": told}}
        case _:
            return plain


def _hidden(value: object) -> Any:
    return None if value is None else read_json(redact.hide_content(write_json(value).encode()))
