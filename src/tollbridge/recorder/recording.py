"""A recording read from its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.types.errors import RequestError
from tollbridge.types.messages import Part
from tollbridge.types.text import read_json, write_json
from tollbridge.types.usage import Usage

# SECTION The lines of a recording, each a JSON object. `at` is seconds since the turn began.

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


# SECTION A recording read from its file.

_START = b'{"line":"begun"'


class Attempt(msgspec.Struct, frozen=True):
    """A request that was sent, and what came back; `answered` is `None` where nothing did."""

    sent: Sent
    answered: Answered | None
    received: tuple[Received, ...]


class Recording(msgspec.Struct, frozen=True):
    begun: Begun
    lines: tuple[AnyLine, ...]

    @property
    def attempts(self) -> list[Attempt]:
        return attempts_of(self.lines)

    @property
    def parts(self) -> list[Part]:
        """The parts that the editor was given then."""
        return [part for line in self.lines if isinstance(line, Parts) for part in line.parts]

    @property
    def ended(self) -> Ended | None:
        """`None` where the process was ended before the turn was."""
        return next((line for line in self.lines if isinstance(line, Ended)), None)


def is_recording(path: Path) -> bool:
    """By its first bytes: recorded answers may have any name. Raises `OSError`."""
    with path.open("rb") as file:
        return file.read(len(_START)) == _START


def read_recording(path: Path) -> Recording:
    """Raises `OSError` where it cannot be read, and `RequestError` where it is no recording of ours."""
    lines: list[AnyLine] = []
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                lines.append(read_line(text))
            except ValueError as error:
                if lines and not text.endswith(b"\n"):
                    break  # torn: whoever wrote it was ended in the middle of it
                raise RequestError(f"{path}, line {number}, is not of a recording: {error}.") from None
    if not lines or not isinstance(lines[0], Begun):
        raise RequestError(f"{path} is not a recording: it does not begin with how the turn began.")
    if lines[0].format > FORMAT:
        raise RequestError(f"{path} was made by a newer Tollbridge ({lines[0].tollbridge}). Update this one.")
    return Recording(lines[0], tuple(lines))


def attempts_of(lines: Iterable[Line]) -> list[Attempt]:
    found: list[tuple[Sent, list[Answered], list[Received]]] = []
    for line in lines:
        match line:
            case Sent():
                found.append((line, [], []))
            case Answered() if found:
                found[-1][1].append(line)
            case Received() if found:
                found[-1][2].append(line)
            case _:
                pass
    return [Attempt(sent, answered[0] if answered else None, tuple(got)) for sent, answered, got in found]
