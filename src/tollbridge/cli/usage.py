"""`tollbridge usage`: token usage and cost, in the terminal or as a page."""

from __future__ import annotations

import asyncio
import csv
import io
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import click
import msgspec

from tollbridge.cli.engine import use_engine
from tollbridge.cli.options import WholeNumber, json_option
from tollbridge.cli.output import Column, decimal_fields, format_cell, print_json_lines, show_table
from tollbridge.cli.terminal import format_count, format_seconds, wrap_line
from tollbridge.engine import Engine
from tollbridge.storage.reports import DIMENSIONS, Dimension, UsageGroup, UsageTotals, add_up, start_of_day

_BAR_WIDTH = 8
_DEFAULT_DIMENSIONS: tuple[Dimension, ...] = ("day", "model")
_DEFAULT_DAYS = 7
# The default with `--by month`.
_DEFAULT_MONTH_DAYS = 365
# Columns between those of the dimensions and the bars.
COLUMNS = (
    Column("requests", right=True, drop_order=2),
    Column("not completed", drop_order=5),
    Column("in", right=True),
    Column("cached", right=True, drop_order=6),
    Column("cache hits", right=True, drop_order=3),
    Column("cache writes", right=True, drop_order=7),
    Column("out", right=True),
    Column("first token", right=True, drop_order=10),
    Column("billed $", right=True, drop_order=8),
    Column("computed $", right=True, drop_order=9),
    Column("cost $", right=True, drop_order=1),
)


def _read_date(text: str) -> datetime:
    """Return the local midnight at which a day begins."""
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a date. Write it as 2026-10-31.") from error


@click.command()
@click.option(
    "--by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    default=_DEFAULT_DIMENSIONS,
    help="Add up by this. Can be repeated.  [default: day and model]",
)
@click.option(
    "--days",
    type=WholeNumber(1, 3650),
    metavar="N",
    help=f"Number of days to include, counting today.  [default: {_DEFAULT_DAYS}; with --by month "
    f"{_DEFAULT_MONTH_DAYS}]",
)
@click.option("--since", type=_read_date, metavar="DATE", help="First day to include: 2026-11-01.")
@click.option("--until", type=_read_date, metavar="DATE", help="Last day to include; by default today.")
@json_option("Output JSON Lines, one object per row.")
@click.option("--csv", "as_csv", is_flag=True, help="Output comma-separated values with a header.")
@click.option("--web", is_flag=True, help="Serve a page with charts on this computer, until Ctrl-C.")
def usage(
    by: tuple[Dimension, ...],
    days: int | None,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
    as_csv: bool,
    web: bool,
) -> None:
    """Show requests, tokens and cost.

    The cost of an attempt is what the gateway billed, or else it is computed from the prices at the time of
    the request, or from the current ones if they were not known then. Figures with ≥ are partial: the gateway
    may have counted tokens that it did not report, or a price is not known.
    """
    if as_json + as_csv + web > 1:
        raise click.UsageError("--json, --csv and --web cannot be combined.")
    if web:
        if since or until or by != _DEFAULT_DIMENSIONS:
            raise click.UsageError("Only --days can be combined with --web.")
        try:
            asyncio.run(_serve_page(days))
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
        return
    by = tuple(dict.fromkeys(by))
    period = _period(by, days, since, until)
    groups = use_engine(lambda engine: engine.usage_sums(by, *period))
    if as_json:
        print_json_lines(_describe(by, group) for group in groups)
    elif as_csv:
        click.echo(_format_csv(by, groups), nl=False)
    elif groups:
        _show(by, groups)
    else:
        click.echo(f"No usage {_describe_period(*period)}.", err=True)


def _period(
    by: Sequence[Dimension], days: int | None, since: datetime | None, until: datetime | None
) -> tuple[float, float]:
    """Return when the period begins and ends. Days begin at local midnight."""
    if days is not None and since is not None:
        raise click.UsageError("--days and --since cannot be combined.")
    now = time.time()
    end = start_of_day(now, -1) if until is None else (until + timedelta(days=1)).timestamp()
    if since is None:
        count = days or (_DEFAULT_MONTH_DAYS if "month" in by else _DEFAULT_DAYS)
        return start_of_day(end - 1, count - 1), end
    start = since.timestamp()
    if start >= end:
        last = time.strftime("%Y-%m-%d", time.localtime(end - 1))
        raise click.UsageError(f"--since {since:%Y-%m-%d} is later than the last day, {last}.")
    return start, end


def _describe_period(since: float, until: float) -> str:
    first, last = (time.strftime("%Y-%m-%d", time.localtime(moment)) for moment in (since, until - 1))
    if until > time.time():
        return f"in the last {format_count(round((until - since) / 86_400), 'day')}"
    return f"from {first} to {last}"


def _describe(by: Sequence[Dimension], group: UsageGroup) -> dict[str, Any]:
    """Return the fields of `usage --json`."""
    fields = msgspec.to_builtins(group)
    del fields["key"], fields["last"]
    fields |= decimal_fields(group, "cost", "billed", "computed", "difference")
    return {**dict(zip(by, group.key, strict=True)), **fields}


