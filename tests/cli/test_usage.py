from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cli.cli_process import PROGRAM, environment, tollbridge
from tests.frontends.stdio.stdio_client import Editor, Refusal
from tests.storage.stored import write_rows

from tollbridge.cli.usage import _total_line
from tollbridge.storage.reports import UsageTotals
from tollbridge.storage.rows import UsageRow
from tollbridge.testing.server import Gateway
from tollbridge.types.events import Usage


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOG_DIR": str(tmp_path), "COLUMNS": "200"}


def put(tmp_path: Path, *rows: UsageRow) -> None:
    write_rows(tmp_path / "tollbridge.db", *rows)


def at(day: str, model: str = "m", usage: Usage = Usage(100, 10, 110, 50), **fields: Any) -> UsageRow:  # noqa: B008
    moment = time.mktime(time.strptime(f"{day} 12:00", "%Y-%m-%d %H:%M"))
    return UsageRow(started=moment, model=model, outcome="completed", usage=usage, **fields)


async def test_the_editors_requests_are_priced(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOG_DIR": str(tmp_path / "lists")}
    async with Gateway(api_key="k") as gateway, Editor(env=env) as editor:
        await editor.initialize()
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
    (row,) = map(json.loads, result.out.splitlines())
    assert row["outcomes"] == {"completed": 2, "failed": 1}
    assert (row["incomplete"], row["unpriced"]) == (1, 0)
    expected = Decimal()
    for usage in counted:
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        assert usage.input_tokens is not None
        assert usage.output_tokens is not None
        expected += (usage.input_tokens - cached - written) * Decimal("0.000001")
        expected += cached * Decimal("0.0000001") + written * Decimal("0.00000125")
        expected += usage.output_tokens * Decimal("0.000004")
    assert Decimal(row["cost"]) == expected > 0
    total = (await tollbridge("usage", env={**env, "COLUMNS": "200"})).out.splitlines()[-1]
    assert "The sum is partial: 1 attempt without reported usage." in total


async def test_usage_is_shown_with_its_cost(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOG_DIR": str(tmp_path), "COLUMNS": "140"}
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        await tollbridge("models", *where[:2], env=env)
        result = await tollbridge("ask", "hello", *where, env=env)
        await tollbridge("ask", "fault:failed", *where, env=env)
        chatted = await tollbridge("chat", *where, env=env, stdin=b"hello\nhello again\n")
    assert chatted.code == 0
    # The prices are a dollar and four dollars per million tokens.
    tokens_and_cost = re.match(
        r"(\d+) in \(0 cached\) · (\d+) out \(0 reasoning\) · \$([0-9.]+) · ", result.err
    )
    assert tokens_and_cost is not None, result.err
    input_tokens, output_tokens, cost = tokens_and_cost.groups()
    exact = int(input_tokens) * Decimal("0.000001") + int(output_tokens) * Decimal("0.000004")
    assert abs(Decimal(cost) - exact) < Decimal("0.000001")
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
        "cache",
        "hits",
        "out",
        "first",
        "token",
        "cost",
        "$",
        "by",
        "cost",
    ]
    assert line.split()[:5] == [time.strftime("%Y-%m-%d"), "tollbridge/demo", "4", "1", "failed"]
    assert line.rstrip().endswith("█")
    assert total.startswith("Total: 4 requests (1 failed), ")
    assert total.endswith("The sum is partial: 1 attempt without reported usage.")
    assert "≥" in line
    (row,) = map(json.loads, (await tollbridge("usage", "--json", "--days", "1", env=env)).out.splitlines())
    assert row["outcomes"] == {"completed": 3, "failed": 1}
    tokens = row["usage"]
    fresh = tokens["input_tokens"] - tokens["cached_tokens"]
    expected = fresh * Decimal("0.000001") + tokens["cached_tokens"] * Decimal("0.0000001")
    assert Decimal(row["cost"]) == expected + tokens["output_tokens"] * Decimal("0.000004")


async def test_days_limits_the_days_shown(tmp_path: Path) -> None:
    now = time.time()
    for days in (0, 1, 5):
        put(tmp_path, UsageRow(started=now - days * 86_400, model=f"m{days}", outcome="completed"))
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


# --- Dimensions and periods ---

ROWS = (
    at(
        "2026-09-30",
        "a",
        cost=Decimal("0.5"),
        conversation="c1",
        account="work",
        provider="p1",
        initiator="codex",
    ),
    at("2026-10-01", "a", cost=Decimal("0.25"), conversation="c1", account="work", provider="p2"),
    at("2026-10-31", "b", cost=Decimal("2"), billed=Decimal("3"), conversation="c2", account="home"),
    at("2026-11-01", "b", Usage(1, 1, 2)),
)
ALL = ("--since", "2026-09-01", "--until", "2026-11-30")


@pytest.mark.parametrize(
    ("dimension", "groups"),
    [
        ("day", {"2026-11-01": None, "2026-10-31": "3", "2026-10-01": "0.25", "2026-09-30": "0.5"}),
        ("month", {"2026-11": None, "2026-10": "3.25", "2026-09": "0.5"}),
        ("model", {"b": "3", "a": "0.75"}),
        ("conversation", {"c2": "3", "c1": "0.75", None: None}),
        ("account", {"home": "3", "work": "0.75", "": None}),
        ("provider", {None: "3", "p1": "0.5", "p2": "0.25"}),
        ("caller", {None: "3.25", "codex": "0.5"}),
    ],
)
async def test_usage_is_added_up_by_each_dimension(
    dimension: str, groups: dict[str | None, str | None], tmp_path: Path, env: dict[str, str]
) -> None:
    put(tmp_path, *ROWS)
    result = await tollbridge("usage", *ALL, "--by", dimension, "--json", env=env)
    rows = [json.loads(line) for line in result.out.splitlines()]
    costs = {entry[dimension]: entry["cost"] and Decimal(entry["cost"]) for entry in rows}
    expected = {name: None if cost is None else Decimal(cost) for name, cost in groups.items()}
    assert list(costs.items()) == list(expected.items())


async def test_since_and_until_include_both_days(tmp_path: Path, env: dict[str, str]) -> None:
    put(tmp_path, *ROWS)
    period = ("--since", "2026-10-01", "--until", "2026-10-31")
    lines = (await tollbridge("usage", *period, "--by", "day", "--json", env=env)).out.splitlines()
    assert [json.loads(line)["day"] for line in lines] == ["2026-10-31", "2026-10-01"]
    period = ("--days", "2", "--until", "2026-11-01")
    lines = (await tollbridge("usage", *period, "--by", "day", "--json", env=env)).out.splitlines()
    assert [json.loads(line)["day"] for line in lines] == ["2026-11-01", "2026-10-31"]
    nothing = await tollbridge("usage", "--since", "2025-01-01", "--until", "2025-01-02", env=env)
    assert nothing.err == "No usage from 2025-01-01 to 2025-01-02.\n"


async def test_csv_has_the_same_figures_as_json(tmp_path: Path, env: dict[str, str]) -> None:
    put(tmp_path, *ROWS, at("2026-11-02", '=HYPERLINK("http://evil.example")'))
    by = ("--by", "month", "--by", "model")
    text = (await tollbridge("usage", *ALL, *by, "--csv", env=env)).out
    rows = list(csv.DictReader(io.StringIO(text)))
    objects = [
        json.loads(line)
        for line in (await tollbridge("usage", *ALL, *by, "--json", env=env)).out.splitlines()
    ]
    assert len(rows) == len(objects) == 5
    for row, fields in zip(rows, objects, strict=True):
        assert row["month"] == fields["month"]
        assert row["cost"] == (fields["cost"] or "")
        assert row["billed"] == (fields["billed"] or "")
        assert int(row["input_tokens"]) == fields["usage"]["input_tokens"]
        assert int(row["completed"]) == fields["outcomes"]["completed"]
    assert {row["model"] for row in rows} == {
        "a",
        "b",
        '\'=HYPERLINK("http://evil.example")',
    }  # not a formula


async def test_billed_and_computed_costs_stand_side_by_side(tmp_path: Path, env: dict[str, str]) -> None:
    put(tmp_path, *ROWS)
    table = (await tollbridge("usage", *ALL, "--by", "account", env=env)).out.splitlines()
    assert "billed $" in table[0]
    assert "computed $" in table[0]
    assert table[1].split()[:2] == ["home", "1"]
    assert table[1].split()[-4:] == ["3.0000", "2.0000", "3.0000", "████████"]
    assert "Gateways billed $1.0000 (50.0%) more than computed." in table[-1]
    assert "The sum is partial: 1 attempt without a known price." in table[-1]


def test_a_total_without_any_price_says_that_the_cost_is_not_known() -> None:
    total = UsageTotals(requests=1, attempts=1, unpriced=1)
    assert _total_line(total).endswith(" The cost is not known, because no price is known.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--days", "3", "--since", "2026-01-01"), "--days and --since cannot be combined"),
        (
            ("--since", "2026-02-01", "--until", "2026-01-31"),
            "--since 2026-02-01 is later than the last day, 2026-01-31.",
        ),
        (("--json", "--csv"), "cannot be combined"),
        (("--since", "yesterday"), "'yesterday' is not a date. Write it as 2026-10-31."),
        (("--since", "2026-02-30"), "'2026-02-30' is not a date. Write it as 2026-10-31."),
        (("--days", "0"), "'0' is not a whole number from 1 to 3650."),
        (("--by", "colour"), "colour"),
        (("--web", "--by", "model"), "Only --days can be combined with --web"),
    ],
)
async def test_invalid_options_are_named(options: tuple[str, ...], message: str, env: dict[str, str]) -> None:
    result = await tollbridge("usage", *options, env=env)
    assert result.code == 2
    assert message in result.err


