"""The cost of a turn through a real server: in the result, in the row, and asked for later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.storage.stored import read_rows
from tollbridge import Account, ChatRequest, Engine, Message, NotFound, Role, Settings
from tollbridge.clients.protocols import AiSdkClient
from tollbridge.observers.bills import PENDING_LIMIT, BillLookup
from tollbridge.protocols.billing import Credits, Generation
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.storage.tracker import UsageTracker
from tollbridge.types.errors import BridgeError, Disconnected
from tollbridge.types.events import Billing, Cost, Usage

MODEL = "anthropic/claude-sonnet-4.5"
KEY = "sk-test-key-of-the-user"
PRICING = {"input": "0.000003", "output": "0.000015"}
GENERATION = "gen_01"
HELLO = ChatRequest(model=MODEL, messages=[Message(Role.USER, "Hello")], conversation="chat-1")


class BillingGateway:
    """A gateway that streams an answer and keeps a record of it.

    Attributes:
        metadata: `provider_metadata.gateway` of the answer.
        cut: Whether the stream ends before the answer does.
        record: What `/v1/generation` returns; 404 while it is `None`.
        asked: The ids that were asked for.
    """

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.cut = False
        self.record: dict[str, Any] | None = None
        self.requested_ids: list[str] = []
        self.was_asked = asyncio.Event()
        self.keys: set[str | None] = set()
        self.url = ""

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL, "type": "language", "pricing": PRICING}]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        created = {"type": "response.created", "response": {"id": GENERATION, "status": "in_progress"}}
        delta = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "delta": "Hi"}
        usage = {"input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100}
        body = {"id": "r", "status": "completed", "output": [], "usage": usage}
        ended = {"type": "response.completed", "response": {**body, "provider_metadata": self.metadata}}
        for event in (created, delta) if self.cut else (created, delta, ended):
            await response.write(b"data: %b\n\n" % json.dumps(event).encode())
        return response

    async def generation(self, request: web.Request) -> web.Response:
        self.requested_ids.append(request.query["id"])
        self.was_asked.set()
        self.keys.add(request.headers.get("authorization"))
        return web.json_response({"data": self.record}) if self.record else web.Response(status=404)

    async def credits(self, _: web.Request) -> web.Response:
        return web.json_response({"balance": "95.50", "total_used": "4.50"})


@asynccontextmanager
async def gateway() -> AsyncIterator[BillingGateway]:
    server = BillingGateway()
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/responses", server.answer)
    app.router.add_get("/v1/generation", server.generation)
    app.router.add_get("/v1/credits", server.credits)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def account(server: BillingGateway) -> Account:
    return Account("work", server.url, "openresponses", "none", api_key=KEY)


async def test_billed_and_computed_cost_are_side_by_side() -> None:
    async with gateway() as server, Engine.open(Settings(), persistent=False) as engine:
        server.metadata = {
            "gateway": {
                "cost": "0.0045",
                "generationId": GENERATION,
                "routing": {"finalProvider": "bedrock"},
            }
        }
        await engine.models(account(server))
        result = await engine.create(HELLO, account(server))
        [row] = engine.usage.records
    # 1000 x 0.000003 + 100 x 0.000015
    assert result.cost == Cost(Decimal("0.0045"), Decimal("0.0045"), Decimal("0.0045"), "gateway")
    assert result.to_dict()["cost"]["billed"] == "0.0045"
    assert (row.provider, row.generation_id, row.conversation) == ("bedrock", GENERATION, "chat-1")
    assert (row.cost, row.billed, row.charge) == (Decimal("0.0045"),) * 3
    assert row.cost_source == "gateway"
    assert server.requested_ids == []


async def test_a_difference_is_explained_in_the_result() -> None:
    async with gateway() as server, Engine.open(Settings(), persistent=False) as engine:
        server.metadata = {"gateway": {"cost": "0.009", "routing": {"finalProvider": "vertex"}}}
        await engine.models(account(server))
        result = await engine.create(HELLO, account(server))
    assert (result.cost.computed, result.cost.charge) == (Decimal("0.0045"), Decimal("0.009"))
    assert result.cost.difference == "The provider vertex may charge other prices than the model list says."


async def test_without_a_bill_the_computed_cost_is_charged_and_without_prices_nothing_is_known() -> None:
    async with gateway() as server, Engine.open(Settings(), persistent=False) as engine:
        unknown = await engine.create(HELLO, account(server))
        await engine.models(account(server))
        known = await engine.create(HELLO, account(server))
    assert unknown.cost == Cost()
    assert known.cost == Cost(Decimal("0.0045"), None, Decimal("0.0045"), "list")


async def wait_for_bill(path: Path) -> UsageRow:
    """Read the database until the row of the only attempt has a bill."""
    async with asyncio.timeout(10):
        while True:
            rows = await asyncio.to_thread(read_rows, path)
            if rows and rows[0].billed is not None:
                return rows[0]
            await asyncio.sleep(0.02)


async def test_the_cost_of_a_cut_stream_is_asked_for_later_and_delays_no_turn(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    store = SqliteStore(path)
    tracker = UsageTracker(store.usage)
    async with gateway() as server, Engine.open(Settings(), persistent=False, usage=tracker) as engine:
        server.cut = True
        await engine.models(account(server))
        with pytest.raises(Disconnected):
            await engine.create(HELLO, account(server))
        assert server.requested_ids == []  # the turn has ended, and the first question comes later
        async with asyncio.timeout(10):
            await server.was_asked.wait()
        server.record = {
            "id": GENERATION,
            "total_cost": "0.003",
            "provider_name": "vertex",
            "native_tokens_prompt": 1_000,
            "native_tokens_completion": 0,
        }
        row = await wait_for_bill(path)
        [record] = tracker.records
    store.close()
    assert set(server.requested_ids) == {GENERATION}
    assert 2 <= len(server.requested_ids) <= 3
    assert server.keys == {f"Bearer {KEY}"}
    assert row.outcome == "failed"
    assert (row.billed, row.cost, row.cost_source) == (Decimal("0.003"), Decimal("0.003"), "generation")
    assert (row.usage, row.provider, row.incomplete) == (Usage(1_000, 0, 1_000), "vertex", False)
    assert record.billed == row.billed
    assert (tracker.total(), tracker.incomplete()) == (Usage(1_000, 0, 1_000), 0)
    assert KEY.encode() not in path.read_bytes()


async def test_a_row_that_has_a_bill_keeps_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "usage.db")
    tracker = UsageTracker(store.usage)
    row = UsageRow(key="k", turn="k", started=1.0, model=MODEL, outcome="completed", billed=Decimal("0.1"))
    for billed in ("0.1", "0.2"):
        written = tracker.amend(UsageRow(**{**_fields(row), "billed": Decimal(billed)}))
        assert written is not None
        await written
    store.close()
    assert [each.billed for each in read_rows(tmp_path / "usage.db")] == [Decimal("0.1")]


def _fields(row: UsageRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in UsageRow.__struct_fields__}


async def test_asking_ends_after_the_last_delay_and_is_limited() -> None:
    tracker, requests = UsageTracker(), 0

    async def fetch(_: str) -> Generation:
        nonlocal requests
        requests += 1
        raise NotFound("not yet", status=404)

    lookup = BillLookup(tracker, delays=(0.0, 0.0))
    row = UsageRow(key="k", started=0.0, model=MODEL, outcome="failed", generation_id=GENERATION)
    for _ in range(PENDING_LIMIT + 5):
        lookup.submit(row, fetch)
    await asyncio.gather(*lookup._tasks)
    assert requests == 2 * PENDING_LIMIT
    assert not tracker.records


async def test_a_gateway_that_refuses_is_asked_once() -> None:
    requests = 0

    async def fetch(_: str) -> Generation:
        nonlocal requests
        requests += 1
        raise BridgeError("no")

    lookup = BillLookup(UsageTracker(), delays=(0.0, 0.0, 0.0))
    lookup.submit(UsageRow(started=0.0, model=MODEL, outcome="failed", generation_id="g"), fetch)
    await asyncio.gather(*lookup._tasks)
    assert requests == 1


async def test_closing_the_engine_stops_the_questions() -> None:
    async with gateway() as server:
        async with Engine.open(Settings(), persistent=False) as engine:
            server.cut = True
            with pytest.raises(Disconnected):
                await engine.create(HELLO, account(server))
        assert server.requested_ids == []


async def test_the_balance_of_an_account_is_reported() -> None:
    async with gateway() as server, Engine.open(Settings(), persistent=False) as engine:
        assert await engine.credits(account(server)) == Credits(Decimal("95.50"), Decimal("4.50"))


async def test_the_endpoints_are_next_to_the_path_of_the_ai_sdk() -> None:
    async with gateway() as server, AiSdkClient(server.url.removesuffix("/v1") + "/v4/ai") as client:
        server.record = {"id": "gen_2", "total_cost": 0.5}
        generation = await client.generation("gen_2", api_key=KEY)
        assert generation.billing == Billing(Decimal("0.5"), "generation", generation_id="gen_2")
        assert (await client.credits()).balance == Decimal("95.50")
