"""Budgets of an engine: checked before each attempt is sent, settled afterwards, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.canned_server import answering, http
from tests.storage.locking import locked
from tests.storage.stored import read_rows, read_status
from tollbridge import (
    Account,
    Answer,
    BridgeError,
    BudgetExceeded,
    ChatRequest,
    Engine,
    Message,
    OpenResponsesClient,
    RequestError,
    RetryPolicy,
    Role,
    Settings,
)
from tollbridge.config.schema import BudgetSettings
from tollbridge.storage.budgets import Budget
from tollbridge.storage.limits import Limits
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.storage.store import Store
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.transport.files import database_file

DEMO = "tollbridge/demo"
CENT = Decimal("0.01")
RECORDING = Path(__file__).parent / "recordings" / "openresponses" / "llamacpp.text-stream.sse"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path / "catalog"))
    return tmp_path


def request(text: str = "Hello", **fields: Any) -> ChatRequest:
    return ChatRequest(model=DEMO, messages=[Message(Role.USER, text)], **fields)


@asynccontextmanager
async def open_engine(gateway: Gateway, store: Store | None = None, **budgets: Any) -> AsyncIterator[Engine]:
    """Open an engine that retries at once, with these budgets."""
    account = Account("work", gateway.url, "openresponses", "none")
    settings = Settings(budgets=BudgetSettings(**budgets))
    retries = RetryPolicy(first=0.001, longest=0.01)
    async with (
        OpenResponsesClient(gateway.url, retries=retries) as client,
        Engine.open(settings, client=client, account=account, store=store) as engine,
    ):
        yield engine


def responses(gateway: Gateway) -> int:
    return sum(each.path == "/v1/responses" for each in gateway.requests)


def rows() -> list[UsageRow]:
    return read_rows(database_file())


def spending(**filters: Any) -> tuple[Decimal | int, Decimal | int]:
    """Return what is spent and reserved."""
    status = read_status(database_file(), Budget(name="day", limit=Decimal(1), **filters))
    return status.spent, status.reserved


async def ask(engine: Engine, chat: ChatRequest, **options: Any) -> Answer:
    async with engine.turn(chat, **options) as turn:
        async for _ in turn.batches():
            pass
    assert turn.result is not None
    return turn.result


async def test_the_second_request_over_a_budget_is_refused_before_it_is_sent() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=CENT) as engine:
        await engine.create(request("long 3000"))
        sent = responses(gateway)
        with pytest.raises(BudgetExceeded) as caught:
            await engine.create(request())
        assert responses(gateway) == sent == 1
        [status] = await engine.budgets()
    assert caught.value.kind == "budget_exceeded"
    assert caught.value.spent == status.spent
    # At the prices of the gateway's list: $1 and $4 for a million tokens.
    usage = rows()[0].usage
    assert usage.input_tokens is not None
    assert usage.output_tokens is not None
    assert status.spent == usage.input_tokens * Decimal("1e-6") + usage.output_tokens * Decimal("4e-6")
    assert [row.error for row in rows()] == [None, "budget_exceeded"]


async def test_an_answer_is_limited_to_what_the_budget_allows() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=CENT) as engine:
        result = await engine.create(request("long 3000"))
        [limit] = [
            each.body["max_output_tokens"] for each in gateway.requests if each.path == "/v1/responses"
        ]
    assert 2_000 < limit < 2_500  # 2,500 tokens cost one cent
    assert result.usage is not None
    assert result.usage.output_tokens == limit
    assert result.finish_reason == "length"
    assert f"Limited the answer to {limit:,} tokens: the budget does not allow more." in result.changes


async def test_a_request_within_the_budget_is_sent_unchanged() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=Decimal(5)) as engine:
        result = await engine.create(request())
        assert all("max_output_tokens" not in each.body for each in gateway.requests if each.body)
    assert result.changes == ()
    assert result.warning is None


async def test_an_output_limit_of_the_caller_is_not_changed() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=CENT) as engine:
        with pytest.raises(BudgetExceeded):
            await engine.create(request(max_output_tokens=10_000))
        await engine.create(request(max_output_tokens=1_000))
        bodies = [each.body for each in gateway.requests if each.path == "/v1/responses"]
    assert [body["max_output_tokens"] for body in bodies] == [1_000]


async def test_the_user_can_send_one_request_over_the_budget() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=CENT) as engine:
        await engine.create(request("long 3000"))
        result = await ask(engine, request(), over_budget=True)
        assert result.text
        assert responses(gateway) == 2
        with pytest.raises(BudgetExceeded):
            await engine.create(request())
    assert spending()[0] > CENT


async def test_from_80_percent_on_a_turn_warns(caplog: pytest.LogCaptureFixture) -> None:
    async with Gateway() as gateway, open_engine(gateway, day=CENT) as engine:
        # 500 words are about 0.2 cents.
        chats = [request("long 600"), request("long 1450"), request("long 9", max_output_tokens=99)]
        results = [await engine.create(chat) for chat in chats]
    before, after, later = [result.warning for result in results]
    assert before is None
    assert after is not None
    assert later is not None
    assert after.startswith("The daily budget (budgets.day) is 8")
    assert "$0.01" in after
    assert [record.message for record in caplog.records if "budget" in record.message] == [after]


async def test_each_attempt_of_a_retried_request_is_reserved() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=Decimal(5)) as engine:
        await engine.create(request("fault:server-error-once", max_output_tokens=500))
    failed, completed = rows()
    assert (failed.error, completed.outcome) == ("server", "completed")
    # The gateway may have charged the failed attempt: its prompt and 500 tokens count.
    assert completed.charge is not None
    spent, reserved = spending()
    assert reserved == 0
    assert Decimal("0.002") + completed.charge < spent < Decimal("0.0022") + completed.charge


async def test_a_retry_that_the_budget_does_not_allow_is_not_sent() -> None:
    # One attempt can cost 0.2 cents and a little for the prompt. After a failure, that much is spent.
    async with Gateway() as gateway, open_engine(gateway, day=Decimal("0.003")) as engine:
        with pytest.raises(BudgetExceeded):
            await engine.create(request("fault:server-error-once", max_output_tokens=500))
        assert responses(gateway) == 1


async def test_attempts_that_the_gateway_refuses_cost_nothing() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=Decimal("0.003")) as engine:
        result = await engine.create(request("fault:reject-developer", max_output_tokens=500))
        assert result.text
        with pytest.raises(BridgeError):
            await engine.create(request("fault:unauthorized", max_output_tokens=500))
    assert [row.outcome for row in rows()][-1] == "failed"
    charges = [row.charge for row in rows() if row.charge is not None]
    assert spending() == (sum(charges), 0)


async def test_a_cancelled_request_costs_a_conservative_estimate() -> None:
    async with (
        Gateway(settings=FaultSettings(pace=0.01)) as gateway,
        open_engine(gateway, day=Decimal(5)) as engine,
        engine.turn(request("long 3000")) as turn,
    ):
        async for _ in turn.batches():
            break
    spent, reserved = spending()
    assert reserved == 0
    # 1,000 tokens and those of the time that it took: not the 64,000 that the model can write.
    assert Decimal("0.004") < spent < Decimal("0.02")


async def test_a_request_cancelled_while_it_is_reserved_holds_nothing(folder: Path) -> None:
    async with Gateway() as gateway, open_engine(gateway, day=Decimal(5)) as engine:
        await engine.create(request())
        before = spending()
        with locked(folder / "tollbridge.db"), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await ask(engine, request())
        assert responses(gateway) == 1
    assert spending() == before


async def test_an_answer_without_usage_costs_a_conservative_estimate() -> None:
    async with Gateway() as gateway, open_engine(gateway, day=Decimal(5)) as engine:
        await engine.create(request("fault:usage-null", max_output_tokens=500))
    assert Decimal("0.002") < spending()[0] < Decimal("0.0022")


async def test_concurrent_requests_do_not_exceed_the_budget() -> None:
    # Each can cost 0.2 cents and a little for the prompt: four of them fit.
    slow = FaultSettings(pace=0.02)  # so that all are running at the same time
    async with Gateway(settings=slow) as gateway, open_engine(gateway, day=CENT) as engine:
        turns = [ask(engine, request(f"slow Hello {n}", max_output_tokens=500)) for n in range(12)]
        results = await asyncio.gather(*turns, return_exceptions=True)
        refused = [result for result in results if isinstance(result, BudgetExceeded)]
        assert len(results) - len(refused) == responses(gateway) >= 4
        assert len(refused) >= 1
    assert spending()[0] <= CENT


async def test_an_account_and_a_conversation_have_their_own_budgets() -> None:
    accounts = {"work": {"month": CENT}}
    async with Gateway() as gateway:
        config = {"budgets": {"accounts": accounts, "conversation": CENT}}
        work = Account("work", gateway.url, "openresponses", "none")
        home = Account("home", gateway.url, "openresponses", "none")
        async with Engine.open(config) as engine:
            await ask(engine, request("long 3000", conversation="one"), account=home)
            with pytest.raises(BudgetExceeded, match="budget of the conversation"):
                await ask(engine, request(conversation="one"), account=home)
            await ask(engine, request("long 3000", conversation="two"), account=work)
            with pytest.raises(BudgetExceeded, match="monthly budget of the account work"):
                await ask(engine, request(conversation="three"), account=work)
            await ask(engine, request(conversation="three"), account=home)


async def test_a_program_that_repeats_requests_without_end_is_stopped() -> None:
    async with Gateway() as gateway, open_engine(gateway, requests_per_minute=3) as engine:
        for _ in range(3):
            await engine.create(request())
        with pytest.raises(BudgetExceeded, match="requests_per_minute is 3"):
            await engine.create(request())
        assert responses(gateway) == 3


MODEL_LIST = http(200, b'{"data": [{"id": "tollbridge/demo"}]}', {"content-type": "application/json"})


async def test_a_request_whose_price_is_not_known_is_refused() -> None:
    async with answering(MODEL_LIST) as server:
        async with Engine.open({"base_url": server.url, "budgets": {"day": 1}}) as engine:
            with pytest.raises(BudgetExceeded, match="The price of tollbridge/demo is not known"):
                await engine.create(request())
        assert not any("/v1/responses" in head for head in server.heads)


async def test_a_request_whose_price_is_not_known_is_sent_if_the_user_allows_it() -> None:
    stream = http(200, RECORDING.read_bytes(), {"content-type": "text/event-stream"})
    async with answering(MODEL_LIST, stream) as server:
        config = {"base_url": server.url, "budgets": {"day": 1, "unknown_prices": "allow"}}
        async with Engine.open(config) as engine:
            assert (await engine.create(request())).text
    assert spending() == (0, 0)


async def test_a_database_that_cannot_be_written_refuses_requests(folder: Path) -> None:
    limits = Limits(busy_timeout=0.05)
    async with (
        Gateway() as gateway,
        open_engine(gateway, SqliteStore(folder / "tollbridge.db", limits), day=Decimal(5)) as engine,
    ):
        await engine.create(request())
        with locked(folder / "tollbridge.db"), pytest.raises(BudgetExceeded, match="cannot be checked"):
            await engine.create(request())
        assert responses(gateway) == 1


async def test_an_engine_without_a_database_cannot_have_budgets() -> None:
    settings = Settings(base_url="http://127.0.0.1:9/v1", budgets=BudgetSettings(day=CENT))
    async with Engine.open(settings, persistent=False) as engine:
        with pytest.raises(RequestError, match="Budgets need the database"):
            await engine.create(request())


async def test_without_a_budget_nothing_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the budgets are used")

    monkeypatch.setattr("tollbridge.engine.BudgetRules", fail)
    async with Gateway() as gateway, open_engine(gateway) as engine:
        assert (await engine.create(request())).text
        assert await engine.budgets() == []
