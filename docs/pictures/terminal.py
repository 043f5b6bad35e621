"""Draw a terminal: a chat with the local model, run in tmux as a user runs `make run`.

tmux interprets what the program writes; its screen, with colours, becomes an SVG.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

import msgspec
from docs.pictures.svg import MONO, Drawing, Theme, draw_both
from tests.cli.tmux import Tmux, tmux

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 86, 60
# No questions about facts: the small model gets most of them wrong.
PROMPTS = (
    "Write one sentence about a bridge in the morning.",
    "Write a Python function that returns the sum of two numbers.",
)
ATTEMPTS, MOST_CHARACTERS = 20, 1_000
# The size of a character, and the space around the text.
CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.4, 19, 14
MARGIN, BAR = 18, 36
# The sixteen colours of a terminal: those of GitHub's themes.
PALETTES = {
    "light": "24292f cf222e 116329 4d2d00 0969da 8250df 1b7c83 6e7781 "
    "57606a a40e26 1a7f37 633c01 0550ae 6639ba 1b7c83 59636e",
    "dark": "484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4 "
    "6e7681 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd ffffff",
}
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")


class Style(msgspec.Struct, frozen=True):
    """How a run of characters looks. A colour is one of the sixteen, or `None` for the colour of text."""

    colour: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False


def main() -> None:
    for _ in range(ATTEMPTS):
        screen = asyncio.run(_record())
        if _is_suitable(screen):
            break
    draw_both("terminal", lambda theme: draw(screen, theme))


def _is_suitable(screen: str) -> bool:
    """Return whether the answers, which differ each time, are short and show a block of code."""
    text = _STYLE.sub("", screen)
    return len(screen) <= MOST_CHARACTERS and text.count("```python\n") == 1 and "return a + b" in text


async def _record() -> str:
    """Run the chat, and return the screen with its styles."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"TOLLBRIDGE_DATA_DIR": folder}
        # Without the variables of `make pictures`, with which `make run` would print its directory.
        shell = f"cd {ROOT} && unset MAKEFLAGS MAKELEVEL MFLAGS && PS1='$ ' exec sh -i"
        async with tmux((COLUMNS, ROWS), "sh", "-c", shell, env=env) as window:
            await window.expect("$")
            await window.type("make run")
            await window.press("Enter")
            for number, prompt in enumerate(PROMPTS):
                await window.expect_prompt()
                await window.type(prompt)
                await window.press("Enter")
                await _wait_for_answers(window, number + 1)
            await window.expect_prompt()
            return await window.screen(styles=True)


async def _wait_for_answers(window: Tmux, count: int) -> None:
    """Wait for the lines after the answers, which end with the speed."""
    await window.expect_match(r"(?:tokens/s[^~]*)" + f"{{{count}}}")


def draw(screen: str, theme: Theme) -> Drawing:
    lines = list(_read_lines(screen))
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = BAR + len(lines) * CELL_HEIGHT + MARGIN
    drawing = Drawing(width, height, "A chat with a local model in the terminal")
    drawing.rect(0.5, 0.5, width - 1, height - 1, theme.page, stroke=theme.line, radius=10)
    for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        drawing.circle(MARGIN + 6 + 20 * index, BAR / 2 + 2, 6, colour)
    for row, runs in enumerate(lines):
        y = BAR + (row + 1) * CELL_HEIGHT - 5
        for column, text, style in runs:
            if text.strip():
                drawing.add(_text_element(MARGIN + column * CELL_WIDTH, y, text, style, theme))
    return drawing


def _read_lines(screen: str) -> Iterator[list[tuple[int, str, Style]]]:
    """Yield the runs of equal style of each line: column, text and style. The empty prompt is left out."""
    style = Style()  # it continues on the next line
    lines = screen.split("\n")
    while _STYLE.sub("", lines[-1]).strip() in ("", ">"):
        lines.pop()
    for line in lines:
        runs, column = [], 0
        for index, piece in enumerate(_STYLE.split(line)):
            if index % 2:
                style = _change(style, piece)
            elif piece:
                runs.append((column, piece, style))
                column += len(piece)
        yield runs


def _change(style: Style, codes: str) -> Style:
    """Return the style after the codes of an escape sequence. Backgrounds are ignored."""
    for code in map(int, (codes or "0").split(";")):
        match code:
            case 0:
                style = Style()
            case 1:
                style = msgspec.structs.replace(style, bold=True)
            case 2:
                style = msgspec.structs.replace(style, dim=True)
            case 3:
                style = msgspec.structs.replace(style, italic=True)
            case 4:
                style = msgspec.structs.replace(style, underline=True)
            case 39:
                style = msgspec.structs.replace(style, colour=None)
            case _ if 30 <= code <= 37:
                style = msgspec.structs.replace(style, colour=code - 30)
            case _ if 90 <= code <= 97:
                style = msgspec.structs.replace(style, colour=code - 90 + 8)
            case _:
                pass
    return style


def _text_element(x: float, y: float, text: str, style: Style, theme: Theme) -> str:
    """Return an element whose characters have the width of a cell, whatever the font."""
    palette = [f"#{colour}" for colour in PALETTES[theme.name].split()]
    colour = theme.muted if style.dim else theme.text if style.colour is None else palette[style.colour]
    attributes = [
        f'x="{x:.1f}" y="{y:g}" fill="{colour}" font-size="{FONT_SIZE}" font-family="{MONO}"',
        f'textLength="{len(text) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"',
    ]
    if style.bold:
        attributes.append('font-weight="600"')
    if style.italic:
        attributes.append('font-style="italic"')
    if style.underline:
        attributes.append('text-decoration="underline"')
    return f"<text {' '.join(attributes)}>{escape(text)}</text>"