# --- The page ---


@asynccontextmanager
async def usage_page(env: Mapping[str, str]) -> AsyncIterator[tuple[str, str, asyncio.subprocess.Process]]:
    """Run `tollbridge usage --web`; yield the URL without its fragment, the token and the process."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        "usage",
        "--web",
        env=environment(env),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode().strip()
        url, _, token = line.partition("#token=")
        yield url, token, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_page_is_served_until_ctrl_c_and_only_with_its_token(
    tmp_path: Path, env: dict[str, str]
) -> None:
    put(tmp_path, at(time.strftime("%Y-%m-%d"), cost=Decimal("0.5")))
    async with usage_page(env) as (url, token, process), aiohttp.ClientSession() as http:
        assert url.startswith("http://127.0.0.1:")
        assert len(token) >= 32
        async with http.get(url) as response:
            assert response.content_type == "text/html"
            assert token not in await response.text()
        headers = {"Authorization": f"Bearer {token}"}
        async with http.get(f"{url}usage.json", headers=headers) as response:
            report = await response.json()
        assert report["total"]["cost"] == "0.500000000000"
        assert [entry["model"] for entry in report["models"]] == ["m"]
        for wrong, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({**headers, "Host": "evil.example"}, 403),
            ({**headers, "Origin": "http://evil.example"}, 403),
        ):
            async with http.get(f"{url}usage.json", headers=wrong) as response:
                assert response.status == status
        async with http.post(
            f"{url}v1/responses", headers=headers, json={"model": "m", "input": "x"}
        ) as response:
            assert response.status == 404  # this server answers no requests
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            _, err = await process.communicate()
        assert process.returncode == 0
        assert err.decode().splitlines()[-1] == "Stopped."
