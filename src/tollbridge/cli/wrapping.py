"""Streamed text folded between words, for people who read it while it comes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

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
