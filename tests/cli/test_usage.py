from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
from tests.cli.cli_process import tollbridge
from tests.frontends.stdio.stdio_client import Editor, Refusal

from tollbridge.cli.usage import group_usage, start_of_day
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.testing.server import Gateway
from tollbridge.types.models import Prices
from tollbridge.types.usage import Usage

NOW = time.mktime((2026, 11, 16, 12, 0, 0, 0, 0, -1))
NOTHING = Usage()


def row(model: str = "m", usage: Usage = NOTHING, days_ago: int = 0, outcome: str = "completed") -> UsageRow:
    return UsageRow(
        started=NOW - days_ago * 86_400,
        model=model,
        base_url="u",
        outcome=outcome,  # type: ignore[arg-type]
        usage=usage,
        incomplete=not usage.known,
        duration=2.0,
    )


def prices(row: UsageRow) -> Prices | None:
    known = Prices(Decimal("0.000001"), Decimal("0.000004"), Decimal("0.0000001"))
    return known if (row.base_url, row.model) == ("u", "m") else None


def test_requests_are_added_up_by_day_and_model() -> None:
    entries = group_usage(
        [
            row(usage=Usage(10, 5, 15, 4, 1)),
            row(usage=Usage(20, 5, 25)),
            row(outcome="failed"),
            row("big", Usage(1000, 1, 1001)),
            row(usage=Usage(1, 1, 2), days_ago=1),
        ],
        prices,
    )
    assert [(entry.day, entry.model, entry.requests) for entry in entries] == [
        ("2026-11-16", "big", 1),
        ("2026-11-16", "m", 3),
        ("2026-11-15", "m", 1),
    ]
    assert entries[1].usage == Usage(30, 10, 40, 4, 1)
    assert entries[1].outcomes == {"completed": 2, "failed": 1}
    assert entries[0].cost is None
    assert [(entry.incomplete, entry.unpriced) for entry in entries] == [(0, 1), (1, 0), (0, 0)]
    # 6 fresh, 4 cached and 5 out; then 20 and 5.
    assert entries[1].cost == Decimal("0.0000264") + Decimal("0.00004")


def test_the_attempts_of_a_turn_are_one_request_with_the_usage_of_all() -> None:
    def attempt(number: int, outcome: str, usage: Usage) -> UsageRow:
        plain = row(usage=usage, outcome=outcome)
        return msgspec.structs.replace(plain, turn="t", attempt=number, started=NOW + number)

    rows = [attempt(1, "failed", Usage(10, 5, 15)), attempt(2, "completed", Usage(10, 7, 17))]
    (entry,) = group_usage(rows, prices)
    assert (entry.requests, entry.attempts, entry.outcomes) == (1, 2, {"completed": 1})
    assert entry.usage == Usage(20, 12, 32)
    assert entry.seconds == 3.0  # the second attempt began a second later and took two


def test_the_price_at_the_time_counts() -> None:
    paid = msgspec.structs.replace(row(usage=Usage(10, 5, 15)), cost=Decimal("0.5"))
    (entry,) = group_usage([paid], prices)
    assert entry.cost == Decimal("0.5")


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
        given = datetime.fromisoformat(now).replace(tzinfo=zone).timestamp()
        assert start_of_day(given, days_ago) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_the_editors_requests_are_priced(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOGUE_DIR": str(tmp_path / "lists")}
    async with Gateway(api_key="k") as gateway, Editor(env=env) as editor:
        await editor.greet()
        account = {"baseUrl": gateway.url, "apiKey": "k", "id": "a-1"}
        await editor.request("models", {"account": account})
        for text in ("hello", "fault:disconnect", "fault:cache-writes"):
            message = {"role": 1, "content": [{"type": "text", "value": text}]}
            chat = {"account": account, "model": "tollbridge/demo", "messages": [message]}
            with suppress(Refusal):
                await editor.request("chat", chat)
        counted = [answer.usage for answer in gateway.counted if answer.usage]
    shutil.rmtree(tmp_path / "lists")  # the prices of the time are stored with the usage
    result = await tollbridge("usage", "--json", env=env)
    (found,) = map(json.loads, result.out.splitlines())
    assert found["outcomes"] == {"completed": 2, "failed": 1}
    assert (found["incomplete"], found["unpriced"]) == (1, 0)
    expected = Decimal()
    for usage in counted:
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        assert usage.input_tokens is not None
        assert usage.output_tokens is not None
        expected += (usage.input_tokens - cached - written) * Decimal("0.000001")
        expected += cached * Decimal("0.0000001") + written * Decimal("0.00000125")
        expected += usage.output_tokens * Decimal("0.000004")
    assert Decimal(found["cost"]) == expected > 0
    total = (await tollbridge("usage", env={**env, "COLUMNS": "200"})).out.splitlines()[-1]
    assert "The sum is partial: 1 attempt without reported usage." in total


async def test_usage_is_shown_with_its_cost(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOGUE_DIR": str(tmp_path), "COLUMNS": "140"}
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        await tollbridge("models", *where[:2], env=env)
        await tollbridge("ask", "hello", *where, env=env)
        await tollbridge("ask", "fault:failed", *where, env=env)
        chatted = await tollbridge("chat", *where, env=env, stdin=b"hello\nhello again\n")
    assert chatted.code == 0
    table = (await tollbridge("usage", env=env)).out
    header, line, total = table.splitlines()
    assert header.split() == [
        "day",
        "model",
        "requests",
        "not",
        "completed",
        "in",
        "cached",
        "out",
        "first",
        "token",
        "cost",
        "$",
        "tokens",
    ]
    assert line.split()[:5] == [time.strftime("%Y-%m-%d"), "tollbridge/demo", "4", "1", "failed"]
    assert line.rstrip().endswith("█")
    assert total.startswith("Total: 4 requests (1 failed), ")
    assert total.endswith("The sum is partial: 1 attempt without reported usage.")
    assert "≥" in line
    (found,) = map(json.loads, (await tollbridge("usage", "--json", "--days", "1", env=env)).out.splitlines())
    assert found["outcomes"] == {"completed": 3, "failed": 1}
    tokens = found["usage"]
    fresh = tokens["input_tokens"] - tokens["cached_tokens"]
    cost = fresh * Decimal("0.000001") + tokens["cached_tokens"] * Decimal("0.0000001")
    assert Decimal(found["cost"]) == cost + tokens["output_tokens"] * Decimal("0.000004")


async def test_days_limits_the_days_shown(tmp_path: Path) -> None:
    table = UsageTable(Database(tmp_path / "tollbridge.db"))
    now = time.time()
    for days in (0, 1, 5):
        table.put([UsageRow(started=now - days * 86_400, model=f"m{days}", outcome="completed")])
    table.close()
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    lines = (await tollbridge("usage", "--json", "--days", "2", env=env)).out.splitlines()
    assert [json.loads(line)["model"] for line in lines] == ["m0", "m1"]


async def test_no_usage_is_reported(tmp_path: Path) -> None:
    result = await tollbridge("usage", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path / "none")})
    assert (result.code, result.out) == (0, "")
    assert result.err == "No usage in the last 7 days.\n"
    assert not (tmp_path / "none").exists()


async def test_an_unusable_database_is_not_reported_as_a_gateway_error(tmp_path: Path) -> None:
    (tmp_path / "tollbridge.db").mkdir()
    result = await tollbridge("usage", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    assert (result.code, result.out) == (1, "")
    assert str(tmp_path / "tollbridge.db") in result.err
    assert "TOLLBRIDGE_DATA_DIR" in result.err
    assert "--base-url" not in result.err
