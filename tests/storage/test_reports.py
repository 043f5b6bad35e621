"""Sums over the usage table: they equal what Python adds up from the rows."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.storage.stored import open_store, stored_rows, write_rows
from tollbridge.storage._sqlite_sums import sum_usage
from tollbridge.storage.reports import (
    CONVERSATION_LIMIT,
    Dimension,
    UsageGroup,
    UsageReports,
    UsageTotals,
    add_up,
    start_of_day,
)
from tollbridge.storage.rows import Outcome, UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.types.events import Usage
from tollbridge.types.models import Prices

NOON = time.mktime((2026, 11, 16, 12, 0, 0, 0, 0, -1))
DAY = 86_400
NOTHING = Usage()
PRICES = Prices(Decimal("0.000001"), Decimal("0.000004"), Decimal("0.0000001"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "store.db") as store:
        yield store


def put(store: SqliteStore, *rows: UsageRow) -> None:
    store.usage._write_rows(rows)


def row(model: str = "m", usage: Usage = NOTHING, **fields: Any) -> UsageRow:
    defaults: dict[str, Any] = {"started": NOON, "outcome": "completed", "base_url": "u", "duration": 2.0}
    return UsageRow(model=model, usage=usage, **{"incomplete": not usage.known, **defaults, **fields})


def find_prices(base_url: str, _: str, model: str) -> Prices | None:
    return PRICES if (base_url, model) == ("u", "m") else None


async def sums(store: SqliteStore, *by: Any, since: float = 0, until: float = 1e10) -> list[UsageGroup]:
    return await store.usage.sums(by, since, until, find_prices)


async def test_requests_are_added_up_by_day_and_model(store: SqliteStore) -> None:
    put(
        store,
        row(usage=Usage(10, 5, 15, 4, 1)),
        row(usage=Usage(20, 5, 25)),
        row(outcome="failed"),
        row("big", Usage(1000, 1, 1001)),
        row(usage=Usage(1, 1, 2), started=NOON - DAY),
    )
    entries = await sums(store, "day", "model")
    # The latest day first; a known cost before an unknown one.
    assert [(entry.key, entry.requests) for entry in entries] == [
        (("2026-11-16", "m"), 3),
        (("2026-11-16", "big"), 1),
        (("2026-11-15", "m"), 1),
    ]
    assert entries[0].usage == Usage(30, 10, 40, 4, 1)
    assert entries[0].outcomes == {"completed": 2, "failed": 1}
    assert entries[1].cost is None
    assert [(entry.incomplete, entry.unpriced) for entry in entries] == [(1, 0), (0, 1), (0, 0)]
    # 6 fresh, 4 cached and 5 out; then 20 and 5.
    assert entries[0].cost == Decimal("0.0000264") + Decimal("0.00004")


async def test_the_attempts_of_a_turn_are_one_request_with_the_usage_of_all(store: SqliteStore) -> None:
    put(
        store,
        row(usage=Usage(10, 5, 15), key="t", turn="t", outcome="failed"),
        row(usage=Usage(10, 7, 17), key="t-2", turn="t", attempt=2, started=NOON + 1),
        row(key="other", turn="other", outcome="failed", started=NOON),
    )
    (entry,) = await sums(store, "model")
    assert (entry.requests, entry.attempts, entry.outcomes) == (2, 3, {"completed": 1, "failed": 1})
    assert entry.usage == Usage(20, 12, 32)
    assert entry.seconds == 2.5  # the second attempt began a second later and took two; the other took two


async def test_a_request_counts_for_the_provider_that_answered_last(store: SqliteStore) -> None:
    put(
        store,
        row(key="t", turn="t", outcome="failed", provider="p1"),
        row(usage=Usage(10, 7, 17), key="t-2", turn="t", attempt=2, provider="p2"),
    )
    groups = {group.key[0]: (group.requests, group.attempts) for group in await sums(store, "provider")}
    assert groups == {"p1": (0, 1), "p2": (1, 1)}


async def test_a_retry_after_midnight_belongs_to_the_day_on_which_the_request_began(
    store: SqliteStore,
) -> None:
    midnight = start_of_day(NOON)
    put(
        store,
        row(key="t", turn="t", outcome="failed", started=midnight - 1, error="overloaded", incomplete=False),
        row(usage=Usage(10, 7, 17), key="t-2", turn="t", attempt=2, started=midnight + 1),
    )
    (entry,) = await sums(store, "day")
    assert (entry.key, entry.requests, entry.attempts) == (("2026-11-15",), 1, 2)
    assert await sums(store, "day", since=midnight) == []
    (entry,) = await sums(store, "day", until=midnight)
    assert entry.usage == Usage(10, 7, 17)


async def test_billed_and_computed_costs_are_compared_for_the_attempts_that_have_both(
    store: SqliteStore,
) -> None:
    usage = Usage(10, 5, 15)
    put(
        store,
        row("x", usage, cost=Decimal("0.5"), billed=Decimal("0.7")),
        row("x", usage, billed=Decimal("0.1")),
        row("x", usage, cost=Decimal("0.2")),
        row("x", usage),
    )
    (entry,) = await sums(store, "model")
    assert entry.cost == Decimal("1.0")
    assert (entry.billed, entry.computed, entry.difference) == (
        Decimal("0.8"),
        Decimal("0.7"),
        Decimal("0.2"),
    )
    assert (entry.unbilled, entry.unpriced) == (1, 1)


async def test_current_prices_are_used_only_if_none_were_known_at_the_time(store: SqliteStore) -> None:
    usage = Usage(10, 5, 15)
    known = Prices(Decimal(1))  # no price of output: the cost was not known, and stays so
    put(store, row(usage=usage, cost=Decimal("0.5")), row(usage=usage), row(usage=usage, prices=known))
    (entry,) = await sums(store, "model")
    assert entry.cost == Decimal("0.5") + Decimal("0.00003")
    assert (entry.unbilled, entry.unpriced) == (2, 1)


async def test_the_hit_rate_counts_only_attempts_that_report_cached_tokens(store: SqliteStore) -> None:
    put(store, row(usage=Usage(100, 1, 101, 75)), row(usage=Usage(900, 1, 901)), row("n", Usage(5, 1, 6)))
    rates = {entry.key[0]: entry.cache_hit_rate for entry in await sums(store, "model")}
    assert rates == {"m": 0.75, "n": None}


async def test_sums_that_need_more_than_64_bits_are_exact(store: SqliteStore) -> None:
    tokens = 2**53 - 1
    rows = [row(usage=Usage(tokens, 1), cost=Decimal("8999999.000000000001")) for _ in range(1100)]
    refund = row(usage=Usage(1, 1), cost=Decimal("0.000000000003"), billed=Decimal("0.000000000001"))
    put(store, *rows, refund)
    (entry,) = await sums(store)
    assert entry.usage == Usage(1100 * tokens + 1, 1101, 1100 * (tokens + 1) + 2)
    assert entry.cost == 1100 * Decimal("8999999.000000000001") + Decimal("0.000000000001")
    assert entry.difference == Decimal("-0.000000000002")


@pytest.mark.parametrize("seed", range(5))
async def test_sums_equal_those_of_the_rows(store: SqliteStore, seed: int) -> None:
    source = random.Random(seed)

    def maybe(value: Any) -> Any:
        return value if source.random() < 0.7 else None

    def cost() -> Decimal:
        return source.randrange(10**12) * Decimal("1e-12")

    put(
        store,
        *(
            row(
                source.choice("ab"),
                Usage(*(maybe(source.randrange(10_000)) for _ in range(6))),
                started=NOON - source.random() * 3 * DAY,
                outcome=source.choice(get_args(Outcome)),
                account=source.choice(["", "work"]),
                provider=maybe("p"),
                conversation=maybe("c"),
                initiator=maybe("codex"),
                cost=maybe(cost()),
                billed=maybe(cost()),
                incomplete=source.random() < 0.2,
                prices=PRICES,
            )
            for _ in range(300)
        ),
    )
    rows = stored_rows(store)
    by: dict[Any, Any] = {
        "day": lambda row: time.strftime("%Y-%m-%d", time.localtime(row.started)),
        "month": lambda row: time.strftime("%Y-%m", time.localtime(row.started)),
        "caller": lambda row: row.initiator,
        **{
            name: lambda row, name=name: getattr(row, name)
            for name in ("model", "account", "provider", "conversation")
        },
    }
    for dimensions in [(), *((name,) for name in by), ("day", "model"), ("provider", "caller")]:
        expected: dict[Any, list[UsageRow]] = {}
        for each in rows:
            expected.setdefault(tuple(by[name](each) for name in dimensions), []).append(each)
        groups = await sums(store, *dimensions)
        assert {group.key for group in groups} == set(expected)
        for group in groups:
            members = expected[group.key]
            assert group.usage == sum((each.usage for each in members), NOTHING)
            assert group.requests == group.attempts == len(members)
            assert group.incomplete == sum(each.incomplete for each in members)
            charges = [each.charge for each in members if each.charge is not None]
            assert group.cost == (sum(charges, Decimal()) if charges else None)
            assert group.unpriced == sum(each.usage.known and each.charge is None for each in members)
            assert sum(group.outcomes.values()) == len(members)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be set")
async def test_days_are_those_of_the_local_time_zone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = ZoneInfo("America/New_York")
    moments = ["2026-10-31 23:59", "2026-11-01 00:00", "2026-11-01 23:59", "2026-11-02 00:00"]  # 25 hours
    put(
        store,
        *(row(started=datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) for text in moments),
    )
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        days = {group.key[0]: group.requests for group in await sums(store, "day")}
        months = {group.key[0]: group.requests for group in await sums(store, "month")}
    finally:
        monkeypatch.undo()
        time.tzset()
    assert days == {"2026-10-31": 1, "2026-11-01": 2, "2026-11-02": 1}
    assert months == {"2026-10": 1, "2026-11": 3}


@pytest.mark.parametrize(
    ("now", "days_ago", "midnight"),
    [
        ("2026-11-01 12:00:00", 0, "2026-11-01 00:00:00"),  # the day has 25 hours
        ("2026-11-02 00:30:00", 1, "2026-11-01 00:00:00"),
        ("2026-11-07 23:59:59", 7, "2026-10-31 00:00:00"),
        ("2026-03-08 12:00:00", 0, "2026-03-08 00:00:00"),  # the day has 23 hours
        ("2026-03-09 00:30:00", 1, "2026-03-08 00:00:00"),
        ("2026-03-14 00:00:00", 13, "2026-03-01 00:00:00"),
    ],
)
@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be set")
def test_days_begin_at_local_midnight_when_the_clocks_change(
    now: str, days_ago: int, midnight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        zone = ZoneInfo("America/New_York")
        expected = datetime.fromisoformat(midnight).replace(tzinfo=zone).timestamp()
        moment = datetime.fromisoformat(now).replace(tzinfo=zone).timestamp()
        assert start_of_day(moment, days_ago) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


# --- The report of the page ---


@pytest.fixture
def reports(store: SqliteStore) -> UsageReports:
    return UsageReports(store, lambda: find_prices, list)


async def test_all_sums_of_a_report_agree(store: SqliteStore, reports: UsageReports) -> None:
    now = time.time()
    put(
        store,
        *(
            row(
                f"m{n % 3}",
                Usage(n, 1, n + 1),
                started=now - n * 3600,
                cost=Decimal(n),
                conversation=f"c{n % 20}",
            )
            for n in range(100)
        ),
        row("unnamed", Usage(1, 1), started=now, cost=Decimal(10**6)),
        row("old", Usage(1, 1), started=now - 40 * DAY, cost=Decimal(10**6)),
    )
    report = await reports.read(30)
    assert report.total.requests == 101
    assert report.total.cost == sum(range(100)) + 10**6
    names = UsageTotals.__struct_fields__
    for parts in (report.days, report.models):
        assert add_up(UsageTotals(**{name: part[name] for name in names}) for part in parts) == report.total
    assert sum(cell["cost"] for cell in report.series) == report.total.cost
    assert sum(cell["tokens"] for cell in report.series) == report.total.tokens
    assert [day["day"] for day in report.days] == sorted(day["day"] for day in report.days)
    # c0 to c19 have five requests each; the later ones of each round are the more expensive ones.
    assert [each["conversation"] for each in report.conversations] == [f"c{n}" for n in range(19, 9, -1)]
    assert len(report.conversations) == CONVERSATION_LIMIT
    assert report.conversations[0]["cost"] == 19 + 39 + 59 + 79 + 99
    encoded = msgspec.json.decode(msgspec.json.encode(report))
    assert encoded["total"]["cost"] == "1004950.000000000000"
    assert "budgets" not in encoded
    assert encoded["misses"] == []


@pytest.mark.timed
async def test_a_report_takes_less_time_than_reading_its_rows(
    store: SqliteStore, reports: UsageReports
) -> None:
    now = time.time()
    usage = Usage(1_000, 100, 1_100, 500)
    for start in range(0, 20_000, 5_000):
        rows = [
            row(f"m{n % 5}", usage, started=now - 400 * n, conversation=f"c{n % 500}", cost=Decimal("0.01"))
            for n in range(start, start + 5_000)
        ]
        put(store, *rows)

    def measure(function: Callable[[], object]) -> float:
        start = time.thread_time()
        function()
        return time.thread_time() - start

    def read_rows() -> None:
        assert len(stored_rows(store)) == 20_000

    def read_sums() -> None:
        reader, period = store._access.reader, (now - 100 * DAY, now + DAY)
        days: tuple[Dimension, ...] = ("day", "model")
        conversations: tuple[Dimension, ...] = ("conversation",)
        reader.read(lambda data: sum_usage(data, days, *period, find_prices, None, None))
        reader.read(
            lambda data: sum_usage(data, conversations, *period, find_prices, None, CONVERSATION_LIMIT)
        )

    plain = min(measure(read_rows) for _ in range(3))
    assert min(measure(read_sums) for _ in range(3)) < plain
    assert (await reports.read(99)).total.requests == 20_000


async def test_a_report_is_read_again_only_after_somebody_wrote(
    store: SqliteStore, reports: UsageReports
) -> None:
    put(store, row(started=time.time()))
    first = await reports.read(7)
    assert await reports.read(7) is first
    assert (await reports.read(8)).revision != first.revision
    again = await reports.read(7)
    assert again.revision == first.revision
    put(store, row(started=time.time()))
    second = await reports.read(7)
    assert second.revision != first.revision
    assert (first.total.requests, second.total.requests) == (1, 2)


async def test_queries_in_a_snapshot_do_not_see_later_writes(store: SqliteStore, tmp_path: Path) -> None:
    put(store, row())

    def read(connection: sqlite3.Connection) -> list[list[tuple[int]]]:
        before = connection.execute("SELECT count(*) FROM usage").fetchall()
        write_rows(tmp_path / "store.db", row())
        return [before, connection.execute("SELECT count(*) FROM usage").fetchall()]

    assert await store._access.read(read) == [[(1,)], [(1,)]]
    assert [group.requests for group in await sums(store)] == [2]


async def test_a_missing_database_gives_an_empty_report_and_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "none" / "store.db"
    with open_store(path) as store:
        reports = UsageReports(store, lambda: find_prices, list)
        empty = await reports.read(7)
        assert empty.total == UsageTotals()
        assert not path.parent.exists()
        write_rows(path, row(started=time.time()))
        report = await reports.read(7)
    assert report.total.requests == 1
    assert report.revision != empty.revision


async def test_a_database_that_was_replaced_is_opened_again(store: SqliteStore, tmp_path: Path) -> None:
    reports = UsageReports(store, lambda: find_prices, list)
    for count in (1, 2):
        (tmp_path / "store.db").unlink(missing_ok=True)
        write_rows(tmp_path / "store.db", *(row(started=time.time()) for _ in range(count)))
        assert (await reports.read(7)).total.requests == count


async def test_a_token_count_does_not_wait_for_a_report(store: SqliteStore) -> None:
    put(store, row(usage=Usage(1, 1)))
    reading, go_on = threading.Event(), threading.Event()

    def block(*_: str) -> None:
        reading.set()
        go_on.wait(30)

    report = asyncio.ensure_future(store.usage.sums((), 0, 1e10, block))
    await asyncio.to_thread(reading.wait, 30)
    assert store.tokens.prefixes([b"key"]) == []
    assert not report.done()
    go_on.set()
    await report
