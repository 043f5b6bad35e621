"""Text for a terminal, and standard streams that report write errors as short messages.

Text that comes from models and servers is never allowed to control the terminal: control characters are
replaced before it is printed.
"""

from __future__ import annotations

import io
import os
import sys
import textwrap
from decimal import Decimal
from typing import TextIO

import click

# Every control character except tab and newline is replaced: an escape sequence in an answer could change
# the window title, move the cursor or insert input. Carriage returns are removed.
_CONTROL_CHARACTERS = dict.fromkeys((*range(32), *range(127, 160)), "�") | {9: "\t", 10: "\n", 13: None}
DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def replace_controls(text: str) -> str:
    """Return the text with every control character except tab and newline replaced."""
    return text.translate(_CONTROL_CHARACTERS)


def one_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    return " ".join(replace_controls(text).split())


def wrap_line(line: str, stream: TextIO, indent: int = 0) -> str:
    """Wrap a line between words to the width of the terminal. Without a terminal, it stays unchanged.

    `indent` is the column at which the line starts; the following lines are indented to it.
    """
    if not stream.isatty():
        return line
    width = max(1, terminal_width(stream) - indent)
    text = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    return text.replace("\n", "\n" + " " * indent)


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun: `1 message`, `2 messages`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_seconds(seconds: float) -> str:
    """Return a duration: `210 ms`, `2.5 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_cost(dollars: Decimal) -> str:
    """Return a cost with two significant digits, but no less than cents: `$0.0012`, `$0.25`, `$12.35`."""
    digits = min(8, 1 - dollars.adjusted()) if 0 < dollars < Decimal("0.1") else 2
    return f"${dollars:.{digits}f}"


def terminal_width(stream: TextIO) -> int:
    """Return the width of a line: COLUMNS if it is set, else the width of the stream's terminal, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):  # not a terminal, or not a file
        return 80


def supports_styles(stream: TextIO) -> bool:
    """Return whether to use colours: only on a terminal, and not with NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """Return the text as it is written to a stream where it should be less visible."""
    return f"{DIM}{text}{PLAIN}" if supports_styles(stream) else text


def bold(text: str, stream: TextIO) -> str:
    """Return the text as it is written to a stream where it should be bold."""
    return f"{BOLD}{text}{PLAIN}" if supports_styles(stream) else text


class OutputError(click.ClickException):
    """Raised when standard output cannot be written.

    It is not an OSError, so that code which handles errors of reading a file does not catch it.
    """

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        super().__init__(f"Cannot write to standard output: {reason}. The remaining output was discarded.")


class _Output(io.TextIOWrapper):
    """Standard output. Raises OutputError if it cannot be written; a closed pipe stays BrokenPipeError."""

    def write(self, text: str) -> int:
        try:
            # Click tests a stream by writing "" and b""; an error of the first would change its result.
            return 0 if text == "" else super().write(text)
        except OSError as error:
            self._handle(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._handle(error)

    def _handle(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe
            raise error
        _redirect_to_null(self.fileno())
        raise OutputError(error) from error


class _ErrorOutput(_Output):
    """Standard error. A message that cannot be written is dropped, and the command continues."""

    def _handle(self, error: OSError) -> None:  # noqa: ARG002
        _redirect_to_null(self.fileno())


def wrap_standard_streams() -> None:
    """Replace the interpreter's standard streams by ones that handle errors.

    Characters that cannot be encoded or decoded are replaced. If a stream was closed before the program
    started, standard input is empty and writing to standard output fails with OutputError.
    """
    if sys.stdin is None:
        _redirect_to_null(0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (for as long as the program runs)
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    sys.stdout = _wrap(sys.stdout, 1, _Output)
    sys.stderr = _wrap(sys.stderr, 2, _ErrorOutput)


def _wrap(stream: TextIO | None, fd: int, kind: type[_Output]) -> TextIO:
    if stream is None:
        _redirect_to_null(fd, os.O_RDONLY)  # writing fails, and the stream classes handle that
        return kind(open(fd, "wb", closefd=False), encoding="utf-8", errors="replace", line_buffering=True)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, line_buffering, write_through = stream.encoding, stream.line_buffering, stream.write_through
    raw = stream.detach()
    return kind(raw, encoding, "replace", line_buffering=line_buffering, write_through=write_through)


def _redirect_to_null(fd: int, flags: int = os.O_RDWR) -> None:
    """Make the descriptor refer to the null device, so that flushing buffers at exit does not fail again."""
    null = os.open(os.devnull, flags)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)
