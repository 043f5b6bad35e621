"""An answer as it appears: text on one stream, everything said about it on another."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from tollbridge.cli.terminal import Paint, columns_of, folded, harmless, one_line
from tollbridge.types.usage import Usage

# SECTION Streamed text folded between words, for people who read it while it comes.

_PIECES = re.compile(r"\n|[ \t]+|[^\s]+|\s")
_FENCE = "```"
_LONGEST_HELD = 40  # a longer word is shown as it comes, and the terminal folds it


class Wrapper:
    """Text in as it comes, text out to be written. Holds back a word that may still grow.

    Lines inside code fences are left alone: a newline that is not the model's would change them.
    """

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""
        self._line = ""  # how the line begins, to know a fence
        self._in_code = False

    def feed(self, text: str) -> str:
        out: list[str] = []
        for piece in _PIECES.findall(text):
            if piece == "\n":
                out.append(self._place() + "\n")
                self._end_line()
            elif piece.isspace():
                out.append(self._place())
                self._space += piece
            else:
                self._word += piece
                if self._in_code or len(self._word) > _LONGEST_HELD or not self._word.isascii():
                    out.append(self._place())
        return "".join(out)

    def flush(self) -> str:
        """What was held back."""
        return self._place()

    def _place(self) -> str:
        """The held word in its place: on this line where it fits, else on the next."""
        if not self._word:
            return ""
        space, word, self._space, self._word = self._space, self._word, "", ""
        if len(self._line) < len(_FENCE):
            self._line += (space + word).lstrip()
        cells, width = _cells(word), max(1, self._width())
        if space and self._column and not self._in_code and self._column + len(space) + cells > width:
            self._column = cells
            return "\n" + word
        # A line that is exactly full is still this line: the next word must not go on in it.
        self._column = (self._column + len(space) + cells - 1) % width + 1
        return space + word

    def _end_line(self) -> None:
        if self._line.startswith(_FENCE):
            self._in_code = not self._in_code
        self._column, self._space, self._line = 0, "", ""


def _cells(word: str) -> int:
    """How many columns a word takes."""
    if word.isascii():
        return len(word)
    return sum(_width(character) for character in word)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# SECTION The toll of an answer: what it cost and how fast it came. What is not known is left out, not shown as 0.

_MEASURABLE = 0.05  # seconds: below that, an answer came in one piece


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from sending the request; `first_token` is when the model first said anything."""

    first_token: float | None
    total: float

    def tokens_per_second(self, usage: Usage | None) -> float | None:
        """How fast the output came once it had begun; `None` where too little came to measure it."""
        if usage is None or self.first_token is None or not usage.output_tokens or usage.output_tokens < 2:
            return None
        flowing = self.total - self.first_token
        return None if flowing < _MEASURABLE else (usage.output_tokens - 1) / flowing


def usage_line(usage: Usage | None, timing: Timing) -> str:
    """`31 in (12 cached) · 14 out (3 reasoning) · first token 0.21 s · 86 tokens/s`"""
    parts: list[str] = []
    if usage is not None and usage.known:
        parts += _tokens(usage.input_tokens, "in", usage.cached_tokens, "cached")
        parts += _tokens(usage.output_tokens, "out", usage.reasoning_tokens, "reasoning")
        if not parts and usage.total_tokens is not None:
            parts.append(f"{usage.total_tokens:,} tokens")
    if timing.first_token is not None:
        parts.append(f"first token {_seconds(timing.first_token)}")
    speed = timing.tokens_per_second(usage)
    parts.append(f"in all {_seconds(timing.total)}" if speed is None else f"{speed:,.0f} tokens/s")
    return " · ".join(parts)


def _tokens(whole: int | None, name: str, part: int | None, part_name: str) -> list[str]:
    if whole is None:
        return [] if part is None else [f"{part:,} {part_name}"]
    return [f"{whole:,} {name}" if part is None else f"{whole:,} {name} ({part:,} {part_name})"]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# SECTION An answer as it appears: text on one stream, everything said about it on another.

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
