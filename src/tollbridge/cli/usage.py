"""`tollbridge usage`: what was used, by day and model, and what it cost."""

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
from tollbridge.cli.terminal import counted, folded
from tollbridge.config.paths import catalog_folder, database_file
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.types.models import Prices
from tollbridge.types.usage import Usage

_DAY = 86_400.0
_BAR = 16
COLUMNS = (
    Column("day"),
    Column("model", least=28),
    Column("requests", right=True, leaves=2),
    Column("unfinished", leaves=3),
    Column("in", right=True),
    Column("cached", right=True, leaves=4),
    Column("out", right=True),
    Column("first", right=True, leaves=5),
    Column("cost $", right=True, leaves=1),
    Column("tokens", leaves=6),
)
PriceOf = Callable[[UsageRow], Prices | None]


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """What one model did in one day. `cost` is by today's prices, of the requests whose cost is known."""

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
    help="How many days back, with today.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a day and model, one a line.")
def usage(days: int, as_json: bool) -> None:
    """Show what was used, by day and model: requests, tokens, and what they cost by today's prices."""
    sums = add_up(_rows(days), Shelves())
    if as_json:
        for one in sums:
            click.echo(to_json({**msgspec.to_builtins(one), "cost": _text(one.cost)}))
    elif sums:
        _show(sums)
    else:
        click.echo(f"Nothing was used in the last {counted(days, 'day')}.", err=True)


def _rows(days: int) -> list[UsageRow]:
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


class Shelves:
    """The prices in the lists of models that were kept."""

    def __init__(self) -> None:
        self._shelf = CatalogCache(catalog_folder())
        self._lists: dict[tuple[str, str], dict[str, Prices | None]] = {}

    def __call__(self, row: UsageRow) -> Prices | None:
        whose = row.base_url, row.account
        if whose not in self._lists:
            kept = self._shelf.get(*whose)
            self._lists[whose] = {one.id: one.prices for one in kept.models} if kept else {}
        return self._lists[whose].get(row.model)


def add_up(rows: Iterable[UsageRow], price_of: PriceOf) -> list[Sum]:
    """By day, the latest first, and by model, the most used first."""
    groups: dict[tuple[str, str], list[UsageRow]] = {}
    for row in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(row.started))
        groups.setdefault((day, row.model), []).append(row)
    sums = [_sum(day, model, found, price_of) for (day, model), found in groups.items()]
    sums.sort(key=lambda one: -tokens(one.usage))
    return sorted(sums, key=lambda one: one.day, reverse=True)


def tokens(usage: Usage) -> int:
    return usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _sum(day: str, model: str, rows: list[UsageRow], price_of: PriceOf) -> Sum:
    total = Usage()
    outcomes: dict[str, int] = {}
    for row in rows:
        total += row.usage
        outcomes[row.outcome] = outcomes.get(row.outcome, 0) + 1
    costs = [
        cost for row in rows if (prices := price_of(row)) and (cost := prices.cost(row.usage)) is not None
    ]
    return Sum(
        day=day,
        model=model,
        requests=len(rows),
        outcomes=outcomes,
        usage=total,
        seconds=_mean(row.duration for row in rows),
        first_seconds=_mean(row.first for row in rows),
        cost=sum(costs, Decimal()) if costs else None,
    )


def _mean(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None


def _show(sums: list[Sum]) -> None:
    most = max(tokens(one.usage) for one in sums)
    rows: list[Row] = []
    day = ""
    for one in sums:
        cells = (
            one.day if one.day != day else "",
            one.model,
            f"{one.requests:,}",
            _unfinished([one]),
            *(_count(n) for n in (one.usage.input_tokens, one.usage.cached_tokens, one.usage.output_tokens)),
            "" if one.first_seconds is None else f"{one.first_seconds:.1f} s",
            "" if one.cost is None else f"{one.cost:.4f}",
            _bar(tokens(one.usage), most),
        )
        rows.append(Row(cells))
        day = one.day
    show_table(COLUMNS, rows)
    click.echo(folded(_in_all(sums), sys.stdout))


def _unfinished(sums: list[Sum]) -> str:
    counts: dict[str, int] = {}
    for one in sums:
        for name, count in one.outcomes.items():
            counts[name] = counts.get(name, 0) + count
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if name != "completed")


def _in_all(sums: list[Sum]) -> str:
    requests = sum(one.requests for one in sums)
    costs = [one.cost for one in sums if one.cost is not None]
    cost = f", about ${sum(costs, Decimal()):.4f} by today's prices" if costs else ""
    amiss = f" ({unfinished})" if (unfinished := _unfinished(sums)) else ""
    used = sum(tokens(one.usage) for one in sums)
    return f"In all {counted(requests, 'request')}{amiss}, {counted(used, 'token')}{cost}."


def _bar(amount: int, most: int) -> str:
    """Eighths of a block, so that small amounts can be told apart."""
    eighths = round(amount / most * _BAR * 8) if most else 0
    if amount and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _text(cost: Decimal | None) -> Any:
    return None if cost is None else f"{cost:f}"
