"""The format of recordings, and reading them from files.

A recording is a file of JSON objects, one per line. `line` is the type of the line, and `at` its time in
seconds since the start of the turn. The names in the file are part of the format and do not change. Some of
them differ from the names of the classes and attributes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.types.errors import RequestError
from tollbridge.types.events import Usage
from tollbridge.types.messages import Part
from tollbridge.types.text import read_json, write_json

FORMAT = 1


class Line(msgspec.Struct, frozen=True, tag_field="line", omit_defaults=True):
    """Base class of all lines."""

    at: float


class RecordingStart(Line, frozen=True, tag="begun"):
    """The first line.

    Values that were too large to record are `None`.

    Attributes:
        tollbridge: The version of Tollbridge.
        started: Seconds since 1970.
        request: The `ChatRequest` of the turn.
        editor_request: The request of the editor, if it has another form.
        redacted: Whether message content was removed.
        learned: The `LearnedQuirks` of the server at that time, which determine the form of the request.
        capabilities: The `Capabilities` of the model, likewise.
    """

    format: int
    tollbridge: str
    started: float
    request: Any
    editor_request: Any = msgspec.field(default=None, name="said")
    redacted: bool = False
    learned: Any = None
    capabilities: Any = msgspec.field(default=None, name="abilities")


class RequestLine(Line, frozen=True, tag="sent"):
    """An HTTP request. A turn with retries has several, each followed by its response.

    `omitted_bytes` is the size of a body that was too large to record; `body` is then empty.
    """

    protocol: str
    url: str
    headers: Mapping[str, str]
    body: str
    omitted_bytes: int = msgspec.field(default=0, name="left_out")


class ResponseLine(Line, frozen=True, tag="answered"):
    """The status and headers of a response."""

    status: int
    headers: Mapping[str, str]


class DataLine(Line, frozen=True, tag="received"):
    """Bytes of a response body, as one read returned them. In the file they are base64."""

    data: bytes


class PartsLine(Line, frozen=True, tag="parts"):
    """Parts that were sent to the editor."""

    parts: tuple[Part, ...]


class TruncationLine(Line, frozen=True, tag="cut"):
    """Marks where the recording reached its size limit. Later response bytes are not recorded."""

    recorded_bytes: int = msgspec.field(name="kept")


class EndLine(Line, frozen=True, tag="ended"):
    """The last line: the outcome of the turn (`completed`, `failed` or `cancelled`)."""

    outcome: str
    error: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


AnyLine = RecordingStart | RequestLine | ResponseLine | DataLine | PartsLine | TruncationLine | EndLine


def write_line(line: Line) -> str:
    return write_json(line) + "\n"


def read_line(text: bytes) -> AnyLine:
    """Parse a line.

    Raises:
        ValueError: If it is not a line of a recording.
    """
    line: AnyLine = msgspec.convert(read_json(text), AnyLine)
    return line


_FIRST_BYTES = b'{"line":"begun"'


class Attempt(msgspec.Struct, frozen=True):
    """An HTTP request and its response; `response` is `None` if there was none."""

    request: RequestLine
    response: ResponseLine | None
    data: tuple[DataLine, ...]


class Recording(msgspec.Struct, frozen=True):
    """A recording in memory. `lines` are all lines, including the start."""

    start: RecordingStart
    lines: tuple[AnyLine, ...]

    @property
    def attempts(self) -> list[Attempt]:
        """The HTTP requests, each with its response."""
        groups: list[tuple[RequestLine, list[ResponseLine], list[DataLine]]] = []
        for line in self.lines:
            match line:
                case RequestLine():
                    groups.append((line, [], []))
                case ResponseLine() if groups:
                    groups[-1][1].append(line)
                case DataLine() if groups:
                    groups[-1][2].append(line)
                case _:
                    pass
        return [
            Attempt(request, responses[0] if responses else None, tuple(data))
            for request, responses, data in groups
        ]

    @property
    def parts(self) -> list[Part]:
        """The parts that were sent to the editor."""
        return [part for line in self.lines if isinstance(line, PartsLine) for part in line.parts]

    @property
    def end(self) -> EndLine | None:
        """The last line, or `None` if the process was killed during the turn."""
        return next((line for line in self.lines if isinstance(line, EndLine)), None)


def is_recording(path: Path) -> bool:
    """Return whether a file starts like a recording. Recorded response bodies may have the same suffix."""
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES


def read_recording(path: Path) -> Recording:
    """Read a recording. An incomplete last line, of a process that was killed, is ignored.

    Raises:
        OSError: If the file cannot be read.
        RequestError: If the file is not a recording, or has a newer format.
    """
    lines: list[AnyLine] = []
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                lines.append(read_line(text))
            except ValueError as error:
                if lines and not text.endswith(b"\n"):
                    break
                raise RequestError(
                    f"{path}, line {number} is not a valid recording line: {error}. "
                    "The file is damaged; record the request again with --record."
                ) from None
    if not lines or not isinstance(lines[0], RecordingStart):
        raise RequestError(f"{path} is not a recording: missing start record.")
    start = lines[0]
    if start.format > FORMAT:
        raise RequestError(
            f"{path} was recorded by a newer version of Tollbridge ({start.tollbridge}). Update Tollbridge."
        )
    return Recording(start, tuple(lines))
