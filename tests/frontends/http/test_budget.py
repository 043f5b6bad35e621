"""A server with a budget: 402 in the caller's protocol, which the official SDKs do not retry."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.http.servers import LocalServer, local_server

from tollbridge.config.schema import BudgetSettings
from tollbridge.protocols import Backend
from tollbridge.testing.server import Gateway

MODEL = "tollbridge/demo"
CHATS: dict[str, dict[str, Any]] = {
    "responses": {"input": "Hello", "max_output_tokens": 5_000},
    "chat/completions": {"messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 5_000},
    "messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5_000},
}

# The list of a Messages gateway has no prices.
REASONS = ("The daily budget (budgets.day) is $0.01", "The price of tollbridge/demo is not known")
REASON = "|".join(map(re.escape, REASONS))


@pytest.fixture(params=["openresponses", "chat-completions", "anthropic-messages"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalServer]:
    """A server in front of a gateway of each protocol, with a budget of one cent: 2,500 output tokens."""
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path))
    backend: Backend = request.param
    async with (
        Gateway() as gateway,
        local_server(gateway.url, backend, budgets=BudgetSettings(day=Decimal("0.01"))) as server,
    ):
        yield server
        assert not any(each.path.endswith(tuple(CHATS)) for each in gateway.requests), "it was sent"


def refusals(server: LocalServer) -> int:
    return sum(row.error == "budget_exceeded" for row in server.engine.usage.records)


@pytest.mark.parametrize("path", CHATS)
async def test_a_request_over_the_budget_is_refused_in_the_protocol_of_the_caller(
    server: LocalServer, path: str
) -> None:
    body = {"model": MODEL, **CHATS[path]}
    async with server.http.post(f"{server.url}/v1/{path}", json=body) as response:
        error = (await response.json())["error"]
    assert response.status == 402
    assert response.headers["x-should-retry"] == "false"
    assert re.search(REASON, error["message"])
    if path == "messages":
        assert error["type"] == "billing_error"
    else:
        assert (error["type"], error["code"]) == ("invalid_request_error", "budget_exceeded")
    assert refusals(server) == 1


async def test_the_sdk_of_openai_does_not_retry_it(server: LocalServer) -> None:
    import openai  # a second of CPU time, which only this test needs

    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        with pytest.raises(openai.APIStatusError, match=REASON) as caught:
            await client.responses.create(model=MODEL, input="Hello", max_output_tokens=5_000)
    assert caught.value.status_code == 402
    assert refusals(server) == 1


async def test_the_sdk_of_anthropic_does_not_retry_it(server: LocalServer) -> None:
    import anthropic  # a second of CPU time, which only this test needs

    messages: Any = [{"role": "user", "content": "Hello"}]
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none") as client:
        with pytest.raises(anthropic.APIStatusError, match=REASON) as caught:
            await client.messages.create(model=MODEL, messages=messages, max_tokens=5_000)
    assert caught.value.status_code == 402
    assert refusals(server) == 1


@pytest.mark.parametrize("backend", ["openresponses", "chat-completions"])
async def test_an_answer_without_a_limit_is_limited_to_what_the_budget_allows(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path))
    budgets = BudgetSettings(day=Decimal("0.01"))
    async with Gateway() as gateway, local_server(gateway.url, backend, budgets=budgets) as server:
        url, body = f"{server.url}/v1/responses", {"model": MODEL, "input": "long 3000"}
        async with server.http.post(url, json=body) as response:
            answer = await response.json()
        assert response.status == 200
        assert answer["status"] == "incomplete"
        assert 2_000 < answer["usage"]["output_tokens"] < 2_500
        async with server.http.post(url, json=body) as response:
            assert response.status == 402


async def test_a_forwarded_request_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path))
    budgets = BudgetSettings(day=Decimal(1))
    async with Gateway() as gateway, local_server(gateway.url, budgets=budgets) as server:
        body = b'{"model": "tollbridge/demo",  "input": "Hello", "max_output_tokens": 400}'
        async with server.http.post(f"{server.url}/v1/responses", data=body) as response:
            usage = (await response.json())["usage"]
        assert body in [request.raw for request in gateway.requests]
        [status] = await server.engine.budgets()
    # $1 and $4 for a million tokens.
    cost = usage["input_tokens"] * Decimal("1e-6") + usage["output_tokens"] * Decimal("4e-6")
    assert status.spent == cost
    assert status.reserved == 0
