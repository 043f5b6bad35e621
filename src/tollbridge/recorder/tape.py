"""The recording of one turn: everything that travelled, with its time, written down at the end of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from tollbridge.core.errors import BridgeError
from tollbridge.core.json import write_json
from tollbridge.core.messages import ChatRequest, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.core.usage import Usage
from tollbridge.core.version import VERSION
from tollbridge.io.watching import Watch
from tollbridge.recorder import redact
from tollbridge.recorder.cleaning import cleaned
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

# Bytes of answers that one recording keeps.
TAPE_LIMIT = 32 * 1024 * 1024

Report = Callable[[list[Part]], object]


class Tape(Watch):
    """Used around a turn. What is on it goes to `write` at the end, without any key that was sent."""

    def __init__(
        self,
        request: ChatRequest,
        write: Callable[[list[str]], object],
        *,
        said: object = None,
        redacted: bool = False,
        keys: tuple[str, ...] = (),
    ) -> None:
        self._write = write
        self._redacted = redacted
        self._keys = {key for key in keys if key}
        self._clock = time.monotonic()
        asked, told = redact.without_secrets(request), redact.without_secrets(said)
        begun = Begun(0.0, FORMAT, VERSION, time.time(), asked, told, redacted)
        self._lines: list[Line] = [begun]
        self._kept = 0
        self._full = False
        self._ending: tuple[str | None, Usage | None] = (None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reason, usage = self._ending
        self._lines.append(Ended(self._now(), _outcome(error), _facts(error), reason, usage))
        # A key that the model spelled out came in pieces, and nothing but a blot over all covers it.
        redacted = self._redacted or any(key in _spoken(self._lines) for key in self._keys)
        lines = cleaned(self._lines, self._keys, redacted=redacted)
        if redacted:
            from tollbridge.recorder.playing import with_parts_again

            lines = await with_parts_again(lines)
        self._write([write_line(line) for line in lines])

    def heard(self, report: Report) -> Report:
        """Passes parts on, and keeps them."""

        def hear(parts: list[Part]) -> None:
            if not self._full:
                self._lines.append(Parts(self._now(), tuple(parts)))
            report(parts)

        return hear

    def finished(self, reason: str | None, usage: Usage | None) -> None:
        self._ending = (reason, usage)

    # What the client shows

    def asked(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        for name, value in headers.items():
            if name.lower() == "authorization":
                self._keys.add(value.removeprefix("Bearer ").strip())
        text = redact.hide_secrets(body).decode("utf-8", "replace")
        self._lines.append(Sent(self._now(), protocol, url, redact.safe_headers(headers), text))

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self._lines.append(Answered(self._now(), status, redact.safe_headers(headers)))

    def received(self, chunk: bytes) -> None:
        if self._kept + len(chunk) > TAPE_LIMIT:
            if not self._full:
                self._lines.append(Cut(self._now(), self._kept))
            self._full = True
        if not self._full:
            self._kept += len(chunk)
            self._lines.append(Received(self._now(), chunk))

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
