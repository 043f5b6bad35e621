"""Decode server-sent events by the WHATWG rules: bytes in, frames out.

In most streams every frame is one `data` line, or an `event` line and a `data` line, ended by LF. Two fast
paths split a network read that contains only such frames: `extract_payloads` splits at line ends if all
frames have the same event name, `split` uses a regular expression if the names differ. All other input (CR,
comments, `id`, several `data` lines, a byte order mark) is decoded line by line, which supports the complete
standard; so is a frame that does not end within `BUFFER_LIMIT` bytes, so that its lines are not collected and
decoded all at once. All three paths return the same frames.
"""

from __future__ import annotations

import re
from collections import Counter

from tollbridge.types.errors import StreamError

# How many different unknown names are counted separately; all further names are counted under "…".
UNKNOWN_LIMIT = 100

# Larger than the largest file that a request can contain, encoded as base64.
FRAME_LIMIT = 64 * 1024 * 1024
# The most bytes of an incomplete frame that are kept for the fast paths.
BUFFER_LIMIT = 64 * 1024

# Each match contains a fixed number of line ends. If the total differs, there is other text between matches.
_NAMED = re.compile(rb"(?m)^event: ?([^\n]*)\ndata: ?([^\n]*)\n\n")
_PLAIN = re.compile(rb"(?m)^()data: ?([^\n]*)\n\n")
# A run of comments with the blank lines after them. Possessive, so that it takes linear time and no memory.
_COMMENTS = re.compile(rb"(?m)^(?::[^\n]*+\n++){4,}+")
_BLANK_LINES = re.compile(rb"\n{3,}+")
_FAST_STARTS = (b"data:", b"event:")
_BOM = b"\xef\xbb\xbf"

# The name and the data of one event. The name is empty if the frame has no `event` line.
Frame = tuple[bytes, bytes]


class UnknownNames(Counter[str]):
    """Counts the names of unknown events or chunks of one stream."""

    def record(self, name: str) -> None:
        self[name if name in self or len(self) < UNKNOWN_LIMIT else "…"] += 1


class SseDecoder:
    """Decodes one event stream.

    When a frame is larger than the limit, `error` is set, and no more frames are returned.
    """

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._lines = _LineDecoder(limit)
        self._by_line = False  # whether the current frame is decoded line by line
        self._buffer: list[bytes] = []  # the bytes of an incomplete frame
        self._buffer_size = 0

    @property
    def has_unknown_fields(self) -> bool:
        """Whether a line had a field name that the standard does not define. Such lines are skipped."""
        return self._lines.has_unknown_fields

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        return self.split(self.buffer(chunk))

    def buffer(self, chunk: bytes) -> bytes:
        """Return the block of complete frames; keep the incomplete rest for the next call."""
        if self.error is not None or not chunk:
            return b""
        has_cr = b"\r" in chunk
        if self._by_line and (has_cr or not self._lines.is_between_frames):
            return chunk
        self._by_line = has_cr
        if has_cr:
            return self._flush_buffer() + chunk
        if not self._buffer and chunk.endswith(b"\n\n"):
            return chunk
        end = chunk.rfind(b"\n\n") + 2
        # If the chunk contains no blank line, `end` is 1. That is the right position if the buffer ends with
        # the first LF of a blank line and the chunk starts with the second.
        blank_line_split = chunk.startswith(b"\n") and self._buffer and self._buffer[-1].endswith(b"\n")
        if end == 1 and not blank_line_split:
            self._append(chunk)
            self._by_line = self._buffer_size > min(BUFFER_LIMIT, self._limit)
            return self._flush_buffer() if self._by_line else b""
        block = self._flush_buffer() + chunk[:end]
        if end < len(chunk):
            self._append(chunk[end:])
        return block

    def split(self, block: bytes) -> list[Frame]:
        """Return the frames of a block of complete frames."""
        if not block:
            return []
        if not self._by_line and len(block) <= self._limit and block.startswith(_FAST_STARTS):
            pattern, ends = (_NAMED, 3) if block.startswith(b"event:") else (_PLAIN, 2)
            frames: list[Frame] = pattern.findall(block)
            if len(frames) * ends == block.count(b"\n"):
                self._lines.started = True
                return frames
        return self._read_lines(block)

    def extract_payloads(self, block: bytes) -> list[bytes] | None:
        """Return the data of the frames if all of them have the same event name, or none; else `None`.

        Most blocks of a stream contain events of one type, and splitting at line ends is the fastest method.
        """
        if self._by_line or len(block) > self._limit:
            return None
        if block.startswith(b"data: ") and block.count(b"\n") == 2:
            self._lines.started = True
            return [block[6:-2]]  # one frame per network read, which is usual for slow servers
        if not block.startswith(_FAST_STARTS):
            return None
        lines = block.split(b"\n")
        size = 3 if block.startswith(b"event:") else 2
        data = [line[6:] for line in lines[size - 2 :: size] if line.startswith(b"data: ")]
        if len(data) * size + 1 != len(lines) or any(lines[size - 1 :: size]):
            return None
        if size == 3 and len(set(lines[:-1:3])) != 1:
            return None
        self._lines.started = True
        return data

    def close(self) -> list[Frame]:
        """Return the last frame if the stream ended without the blank line after it."""
        if self.error is not None:
            return []
        return self._read_lines(self._flush_buffer()) + self._lines.close()

    def _append(self, piece: bytes) -> None:
        self._buffer.append(piece)
        self._buffer_size += len(piece)

    def _flush_buffer(self) -> bytes:
        content = b"".join(self._buffer)
        self._buffer.clear()
        self._buffer_size = 0
        return content

    def _read_lines(self, block: bytes) -> list[Frame]:
        frames = self._lines.feed(block)
        self.error = self.error or self._lines.error
        return frames


