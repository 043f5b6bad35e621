"""Print a streamed answer.

The text goes to one stream (standard output), everything about it to another (standard error): reasoning,
tool calls, notes and the usage line.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from tollbridge.answer import Answer
from tollbridge.cli.terminal import (
    dim,
    format_cost,
    format_seconds,
    one_line,
    replace_controls,
    supports_styles,
    terminal_width,
    wrap_line,
)

if TYPE_CHECKING:
    from tollbridge.cli.markdown import MarkdownWriter

_PIECES = re.compile(r"\n|[ \t]+|[^\s]+|\s")
_FENCE = "```"
_MAX_PENDING_WORD = 40  # a longer word is printed as it arrives, and the terminal wraps it


class Wrapper:
    """Wrap streamed text between words.

    The last word is held back until it is complete, because its length decides the line it belongs to.
    Lines inside code fences are not wrapped: an added newline would change the code.
    """

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""
        self._line = ""  # the first characters of the line, to detect a code fence
        self._in_code = False

    def feed(self, text: str) -> str:
        """Return the part of the text that can be printed now."""
        out: list[str] = []
        for piece in _PIECES.findall(text):
            if piece == "\n":
                out.append(self.flush() + "\n")
                if self._line.startswith(_FENCE):
                    self._in_code = not self._in_code
                self._column, self._space, self._line = 0, "", ""
            elif piece.isspace():
                out.append(self.flush())
                self._space += piece
            else:
                self._word += piece
                if self._in_code or len(self._word) > _MAX_PENDING_WORD or not self._word.isascii():
                    out.append(self.flush())
        return "".join(out)

    def flush(self) -> str:
        """Return the word that was held back, on this line if it fits, else on the next."""
        if not self._word:
            return ""
        space, word, self._space, self._word = self._space, self._word, "", ""
        if len(self._line) < len(_FENCE):
            self._line += (space + word).lstrip()
        cells = len(word) if word.isascii() else sum(map(_width, word))
        width = max(1, self._width())
        if space and self._column and not self._in_code and self._column + len(space) + cells > width:
            self._column = cells
            return "\n" + word
        # A column equal to the width means a full line, so that the next word starts a new one.
        self._column = (self._column + len(space) + cells - 1) % width + 1
        return space + word


def _width(character: str) -> int:
    """Return the number of terminal columns that a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# Seconds. If the output took less, it arrived in one piece and its speed cannot be measured.
_MIN_STREAM_SECONDS = 0.05


def tokens_per_second(answer: Answer) -> float | None:
    """Return the speed of the output after its first token; `None` if there was too little to measure."""
    seconds = answer.duration - (answer.first or 0.0)
    tokens = answer.output_tokens or 0
    if answer.first is None or tokens < 2 or seconds < _MIN_STREAM_SECONDS:
        return None
    return (tokens - 1) / seconds


def usage_line(answer: Answer) -> str:
    """Return the line after an answer. Unknown values are omitted, not shown as 0.

    Examples: `31 in (12 cached) · 14 out (3 reasoning) · $0.012 · first token 210 ms · 86 tokens/s`, and with
    the total time if the speed is unknown: `31 in · 1 out · first token 210 ms · total 2.5 s`.
    """
    parts: list[str] = []
    usage, cost, speed = answer.usage, answer.cost.charge, tokens_per_second(answer)
    if usage is not None and usage.known:
        parts += _tokens(usage.input_tokens, "in", usage.cached_tokens, "cached")
        parts += _tokens(usage.output_tokens, "out", usage.reasoning_tokens, "reasoning")
        if not parts and usage.total_tokens is not None:
            parts.append(f"{usage.total_tokens:,} tokens")
    if cost is not None:
        parts.append(format_cost(cost))
    if answer.first is not None:
        parts.append(f"first token {format_seconds(answer.first)}")
    parts.append(f"total {format_seconds(answer.duration)}" if speed is None else f"{speed:,.0f} tokens/s")
    return " · ".join(parts)


def _tokens(total: int | None, name: str, part: int | None, part_name: str) -> list[str]:
    if total is None:
        return [] if part is None else [f"{part:,} {part_name}"]
    return [f"{total:,} {name}" if part is None else f"{total:,} {name} ({part:,} {part_name})"]


_MAX_CALL_LENGTH = 400


