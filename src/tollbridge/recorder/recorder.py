"""A folder of recordings, bounded: when it is full the oldest go."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tollbridge._version import __version__
from tollbridge.clients.base import Observer
from tollbridge.compat.profiles import LearnedQuirks
from tollbridge.history.answer import PartsBuilder
from tollbridge.recorder import redaction as redact
from tollbridge.recorder.recording import (
    FORMAT,
    Answered,
    Begun,
    Cut,
    Ended,
    Line,
    Parts,
    Received,
    Sent,
    is_recording,
    write_line,
)
from tollbridge.recorder.redaction import ContentCover, KeyCover, clean_line, cleaned, hide_keys
from tollbridge.turn import TurnResult
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.models import Capabilities
from tollbridge.types.reasoning import Origin
from tollbridge.types.text import read_json, write_json

# SECTION One recording on disk, written while the turn goes on: what a killed process knew is there.

log = logging.getLogger(__name__)

SUFFIX = ".jsonl"


class RecordingFile:
    """Made with its first line. What cannot be written is said in the log, once; the turn goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self.failed = False
        self.path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}{SUFFIX}"

    def write(self, data: bytes) -> None:
        """Whole lines. They outlive the process from here on: the system has them."""
        try:
            if self._file is None and not self.failed:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = _opened(self.path)
            if self._file is not None:
                self._file.write(data)
                self._file.flush()
        except OSError as error:
            self._fail(error)

    def rewrite(self, lines: Iterable[str]) -> None:
        """These lines and no others, in one step."""
        draft = self.path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with _opened(draft) as file:
                file.writelines(line.encode() for line in lines)
            draft.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            self._fail(error)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.failed:
            log.warning("the turn could not be recorded in %s: %s", self._folder, error.strerror)
        self.failed = True
        self.close()  # which tries to write the rest, and fails again