class _LineDecoder:
    """Decodes line by line, with support for the complete standard."""

    def __init__(self, limit: int) -> None:
        self.error: StreamError | None = None
        self.has_unknown_fields = False
        self.started = False  # a byte order mark is removed only at the start of the stream
        self._limit = limit
        self._size = 0  # bytes of the current frame; every line end counts as one byte
        self._skip_lf = False  # the last byte was a CR: a following LF belongs to the same line end
        self._partial: list[bytes] = []  # an incomplete line
        self._partial_size = 0
        self._event = b""
        self._data: list[bytes] = []

    @property
    def is_between_frames(self) -> bool:
        """Whether the bytes so far end after a blank line, or there were none."""
        return not (self._size or self._partial or self._skip_lf)

    def feed(self, chunk: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk or self.error is not None:
            return frames
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, end, rest = chunk.partition(b"\n")
        if end:
            self._read_line(self._flush_partial() + first, frames)
            *lines, rest = _skip_comments(rest).split(b"\n")
            for line in lines:
                if self.error is not None:
                    return frames
                self._read_line(line, frames)
        else:
            rest = first
        if rest and self.error is None:
            self._partial.append(rest)
            self._partial_size += len(rest)
            self._check_size()
        return frames

    def close(self) -> list[Frame]:
        frames: list[Frame] = []
        if self.error is None:
            self._read_line(self._flush_partial(), frames)
            self._read_line(b"", frames)
        return frames

    def _flush_partial(self) -> bytes:
        partial = b"".join(self._partial)
        self._partial.clear()
        self._partial_size = 0
        return partial

    def _read_line(self, line: bytes, frames: list[Frame]) -> None:
        if not self.started:
            self.started = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                frames.append((self._event, b"\n".join(self._data)))
            self._event, self._data, self._size = b"", [], 0
            return
        if line.startswith(b":"):
            return  # a comment
        self._size += len(line) + 1
        if not self._check_size():
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value
        elif field not in (b"id", b"retry"):
            self.has_unknown_fields = True

    def _check_size(self) -> bool:
        if self._size + self._partial_size > self._limit:
            self.error = frame_too_large(self._limit)
            return False
        return True


def _skip_comments(lines: bytes) -> bytes:
    """Remove runs of comments and of blank lines: a server can send millions of them, and compress them."""
    if b"\n:" in lines or lines.startswith(b":"):
        # A blank line ends a frame also between comments.
        lines = _COMMENTS.sub(lambda run: b"\n" if b"\n\n" in run[0] else b"", lines)
    return _BLANK_LINES.sub(b"\n\n", lines) if b"\n\n\n" in lines else lines


def frame_too_large(limit: int) -> StreamError:
    return StreamError(f"The gateway sent a frame larger than the limit of {limit:,} bytes.")
