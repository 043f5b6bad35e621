"""The recording of one turn: everything that travelled, with its time, written down as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from tollbridge.core.errors import BridgeError
from tollbridge.core.json import read_json, write_json
from tollbridge.core.messages import ChatRequest, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.core.models import Capabilities
from tollbridge.core.usage import Usage
from tollbridge.core.version import VERSION
from tollbridge.healing import Learned
from tollbridge.io.watching import Watch
from tollbridge.recorder import redact
from tollbridge.recorder.cleaning import cleaned
from tollbridge.recorder.draft import Draft
from tollbridge.recorder.file import RecordingFile
from tollbridge.recorder.lines import (
    FORMAT,
    Answered,
    Begun,
    Cut,
    Ended,
    Line,
    Parts,
    Received,
    Sent,
    write_line,
)

# Bytes of requests, and bytes of answers, that one recording keeps.
TAPE_LIMIT = 32 * 1024 * 1024

Report = Callable[[list[Part]], object]


class Told(msgspec.Struct, frozen=True):
    """What else there is to say of a turn: what the editor `said`, and by what its request was put."""

    said: object = None
    learned: Learned | None = None
    abilities: Capabilities | None = None


class Tape(Watch):
    """Used around a turn. What is on it goes into the file, without any key that was sent: as it comes, and
    anew at the end where only the whole shows what must go. `ended` is told of the file then."""

    def __init__(
        self,
        request: ChatRequest,
        file: RecordingFile,
        ended: Callable[[RecordingFile], object],
        told: Told | None = None,
        *,
        redacted: bool = False,
        keys: tuple[str, ...] = (),
    ) -> None:
        self._file = file
        self._draft = Draft(file)
        self._tell = ended
        self._redacted = redacted
        self._keys = {key for key in keys if key}
        self._clock = time.monotonic()
        self._lines: list[Line] = []
        self._said: dict[type[Part], str] = {}  # the last words of each kind
        self._asked = 0
        self._kept = 0
        self._full = False
        told = told or Told()
        kept = [self._plain(each) for each in (request, told.said, told.learned, told.abilities)]
        asked, said, learned, abilities = kept
        self._add(Begun(0.0, FORMAT, VERSION, time.time(), asked, said, redacted, learned, abilities))
        self._ending: tuple[str | None, Usage | None] = (None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reason, usage = self._ending
        self._add(Ended(self._now(), _outcome(error), _facts(error), reason, usage))
        # A key that the model spelled out came in pieces, and nothing but a blot over all covers it.
        redacted = self._redacted or self._is_spelled()
        if redacted or not self._draft.is_whole:
            await self._write_anew(redacted)
        else:
            self._draft.finish()
        self._file.close()
        self._tell(self._file)

    async def _write_anew(self, redacted: bool) -> None:
        lines = cleaned(self._lines, self._keys, redacted=redacted)
        if redacted:
            # Not at the top: few recordings are redacted, and it brings the whole bridge with it.
            from tollbridge.recorder.playing import with_parts_again

            lines = await with_parts_again(lines)
        self._file.rewrite(write_line(line) for line in lines)

    def heard(self, report: Report) -> Report:
        """Passes parts on, and keeps them."""

        def hear(parts: list[Part]) -> None:
            if not self._full:
                self._add(Parts(self._now(), tuple(parts)))
                if self._spells_now(parts) and self._draft.is_whole:
                    self._draft.withdraw(self._lines)
            report(parts)

        return hear

    def finished(self, reason: str | None, usage: Usage | None) -> None:
        self._ending = (reason, usage)

    # What the client shows

    def asked(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
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

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self._add(Answered(self._now(), status, redact.safe_headers(headers)))

    def received(self, chunk: bytes) -> None:
        if self._kept + len(chunk) > TAPE_LIMIT:
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
        fits = self._asked + size <= TAPE_LIMIT
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
