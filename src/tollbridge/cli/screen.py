"""An answer as it appears: text on one stream, everything said about it on another."""

from __future__ import annotations

import json
from typing import Any, Literal, TextIO

from tollbridge.cli.terminal import Paint, harmless, one_line

_LONGEST_CALL = 400


class Screen:
    """Text goes to `out` as it comes, untouched where that is not a terminal. Thinking, calls, files and
    notes go to `side`, dim, each beginning on a line of its own."""

    def __init__(self, out: TextIO, side: TextIO) -> None:
        self._out = out
        self._side = side
        self._paint = Paint(side)
        self._raw = not out.isatty()
        # A blank line between thinking and text only where a person sees both in one place.
        self._together = out.isatty() and side.isatty()
        self._last: Literal["nothing", "text", "thinking"] = "nothing"
        self._at_line_start = True

    def text(self, text: str) -> None:
        if not text:
            return
        if self._last == "thinking":
            self._close_line()
            if self._together:
                self._side.write("\n")
                self._side.flush()
        self._last = "text"
        self._out.write(text if self._raw else harmless(text))
        self._out.flush()
        self._at_line_start = text.endswith("\n")

    def thinking(self, text: str) -> None:
        if not text:
            return
        if self._last == "text":
            self._close_line()
        self._last = "thinking"
        self._side.write(f"{self._paint.dim}{harmless(text)}{self._paint.plain}")
        self._side.flush()
        self._at_line_start = text.endswith("\n")

    def call(self, name: str, arguments: Any, offered: bool = True) -> None:
        shown = one_line(json.dumps(arguments, ensure_ascii=False, default=str))
        if len(shown) > _LONGEST_CALL:
            shown = shown[:_LONGEST_CALL] + "…"
        self.note(f"→ {one_line(name)} {shown}" + ("" if offered else " (not for us to run)"))

    def note(self, line: str) -> None:
        """A line of our own."""
        self._close_line()
        self._side.write(f"{self._paint.dim}{one_line(line)}{self._paint.plain}\n")
        self._side.flush()

    def end(self) -> None:
        """Leave both streams at the beginning of a line, as far as this answer moved them."""
        self._close_line()

    def _close_line(self) -> None:
        if self._at_line_start:
            return
        stream = self._out if self._last == "text" else self._side
        stream.write("\n")
        stream.flush()
        self._at_line_start = True
