"""A recording as it grows: lines cleaned and written down as soon as nothing that follows can change them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from tollbridge.recorder.cleaning import clean_line, cleaned
from tollbridge.recorder.file import RecordingFile
from tollbridge.recorder.lines import Line, Parts, Received, write_line
from tollbridge.recorder.redact import ContentCover, KeyCover, hide_keys


class Draft:
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
