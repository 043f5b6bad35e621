"""Render streamed Markdown on a terminal.

The text is split into blocks: paragraphs, headings, list items, quotes, tables, lines of code. A finished
block is printed once and never touched again, so that it can be scrolled and copied. Only the last block,
which is still being written, is drawn again, and only its lines that changed. If it is higher than the
screen, only the lines that are on the screen are drawn again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from tollbridge.cli.terminal import BOLD, DIM, PLAIN, replace_controls, terminal_width

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from rich.console import Console

# Seconds between two drawings of the unfinished block. A slow drawing is followed by a longer pause.
_INTERVAL = 0.04
_PAUSE_RATIO = 4
# A longer line is divided, and a block with more characters is printed as if it were finished, because rich
# needs quadratic time for one block.
_BLOCK_LIMIT = 8_000
# The colours of a line of code depend on the lines before it; this many of them are read, or fewer if all
# together have more than `_BLOCK_LIMIT` characters.
_CODE_CONTEXT = 40

_FENCE = re.compile(r"( *+)(`{3,}+|~{3,}+)([^`]*+)$")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_ITEM = re.compile(r"( *+)([-*+]|\d{1,9}[.)])( ++|$)")
_QUOTE = re.compile(r" {0,3}> ?")
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_THEME = {
    "markdown.code": "cyan",
    "markdown.link": "underline",
    "markdown.link_url": "dim",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
}


class MarkdownWriter:
    """Renders the text of one answer on a terminal that supports styles."""

    at_line_start = True  # the cursor, always

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.has_changed = False  # whether some text was not drawn yet
        self._stream = stream
        self._clock = clock
        self._renderer = _Renderer()
        self._line = ""  # the line that is not complete yet
        self._block: list[str] = []  # the complete lines of the unfinished block
        self._block_length = 0
        self._code: _CodeBlock | None = None
        self._separate = False  # whether an empty line precedes the next block
        self._printed = False
        self._drawn: list[str] = []  # the lines on the screen that can be drawn again
        self._scrolled = 0  # how many lines of the unfinished block cannot be drawn again
        self._next_drawing = 0.0

    def write(self, text: str) -> None:
        """Add a piece of the text, and draw it unless the last drawing was just now."""
        for start in range(0, len(text), _BLOCK_LIMIT):
            piece = replace_controls(text[start : start + _BLOCK_LIMIT])
            *lines, self._line = (self._line + piece).split("\n")
            for line in lines:
                self._add_line(self._divide(line))
            self._line = self._divide(self._line)
        self.has_changed = True
        self.refresh()

    def refresh(self) -> None:
        """Draw the unfinished block if it has changed and enough time has passed."""
        if self.has_changed and self._clock() >= self._next_drawing:
            self._draw(self._render_block())

    def close_line(self) -> None:
        """Print what is unfinished, as at the end of the text."""
        if self._line:
            self._add_line(self._line)
            self._line = ""
        self._finish_block()
        self._code = None

    def _divide(self, line: str) -> str:
        """Print the start of a line that is too long, in pieces, and return the rest.

        The pieces of a text end between words if possible. They are the same for all sizes of writes.
        """
        start = 0
        while len(line) - start > _BLOCK_LIMIT:
            piece = line[start : start + _BLOCK_LIMIT]
            words = piece.rpartition(" ")[0]
            if words.strip() and self._code is None:
                start += len(words) + 1
            else:
                words = piece
                start += len(piece)
            self._add_line(words)
            self._finish_block()
        return line[start:]

    def _add_line(self, line: str) -> None:
        if self._code is not None:
            self._print([self._code.add(line)])
            if self._code.closed:
                self._code = None
            return
        fence = _FENCE.match(line)
        # Four spaces or more start indented code, in which a fence is text. In a list item they can be the
        # indentation of the item, so a fence is accepted there.
        if fence and (len(fence[1]) < 4 or (self._block and _ITEM.match(self._block[0]))):
            self._finish_block()
            self._code = self._renderer.open_code(fence[2], fence[3].strip())
            self._print([f"{DIM}{line}{PLAIN}"])
        elif not line.strip():
            self._finish_block()
            self._separate = self._printed
        else:
            if self._starts_block(line) or self._block_length > _BLOCK_LIMIT:
                self._finish_block()
            self._block.append(line)
            self._block_length += len(line)
            if _HEADING.match(line):
                self._finish_block()

    def _starts_block(self, line: str) -> bool:
        if not self._block or _HEADING.match(line) or _ITEM.match(line):
            return True
        return bool(_QUOTE.match(line)) != bool(_QUOTE.match(self._block[0]))

    def _finish_block(self) -> None:
        if self._block:
            self._print(self._renderer.render("\n".join(self._block), terminal_width(self._stream)))
            self._block, self._block_length = [], 0

    def _render_block(self) -> list[str]:
        """Return the lines of the unfinished block, and of the one that its last line seems to start."""
        line = [self._line] if self._line else []
        width = terminal_width(self._stream)
        if self._code is not None:
            from rich.cells import cell_len, set_cell_size

            cells = width * self._height()
            return [set_cell_size(text, cells) if cell_len(text) > cells else text for text in line]
        blocks = [self._block, line] if line and self._starts_block(self._line) else [[*self._block, *line]]
        return [row for block in blocks if block for row in self._renderer.render("\n".join(block), width)]

    def _print(self, lines: list[str]) -> None:
        """Replace what was drawn of the unfinished block by its final lines."""
        self._draw(lines)
        self._drawn, self._scrolled, self._separate, self._printed = [], 0, False, True
        self._next_drawing = 0.0

    def _draw(self, lines: list[str]) -> None:
        from rich.cells import cell_len

        started = self._clock()
        if self._separate and lines:
            lines = ["", *lines]
        lines = lines[self._scrolled :]
        same = next(
            (n for n, (old, new) in enumerate(zip(self._drawn, lines, strict=False)) if old != new),
            min(len(self._drawn), len(lines)),
        )
        # A drawn line takes several rows of the terminal if that was made narrower since.
        width = max(1, terminal_width(self._stream))
        rows = sum(max(1, -(-cell_len(_STYLES.sub("", line)) // width)) for line in self._drawn[same:])
        back = f"\x1b[{rows}A\r\x1b[J" if rows else ""
        if back or lines[same:]:
            self._stream.write(back + "".join(f"{line}\n" for line in lines[same:]))
            self._stream.flush()
        kept = self._height()
        self._scrolled += max(0, len(lines) - kept)
        self._drawn = lines[-kept:]
        self.has_changed = False
        self._next_drawing = self._clock() + max(_INTERVAL, _PAUSE_RATIO * (self._clock() - started))

    def _height(self) -> int:
        """Return how many rows of the terminal can be drawn again."""
        try:
            rows = os.get_terminal_size(self._stream.fileno()).lines or 24
        except (OSError, ValueError):
            rows = 24
        return max(1, rows - 2)


def render_markdown(text: str, stream: TextIO) -> None:
    """Print a complete Markdown text on a terminal that supports styles."""
    writer = MarkdownWriter(stream)
    writer.write(text)
    writer.close_line()


class _CodeBlock:
    """The lines of a code block. Each is coloured as soon as it is complete."""

    def __init__(self, fence: str, highlight: Callable[[list[str]], str] | None) -> None:
        self.closed = False
        self._fence = fence
        self._highlight = highlight
        self._lines: list[str] = []
        self._length = 0

    def add(self, line: str) -> str:
        """Return the line as it is printed."""
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self.closed = True
            return f"{DIM}{line}{PLAIN}"
        if self._highlight is None:
            return line
        if len(self._lines) >= 2 * _CODE_CONTEXT:
            self._lines = self._lines[-_CODE_CONTEXT:]
            self._length = sum(map(len, self._lines))
        self._lines.append(line)
        self._length += len(line)
        while self._length > _BLOCK_LIMIT and len(self._lines) > 1:
            self._length -= len(self._lines.pop(0))
        return self._highlight(self._lines) if line.strip() else ""


class _Renderer:
    """Renders blocks with rich, which is loaded with the first one."""

    def __init__(self) -> None:
        self._console: Console | None = None
        self._parser: MarkdownIt | None = None

    def render(self, text: str, width: int) -> list[str]:
        """Return the lines of one block, with styles."""
        first, _, rest = text.partition("\n")
        if item := _ITEM.match(first):
            mark = "•" if item[2] in "-*+" else item[2]
            indent = " " * min(len(item[1]), width // 2)
            body = "\n".join([first[item.end() :], *(line.strip() for line in rest.split("\n") if rest)])
            return self._prefixed(f"{indent}{mark} ", " " * (len(indent) + len(mark) + 1), body, width)
        if _HEADING.match(first):
            body = first.strip().lstrip("#").rstrip("# ")
            return [f"{BOLD}{line}{PLAIN}" for line in self._inline(body, width)]
        if _QUOTE.match(first):
            body = "\n".join(_QUOTE.sub("", line, count=1) for line in text.split("\n"))
            mark = f"{DIM}│{PLAIN} "
            return self._prefixed(mark, mark, body, width)
        indent = first[: len(first) - len(first.lstrip())][: width // 2]
        if indent:
            body = "\n".join(line.strip() for line in text.split("\n"))
            return self._prefixed(indent, indent, body, width)
        return self._inline(text, width)

    def open_code(self, fence: str, info: str) -> _CodeBlock:
        """Start a code block. Its language is the first word of the line that starts it."""
        from rich.syntax import Syntax

        language = info.split(" ")[0]
        syntax = Syntax("", language, theme="ansi_dark")
        if not language or syntax.lexer is None:
            return _CodeBlock(fence, None)

        def highlight(lines: list[str]) -> str:
            """Return the last line with colours."""
            length = len(lines[-1].rstrip())
            text = syntax.highlight("\n".join(lines))
            text.rstrip()
            return "".join(self._to_lines(text[len(text) - length :], None))

        return _CodeBlock(fence, highlight)

    def _prefixed(self, first: str, others: str, body: str, width: int) -> list[str]:
        cells = len(_STYLES.sub("", first))
        lines = self._inline(body, max(1, width - cells)) or [""]
        return [f"{first}{lines[0]}", *(f"{others}{line}" for line in lines[1:])]

    def _inline(self, text: str, width: int) -> list[str]:
        from markdown_it import MarkdownIt
        from rich.markdown import Markdown

        if self._parser is None:
            # Whatever rich would not print is read as text: HTML, the addresses of images and of references.
            self._parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
            self._parser.disable(["code", "heading", "lheading", "image", "list", "reference"])
        markdown = Markdown("", hyperlinks=False)
        markdown.parsed = self._parser.parse(text)
        for token in markdown.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"  # models mean the line breaks that they write
        return self._to_lines(markdown, width)

    def _to_lines(self, renderable: object, width: int | None) -> list[str]:
        """Return the rendered lines without empty ones around them. With no width, lines are not wrapped."""
        from rich.console import Console
        from rich.theme import Theme

        if self._console is None:
            self._console = Console(
                force_terminal=True, legacy_windows=False, highlight=False, theme=Theme(_THEME)
            )
        with self._console.capture() as capture:
            self._console.print(
                renderable, width=width, soft_wrap=width is None, no_wrap=width is None, end=""
            )
        # Without the spaces with which rich fills a line, before its last style ends.
        lines = [
            line.removesuffix(PLAIN).rstrip() + PLAIN if line.endswith(PLAIN) else line.rstrip()
            for line in capture.get().split("\n")
        ]
        visible = [n for n, line in enumerate(lines) if _STYLES.sub("", line).strip()]
        return lines[visible[0] : visible[-1] + 1] if visible else []
