"""Tables at common terminal widths."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge

from tollbridge.cli.tables import Column, fit_columns
from tollbridge.storage.database import Database
from tollbridge.storage.tables import UsageRow, UsageTable
from tollbridge.testing.server import Gateway
from tollbridge.types.usage import Usage

NAME, WINDOW, PRICE = Column("name", min_width=6), Column("window"), Column("price", drop_order=1)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, {0: 10, 1: 6, 2: 5}),
        (25, {0: 10, 1: 6, 2: 5}),  # fits exactly
        (24, {0: 9, 1: 6, 2: 5}),  # the name is wrapped
        (20, {0: 10, 1: 6}),  # the price is dropped, and the name uses its width
        (14, {0: 6, 1: 6}),
        (13, {0: 5, 1: 6}),  # too narrow for the table: the name is wrapped as far as necessary
        (1, {0: 1, 1: 6}),
    ],
)
def test_the_least_important_columns_are_dropped_first(width: int, shown: dict[int, int]) -> None:
    assert fit_columns((NAME, WINDOW, PRICE), (10, 6, 5), width) == shown


def test_an_empty_column_is_not_shown() -> None:
    assert fit_columns((NAME, WINDOW, PRICE), (10, 0, 5), 80) == {0: 10, 2: 5}


def fill_usage(folder: Path) -> None:
    table = UsageTable(Database(folder / "tollbridge.db"))
    usage, now = Usage(12_345_678, 123_456, None, 9_876_543), time.time()
    models = ("anthropic/claude-sonnet-4.5", "openai/gpt-5.4")
    rows = [
        UsageRow(started=now, model=model, outcome="completed", usage=usage, first=1.2) for model in models
    ]
    table.put([*rows, UsageRow(started=now, model="openai/gpt-5.4", outcome="failed")])
    table.close()


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
async def test_usage_fits_the_terminal_without_split_words(columns: int, tmp_path: Path) -> None:
    fill_usage(tmp_path)
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "COLUMNS": str(columns)}
    header, *lines = (await tollbridge("usage", env=env)).out.splitlines()
    assert max(map(len, [header, *lines[:-1]])) <= columns
    assert {"day", "model", "in", "out"} <= set(header.split())
    assert set(header.split()) <= set(
        "day model requests not completed in cached cache hits out first token by tokens cost".split()
    )
    table = "\n".join(lines)
    assert table.count("12,345,678") == 2
    if columns >= 80:
        assert "anthropic/claude-sonnet-4.5" in table
    assert lines[-1].startswith("Total: 3 requests (1 failed), 24,938,268 tokens")
    assert ("█" in table) == (columns >= 100)


@pytest.mark.parametrize("columns", [40, 80, 120])
async def test_models_and_settings_fit_the_terminal(columns: int, tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_CATALOGUE_DIR": str(tmp_path), "COLUMNS": str(columns)}
    async with Gateway() as gateway:
        listed = (await tollbridge("models", "--base-url", gateway.url, env=env)).out
    settings, _, _file = (await tollbridge("config", env=env)).out.partition("\n\n")
    assert max(map(len, (listed + settings).splitlines())) <= columns
    assert "…" not in listed + settings
    assert "128,000" in listed
    if columns >= 80:
        assert "tollbridge/plain " in listed
        assert "https://ai-gateway.vercel.sh/v1" in settings


async def test_without_a_terminal_nothing_is_wrapped(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_CATALOGUE_DIR": str(tmp_path), "COLUMNS": ""}
    async with Gateway() as gateway:
        listed = (await tollbridge("models", "--base-url", gateway.url, env=env)).out
    header, *lines = listed.splitlines()
    assert header.split()[0] == "model"
    assert [line.split()[0] for line in lines] == ["tollbridge/demo", "tollbridge/plain"]
    assert lines[0].endswith("implicit-caching, reasoning, tool-use, vision")
