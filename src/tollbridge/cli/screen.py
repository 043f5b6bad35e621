"""An answer as it appears: text on one stream, everything said about it on another."""

from __future__ import annotations

import json
from typing import Any, TextIO

from tollbridge.cli.terminal import Paint, columns_of, folded, harmless, one_line
from tollbridge.cli.wrapping import Wrapper

_LONGEST_CALL = 400


class Screen:
    """Text goes to `out` as it comes, untouched where that is not a terminal. Thinking, calls, files and
    notes go to `side`, dim, each beginning on a line of its own."""

    def __init__(self, out: TextIO, side: TextIO) -> None:
        paint = Paint(side)
        self._out = _Column(out)
        self._side = _Column(side, paint.dim, paint.plain)
        # A blank line between thinking and text only where a person sees both in one place.
        self._together = out.isatty() and side.isatty()
        self._last: _Column | None = None

    def text(self, text: str) -> None:
        if text:
            if self._last is self._side:
                self._close_line()
                if self._together:
                    self._side.line("")
            self._last = self._out
            self._out.write(text)

    def thinking(self, text: str) -> None:
        if text:
            if self._last is self._out:
                self._close_line()
            self._last = self._side
            self._side.write(text)

    def call(self, name: str, arguments: Any, offered: bool = True) -> None:
        shown = one_line(json.dumps(arguments, ensure_ascii=False, default=str))
        if len(shown) > _LONGEST_CALL:
            shown = shown[:_LONGEST_CALL] + "…"
        self.note(f"→ {one_line(name)} {shown}" + ("" if offered else " (not for us to run)"))

    def note(self, line: str) -> None:
        """A line of our own."""
        self._close_line()
        self._side.line(line)

    def end(self) -> None:
        """Leave the stream that was written last at the beginning of a line."""
        self._close_line()

    def _close_line(self) -> None:
        if self._last is not None:
            self._last.close_line()


class _Column:
    """One stream and where its cursor stands. For a terminal, text is made harmless and folded at words."""

    def __init__(self, stream: TextIO, before: str = "", after: str = "") -> None:
        self._stream = stream
        self._before, self._after = before, after
        self._wrapper = Wrapper(lambda: columns_of(stream)) if stream.isatty() else None
        self._at_line_start = True

    def write(self, text: str) -> None:
        self._at_line_start = text.endswith("\n")
        self._put(text if self._wrapper is None else self._wrapper.feed(harmless(text)))

    def line(self, text: str) -> None:
        self._put(folded(one_line(text), self._stream), "\n")

    def close_line(self) -> None:
        if not self._at_line_start:
            self._put("" if self._wrapper is None else self._wrapper.flush(), "\n")
            if self._wrapper is not None:
                self._wrapper.feed("\n")
            self._at_line_start = True

    def _put(self, text: str, end: str = "") -> None:
        self._stream.write((f"{self._before}{text}{self._after}" if text else "") + end)
        self._stream.flush()
