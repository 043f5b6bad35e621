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

_BAR_WIDTH = 8
COLUMNS = (
    Column("day"),
    Column("model", min_width=28),
    Column("requests", right=True, drop_order=2),
    Column("not completed", drop_order=3),
    Column("in", right=True),
    Column("cached", right=True, drop_order=4),
    Column("cache writes", right=True, drop_order=5),
    Column("out", right=True),
    Column("first token", right=True, drop_order=6),
    Column("cost $", right=True, drop_order=1),
    Column("tokens", drop_order=7),
)
PriceLookup = Callable[[UsageRow], Prices | None]


class DailyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The requests to one model on one day. The fields are those of `usage --json`.

    Attributes:
        requests: The number of requests.
        attempts: How often they were sent, with retries.
        outcomes: How the requests ended, with their numbers.
        usage: The reported tokens of all attempts.
        incomplete: How many attempts may have used tokens that were not reported.
        seconds: The mean duration of a request.
        first_seconds: The mean time to the first token.
        cost: The cost of the attempts whose cost is known, in US dollars.
        unpriced: How many attempts have reported tokens and no known price.
    """

    day: str
    model: str
    requests: int
    attempts: int
    outcomes: dict[str, int]
    usage: Usage
    incomplete: int
    seconds: float | None
    first_seconds: float | None
    cost: Decimal | None
    unpriced: int


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
    """Show requests, tokens and cost by day and model.

    The prices are those at the time of each request, or the current ones if they were not known then. Figures
    with ≥ are partial: the gateway may have counted tokens that it did not report, or a price is not known.
    """
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
    table = UsageTable(Database(path))
    try:
        table.mark_interrupted()
        return table.since(start_of_day(time.time(), days - 1))
    finally:
        table.close()


def start_of_day(now: float, days_ago: int = 0) -> float:
    """Return the local midnight with which a day began. Days can have 23 or 25 hours."""
    year, month, day = time.localtime(now)[:3]
    return time.mktime((year, month, day - days_ago, 0, 0, 0, 0, 0, -1))


class CachedPrices:
    """Look up current prices in the cached model lists."""

    def __init__(self) -> None:
        self._cache = CatalogCache(catalog_folder())
        self._prices: dict[tuple[str, str], dict[str, Prices]] = {}

    def __call__(self, row: UsageRow) -> Prices | None:
        """Return the prices of the row's model; `None` if they are unknown."""
        key = row.base_url, row.account
        if key not in self._prices:
            # The account's own list counts. Lists of other accounts of the gateway are better than nothing.
            lists = [*self._cache.all(row.base_url), self._cache.get(*key)]
            models = [model for entry in lists if entry for model in entry.models]
            self._prices[key] = {model.id: model.prices for model in models if model.prices}
        return self._prices[key].get(row.model)


def group_usage(rows: Iterable[UsageRow], find_prices: PriceLookup) -> list[DailyUsage]:
    """Add up the rows by day, the latest first, and by model, the most used first.

    Args:
        rows: The attempts, in order of their start.
        find_prices: Returns the prices for a row that was stored without them.
    """
    groups: dict[tuple[str, str], list[UsageRow]] = {}
    days: dict[str, str] = {}  # of each turn
    for row in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(row.started))
        if row.turn is not None:
            day = days.setdefault(row.turn, day)
        groups.setdefault((day, row.model), []).append(row)
    entries = [_add_up(day, model, group, find_prices) for (day, model), group in groups.items()]
    entries.sort(key=lambda entry: -_total_tokens(entry.usage))
    return sorted(entries, key=lambda entry: entry.day, reverse=True)


def _add_up(day: str, model: str, rows: list[UsageRow], find_prices: PriceLookup) -> DailyUsage:
    total = Usage()
    costs: list[Decimal] = []
    unpriced = 0
    requests: dict[object, list[UsageRow]] = {}
    for number, row in enumerate(rows):
        total += row.usage
        requests.setdefault(row.turn or number, []).append(row)
        if row.usage.known:
            cost = _cost(row, find_prices)
            costs += [] if cost is None else [cost]
            unpriced += cost is None
    outcomes: dict[str, int] = {}
    for attempts in requests.values():
        outcome = attempts[-1].outcome
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return DailyUsage(
        day=day,
        model=model,
        requests=len(requests),
        attempts=len(rows),
        outcomes=outcomes,
        usage=total,
        incomplete=sum(row.incomplete for row in rows),
        seconds=_mean(_duration(attempts) for attempts in requests.values()),
        first_seconds=_mean(attempts[-1].first for attempts in requests.values()),
        cost=sum(costs, Decimal()) if costs else None,
        unpriced=unpriced,
    )


def _cost(row: UsageRow, find_prices: PriceLookup) -> Decimal | None:
    if row.cost is not None or row.prices is not None:
        return row.cost
    prices = find_prices(row)
    return prices.cost(row.usage) if prices else None


def _duration(attempts: list[UsageRow]) -> float | None:
    """Return the seconds from the start of the first attempt to the end of the last one."""
    last = attempts[-1]
    return None if last.duration is None else last.started + last.duration - attempts[0].started


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
        counts = (tokens.input_tokens, tokens.cached_tokens, tokens.cache_write_tokens, tokens.output_tokens)
        cells = (
            entry.day if entry.day != day else "",
            entry.model,
            f"{entry.requests:,}",
            _not_completed([entry]),
            *(_count(count, partial=entry.incomplete > 0) for count in counts),
            "" if entry.first_seconds is None else format_seconds(entry.first_seconds),
            "" if entry.cost is None else f"{'≥ ' if _is_partial(entry) else ''}{entry.cost:.4f}",
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


def _is_partial(entry: DailyUsage) -> bool:
    return entry.incomplete > 0 or entry.unpriced > 0


def _total_line(entries: list[DailyUsage]) -> str:
    requests = format_count(sum(entry.requests for entry in entries), "request")
    outcomes = f" ({names})" if (names := _not_completed(entries)) else ""
    tokens = format_count(sum(_total_tokens(entry.usage) for entry in entries), "token")
    costs = [entry.cost for entry in entries if entry.cost is not None]
    cost = f", ${sum(costs, Decimal()):.4f}" if costs else ""
    return f"Total: {requests}{outcomes}, {tokens}{cost}.{_partial_sentence(entries)}"


def _partial_sentence(entries: list[DailyUsage]) -> str:
    """Return what the sums do not include; nothing if they are complete."""
    incomplete = sum(entry.incomplete for entry in entries)
    unpriced = sum(entry.unpriced for entry in entries)
    reasons = []
    if incomplete:
        reasons.append(f"{format_count(incomplete, 'attempt')} without reported usage")
    if unpriced:
        reasons.append(f"{format_count(unpriced, 'attempt')} without a known price")
    return f" The sum is partial: {', '.join(reasons)}." if reasons else ""


def _bar(amount: int, highest: int) -> str:
    """Return a bar in eighths of a block, so that small amounts can be compared."""
    eighths = round(amount / highest * _BAR_WIDTH * 8) if highest else 0
    if amount and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _count(number: int | None, *, partial: bool = False) -> str:
    return "" if number is None else f"{'≥ ' if partial else ''}{number:,}"


def _text(cost: Decimal | None) -> Any:
    return None if cost is None else f"{cost:f}"