def _format_csv(by: Sequence[Dimension], groups: Sequence[UsageGroup]) -> str:
    """Return one line per group. Unknown values are empty; outcomes have a column each."""
    output = io.StringIO()
    outcomes = sorted({name for group in groups for name in group.outcomes})
    writer: csv.DictWriter[str] | None = None
    for group in groups:
        fields = _describe(by, group)
        tokens, ended = fields.pop("usage"), fields.pop("outcomes")
        fields |= {"cache_hit_rate": group.cache_hit_rate, **tokens}
        fields |= {name: ended.get(name, 0) for name in outcomes}
        if writer is None:
            writer = csv.DictWriter(output, list(fields), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _protect(value) for name, value in fields.items()})
    return output.getvalue()


def _protect(value: object) -> object:
    """Keep spreadsheets from reading a name as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _show(by: Sequence[Dimension], groups: Sequence[UsageGroup]) -> None:
    # Bars compare costs, or tokens if no cost is known.
    by_cost = any(group.cost for group in groups)
    amounts = [group.cost or Decimal() if by_cost else Decimal(group.tokens) for group in groups]
    bars = Column("by cost" if by_cost else "by tokens", drop_order=4, style="cyan")
    columns = [Column(name, min_width=None if name in ("day", "month") else 28) for name in by]
    rows: list[tuple[str, ...]] = []
    previous: str | None = None
    for group, amount in zip(groups, amounts, strict=True):
        names = [name or "–" for name in group.key]
        if by[0] in ("day", "month"):
            names[0], previous = "" if names[0] == previous else names[0], names[0]
        rows.append((*names, *_figures(group), _bar(amount, max(amounts))))
    show_table((*columns, *COLUMNS, bars), rows)
    click.echo(wrap_line(_total_line(add_up(groups)), sys.stdout))


def _figures(group: UsageGroup) -> Iterator[str]:
    tokens, unreported = group.usage, group.incomplete > 0
    yield f"{group.requests:,}"
    yield _not_completed(group)
    yield format_cell(tokens.input_tokens, partial=unreported)
    yield format_cell(tokens.cached_tokens, partial=unreported)
    yield format_cell(group.cache_hit_rate, ".1%")
    yield format_cell(tokens.cache_write_tokens, partial=unreported)
    yield format_cell(tokens.output_tokens, partial=unreported)
    yield "" if group.first_seconds is None else format_seconds(group.first_seconds)
    # Beside a billed amount, the computed one shows whether the gateway charges what it lists.
    is_partial = unreported or group.unpriced > 0
    yield format_cell(group.billed, ".4f", partial=is_partial or group.unbilled > 0)
    yield "" if group.billed is None else format_cell(group.computed, ".4f", partial=is_partial)
    yield format_cell(group.cost, ".4f", partial=is_partial)


def _not_completed(totals: UsageTotals) -> str:
    """Return the outcomes other than `completed` with their counts: `1 cancelled, 2 failed`."""
    counts = sorted(totals.outcomes.items())
    return ", ".join(f"{count:,} {name}" for name, count in counts if name != "completed")


def _total_line(total: UsageTotals) -> str:
    outcomes = f" ({names})" if (names := _not_completed(total)) else ""
    parts = [f"{format_count(total.requests, 'request')}{outcomes}", format_count(total.tokens, "token")]
    if total.cache_hit_rate is not None:
        parts.append(f"{total.cache_hit_rate:.1%} of the input cached")
    if total.cost is not None:
        parts.append(f"${total.cost:.4f}")
    return f"Total: {', '.join(parts)}.{_billed_sentence(total)}{_partial_sentence(total)}"


def _billed_sentence(total: UsageTotals) -> str:
    """Return how the billed amount compares with the computed one; nothing if it is as computed."""
    if total.billed is None or not total.difference:
        return ""
    share = abs(total.difference) / ((total.billed - total.difference) or Decimal(1))
    relation = "more" if total.difference > 0 else "less"
    return f" Gateways billed ${abs(total.difference):.4f} ({share:.1%}) {relation} than computed."


def _partial_sentence(total: UsageTotals) -> str:
    """Return what the sums do not include; nothing if they are complete."""
    if total.cost is None and total.unpriced and not total.incomplete:
        return " The cost is not known, because no price is known."
    reasons = []
    if total.incomplete:
        reasons.append(f"{format_count(total.incomplete, 'attempt')} without reported usage")
    if total.unpriced:
        reasons.append(f"{format_count(total.unpriced, 'attempt')} without a known price")
    return f" The sum is partial: {', '.join(reasons)}." if reasons else ""


def _bar(amount: Decimal, highest: Decimal) -> str:
    """Return a bar in eighths of a block, so that small amounts can be compared."""
    eighths = round(amount / highest * _BAR_WIDTH * 8) if highest else 0
    if amount and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


async def _serve_page(days: int | None) -> None:
    """Serve the usage page until Ctrl-C. Nobody else can read it: its address has a random token."""
    import secrets

    from tollbridge.frontends.http.access import ServerOptions
    from tollbridge.frontends.http.server import run_server

    options = ServerOptions(token=secrets.token_urlsafe(24), usage_only=True)
    async with Engine.open(short_lived=True) as engine, run_server(engine, options) as url:
        click.echo(f"{url}/#token={options.token}" + (f"&days={days}" if days else ""))
        click.echo("Open this address in a browser. Press Ctrl-C to stop.", err=True)
        await engine.usage_report(days or 30)  # it is ready when the page asks for it
        await asyncio.Event().wait()
