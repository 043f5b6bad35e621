"""`tollbridge explain`: how much of a prompt was read from the provider's prompt cache, and why."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import msgspec

from tollbridge.cli.engine import use_engine
from tollbridge.cli.options import WholeNumber, json_option
from tollbridge.cli.output import Column, format_cell, print_json_lines, show_table
from tollbridge.cli.terminal import format_count, one_line, wrap_line
from tollbridge.storage.rows import StoredReport

# The first characters of a turn's id identify it.
_ID_LENGTH = 8
_DEFAULT_LIMIT = 20
REPORT_COLUMNS = (
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
@json_option("Output JSON Lines, one object per turn.")
def explain(turn: str | None, as_list: bool, limit: int | None, as_json: bool) -> None:
    """Explain how much of a prompt was read from the provider's prompt cache.

    TURN is the id of a turn or its first characters, as `--list` shows it; by default the last turn.
    """
    if as_list and turn is not None:
        raise click.UsageError("Use either TURN or --list.")
    if limit is not None and not as_list:
        raise click.UsageError("--limit needs --list.")
    if as_list:
        reports = use_engine(lambda engine: engine.cache_misses(limit or _DEFAULT_LIMIT))
    else:
        report = use_engine(lambda engine: engine.cache_report(turn))
        reports = [] if report is None else [report]
    if as_json:
        print_json_lines(map(to_fields, reports))
    elif as_list and reports:
        _show_list(reports)
    elif reports:
        _show_report(reports[0])
    if reports:
        return
    if turn is not None:
        raise click.ClickException(f'There is no turn "{one_line(turn)}". Run `tollbridge explain --list`.')
    missing = "No cache misses are recorded." if as_list else "No requests are recorded yet."
    click.echo(missing, err=True)


def to_fields(report: StoredReport) -> dict[str, Any]:
    """Return a report as one JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    outcome: dict[str, Any] = fields.pop("report")
    return {**fields, **outcome}


def _show_report(report: StoredReport) -> None:
    click.echo(f"Turn {report.turn[:_ID_LENGTH]}, {_time(report)}, {one_line(report.model)}")
    source = " (Reported by the gateway.)" if report.report.source == "gateway" else ""
    click.echo(wrap_line(one_line(f"{report.report.sentence}{source}"), sys.stdout))


def _show_list(reports: list[StoredReport]) -> None:
    rows = [
        (
            entry.turn[:_ID_LENGTH],
            _time(entry),
            entry.model,
            f"{entry.report.actual or 0:,}",
            f"{entry.report.expected or 0:,}",
            format_cell(entry.report.cost, ".4f"),
            entry.report.reason,
        )
        for entry in reports
    ]
    show_table(REPORT_COLUMNS, rows)
    costs = [entry.report.cost for entry in reports if entry.report.cost is not None]
    cost = f", ${sum(costs):.4f}" if costs else ""
    click.echo(f"Total: {format_count(len(reports), 'request')} missed the cache{cost}.")


def _time(report: StoredReport) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.started))
