"""`tollbridge explain`: what the provider's prompt cache did for a request, and why not more."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import msgspec

from tollbridge.cli.options import WholeNumber
from tollbridge.cli.summary import to_json
from tollbridge.cli.tables import Column, Row, show_table
from tollbridge.cli.terminal import format_count, one_line, wrap_line
from tollbridge.config.paths import database_file
from tollbridge.storage.cache_tracker import CacheTable, StoredReport
from tollbridge.storage.database import Database

# The first characters of a turn's id identify it.
_ID_LENGTH = 8
_DEFAULT_LIMIT = 20
COLUMNS = (
    Column("turn"),
    Column("time", drop_order=2),
    Column("model", min_width=16, drop_order=1),
    Column("cached", right=True),
    Column("expected", right=True),
    Column("cost $", right=True, drop_order=3),
    Column("reason", min_width=24),
)


@click.command()
@click.argument("turn", required=False)
@click.option("--list", "as_list", is_flag=True, help="List the latest cache misses.")
@click.option(
    "--limit",
    type=WholeNumber(1, 5000),
    metavar="N",
    help=f"With --list: number of misses to list.  [default: {_DEFAULT_LIMIT}]",
)
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per turn.")
def explain(turn: str | None, as_list: bool, limit: int | None, as_json: bool) -> None:
    """Explain how much of a prompt was read from the provider's prompt cache.

    TURN is the id of a turn or its first characters, as `--list` shows it; by default the last turn.
    """
    if as_list and turn is not None:
        raise click.UsageError("Use either TURN or --list.")
    if limit is not None and not as_list:
        raise click.UsageError("--limit needs --list.")
    reports = _read_reports(turn, as_list=as_list, limit=limit or _DEFAULT_LIMIT)
    if as_json:
        for report in reports:
            click.echo(to_json(to_fields(report)))
    elif as_list and reports:
        _show_list(reports)
    elif reports:
        _show(reports[0])
    if reports:
        return
    if turn is not None:
        raise click.ClickException(f'There is no turn "{one_line(turn)}". Run `tollbridge explain --list`.')
    missing = "No cache misses are recorded." if as_list else "No requests are recorded yet."
    click.echo(missing, err=True)


def _read_reports(turn: str | None, *, as_list: bool, limit: int) -> list[StoredReport]:
    path = database_file()
    if not path.exists():
        return []
    table = CacheTable(Database(path))
    try:
        if as_list:
            return table.misses(limit=limit)
        report = table.find_report(turn)
        return [] if report is None else [report]
    finally:
        table.close()


def to_fields(report: StoredReport) -> dict[str, Any]:
    """Return a report as one JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    outcome: dict[str, Any] = fields.pop("report")
    return {**fields, **outcome}


def _show(report: StoredReport) -> None:
    click.echo(f"Turn {report.turn[:_ID_LENGTH]}, {_time(report)}, {one_line(report.model)}")
    source = " (Reported by the gateway.)" if report.report.source == "gateway" else ""
    click.echo(wrap_line(one_line(f"{report.report.sentence}{source}"), sys.stdout))


def _show_list(reports: list[StoredReport]) -> None:
    rows = [
        Row(
            (
                entry.turn[:_ID_LENGTH],
                _time(entry),
                entry.model,
                f"{entry.report.actual or 0:,}",
                f"{entry.report.expected or 0:,}",
                "" if entry.report.cost is None else f"{entry.report.cost:.4f}",
                entry.report.reason,
            )
        )
        for entry in reports
    ]
    show_table(COLUMNS, rows)
    costs = [entry.report.cost for entry in reports if entry.report.cost is not None]
    cost = f", ${sum(costs):.4f}" if costs else ""
    click.echo(f"Total: {format_count(len(reports), 'request')} missed the cache{cost}.")


def _time(report: StoredReport) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.started))
