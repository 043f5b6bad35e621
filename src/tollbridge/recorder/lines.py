"""The lines of a recording, each a JSON object. `at` is seconds since the turn began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tollbridge.core.json import read_json, write_json
from tollbridge.core.messages import Part
from tollbridge.core.usage import Usage

FORMAT = 1


class Line(msgspec.Struct, frozen=True, tag_field="line", tag=str.lower, omit_defaults=True):
    at: float


class Begun(Line, frozen=True):
    """`request` is what goes into the bridge, `said` what the editor sent where that is something else.

    `learned` is what was known of the server then, and `abilities` what of the model: the request was put
    accordingly. What came too large is `None`.
    """

    format: int
    tollbridge: str
    started: float
    request: Any
    said: Any = None
    redacted: bool = False
    learned: Any = None
    abilities: Any = None


class Sent(Line, frozen=True):
    """The request on the wire. A turn that is tried again has several, each with its answer after it."""

    protocol: str
    url: str
    headers: Mapping[str, str]
    body: str
    # Bytes of the body, where they were too many to keep; then `body` is empty.
    left_out: int = 0


class Answered(Line, frozen=True):
    status: int
    headers: Mapping[str, str]


class Received(Line, frozen=True):
    """Bytes of the answer, as one read gave them. In the file they are base64."""

    data: bytes


class Parts(Line, frozen=True):
    """What the editor was given."""

    parts: tuple[Part, ...]


class Cut(Line, frozen=True):
    """From here on bytes were not kept: the recording had reached its limit."""

    kept: int


class Ended(Line, frozen=True):
    outcome: str
    error: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


AnyLine = Begun | Sent | Answered | Received | Parts | Cut | Ended


def write_line(line: Line) -> str:
    return write_json(line) + "\n"


def read_line(text: bytes) -> AnyLine:
    """Raises `ValueError` for what is no line of a recording."""
    try:
        line: AnyLine = msgspec.convert(read_json(text), AnyLine)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return line