def _opened(path: Path) -> BinaryIO:
    """For the eyes of its owner: there are prompts in it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


# SECTION A recording as it grows: lines cleaned and written down as soon as nothing that follows can change them.


class RecordingDraft:
    """`covered` leaves content out, and the parts made of it, for that is safe whatever comes."""

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self._waiting: deque[Line] = deque()
        self._keys: Collection[str] = ()
        self._covered = False
        self._key_cover = KeyCover(())
        self._content_cover: ContentCover | None = None
        self._clean = bytearray()  # bytes of the answer that may be written
        self._stopped = False

    def add(self, line: Line) -> None:
        self._waiting.append(line)
        if isinstance(line, Received):
            self._clean += self._cleaned(line.data)

    def begin_answer(self, keys: Collection[str], *, covered: bool) -> None:
        """A request is about to be sent with these keys: nothing is written before they are known. What came
        for the request before is whole."""
        self._end_answer()
        self._keys, self._covered = keys, self._covered or covered
        self._key_cover = KeyCover(keys)
        self._content_cover = ContentCover() if self._covered else None

    def withdraw(self, lines: Sequence[Line]) -> None:
        """What was written is covered, and nothing more is written: a key was spelled out."""
        self._stopped = True
        kept = [line for line in lines if not isinstance(line, Parts)]
        self._file.rewrite(write_line(line) for line in cleaned(kept, self._keys, redacted=True))

    def finish(self) -> None:
        """All of it is there."""
        self._end_answer()
        self.flush()

    @property
    def is_whole(self) -> bool:
        """Whether what it wrote is the recording."""
        return not self._covered and not self._stopped

    def flush(self) -> None:
        """Write what can be written."""
        ready: list[bytes] = []
        while self._waiting and not self._stopped:
            line = self._waiting[0]
            if isinstance(line, Received):
                if len(self._clean) < len(line.data):
                    break
                line = Received(line.at, bytes(self._clean[: len(line.data)]))
                del self._clean[: len(line.data)]
            elif isinstance(line, Parts) and self._covered:
                self._waiting.popleft()
                continue
            elif self._covered:
                line = clean_line(line, self._keys, redacted=True)
            self._waiting.popleft()
            ready.append(hide_keys(write_line(line).encode(), self._keys))
        if ready:
            self._file.write(b"".join(ready))

    def _cleaned(self, data: bytes, *, last: bool = False) -> bytes:
        found = self._key_cover.feed(data, last=last)
        return found if self._content_cover is None else self._content_cover.feed(found, last=last)

    def _end_answer(self) -> None:
        self._clean += self._cleaned(b"", last=True)


# SECTION The recording of one turn: everything that travelled, with its time, written down as it comes.

# Bytes of requests, and bytes of answers, that one recording keeps.
RECORDING_LIMIT = 32 * 1024 * 1024


class TurnContext(msgspec.Struct, frozen=True):
    """What else there is to say of a turn: what the editor `said`, and by what its request was put."""

    said: object = None
    learned: LearnedQuirks | None = None
    abilities: Capabilities | None = None


class RecordingWriter(Observer):
    """Used around a turn. What is on it goes into the file, without any key that was sent: as it comes, and
    anew at the end where only the whole shows what must go. `ended` is told of the file then."""

    def __init__(
        self,
        request: ChatRequest,
        origin: Origin,
        file: RecordingFile,
        ended: Callable[[RecordingFile], object],
        told: TurnContext | None = None,
        *,
        redacted: bool = False,
        keys: tuple[str, ...] = (),
    ) -> None:
        self._file = file
        self._builder = PartsBuilder(origin)
        self._draft = RecordingDraft(file)
        self._tell = ended
        self._redacted = redacted
        self._keys = {key for key in keys if key}
        self._clock = time.monotonic()
        self._lines: list[Line] = []
        self._said: dict[type[Part], str] = {}  # the last words of each kind
        self._asked = 0
        self._kept = 0
        self._full = False
        told = told or TurnContext()
        kept = [self._plain(each) for each in (request, told.said, told.learned, told.abilities)]
        asked, said, learned, abilities = kept
        self._add(Begun(0.0, FORMAT, __version__, time.time(), asked, said, redacted, learned, abilities))

    def events(self, batch: list[Event]) -> None:
        """Record the parts that the events of one network read make."""
        self._record_parts(self._builder.take(batch))

    async def end(self, result: object | None, error: BaseException | None) -> None:
        """Write the last lines. What must be redacted is known for certain only now."""
        if error is None:
            self._record_parts(self._builder.close())
        reason, usage = (
            (result.finish_reason, result.usage) if isinstance(result, TurnResult) else (None, None)
        )
        self._add(Ended(self._now(), _outcome(error), _facts(error), reason, usage))
        # A key that the model spelled out came in pieces, and nothing but a blot over all covers it.
        redacted = self._redacted or self._is_spelled()
        if redacted or not self._draft.is_whole:
            await self._write_anew(redacted)
        else:
            self._draft.finish()
        self._file.close()
        self._tell(self._file)

    def _record_parts(self, parts: list[Part]) -> None:
        if not parts or self._full:
            return
        self._add(Parts(self._now(), tuple(parts)))
        if self._spells_now(parts) and self._draft.is_whole:
            self._draft.withdraw(self._lines)

    async def _write_anew(self, redacted: bool) -> None:
        lines = cleaned(self._lines, self._keys, redacted=redacted)
        if redacted:
            # Not at the top: few recordings are redacted, and it brings the whole bridge with it.
            from tollbridge.recorder.replay import with_parts_again

            lines = await with_parts_again(lines)
        self._file.rewrite(write_line(line) for line in lines)

    # What the client shows

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        for name, value in headers.items():
            if name.lower() == "authorization":
                self._keys.add(value.removeprefix("Bearer ").strip())
        # What a model was told it may say again, in pieces that no eye on single bytes would know.
        known = any(key.encode() in body for key in self._keys)
        self._draft.begin_answer(tuple(self._keys), covered=self._redacted or known)
        text, left_out = "", len(body)
        if self._has_room(len(body)):
            text, left_out = redact.hide_secrets(body).decode("utf-8", "replace"), 0
        self._add(Sent(self._now(), protocol, url, redact.safe_headers(headers), text, left_out))
        self._draft.flush()

    def response(self, status: int, headers: Mapping[str, str]) -> None:
        self._add(Answered(self._now(), status, redact.safe_headers(headers)))

    def data(self, chunk: bytes) -> None:
        if self._kept + len(chunk) > RECORDING_LIMIT:
            if not self._full:
                self._add(Cut(self._now(), self._kept))
            self._full = True
        if not self._full:
            self._kept += len(chunk)
            # By now the parts that the bytes before made have been heard.
            self._draft.flush()
            self._add(Received(self._now(), chunk))

    def _plain(self, value: object) -> Any:
        """As it is recorded; nothing of it where it is too much."""
        data = redact.hide_secrets(write_json(value).encode())
        return read_json(data) if value is not None and self._has_room(len(data)) else None

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes of requests more are kept."""
        fits = self._asked + size <= RECORDING_LIMIT
        self._asked += size if fits else 0
        return fits

    def _add(self, line: Line) -> None:
        self._lines.append(line)
        self._draft.add(line)

    def _spells_now(self, parts: list[Part]) -> bool:
        """Whether a key is spelled out with these: by the last words of the text, or of the thoughts."""
        found = False
        longest = max(map(len, self._keys), default=0)
        for part in parts:
            if isinstance(part, (TextPart, ThinkingPart)):
                said = self._said.get(type(part), "") + part.text
                found = found or any(key in said for key in self._keys)
                self._said[type(part)] = said[-longest:] if longest else ""
        return found

    def _is_spelled(self) -> bool:
        spoken = _spoken(self._lines)
        return any(key in spoken for key in self._keys)

    def _now(self) -> float:
        return round(time.monotonic() - self._clock, 6)


