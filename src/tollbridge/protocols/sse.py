"""Server-sent events, by the WHATWG rules: bytes in, frames out.

Most streams are plain: every frame is one `data` line, or an `event` and a `data` line, ended by LF. A read
of those is cut at once: by splitting it at line ends where all frames have one name (`payloads`), by a
regular expression where they have several (`cut`). Everything else (CR, comments, `id`, several `data` lines,
a BOM) takes the line-by-line path, which knows the whole standard. All three give the same frames.
"""

from __future__ import annotations

import re
from collections import Counter

from tollbridge.types.errors import StreamError

# SECTION Names that stand in no table of ours, counted while a stream is read.

# Names that are kept apart; a server that makes up more is counted under "…".
UNKNOWN_LIMIT = 100


class UnknownNames(Counter[str]):
    def note(self, name: str) -> None:
        self[name if name in self or len(self) < UNKNOWN_LIMIT else "…"] += 1


# SECTION Server-sent events, by the WHATWG rules: bytes in, frames out.
#
# Most streams are plain: every frame is one `data` line, or an `event` and a `data` line, ended by LF. A read
# of those is cut at once: by splitting it at line ends where all frames have one name (`payloads`), by a
# regular expression where they have several (`cut`). Everything else (CR, comments, `id`, several `data` lines,
# a BOM) takes the line-by-line path, which knows the whole standard. All three give the same frames.

# A frame as large as the largest file a request may carry, base64 and all, still passes.
FRAME_LIMIT = 64 * 1024 * 1024

# Each match holds an exact number of line ends, so counting them shows whether anything lies between matches.
_NAMED = re.compile(rb"(?m)^event: ?([^\n]*)\ndata: ?([^\n]*)\n\n")
_PLAIN = re.compile(rb"(?m)^()data: ?([^\n]*)\n\n")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_OTHER_FIELDS = (b"", b"id", b"retry")  # the first is a comment's


# The name and the data of one event. Most frames have no name: theirs is empty.
Frame = tuple[bytes, bytes]


class SseDecoder:
    """Belongs to one stream. A frame over the limit ends it: `error` says so, and nothing more comes out."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._lines = _LineDecoder(limit)
        self._by_line = False  # for good, from the first CR on
        self._held: list[bytes] = []  # the bytes of a frame that is not complete yet
        self._held_size = 0

    @property
    def strange(self) -> bool:
        """Whether there was a line that no event stream has. Readers skip it."""
        return self._lines.strange

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        return self.cut(self.complete(chunk))

    def complete(self, chunk: bytes) -> bytes:
        """The block of whole frames that these bytes complete; the rest is held until its end comes."""
        if self.error is not None or not chunk:
            return b""
        if self._by_line or b"\r" in chunk:
            self._by_line = True
            return self._take_held() + chunk
        if not self._held and chunk.endswith(b"\n\n"):
            return chunk
        end = chunk.rfind(b"\n\n") + 2
        # With no blank line in the chunk, `end` is 1: right where half of a blank line was held back.
        halved = chunk.startswith(b"\n") and self._held and self._held[-1].endswith(b"\n")
        if end == 1 and not halved:
            self._hold(chunk)
            return b""
        block = self._take_held() + chunk[:end]
        if end < len(chunk):
            self._hold(chunk[end:])
        return block

    def cut(self, block: bytes) -> list[Frame]:
        """The frames of a block."""
        if not block:
            return []
        if not self._by_line and len(block) <= self._limit:
            pattern, ends = (_NAMED, 3) if block.startswith(b"event:") else (_PLAIN, 2)
            frames: list[Frame] = pattern.findall(block)
            if len(frames) * ends == block.count(b"\n"):
                self._lines.started = True
                return frames
        return self._read_lines(block)

    def payloads(self, block: bytes) -> list[bytes] | None:
        """The data of a block of frames that all have one name, or none; `None` for any other block.

        A stream is mostly runs of one event, and splitting at line ends is the cheapest way to cut one.
        """
        if self._by_line or len(block) > self._limit:
            return None
        if block.count(b"\n") == 2 and block.startswith(b"data: "):
            self._lines.started = True
            return [block[6:-2]]  # one frame a read, as a server that takes its time sends them
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
        """The last frame, where the stream ended without the blank line after it."""
        if self.error is not None:
            return []
        return self._read_lines(self._take_held()) + self._lines.close()

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > self._limit:
            self.error = too_large(self._limit)

    def _take_held(self) -> bytes:
        held = b"".join(self._held)
        self._held.clear()
        self._held_size = 0
        return held

    def _read_lines(self, block: bytes) -> list[Frame]:
        frames = self._lines.feed(block)
        self.error = self.error or self._lines.error
        return frames


class _LineDecoder:
    """The whole standard, a line at a time."""

    def __init__(self, limit: int) -> None:
        self.error: StreamError | None = None
        self.strange = False
        self.started = False  # a BOM is one only at the very start
        self._limit = limit
        self._size = 0  # of the frame being read, a line end counted as one byte
        self._skip_lf = False  # the last byte was a CR: an LF that follows belongs to it
        self._partial: list[bytes] = []  # a line that is not complete yet
        self._partial_size = 0
        self._event = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Frame]:
        found: list[Frame] = []
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk or self.error is not None:
            return found
        self._skip_lf = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(chunk)
        for line in lines:
            self._read_line(self._take_partial() + line, found)
            if self.error is not None:
                return found
        if rest:
            self._partial.append(rest)
            self._partial_size += len(rest)
            self._check_size()
        return found

    def close(self) -> list[Frame]:
        found: list[Frame] = []
        if self.error is None:
            self._read_line(self._take_partial(), found)
            self._read_line(b"", found)
        return found

    def _take_partial(self) -> bytes:
        partial = b"".join(self._partial)
        self._partial.clear()
        self._partial_size = 0
        return partial

    def _read_line(self, line: bytes, found: list[Frame]) -> None:
        if not self.started:
            self.started = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                found.append((self._event, b"\n".join(self._data)))
            self._event, self._data, self._size = b"", [], 0
            return
        self._size += len(line) + 1
        if not self._check_size():
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value
        elif field not in _OTHER_FIELDS:
            self.strange = True

    def _check_size(self) -> bool:
        if self._size + self._partial_size > self._limit:
            self.error = too_large(self._limit)
            return False
        return True


def too_large(limit: int) -> StreamError:
    return StreamError(f"The gateway sent a frame larger than the limit of {limit:,} bytes.")
