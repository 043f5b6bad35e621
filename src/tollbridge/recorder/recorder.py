"""Record turns: one file per turn in a folder of limited size.

A recording is written while the turn runs, so that it survives if the process is killed. No key that was sent
is written, even if a model or a server repeats it in pieces. A failure of the recorder ends the recording,
never the turn.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec

import msgspec

from tollbridge._version import __version__
from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.history.answer import parts_from_events
from tollbridge.protocols import key_headers
from tollbridge.recorder.recording import (
    FORMAT,
    ContentRedactor,
    DataLine,
    EndLine,
    KeyRedactor,
    Line,
    PartsLine,
    RecordingStart,
    RequestLine,
    ResponseLine,
    TruncationLine,
    contains_key,
    hide_keys,
    hide_secrets,
    is_recording,
    redact_headers,
    redact_line,
    redact_lines,
    write_line,
)
from tollbridge.transport.files import create_file, make_folder
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import read_json, write_json
from tollbridge.types.urls import hide_userinfo

log = logging.getLogger(__name__)

# The limits of a folder. The newest recording is never deleted.
FILE_LIMIT = 500
SIZE_LIMIT = 512 * 1024 * 1024
# The bytes of requests, and the bytes of responses, in one recording.
RECORDING_LIMIT = 32 * 1024 * 1024

SUFFIX = ".jsonl"
# The names of recordings. Other files in the folder belong to the user and are not deleted.
_RECORDING_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.jsonl")
# A recording is rewritten to a file of this name, which then replaces it. One that is older than this many
# seconds belonged to a process that was killed.
DRAFT_SUFFIX = ".part"
_DRAFT_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.part")
DRAFT_LIFETIME = 3600.0


# --- The folder ---


class Recorder:
    """Records turns in a folder, and deletes the oldest recordings if the folder exceeds its limits.

    If the folder cannot be written, a warning is logged and turns continue without a recording.

    Args:
        folder: The folder; it is created with the first recording.
        redacted: Remove message content from the recordings.
    """

    def __init__(self, folder: Path, *, redacted: bool = False) -> None:
        self._folder = folder
        self._redacted = redacted

    def start(
        self,
        request: ChatRequest,
        *,
        editor_request: object = None,
        keys: tuple[str, ...] = (),
        learned: LearnedQuirks | None = None,
        capabilities: Capabilities | None = None,
    ) -> RecordingWriter:
        """Start the recording of one turn.

        Args:
            request: The request of the turn.
            editor_request: The request of the editor, if it has another form.
            keys: Keys to remove from the recording, besides those that are sent with the request.
            learned: What is known about the server. With this and `capabilities`, a replay can build the same
                HTTP request again.
            capabilities: The capabilities of the model.

        Returns:
            An observer for the turn.
        """
        context = TurnContext(editor_request, learned, capabilities)
        file = RecordingFile(self._folder)
        return RecordingWriter(request, file, self._finish, context, redacted=self._redacted, keys=keys)

    def _finish(self, file: RecordingFile) -> None:
        if file.failed:
            return
        try:
            self._delete_oldest()
            self._delete_drafts()
        except OSError as error:
            log.warning("old recordings could not be deleted from %s: %s", self._folder, error.strerror)

    def _delete_oldest(self) -> None:
        recordings = [path for path in self._folder.iterdir() if _RECORDING_NAME.fullmatch(path.name)]
        recordings.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        size = 0
        for index, path in enumerate(recordings):
            size += path.stat().st_size
            if index and (index >= FILE_LIMIT or size > SIZE_LIMIT) and is_recording(path):
                path.unlink(missing_ok=True)

    def _delete_drafts(self) -> None:
        """Delete what processes that were killed have left."""
        oldest = time.time() - DRAFT_LIFETIME
        for path in self._folder.iterdir():
            if _DRAFT_NAME.fullmatch(path.name) and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)


# --- One turn ---

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


class TurnContext(msgspec.Struct, frozen=True):
    """Further facts about a turn: the request of the editor, and what is known about server and model."""

    editor_request: object = None
    learned: LearnedQuirks | None = None
    capabilities: Capabilities | None = None


class RecordingWriter(Observer):
    """Records one turn as its observer.

    The recording is written as the turn runs. At the end it is written again if only the complete turn shows
    what must be removed. Then `on_finish` is called with the file.
    """

    def __init__(
        self,
        request: ChatRequest,
        file: RecordingFile,
        on_finish: Callable[[RecordingFile], object],
        context: TurnContext | None = None,
        *,
        redacted: bool = False,
        keys: tuple[str, ...] = (),
    ) -> None:
        self._file = file
        self._draft = RecordingDraft(file)
        self._on_finish = on_finish
        self._redacted = redacted
        self._keys = {key for key in keys if key}
        self._start_time = time.monotonic()
        self._lines: list[Line] = []
        self._recent_text: dict[type[Part], str] = {}  # the end of the text and of the reasoning
        self._request_bytes = 0
        self._response_bytes = 0
        self._full = False
        self._begin(request, context or TurnContext())

    @_guarded
    def _begin(self, request: ChatRequest, context: TurnContext) -> None:
        values = (request, context.editor_request, context.learned, context.capabilities)
        plain_request, editor_request, learned, capabilities = [self._to_plain(value) for value in values]
        self._add(
            RecordingStart(
                at=0.0,
                format=FORMAT,
                tollbridge=__version__,
                started=time.time(),
                request=plain_request,
                editor_request=editor_request,
                redacted=self._redacted,
                learned=learned,
                capabilities=capabilities,
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
        redacted = self._redacted or self._output_contains_key()
        if redacted or not self._draft.is_final:
            await self._rewrite(redacted)
        else:
            self._draft.finish()
        self._file.close()
        self._on_finish(self._file)

    async def _rewrite(self, redacted: bool) -> None:
        lines = redact_lines(self._lines, self._keys, redacted=redacted)
        if redacted:
            # Imported here to save start-up time: few recordings are redacted, and it loads the turn.
            from tollbridge.recorder.replay import replace_parts

            lines = await replace_parts(lines)
        self._file.rewrite(write_line(line) for line in lines)

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
        """Record bytes of the responses, up to a total of `RECORDING_LIMIT`."""
        if self._response_bytes + len(chunk) > RECORDING_LIMIT:
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
        fits = self._request_bytes + size <= RECORDING_LIMIT
        self._request_bytes += size if fits else 0
        return fits

    def _add(self, line: Line) -> None:
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

    def _output_contains_key(self) -> bool:
        return contains_key(_encode(_model_output(self._lines)), self._keys)

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._start_time, 6)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _model_output(lines: list[Line]) -> str:
    """Return the whole output of the model: text, reasoning, and arguments of calls."""
    parts = [part for line in lines if isinstance(line, PartsLine) for part in line.parts]
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    reasoning = "".join(part.text for part in parts if isinstance(part, ThinkingPart))
    calls = "".join(write_json(part.input) for part in parts if isinstance(part, ToolCallPart))
    return f"{text}\n{reasoning}\n{calls}"


def _error_facts(error: BridgeError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    facts = {
        "kind": error.kind,
        "message": hide_userinfo(error.message),
        "status": error.status,
        "code": error.code,
        "request_id": error.request_id,
        "retry_after": error.retry_after,
    }
    return {name: value for name, value in facts.items() if value is not None}


# --- Writing while the turn runs ---


class RecordingDraft:
    """Redacts lines, and writes each one as soon as later lines cannot change its redaction.

    If content is hidden, parts are left out as well: they are derived from the response again at the end.
    """

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self._pending: deque[Line] = deque()
        self._keys: Collection[str] = ()
        self._hides_content = False
        self._key_redactor = KeyRedactor(())
        self._content_redactor: ContentRedactor | None = None
        self._redacted_bytes = bytearray()  # bytes of the response that may be written
        self._stopped = False

    def add(self, line: Line) -> None:
        self._pending.append(line)
        if isinstance(line, DataLine):
            self._redacted_bytes += self._redact(line.data)

    def begin_response(self, keys: Collection[str], *, hide_content: bool) -> None:
        """Start the response to a request that is sent with these keys. The earlier response is complete.

        Nothing is written before the first call, because the keys are not known until then.
        """
        self._end_response()
        self._keys, self._hides_content = keys, self._hides_content or hide_content
        self._key_redactor = KeyRedactor(keys)
        self._content_redactor = ContentRedactor() if self._hides_content else None

    def remove_content(self, lines: Sequence[Line]) -> None:
        """Remove the content from what was written and stop writing, because the model's output has a key."""
        self._stopped = True
        lines = [line for line in lines if not isinstance(line, PartsLine)]
        self._file.rewrite(write_line(line) for line in redact_lines(lines, self._keys, redacted=True))

    def finish(self) -> None:
        """Write all remaining lines."""
        self._end_response()
        self.flush()

    @property
    def is_final(self) -> bool:
        """Whether the file needs no rewriting at the end."""
        return not self._hides_content and not self._stopped

    def flush(self) -> None:
        """Write the lines that are ready."""
        ready: list[bytes] = []
        while self._pending and not self._stopped:
            line = self._pending[0]
            if isinstance(line, DataLine):
                if len(self._redacted_bytes) < len(line.data):
                    break
                line = DataLine(line.at, bytes(self._redacted_bytes[: len(line.data)]))
                del self._redacted_bytes[: len(line.data)]
            elif isinstance(line, PartsLine) and self._hides_content:
                self._pending.popleft()
                continue
            elif self._hides_content:
                line = redact_line(line, self._keys, redacted=True)
            self._pending.popleft()
            ready.append(hide_keys(write_line(line).encode(), self._keys))
        if ready:
            self._file.write(b"".join(ready))

    def _redact(self, data: bytes, *, last: bool = False) -> bytes:
        data = self._key_redactor.feed(data, last=last)
        return data if self._content_redactor is None else self._content_redactor.feed(data, last=last)

    def _end_response(self) -> None:
        self._redacted_bytes += self._redact(b"", last=True)


