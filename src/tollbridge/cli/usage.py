"""`tollbridge usage`: token usage and cost by day and model."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import click
import msgspec

from tollbridge.catalog.cache import CatalogCache
from tollbridge.cli.summary import to_json
from tollbridge.cli.tables import Column, Row, show_table
from tollbridge.cli.terminal import format_count, format_seconds, wrap_line
from tollbridge.config.paths import catalog_folder, database_file
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.types.models import Prices
from tollbridge.types.usage import Usage

_DAY = 86_400.0
_BAR_WIDTH = 8
COLUMNS = (
    Column("day"),
    Column("model", min_width=28),
    Column("requests", right=True, drop_order=2),
    Column("not completed", drop_order=3),
    Column("in", right=True),
    Column("cached", right=True, drop_order=4),
    Column("out", right=True),
    Column("first token", right=True, drop_order=5),
    Column("cost $", right=True, drop_order=1),
    Column("tokens", drop_order=6),
)
PriceLookup = Callable[[UsageRow], Prices | None]


class DailyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The requests to one model on one day. The fields are those of `usage --json`.

    `seconds` and `first_seconds` are means. `cost` is at current prices and covers only the requests whose
    cost is known.
    """

    day: str
    model: str
    requests: int
    outcomes: dict[str, int]
    usage: Usage
    seconds: float | None
    first_seconds: float | None
    cost: Decimal | None


@click.command()
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    metavar="N",
    default=7,
    show_default=True,
    help="Number of days to include, counting today.",
)
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per day and model.")
def usage(days: int, as_json: bool) -> None:
    """Show requests, tokens and cost (at current prices) by day and model."""
    entries = group_usage(_read_rows(days), CachedPrices())
    if as_json:
        for entry in entries:
            click.echo(to_json({**msgspec.to_builtins(entry), "cost": _text(entry.cost)}))
    elif entries:
        _show(entries)
    else:
        click.echo(f"No usage in the last {format_count(days, 'day')}.", err=True)


def _read_rows(days: int) -> list[UsageRow]:
    path = database_file()
    if not path.exists():
        return []
    today = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))
    table = UsageTable(Database(path))
    try:
        table.mark_interrupted()
        return table.since(today - (days - 1) * _DAY)
    finally:
        table.close()


class CachedPrices:
    """Look up prices in the cached model lists."""

    def __init__(self) -> None:
        self._cache = CatalogCache(catalog_folder())
        self._prices: dict[tuple[str, str], dict[str, Prices | None]] = {}

    def __call__(self, row: UsageRow) -> Prices | None:
        """Return the prices of the row's model; `None` if they are unknown."""
        key = row.base_url, row.account
        if key not in self._prices:
            entry = self._cache.get(*key)
            self._prices[key] = {model.id: model.prices for model in entry.models} if entry else {}
        return self._prices[key].get(row.model)


def group_usage(rows: Iterable[UsageRow], find_prices: PriceLookup) -> list[DailyUsage]:
    """Add up the rows by day, the latest first, and by model, the most used first."""
    groups: dict[tuple[str, str], list[UsageRow]] = {}
    for row in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(row.started))
        groups.setdefault((day, row.model), []).append(row)
    entries = [_add_up(day, model, group, find_prices) for (day, model), group in groups.items()]
    entries.sort(key=lambda entry: -_total_tokens(entry.usage))
    return sorted(entries, key=lambda entry: entry.day, reverse=True)


def _add_up(day: str, model: str, rows: list[UsageRow], find_prices: PriceLookup) -> DailyUsage:
    total = Usage()
    outcomes: dict[str, int] = {}
    for row in rows:
        total += row.usage
        outcomes[row.outcome] = outcomes.get(row.outcome, 0) + 1
    costs = [
        cost for row in rows if (prices := find_prices(row)) and (cost := prices.cost(row.usage)) is not None
    ]
    return DailyUsage(
        day=day,
        model=model,
        requests=len(rows),
        outcomes=outcomes,
        usage=total,
        seconds=_mean(row.duration for row in rows),
        first_seconds=_mean(row.first for row in rows),
        cost=sum(costs, Decimal()) if costs else None,
    )


def _total_tokens(usage: Usage) -> int:
    return usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _show(entries: list[DailyUsage]) -> None:
    highest = max(_total_tokens(entry.usage) for entry in entries)
    rows: list[Row] = []
    day = ""
    for entry in entries:
        tokens = entry.usage
        cells = (
            entry.day if entry.day != day else "",
            entry.model,
            f"{entry.requests:,}",
            _not_completed([entry]),
            *(_count(n) for n in (tokens.input_tokens, tokens.cached_tokens, tokens.output_tokens)),
            "" if entry.first_seconds is None else format_seconds(entry.first_seconds),
            "" if entry.cost is None else f"{entry.cost:.4f}",
            _bar(_total_tokens(tokens), highest),
        )
        rows.append(Row(cells))
        day = entry.day
    show_table(COLUMNS, rows)
    click.echo(wrap_line(_total_line(entries), sys.stdout))


def _not_completed(entries: list[DailyUsage]) -> str:
    """Return the outcomes other than `completed` with their counts: `1 cancelled, 2 failed`."""
    counts: dict[str, int] = {}
    for entry in entries:
        for name, count in entry.outcomes.items():
            counts[name] = counts.get(name, 0) + count
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if name != "completed")


def _total_line(entries: list[DailyUsage]) -> str:
    requests = format_count(sum(entry.requests for entry in entries), "request")
    outcomes = f" ({names})" if (names := _not_completed(entries)) else ""
    tokens = format_count(sum(_total_tokens(entry.usage) for entry in entries), "token")
    costs = [entry.cost for entry in entries if entry.cost is not None]
    cost = f", about ${sum(costs, Decimal()):.4f} at current prices" if costs else ""
    return f"Total: {requests}{outcomes}, {tokens}{cost}."


def _bar(amount: int, highest: int) -> str:
    """Return a bar in eighths of a block, so that small amounts can be compared."""
    eighths = round(amount / highest * _BAR_WIDTH * 8) if highest else 0
    if amount and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _text(cost: Decimal | None) -> Any:
    return None if cost is None else f"{cost:f}"
