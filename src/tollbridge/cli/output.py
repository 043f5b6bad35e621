"""Output of commands: tables that fit the terminal, the summary of a turn, and JSON lines."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tollbridge.answer import Answer
from tollbridge.cli.terminal import one_line, terminal_width
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Data, Failed, File, Source, ToolCall
from tollbridge.types.text import replace_surrogates

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2
# The counts of a `Usage` that are output.
_TOKENS = ("input", "output", "total", "cached", "reasoning")


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


def table_width() -> int | None:
    """Return the width available for a table; `None` (no limit) if the output is not a terminal."""
    return terminal_width(sys.stdout) if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def fit_columns(columns: Sequence[Column], widths: Sequence[int], max_width: int) -> dict[int, int]:
    """Return the index of each column to show, with its width.

    `widths` are what the content of each column needs; 0 for an empty column, which is not shown.
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
    # The spare width is distributed equally; a column's unused share goes to the columns that need more.
    spare = max(0, max_width - sum(min_widths.values()) - _GAP * (len(min_widths) - 1))
    needs = {index: widths[index] - width for index, width in min_widths.items()}
    result = dict(min_widths)
    for done, (index, need) in enumerate(sorted(needs.items(), key=lambda item: item[1])):
        extra = min(need, spare // (len(needs) - done))
        result[index] += extra
        spare -= extra
    return result


def format_cell(value: float | Decimal | None, spec: str = ",", *, partial: bool = False) -> str:
    """Return a number for a table: empty if it is not known, with ≥ if it is partial."""
    return "" if value is None else f"{'≥ ' if partial else ''}{value:{spec}}"


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print a table on standard output. Control characters in cells are replaced.

    `styles` are rich styles of the rows.
    """
    # Imported here because loading rich takes longer than most commands take to run.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    texts = [[one_line(cell) for cell in row] for row in rows]
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
    for cells, style in zip_longest(texts, styles, fillvalue=""):
        table.add_row(*(Text(cells[index]) for index in column_widths), style=style)
    print_table(table, width)


def print_table(table: Table, width: int) -> None:
    """Print a rich table without trailing blanks."""
    from rich.console import Console

    console = Console(highlight=False, width=width)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def describe_answer(answer: Answer) -> dict[str, Any]:
    """Return the content, usage and ending of an answer: the fields of `ask --json` and `replay --json`."""
    errors = [event.error for event in answer.events if isinstance(event, Failed)]
    if answer.error is not None and not errors:
        errors = [answer.error]
    finished, usage = answer.finished, answer.usage
    is_reported = usage is not None and usage.known
    is_cut = {error.kind for error in errors} <= {"disconnected"}
    return {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": [
            {"call_id": call.call_id, "name": call.name, "input": call.input, "offered": call.offered}
            for call in answer.events
            if isinstance(call, ToolCall)
        ],
        "files": [_file(file) for file in answer.files],
        "sources": [
            _set_fields(source, "kind", "id", "url", "title", "mime", "filename") for source in answer.sources
        ],
        "data": [
            {**_set_fields(event, "name", "id"), "value": event.value}
            for event in answer.events
            if isinstance(event, Data)
        ],
        "usage": {name: getattr(usage, f"{name}_tokens") for name in _TOKENS} if is_reported else None,
        "finish_reason": answer.finish_reason,
        "errors": [describe_error(error) for error in errors],
        "ended": finished.ended if finished is not None else "cut" if is_cut else "error",
    }


def describe_error(error: BridgeError) -> dict[str, Any]:
    """Return an error as JSON; what the gateway did not say is null."""
    names = ("kind", "message", "status", "code", "request_id", "retry_after")
    return {name: getattr(error, name) for name in names}


# DEL and the C1 control characters, which JSON does not require to be escaped.
_ESCAPED_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def to_json(value: object) -> str:
    """Encode a value as one line of JSON that every parser accepts, whatever a model wrote into it.

    Surrogate pairs are joined, lone surrogates are replaced, and numbers that are not valid in JSON (NaN,
    infinities) become null. Control characters are escaped, also those that JSON allows: on a terminal,
    U+009B starts an escape sequence.
    """
    plain = msgspec.to_builtins(value)
    try:
        line = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        with_nulls = json.loads(json.dumps(plain), parse_constant=lambda _: None)
        line = json.dumps(with_nulls, ensure_ascii=False)
    return replace_surrogates(line).translate(_ESCAPED_CONTROLS)


def print_json_lines(values: Iterable[object]) -> None:
    for value in values:
        click.echo(to_json(value))


def decimal_fields(struct: object, *names: str) -> dict[str, str | None]:
    """Return amounts of a struct for JSON, as gateways write them: decimal, without an exponent."""
    amounts = {name: getattr(struct, name) for name in names}
    return {name: None if amount is None else f"{amount:f}" for name, amount in amounts.items()}


def _file(file: File) -> dict[str, Any]:
    return {
        "mime": file.mime,
        "length": None if file.data is None else len(file.data),
        "sha256": None if file.data is None else hashlib.sha256(file.data).hexdigest(),
        **_set_fields(file, "name", "url"),
    }


def _set_fields(event: Source | Data | File, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(event, name)) is not None}