def _make_recording_folder(folder: Path) -> None:
    """Create the folder. In a git checkout, a new folder is ignored: recordings contain prompts."""
    is_new = not folder.exists()
    make_folder(folder)
    if is_new and any((parent / ".git").exists() for parent in folder.resolve().parents):
        with suppress(FileExistsError), create_file(folder / ".gitignore") as file:
            file.write(b"*\n")


class RecordingFile:
    """The file of a recording, created with its first line. The first error is logged; others are ignored.

    Attributes:
        failed: Whether the recording has ended because of an error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self.failed = False
        self.path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}{SUFFIX}"

    def write(self, data: bytes) -> None:
        """Write complete lines and flush them, so that they survive if the process is killed."""
        try:
            if self._file is None and not self.failed:
                _make_recording_folder(self._folder)
                self._file = create_file(self.path)
            if self._file is not None:
                self._file.write(data)
                self._file.flush()
        except OSError as error:
            self.fail(error)

    def rewrite(self, lines: Iterable[str]) -> None:
        """Replace the content of the file atomically."""
        draft = self.path.with_suffix(DRAFT_SUFFIX)
        try:
            _make_recording_folder(self._folder)
            with create_file(draft) as file:
                file.writelines(line.encode() for line in lines)
            draft.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            self.fail(error)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the recording and log the first error, without a message that can contain content.

        After an error that is not of the system, the file is deleted: it may not be redacted completely.
        """
        if not self.failed:
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            log.warning("the turn could not be recorded in %s: %s", self._folder, reason)
        self.failed = True
        self.close()  # may fail again, when it writes buffered data
        if not isinstance(error, OSError):
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
