"""`tollbridge budget`, and what a budget does to `ask` and `chat`."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge

from tollbridge.config.toml_text import change_value
from tollbridge.storage.budgets import format_dollars
from tollbridge.testing.server import Gateway

MODEL = ("--model", "tollbridge/demo")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "TOLLBRIDGE_CONFIG": str(tmp_path / "config.toml"),
        "TOLLBRIDGE_DATA_DIR": str(tmp_path / "data"),
        "TOLLBRIDGE_CATALOG_DIR": str(tmp_path / "catalog"),
    }


def config(env: dict[str, str]) -> Path:
    path = Path(env["TOLLBRIDGE_CONFIG"])
    path.touch()
    return path


async def test_a_budget_of_one_cent_refuses_the_second_request(env: dict[str, str]) -> None:
    config(env)
    assert (await tollbridge("budget", "set", "day", "0.01", env=env)).code == 0
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, *MODEL)
        first = await tollbridge("ask", "long 3000", *where, env=env)
        assert first.code == 0, first.err
        assert "The daily budget (budgets.day) is 100 % spent: $0.01 of $0.01" in first.err
        second = await tollbridge("ask", "Hello", *where, env=env)
        assert second.code == 1
        assert "The daily budget (budgets.day) is $0.01 and does not allow" in " ".join(second.err.split())
        assert "--over-budget" in second.err
        assert "`tollbridge budget` shows its source." in " ".join(second.err.split())
        assert sum(request.path == "/v1/responses" for request in gateway.requests) == 1
        third = await tollbridge("ask", "Hello", *where, "--over-budget", env=env)
        assert third.code == 0
        assert "You said “Hello”" in third.out
    shown = [json.loads(line) for line in (await tollbridge("budget", "--json", env=env)).out.splitlines()]
    assert shown[0]["budget"] == "day"
    assert shown[0]["share"] > 1
    assert shown[0]["left"] == "0"
    table = (await tollbridge("budget", env=env)).out
    assert "████████████████████ 10" in table


async def test_a_chat_goes_on_over_the_budget_for_one_message(env: dict[str, str]) -> None:
    config(env).write_text("[budgets]\nday = 0.01\n")
    async with Gateway() as gateway:
        lines = b"long 3000\nfirst\n/over-budget\nsecond\nthird\n"
        result = await tollbridge("chat", "--base-url", gateway.url, *MODEL, env=env, stdin=lines)
    assert "You said “second”" in result.out
    assert "first”" not in result.out
    assert "third”" not in result.out
    assert result.err.count("Error: The daily budget") == 2


async def test_budgets_are_set_and_removed_in_the_settings_file(env: dict[str, str]) -> None:
    path = config(env)
    path.write_text('# mine\nmodel = "m"  # the model\n\n[timeouts]\nidle = 3\n')
    for arguments in (
        ("set", "day", "$5"),
        ("set", "month", "50.50"),
        ("set", "day", "2", "--account", "https://host.example/v1"),
        ("set", "requests-per-minute", "60"),
        ("set", "day", "4"),
        ("remove", "month"),
    ):
        assert (await tollbridge("budget", *arguments, env=env)).code == 0
    text = path.read_text()
    assert text.startswith('# mine\nmodel = "m"  # the model\n\n[timeouts]\nidle = 3\n')
    assert tomllib.loads(text)["budgets"] == {
        "day": 4,
        "requests_per_minute": 60,
        "accounts": {"https://host.example/v1": {"day": 2}},
    }
    missing = await tollbridge("budget", "remove", "month", env=env)
    assert (missing.code, missing.out) == (1, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "day", "-1"),
        ("set", "day", "NaN"),
        ("set", "day", "1e400"),
        ("set", "requests-per-minute", "1e400"),
        ("set", "requests-per-minute", "1.5"),
        ("set", "week", "1"),
        ("remove", "week"),
    ],
)
async def test_an_invalid_budget_is_a_usage_error(arguments: tuple[str, ...], env: dict[str, str]) -> None:
    result = await tollbridge("budget", *arguments, env={**env, "COLUMNS": "200"})
    assert result.code == 2
    value = "week" if "week" in arguments else arguments[-1]
    assert f"{value!r}" in result.err
    assert "No such option" not in result.err
    assert not Path(env["TOLLBRIDGE_CONFIG"]).exists()


async def test_budgets_have_the_names_that_the_table_shows(env: dict[str, str]) -> None:
    path = config(env)
    for arguments in (("set", "cost_per_hour", "1"), ("set", "requests_per_minute", "60")):
        result = await tollbridge("budget", *arguments, env=env)
        assert result.code == 0, result.err
    assert tomllib.loads(path.read_text())["budgets"] == {"cost_per_hour": 1, "requests_per_minute": 60}
    assert (await tollbridge("budget", "remove", "requests-per-minute", env=env)).code == 0
    assert tomllib.loads(path.read_text())["budgets"] == {"cost_per_hour": 1}


async def test_a_budget_of_an_unknown_account_is_noted(env: dict[str, str]) -> None:
    path = config(env)
    path.write_text('[accounts.work]\nbase_url = "https://host.example/v1"\n')
    async with Gateway() as gateway:
        await tollbridge("ask", "Hello", "--base-url", gateway.url, *MODEL, env=env)
    notes = {
        account: (await tollbridge("budget", "set", "day", "2", "--account", account, env=env)).err
        for account in ("work", "https://host.example/v1", gateway.url, "wrok")
    }
    assert {account for account, note in notes.items() if note} == {"wrok"}
    assert "No account has the name or base URL 'wrok'" in notes["wrok"]
    before = path.read_text()
    empty = await tollbridge("budget", "set", "day", "2", "--account", "", env=env)
    assert (empty.code, path.read_text()) == (2, before)
    assert "The name is empty." in empty.err


async def test_the_variable_that_sets_a_budget_is_named_when_it_is_not_in_the_file(
    env: dict[str, str],
) -> None:
    config(env)
    result = await tollbridge("budget", "remove", "day", env={**env, "TOLLBRIDGE_BUDGET_DAY": "3"})
    assert result.code == 1
    assert "environment TOLLBRIDGE_BUDGET_DAY" in result.err


async def test_budgets_in_one_line_are_changed_there(env: dict[str, str]) -> None:
    path = config(env)
    path.write_text("budgets = { day = 3 }  # mine\n")
    assert (await tollbridge("budget", "set", "day", "4", env=env)).code == 0
    assert path.read_text() == "budgets = { day = 4 }  # mine\n"


async def test_a_file_that_cannot_be_edited_stays_as_it_is(env: dict[str, str]) -> None:
    path = config(env)
    path.write_text("budgets = 3\n")
    result = await tollbridge("budget", "set", "day", "4", env=env)
    assert result.code == 1
    assert "Run `tollbridge config edit`." in result.err
    assert path.read_text() == "budgets = 3\n"


@pytest.mark.parametrize("arguments", [("set", "day", "4"), ("remove", "day")])
async def test_nothing_is_written_if_another_setting_is_invalid(
    arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    path = config(env)
    text = 'modell = "x"\n[budgets]\nday = 3\n'
    path.write_text(text)
    result = await tollbridge("budget", *arguments, env=env)
    assert (result.code, result.out) == (1, "")
    assert "modell: unknown setting" in result.err
    assert "line 1" in result.err
    assert path.read_text() == text


async def test_an_invalid_budget_in_the_file_can_be_replaced(env: dict[str, str]) -> None:
    path = config(env)
    path.write_text('[budgets]\nday = "much"\n')
    assert (await tollbridge("budget", "set", "day", "4", env=env)).code == 0
    assert tomllib.loads(path.read_text()) == {"budgets": {"day": 4}}


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("12.346", "$12.35"),
        ("0.5", "$0.50"),
        ("0.01234", "$0.0123"),
        ("0.0001", "$0.0001"),
        ("0.000001", "$0.000001"),
        ("-0.00001234", "$-0.000012"),
        ("0", "$0.00"),
    ],
)
def test_small_amounts_are_not_rounded_to_zero(amount: str, text: str) -> None:
    assert format_dollars(Decimal(amount)) == text


async def test_another_source_that_takes_precedence_is_named(env: dict[str, str]) -> None:
    config(env)
    result = await tollbridge("budget", "set", "day", "4", env={**env, "TOLLBRIDGE_BUDGET_DAY": "3"})
    assert "environment TOLLBRIDGE_BUDGET_DAY takes precedence" in result.err


def test_comments_and_other_tables_are_kept() -> None:
    text = "[budgets]\nday = 1 # a note\n\n[accounts.a]\nday = 9\n"
    assert change_value(text, ["budgets", "day"], "2") == text.replace("day = 1", "day = 2")
    assert change_value(text, ["budgets", "month"], "2") == (
        "[budgets]\nday = 1 # a note\nmonth = 2\n\n[accounts.a]\nday = 9\n"
    )
    assert change_value(text, ["budgets", "day"], None) == "[budgets]\n\n[accounts.a]\nday = 9\n"