class Screen:
    """Print the parts of an answer as they arrive.

    Args:
        out: Receives the text: rendered as Markdown on a terminal, unchanged elsewhere.
        side: Receives reasoning, tool calls and notes, dimmed, each starting on a new line.
        raw: Print Markdown as it is, on a terminal too.
    """

    def __init__(self, out: TextIO, side: TextIO, *, raw: bool = False) -> None:
        self._spinner = Spinner(side) if supports_styles(side) else None
        self._markdown: MarkdownWriter | None = None
        if supports_styles(out) and not raw:
            # Imported here: answers are often written to a pipe or a file.
            from tollbridge.cli.markdown import MarkdownWriter

            self._markdown = MarkdownWriter(out)
        self._out = self._markdown or _Output(out)
        self._side = _Output(side, is_dim=True)
        # Reasoning and text are separated by a blank line only if both appear on the terminal.
        self._together = out.isatty() and side.isatty()
        self._last: MarkdownWriter | _Output | None = None

    @property
    def animated(self) -> bool:
        """Whether `tick` must be called while the answer is awaited."""
        return self._spinner is not None or self.renders_markdown

    @property
    def renders_markdown(self) -> bool:
        return self._markdown is not None

    def wait_for(self, what: str) -> None:
        """Set what is awaited; `tick` shows it with the elapsed time."""
        if self._spinner is not None:
            self._spinner.text = one_line(what)

    def tick(self) -> None:
        """Draw what has changed: text that was not drawn yet, or a spinner if nothing arrives."""
        if self._markdown is not None and self._markdown.has_changed:
            self._write_over_spinner()
            self._markdown.refresh()
        elif self._spinner is not None and (self._last is None or self._last.at_line_start):
            self._spinner.draw()

    def text(self, text: str) -> None:
        if text:
            self._write_over_spinner()
            if self._last is self._side:
                self.end()
                if self._together:
                    self._side.line("")
            self._last = self._out
            self._out.write(text)

    def thinking(self, text: str) -> None:
        if text:
            self._write_over_spinner()
            if self._last is self._out:
                self.end()
            self._last = self._side
            self._side.write(text)

    def call(self, name: str, arguments: Any, offered: bool = True) -> None:
        """Print a tool call. `offered` is false if the caller must not run it, see `ToolCall`."""
        text = one_line(json.dumps(arguments, ensure_ascii=False, default=str))
        if len(text) > _MAX_CALL_LENGTH:
            text = text[:_MAX_CALL_LENGTH] + "…"
        self.note(f"→ {one_line(name)} {text}" + ("" if offered else " (run by the provider)"))

    def note(self, line: str) -> None:
        """Print a line about the answer, such as a warning or the usage line."""
        self.end()
        self._side.line(line)

    def end(self) -> None:
        """End the current line, if there is one, and remove the spinner."""
        self._write_over_spinner()
        if self._last is not None:
            self._last.close_line()

    def _write_over_spinner(self) -> None:
        if self._spinner is not None:
            self._spinner.clear()


class _Output:
    """One stream. On a terminal, control characters are replaced and text is wrapped."""

    def __init__(self, stream: TextIO, *, is_dim: bool = False) -> None:
        self._stream = stream
        self._is_dim = is_dim
        self._wrapper = Wrapper(lambda: terminal_width(stream)) if stream.isatty() else None
        self.at_line_start = True

    def write(self, text: str) -> None:
        self.at_line_start = text.endswith("\n")
        self._put(text if self._wrapper is None else self._wrapper.feed(replace_controls(text)))

    def line(self, text: str) -> None:
        self._put(wrap_line(one_line(text), self._stream), "\n")

    def close_line(self) -> None:
        if not self.at_line_start:
            self._put("" if self._wrapper is None else self._wrapper.flush(), "\n")
            if self._wrapper is not None:
                self._wrapper.feed("\n")
            self.at_line_start = True

    def _put(self, text: str, end: str = "") -> None:
        self._stream.write((dim(text, self._stream) if text and self._is_dim else text) + end)
        self._stream.flush()


_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10
# Seconds without output after which the spinner appears.
_SPINNER_DELAY = 0.3


class Spinner:
    """A line that shows what is awaited and for how long, on a terminal that supports styles.

    It is removed before anything else is printed.
    """

    def __init__(self, stream: TextIO) -> None:
        self.text = ""
        self._stream = stream
        self._start = self._last_output = time.monotonic()
        self._shown = False

    def draw(self) -> None:
        """Draw the line, unless there was output just now."""
        now = time.monotonic()
        if not self.text or now - self._last_output < _SPINNER_DELAY:
            return
        seconds = now - self._start
        frame = _FRAMES[int(seconds * _FRAMES_PER_SECOND) % len(_FRAMES)]
        line = f"{frame} {self.text} · {seconds:.1f} s"[: max(1, terminal_width(self._stream) - 1)]
        self._stream.write(f"\r\x1b[K{dim(line, self._stream)}")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Remove the line."""
        self._last_output = time.monotonic()
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