def _spoken(lines: list[Line]) -> str:
    """What the model said, put together."""
    parts = [part for line in lines if isinstance(line, Parts) for part in line.parts]
    texts = "".join(part.text for part in parts if isinstance(part, TextPart))
    thoughts = "".join(part.text for part in parts if isinstance(part, ThinkingPart))
    calls = "".join(write_json(part.input) for part in parts if isinstance(part, ToolCallPart))
    return f"{texts}\n{thoughts}\n{calls}"


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "completed"
    return "cancelled" if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)) else "failed"


def _facts(error: BaseException | None) -> dict[str, Any] | None:
    if not isinstance(error, BridgeError):
        return None if error is None else {"kind": type(error).__name__}
    facts = {
        "kind": error.kind,
        "message": error.message,
        "status": error.status,
        "code": error.code,
        "request_id": error.request_id,
        "retry_after": error.retry_after,
    }
    return {name: value for name, value in facts.items() if value is not None}


# SECTION A folder of recordings, bounded: when it is full the oldest go.

# What a folder holds at most; the newest recording is always kept.
FILE_LIMIT = 500
SIZE_LIMIT = 512 * 1024 * 1024
# The names that are given to recordings. The folder is the person's, and other files in it are theirs.
_OURS = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.jsonl")


class Recorder:
    """Makes a tape for each turn. A folder that cannot be written is said in the log; the turns go on."""

    def __init__(self, folder: Path, *, redacted: bool = False) -> None:
        self._folder = folder
        self._redacted = redacted

    def start(
        self,
        request: ChatRequest,
        origin: Origin,
        *,
        source: object = None,
        keys: tuple[str, ...] = (),
        learned: LearnedQuirks | None = None,
        capabilities: Capabilities | None = None,
    ) -> RecordingWriter:
        """Start the recording of one turn. Pass the returned observer to the turn.

        Args:
            request: The request of the turn.
            origin: The model and gateway that answer.
            source: The request in the caller's own format.
            keys: Keys to redact wherever they appear. The key sent with the request need not be listed.
            learned: What is known about the server, so that a replay prepares the request the same way.
            capabilities: What is known about the model, for the same purpose.
        """
        file = RecordingFile(self._folder)
        context = TurnContext(source, learned, capabilities)
        return RecordingWriter(
            request, origin, file, self._ended, context, redacted=self._redacted, keys=keys
        )

    def _ended(self, file: RecordingFile) -> None:
        if file.failed:
            return
        try:
            self._trim()
        except OSError as error:
            log.warning("old recordings could not be removed from %s: %s", self._folder, error.strerror)

    def _trim(self) -> None:
        ours = [path for path in self._folder.iterdir() if _OURS.fullmatch(path.name)]
        files = sorted(ours, key=lambda path: path.stat().st_mtime_ns, reverse=True)
        size = 0
        for place, path in enumerate(files):
            size += path.stat().st_size
            if place and (place >= FILE_LIMIT or size > SIZE_LIMIT) and is_recording(path):
                path.unlink(missing_ok=True)
