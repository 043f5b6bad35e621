"""`tollbridge explain` with requests that really missed the simulated prompt cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge

from tollbridge import Account, ChatRequest, Engine, Message, Role, Settings, Tool
from tollbridge.testing.prompt_cache import PROVIDER_CACHE
from tollbridge.testing.server import Gateway

SYSTEM = "Read the file before you change it, and say why you do so.\n" * 150


@pytest.fixture
async def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two requests, of which the second has another tool, in a data directory of their own."""
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    messages = [Message(Role.SYSTEM, SYSTEM), Message(Role.USER, "Hello")]
    async with Gateway(cache=PROVIDER_CACHE) as gateway, Engine.open(Settings()) as engine:
        account = Account("test", gateway.url, "openresponses", "none")
        await engine.models(account)
        for names in (("read",), ("fetch", "read")):
            tools = [Tool(name, "A tool.") for name in names]
            request = ChatRequest(
                model="tollbridge/demo", messages=messages, tools=tools, conversation="conversation-1"
            )
            await engine.create(request, account)
    return {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "COLUMNS": "200"}


async def test_the_last_turn_is_explained(environment: dict[str, str]) -> None:
    result = await tollbridge("explain", env=environment)
    heading, text = result.out.splitlines()
    assert heading.startswith("Turn ")
    assert heading.endswith(", tollbridge/demo")
    assert text.startswith("0 of about 2,")
    assert "expected tokens were read from the prompt cache, which cost $0.00" in text
    assert text.endswith('The tool "fetch" was added.')


async def test_json_has_all_fields(environment: dict[str, str]) -> None:
    report = json.loads((await tollbridge("explain", "--json", env=environment)).out)
    assert report.keys() == {
        *("turn", "started", "model", "conversation", "response_id"),
        *("missed", "kind", "reason", "expected", "actual", "cost", "source"),
    }
    assert (report["missed"], report["kind"], report["actual"]) == (True, "tools", 0)
    assert report["conversation"] == "conversation-1"
    # All expected tokens were written at $1.25 per million, and could have been read at $0.10.
    assert report["cost"] == f"{report['expected'] * 115 / 10**8:.8f}"


async def test_misses_are_listed_and_can_be_chosen(environment: dict[str, str]) -> None:
    header, row, total = (await tollbridge("explain", "--list", env=environment)).out.splitlines()
    assert header.split()[:3] == ["turn", "time", "model"]
    assert row.endswith('The tool "fetch" was added.')
    assert total.startswith("Total: 1 request missed the cache, $0.00")
    chosen = await tollbridge("explain", row.split()[0], env=environment)
    assert chosen.out == (await tollbridge("explain", env=environment)).out


async def test_an_unknown_turn_is_an_error(environment: dict[str, str]) -> None:
    result = await tollbridge("explain", "zzz", env=environment)
    assert result.code == 1
    assert 'There is no turn "zzz".' in result.err


async def test_without_requests_there_is_nothing_to_explain(tmp_path: Path) -> None:
    result = await tollbridge("explain", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    assert (result.code, result.out, result.err) == (0, "", "No requests are recorded yet.\n")


async def test_a_limit_needs_the_list() -> None:
    result = await tollbridge("explain", "--limit", "3")
    assert result.code == 2
    assert "--limit needs --list." in result.err
