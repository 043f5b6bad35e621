"""Record one turn as its observer.

A recording is written while the turn runs, so that it survives if the process is killed. No key that was sent
is written, even if a model or a server repeats it in pieces. A failure of the recorder ends the recording,
never the turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from tollbridge._version import __version__
from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.history.answer import parts_from_events
from tollbridge.protocols import key_headers
from tollbridge.recorder.draft import RecordingDraft
from tollbridge.recorder.files import LIMITS, RecorderLimits, RecordingFile, delete_old_files
from tollbridge.recorder.keys import contains_key
from tollbridge.recorder.recording import (
    FORMAT,
    AnyLine,
    DataLine,
    EndLine,
    PartsLine,
    RecordingStart,
    RequestLine,
    ResponseLine,
    TruncationLine,
    write_line,
)
from tollbridge.recorder.redaction import hide_secrets, redact_headers, redact_lines
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import read_json, write_json
from tollbridge.types.urls import hide_userinfo

log = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")


def _guarded(
    method: Callable[Concatenate[RecordingWriter, _Arguments], None],
) -> Callable[Concatenate[RecordingWriter, _Arguments], None]:
    """Make a method of the writer end the recording, and nothing else, if it raises."""

    @wraps(method)
    def call(self: RecordingWriter, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        if self._file.failed:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a recording must not harm its turn
            self._file.fail(error)

    return call


class RecordingWriter(Observer):
    """Records one turn as its observer, in a new file of a folder.

    At the end the recording is written again if only the complete turn shows what must be removed, and the
    oldest recordings are deleted if the folder exceeds its limits.

    Args:
        folder: Created with the first recording. If it cannot be written, a warning is logged and the turn
            continues without a recording.
        editor_request: The request of the editor, if it has another form.
        redacted: Whether to remove message content.
        keys: Keys to remove, besides those that are sent with the request.
        learned: What is known about the server. With this and the capabilities of the model, a replay can
            build the same HTTP request again.
    """

    def __init__(
        self,
        folder: Path,
        request: ChatRequest,
        *,
        editor_request: object = None,
        redacted: bool = False,
        keys: tuple[str, ...] = (),
        learned: LearnedQuirks | None = None,
        capabilities: Capabilities | None = None,
        limits: RecorderLimits = LIMITS,
    ) -> None:
        self._folder = folder
        self._file = RecordingFile(folder)
        self._draft = RecordingDraft(self._file)
        self._limits = limits
        self._redacted = redacted
        self._keys = {key for key in keys if key}
        self._start_time = time.monotonic()
        self._lines: list[AnyLine] = []
        self._recent_text: dict[type[Part], str] = {}  # the end of the text and of the reasoning
        self._request_bytes = 0
        self._response_bytes = 0
        self._full = False
        self._begin(
            request=request, editor_request=editor_request, learned=learned, capabilities=capabilities
        )

    @_guarded
    def _begin(self, /, **facts: object) -> None:
        plain = {name: self._to_plain(value) for name, value in facts.items()}
        self._add(
            RecordingStart(
                at=0.0,
                format=FORMAT,
                tollbridge=__version__,
                started=time.time(),
                redacted=self._redacted,
                **plain,
            )
        )

    @_guarded
    def events(self, batch: list[Event]) -> None:
        """Record the parts of the events."""
        self._record_parts(parts_from_events(batch))

    async def end(self, answer: Answer) -> None:
        """Write the end of the recording. Only now it is certain what must be redacted."""
        if self._file.failed:
            return
        try:
            await self._end(answer)
        except Exception as failure:  # noqa: BLE001 - see _guarded
            self._file.fail(failure)

    async def _end(self, answer: Answer) -> None:
        reason = usage = None
        if answer.outcome == "completed":
            self._record_parts(answer.take_reasoning())
            reason, usage = answer.finish_reason, answer.usage
        error = _error_facts(answer.error)
        self._add(EndLine(self._elapsed(), answer.outcome, error, reason, usage))
        # A key in the model's text comes in pieces, which can only be hidden by removing all content.
        redacted = self._redacted or contains_key(_encode(_join_output(self._lines)), self._keys)
        if redacted or not self._draft.is_final:
            lines = redact_lines(self._lines, self._keys, redacted=redacted)
            if redacted:
                # Imported here to save start-up time: few recordings are redacted, and it loads the turn.
                from tollbridge.recorder.replay import replace_parts

                lines = await replace_parts(lines)
            self._file.rewrite(write_line(line) for line in lines)
        else:
            self._draft.finish()
        self._file.close()
        if not self._file.failed:
            try:
                delete_old_files(self._folder, self._limits)
            except OSError as error:
                log.warning("old recordings could not be deleted from %s: %s", self._folder, error.strerror)

    def _record_parts(self, parts: list[Part]) -> None:
        if not parts or self._full:
            return
        self._add(PartsLine(self._elapsed(), tuple(parts)))
        if self._completes_key(parts) and self._draft.is_final:
            self._draft.remove_content(self._lines)

    @_guarded
    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Record a request. Its keys are removed from everything that follows."""
        prefixes = {header.name: header.prefix for header in key_headers()}
        for name, value in headers.items():
            if (prefix := prefixes.get(name.lower())) is not None:
                self._keys.add(value.removeprefix(prefix).strip())
        # A model may repeat a key that is in the request, in pieces that cannot be recognized one by one.
        hide_content = self._redacted or contains_key(body, self._keys)
        self._draft.begin_response(tuple(self._keys), hide_content=hide_content)
        text, omitted_bytes = "", len(body)
        if self._reserve(len(body)):
            text, omitted_bytes = hide_secrets(body).decode("utf-8", "replace"), 0
        url = hide_userinfo(url)
        self._add(RequestLine(self._elapsed(), protocol, url, redact_headers(headers), text, omitted_bytes))
        self._draft.flush()

    @_guarded
    def response(self, status: int, headers: Mapping[str, str]) -> None:
        """Record the status and the headers of a response."""
        self._add(ResponseLine(self._elapsed(), status, redact_headers(headers)))

    @_guarded
    def data(self, chunk: bytes) -> None:
        """Record bytes of the responses, up to the limit."""
        if self._response_bytes + len(chunk) > self._limits.recording_bytes:
            if not self._full:
                self._add(TruncationLine(self._elapsed(), self._response_bytes))
            self._full = True
        if not self._full:
            self._response_bytes += len(chunk)
            # The parts of the earlier chunks have been recorded by now.
            self._draft.flush()
            self._add(DataLine(self._elapsed(), chunk))

    def _to_plain(self, value: object) -> Any:
        """Return a value as plain JSON without secrets, or `None` if it is too large or nested too deeply."""
        try:
            data = hide_secrets(write_json(value).encode())
            return read_json(data) if value is not None and self._reserve(len(data)) else None
        except ValueError:
            return None

    def _reserve(self, size: int) -> bool:
        """Count bytes of requests. Return whether they are within the limit of the recording."""
        fits = self._request_bytes + size <= self._limits.recording_bytes
        self._request_bytes += size if fits else 0
        return fits

    def _add(self, line: AnyLine) -> None:
        self._lines.append(line)
        self._draft.add(line)

    def _completes_key(self, parts: list[Part]) -> bool:
        """Return whether the text or the reasoning contains a key that ends in these parts."""
        is_found = False
        # One more character than the key, to recognize the start of a word.
        longest = max(map(len, self._keys), default=0) + 1
        for part in parts:
            if isinstance(part, (TextPart, ThinkingPart)):
                text = self._recent_text.get(type(part), "") + part.text
                is_found = is_found or contains_key(_encode(text), self._keys)
                self._recent_text[type(part)] = text[-longest:]
        return is_found

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._start_time, 6)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _join_output(lines: list[AnyLine]) -> str:
    """Return the whole output of the model: text, reasoning, and arguments of calls."""
    parts = [part for line in lines if isinstance(line, PartsLine) for part in line.parts]
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    reasoning = "".join(part.text for part in parts if isinstance(part, ThinkingPart))
    calls = "".join(write_json(part.input) for part in parts if isinstance(part, ToolCallPart))
    return f"{text}\n{reasoning}\n{calls}"


def _error_facts(error: BridgeError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    names = ("kind", "message", "status", "code", "request_id", "retry_after")
    facts = {name: value for name in names if (value := getattr(error, name)) is not None}
    return facts | {"message": hide_userinfo(error.message)}
