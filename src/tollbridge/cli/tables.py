"""Tables that fit: where a terminal is narrow, the columns that say least leave first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tollbridge.cli.terminal import columns_of, one_line

if TYPE_CHECKING:
    from rich.table import Table


_GAP = 2


class Column(msgspec.Struct, frozen=True):
    """`leaves` is when it goes where there is no room: the highest first, 0 never. `least` is how narrow it
    may be folded; a column without one is never folded."""

    name: str
    right: bool = False
    leaves: int = 0
    least: int | None = None
    style: str = ""


class Row(msgspec.Struct, frozen=True):
    cells: Sequence[str]
    style: str = ""


def room() -> int | None:
    """How wide a table may be; `None` where no terminal says, and lines are for programs."""
    return columns_of(sys.stdout) if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def fitting(columns: Sequence[Column], widths: Sequence[int], most: int) -> dict[int, int]:
    """The columns to show and how wide each is: none that is empty, and no more than fit."""
    least = {
        place: width if column.least is None else min(width, column.least)
        for place, (column, width) in enumerate(zip(columns, widths, strict=True))
        if width
    }
    while sum(least.values()) + _GAP * (len(least) - 1) > most:
        leaving = max(least, key=lambda place: columns[place].leaves)
        if not columns[leaving].leaves:
            least |= {place: 1 for place in least if columns[place].least is not None}
            break  # too narrow for this table: folded as far as it takes
        del least[leaving]
    return _grown(least, widths, most - sum(least.values()) - _GAP * (len(least) - 1))


def _grown(least: dict[int, int], widths: Sequence[int], spare: int) -> dict[int, int]:
    """The room that is left goes to all alike, and what one does not need to the others."""
    grown = dict(least)
    wanting = sorted(least, key=lambda place: widths[place] - least[place])
    for served, place in enumerate(wanting):
        more = min(widths[place] - least[place], max(0, spare) // (len(wanting) - served))
        grown[place] += more
        spare -= more
    return grown


def show_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print it. What the cells say drives no terminal."""
    # Not at the top: it takes longer to load than most commands to run.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    texts = [[one_line(cell) for cell in row.cells] for row in rows]
    # A column in which nothing is said is not shown, whatever its name's length.
    widths = [
        max(cell_len(column.name), *map(cell_len, cells)) if any(cells) else 0
        for column, cells in zip(columns, zip(*texts, strict=True), strict=True)
    ]
    whole = sum(widths) + _GAP * len(widths)
    width = room() or whole
    shown = fitting(columns, widths, width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for place, cells_wide in shown.items():
        column = columns[place]
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            overflow="fold",
            style=column.style,
            width=cells_wide,
        )
    for row, cells in zip(rows, texts, strict=True):
        table.add_row(*(Text(cells[place]) for place in shown), style=row.style)
    draw(table, width)


def draw(table: Table, width: int) -> None:
    """Print a table without the blanks that fill its last column."""
    from rich.console import Console

    screen = Console(highlight=False, width=width)
    with screen.capture() as drawn:
        screen.print(table)
    for line in drawn.get().splitlines():
        click.echo(line.rstrip())
