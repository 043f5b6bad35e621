"""Write a recording while its turn runs, redacted as far as it is known what must be redacted."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from tollbridge.recorder.files import RecordingFile
from tollbridge.recorder.keys import KeyRedactor, hide_keys
from tollbridge.recorder.recording import AnyLine, DataLine, PartsLine, write_line
from tollbridge.recorder.redaction import ContentRedactor, redact_line, redact_lines


class RecordingDraft:
    """Redacts lines, and writes each one as soon as later lines cannot change its redaction.

    If content is hidden, parts are left out as well: they are derived from the response again at the end.
    """

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self._pending: deque[AnyLine] = deque()
        self._keys: Collection[str] = ()
        self._hides_content = False
        self._key_redactor = KeyRedactor(())
        self._content_redactor: ContentRedactor | None = None
        self._redacted_bytes = bytearray()  # bytes of the response that may be written
        self._stopped = False

    def add(self, line: AnyLine) -> None:
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

    def remove_content(self, lines: Sequence[AnyLine]) -> None:
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
