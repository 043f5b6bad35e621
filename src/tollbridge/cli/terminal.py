"""The standard streams, made safe: half a character, a full disk or a closed stream is no mistake of ours."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from typing import NoReturn, TextIO

import click

# SECTION What may be written on a terminal, and how. The words of models and servers must not drive it.

# Every control character but tab and newline: an escape sequence in an answer could retitle the window,
# move the cursor or type for the person.
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "�") | {9: "\t", 10: "\n", 13: None}
_DIM, _BOLD, _RED, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[0m"


def harmless(text: str) -> str:
    """The text without control characters other than tab and newline."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    return " ".join(harmless(text).split())


def folded(line: str, stream: TextIO, indent: int = 0) -> str:
    """The line, folded between words where a person reads it. It begins at column `indent`."""
    if not stream.isatty():
        return line
    width = max(1, columns_of(stream) - indent)
    text = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    return text.replace("\n", "\n" + " " * indent)


def counted(number: int, thing: str) -> str:
    """`1 message`, `2 messages`"""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def columns_of(stream: TextIO) -> int:
    """How wide lines may be: as the person says (COLUMNS), as the terminal behind the stream says, or 80."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):  # no terminal, or no file at all
        return 80


def has_style(stream: TextIO) -> bool:
    """Whether to use colours on it: a terminal, and nobody said no (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Paint:
    """Styles for one stream, which are nothing where it is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        styled = has_style(stream)
        self.dim = _DIM if styled else ""
        self.bold = _BOLD if styled else ""
        self.red = _RED if styled else ""
        self.plain = _PLAIN if styled else ""


# SECTION The standard streams, made safe: half a character, a full disk or a closed stream is no mistake of ours.


class Unwritable(click.ClickException):
    """Standard output takes nothing more. Not an OSError: nobody who reads files may take it for theirs."""

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        super().__init__(f"Standard output cannot be written: {reason}. The rest of it is lost.")


class _Output(io.TextIOWrapper):
    def write(self, text: str) -> int:
        if text == "":  # click probes so, and would take the failure for its answer
            return 0
        try:
            return super().write(text)
        except BrokenPipeError:  # the reader has seen enough
            raise
        except OSError as error:
            self._give_up(error)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> NoReturn:
        _to_nowhere(self.fileno())
        raise Unwritable(error) from error


class _Notes(io.TextIOWrapper):
    """Standard error. A note that cannot be written costs nothing but itself."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            _to_nowhere(self.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _to_nowhere(self.fileno())


def claim_streams() -> None:
    """Put safe streams in the places of the interpreter's. Where one was closed before we began, there is
    nothing to read and nowhere to write."""
    if sys.stdin is None:
        _to_nowhere(0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (for as long as the program runs)
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    sys.stdout = _claimed(sys.stdout, 1, _Output)
    sys.stderr = _claimed(sys.stderr, 2, _Notes)


def _claimed(stream: TextIO | None, fd: int, kind: type[_Output | _Notes]) -> TextIO:
    if stream is None:
        _to_nowhere(fd, os.O_RDONLY)  # to write there fails, and is told where it matters
        return kind(open(fd, "wb", closefd=False), encoding="utf-8", errors="replace", line_buffering=True)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line, at_once = stream.encoding, stream.line_buffering, stream.write_through
    raw = stream.detach()
    return kind(raw, encoding, "replace", line_buffering=by_line, write_through=at_once)


def _to_nowhere(fd: int, flags: int = os.O_RDWR) -> None:
    """What is left in buffers goes there when the program ends, and fails no more."""
    nowhere = os.open(os.devnull, flags)
    if nowhere != fd:
        os.dup2(nowhere, fd)
        os.close(nowhere)
