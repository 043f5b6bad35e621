"""A recording read from its file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tollbridge.core.errors import RequestError
from tollbridge.core.messages import Part
from tollbridge.recorder.lines import (
    FORMAT,
    Answered,
    AnyLine,
    Begun,
    Ended,
    Line,
    Parts,
    Received,
    Sent,
    read_line,
)

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
