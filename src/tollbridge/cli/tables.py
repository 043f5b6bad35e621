"""Tables that fit the terminal: if it is too narrow, the least important columns are dropped first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tollbridge.cli.terminal import one_line, terminal_width

if TYPE_CHECKING:
    from rich.table import Table


_GAP = 2


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Attributes:
        name: The heading.
        right: Whether cells are aligned to the right.
        drop_order: The order in which columns are dropped if the table is too wide: the highest number first,
            0 never.
        min_width: The width to which the column can be wrapped; `None` if it must not be wrapped.
        style: A rich style for the cells.
    """

    name: str
    right: bool = False
    drop_order: int = 0
    min_width: int | None = None
    style: str = ""


class Row(msgspec.Struct, frozen=True):
    cells: Sequence[str]
    style: str = ""


def table_width() -> int | None:
    """Return the width available for a table; `None` (no limit) if the output is not a terminal."""
    return terminal_width(sys.stdout) if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def fit_columns(columns: Sequence[Column], widths: Sequence[int], max_width: int) -> dict[int, int]:
    """Choose the columns to show.

    Args:
        columns: All columns of the table.
        widths: The width that the content of each column needs; 0 for an empty column, which is not shown.
        max_width: The width available for the table.

    Returns:
        The index of each column to show, with its width.
    """
    min_widths = {
        index: width if column.min_width is None else min(width, column.min_width)
        for index, (column, width) in enumerate(zip(columns, widths, strict=True))
        if width
    }
    while sum(min_widths.values()) + _GAP * (len(min_widths) - 1) > max_width:
        dropped = max(min_widths, key=lambda index: columns[index].drop_order)
        if not columns[dropped].drop_order:
            # Too narrow even for the columns that are always shown: wrap them as far as necessary.
            min_widths |= {index: 1 for index in min_widths if columns[index].min_width is not None}
            break
        del min_widths[dropped]
    spare = max_width - sum(min_widths.values()) - _GAP * (len(min_widths) - 1)
    return _distribute(min_widths, widths, spare)


def _distribute(min_widths: dict[int, int], widths: Sequence[int], spare: int) -> dict[int, int]:
    """Distribute the spare width equally; a column's unused share goes to the columns that need more."""
    result = dict(min_widths)
    by_need = sorted(min_widths, key=lambda index: widths[index] - min_widths[index])
    for done, index in enumerate(by_need):
        extra = min(widths[index] - min_widths[index], max(0, spare) // (len(by_need) - done))
        result[index] += extra
        spare -= extra
    return result


def show_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table on standard output. Control characters in cells are replaced."""
    # Imported here because loading rich takes longer than most commands take to run.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    texts = [[one_line(cell) for cell in row.cells] for row in rows]
    # Columns without content are not shown.
    widths = [
        max(cell_len(column.name), *map(cell_len, cells)) if any(cells) else 0
        for column, cells in zip(columns, zip(*texts, strict=True), strict=True)
    ]
    width = table_width() or sum(widths) + _GAP * len(widths)
    column_widths = fit_columns(columns, widths, width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for index, column_width in column_widths.items():
        column = columns[index]
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            overflow="fold",
            style=column.style,
            width=column_width,
        )
    for row, cells in zip(rows, texts, strict=True):
        table.add_row(*(Text(cells[index]) for index in column_widths), style=row.style)
    print_table(table, width)


def print_table(table: Table, width: int) -> None:
    """Print a rich table without trailing blanks."""
    from rich.console import Console

    console = Console(highlight=False, width=width)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
