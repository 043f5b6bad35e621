"""Sums over the usage table. SQLite adds up: tokens and costs are integers there, so sums are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sqlite3 import Connection, OperationalError
from typing import TYPE_CHECKING, Any

import msgspec

from tollbridge.storage.reports import Dimension, UsageGroup
from tollbridge.storage.rows import COST_UNIT, encode_text
from tollbridge.types.events import Usage, add_known

if TYPE_CHECKING:
    from tollbridge.storage.store import FindPrices

# An attempt, with when its request began and whether it is the last one of its request. Only a failed attempt
# can have a later one. The key of attempt n is that of its turn and n, see `UsageObserver.retry`.
_ATTEMPTS = """(
    SELECT
        CASE WHEN u.attempt > 1
            THEN coalesce((SELECT f.started FROM usage f WHERE f.key = u.turn), u.started)
            ELSE u.started
        END AS began,
        CASE WHEN u.outcome = 'failed'
            THEN NOT EXISTS (SELECT 1 FROM usage n WHERE n.key = u.turn || '-' || (u.attempt + 1))
            ELSE 1
        END AS is_last,
        coalesce(u.input_tokens, 0) + coalesce(u.output_tokens, 0) + coalesce(u.total_tokens, 0) > 0 AS known,
        u.*
    FROM usage u WHERE u.started >= :since
) WHERE began >= :since AND began < :until"""
_EXPRESSIONS: dict[Dimension, str] = {
    "day": "date(began, 'unixepoch', 'localtime')",
    "month": "strftime('%Y-%m', began, 'unixepoch', 'localtime')",
    "model": "model",
    "conversation": "conversation",
    "account": "account",
    "provider": "provider",
    "caller": "initiator",
}
_OUTCOMES = ("completed", "failed", "cancelled", "interrupted", "running")
_UNPRICED = "known AND cost IS NULL AND billed IS NULL"
_COUNTS = (
    "count(*)",
    "sum(is_last)",
    *(f"sum(is_last AND outcome = '{outcome}')" for outcome in _OUTCOMES),
    "sum(incomplete)",
    "sum(billed IS NULL AND cost IS NOT NULL)",
    f"sum({_UNPRICED})",
    "avg(CASE WHEN is_last THEN started - began + duration END)",
    "avg(first)",
    "max(began)",
)
# Expressions of 64-bit integers: tokens, and costs in units of `COST_UNIT`.
_AMOUNTS = (
    *("input_tokens", "output_tokens", "coalesce(total_tokens, input_tokens + output_tokens)"),
    *("cached_tokens", "reasoning_tokens", "cache_write_tokens"),
    "CASE WHEN cached_tokens IS NOT NULL THEN input_tokens END",
    "coalesce(billed, cost)",
    *("billed", "cost", "billed - cost"),
)
# The number of low bits that are added up on their own if a sum needs more than 64 bits.
_LOW_BITS = 20
# The conversations with the highest known cost, or the most tokens where no cost is known. `total` adds up
# floats, which cannot overflow and are good enough to compare.
_EXPENSIVE_CONVERSATIONS = (
    f"SELECT conversation FROM {_ATTEMPTS} AND conversation IS NOT NULL GROUP BY 1 "  # noqa: S608
    "ORDER BY total(coalesce(billed, cost)) DESC, "
    "total(coalesce(total_tokens, input_tokens + output_tokens)) DESC LIMIT :limit"
)


def sum_usage(
    connection: Connection,
    by: Sequence[Dimension],
    since: float,
    until: float,
    find_prices: FindPrices | None,
    conversation: str | None,
    limit: int | None,
) -> list[UsageGroup]:
    """See `UsageStore.sums`."""
    keys = [_EXPRESSIONS[dimension] for dimension in by]
    values: dict[str, Any] = {"since": since, "until": until}
    where = ""
    if conversation is not None:
        where, values["conversation"] = "AND conversation = :conversation", encode_text(conversation)
    elif limit is not None:
        where, values["limit"] = f"AND conversation IN ({_EXPENSIVE_CONVERSATIONS})", limit
    groups = _read_groups(connection, keys, where, values)
    if find_prices is not None and any(group.unpriced for group in groups):
        groups = _price_now(connection, keys, where, values, groups, find_prices)
    groups.sort(key=lambda group: (group.cost or 0, group.tokens), reverse=True)
    times = [index for index, dimension in enumerate(by) if dimension in ("day", "month")]
    groups.sort(key=lambda group: [group.key[index] or "" for index in times], reverse=True)
    return groups


def _read_groups(
    connection: Connection, keys: Sequence[str], where: str, values: Mapping[str, Any]
) -> list[UsageGroup]:
    split = False
    sums = [f"sum({amount})" for amount in _AMOUNTS]
    try:
        rows = connection.execute(_select(keys, [*_COUNTS, *sums], where), values).fetchall()
    except OperationalError as error:
        if "integer overflow" not in str(error):
            raise
        split = True
        low = (1 << _LOW_BITS) - 1
        sums = [f"sum(({amount}) >> {_LOW_BITS}), sum(({amount}) & {low})" for amount in _AMOUNTS]
        rows = connection.execute(_select(keys, [*_COUNTS, *sums], where), values).fetchall()
    # Without keys there is one row, also if there are no attempts.
    return [_decode_group(row, len(keys), split) for row in rows if row[len(keys)]]


def _select(keys: Sequence[str], sums: Sequence[str], condition: str = "") -> str:
    """Return a query of sums, one row for each combination of the keys."""
    numbers = ", ".join(str(number + 1) for number in range(len(keys)))
    grouping = f"GROUP BY {numbers}" if keys else ""
    return f"SELECT {', '.join([*keys, *sums])} FROM {_ATTEMPTS} {condition} {grouping}"  # noqa: S608


def _decode_group(row: Sequence[Any], keys: int, split: bool) -> UsageGroup:
    attempts, requests, *counts = row[keys : keys + len(_COUNTS)]
    outcomes, (incomplete, unbilled, unpriced, seconds, first_seconds, last) = counts[:5], counts[5:]
    amounts = list(row[keys + len(_COUNTS) :])
    if split:
        pairs = zip(amounts[::2], amounts[1::2], strict=True)
        amounts = [None if high is None else (high << _LOW_BITS) + low for high, low in pairs]
    cost, billed, computed, difference = (
        None if amount is None else amount * COST_UNIT for amount in amounts[7:]
    )
    return UsageGroup(
        key=tuple(row[:keys]),
        requests=requests,
        attempts=attempts,
        outcomes={name: count for name, count in zip(_OUTCOMES, outcomes, strict=True) if count},
        usage=Usage(*amounts[:6]),
        cacheable=amounts[6],
        incomplete=incomplete,
        cost=cost,
        billed=billed,
        computed=computed,
        difference=difference,
        unbilled=unbilled,
        unpriced=unpriced,
        seconds=seconds,
        first_seconds=first_seconds,
        last=last,
    )


def _price_now(
    connection: Connection,
    keys: Sequence[str],
    where: str,
    values: Mapping[str, Any],
    groups: list[UsageGroup],
    find_prices: FindPrices,
) -> list[UsageGroup]:
    """Add the cost of attempts that were stored without prices, at the current ones."""
    where += f" AND {_UNPRICED} AND prices IS NULL"
    by_key = {group.key: group for group in groups}
    models = ["base_url", "account", "model"]
    for model in connection.execute(_select(models, [], where), values).fetchall():
        prices = find_prices(*model)
        if prices is None:
            continue
        names = {f"m{index}": name for index, name in enumerate(model)}
        one_model = f"{where} AND (base_url, account, model) = (:m0, :m1, :m2)"
        usage = Usage.__struct_fields__[:6]
        rows = connection.execute(_select([*keys, *usage], ["count(*)"], one_model), {**values, **names})
        for row in rows:
            key, count = tuple(row[: len(keys)]), row[-1]
            cost = prices.cost(Usage(*row[len(keys) : -1]))
            if cost is not None:
                group = by_key[key]
                by_key[key] = msgspec.structs.replace(
                    group,
                    cost=add_known(group.cost, count * cost),
                    computed=add_known(group.computed, count * cost),
                    unbilled=group.unbilled + count,
                    unpriced=group.unpriced - count,
                )
    return list(by_key.values())
