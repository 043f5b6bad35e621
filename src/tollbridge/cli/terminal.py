"""What may be written on a terminal, and how. The words of models and servers must not drive it."""

from __future__ import annotations

import os
import textwrap
from typing import TextIO

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
