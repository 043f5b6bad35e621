"""400 concurrent requests of four processes share a budget of one dollar, with cancels and kills.

The gateway charges what it reported for an answer. An answer that a client did not read to its end counts as
if the gateway had charged its last permitted token.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.storage.stored import read_status
from tollbridge.storage.budgets import Budget, BudgetStatus
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.server import Gateway
from tollbridge.testing.service import CountedAnswer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT = Decimal(1)
# Of `tollbridge/demo`, by hand from the gateway's model list. A prompt is not cached: all of them differ.
INPUT, OUTPUT = Decimal("0.000001"), Decimal("0.000004")
# More than one of these requests can reserve: 12,000 prompt tokens that are written to the cache, at 1.25
# times the price of input, and 500 output tokens. The longest prompt has 3,500 numbers of at most 3 digits.
LARGEST = Decimal("0.017")

WORKER = """
import asyncio, json, random, sys
from decimal import Decimal
from tollbridge import BridgeError, BudgetExceeded, ChatRequest, Engine, Message, Role
from tollbridge.config.schema import Account
from tollbridge.config.schema import BudgetSettings, Settings

url, name, requests, concurrency, seconds = sys.argv[1:]
chance = random.Random(name)

async def ask(engine, account, number):
    words = " ".join(str(chance.randrange(1000)) for _ in range(chance.randrange(1_000, 3_500)))
    text = f"slow long {chance.randrange(50, 400)}"
    limit = chance.randrange(100, 500)
    messages = [Message(Role.SYSTEM, f"{name} {number} {words}"), Message(Role.USER, text)]
    request = ChatRequest(model="tollbridge/demo", messages=messages, max_output_tokens=limit)
    outcome = {"outcome": "completed"}
    try:
        async with asyncio.timeout(chance.uniform(0.3, 2) if number % 5 == 0 else None):
            async with engine.turn(request, account) as turn:
                async for _ in turn.batches():
                    pass
    except BudgetExceeded as error:
        figures = {key: str(getattr(error, key)) for key in ("limit", "spent", "reserved", "estimate")}
        outcome = {"outcome": "refused", **figures}
    except TimeoutError:
        outcome = {"outcome": "cancelled"}
    print(json.dumps(outcome), flush=True)

async def main():
    settings = Settings(budgets=BudgetSettings(day=Decimal(1), requests_per_minute=0))
    account = Account(name, url, "openresponses", "none")
    async with Engine.open(settings) as engine:
        numbers = iter(range(int(requests)))

        async def work():
            for number in numbers:
                await ask(engine, account, number)

        await asyncio.gather(*(work() for _ in range(int(concurrency))))
        await asyncio.sleep(int(seconds))

asyncio.run(main())
"""


class Spending:
    """What the gateway charges at most for each answer that it began, by the id of the response."""

    def __init__(self) -> None:
        self.most: dict[str, Decimal] = {}

    def __call__(self, request: AcceptedRequest) -> None:
        tokens = request.body.max_output_tokens
        assert isinstance(tokens, int)
        self.most[request.id] = request.input_tokens * INPUT + tokens * OUTPUT

    def add_up(self, answers: Sequence[CountedAnswer]) -> Decimal:
        total = Decimal()
        for answer in answers:
            usage = answer.usage
            if usage is None:
                total += self.most[answer.response_id]
            else:
                total += (usage.input_tokens or 0) * INPUT + (usage.output_tokens or 0) * OUTPUT
        return total


async def run_worker(
    name: str,
    url: str,
    folder: Path,
    *,
    requests: int = 100,
    concurrency: int = 100,
    kill_after: int | None = None,
) -> list[dict[str, Any]]:
    """Return the outcomes of the requests of a process, which is killed after it has completed some."""
    seconds = "0" if kill_after is None else "60"  # it does not end before it is killed
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, url, name, str(requests), str(concurrency), seconds),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TOLLBRIDGE_DATA_DIR": str(folder)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.ensure_future(process.stderr.read())
    outcomes = []
    while line := await process.stdout.readline():
        outcomes.append(json.loads(line))
        completed = sum(outcome["outcome"] == "completed" for outcome in outcomes)
        if kill_after is not None and (completed == kill_after or len(outcomes) == requests):
            process.kill()
    assert await process.wait() == (0 if kill_after is None else -9), (await errors).decode()
    await errors
    return outcomes


def read_budget(folder: Path) -> BudgetStatus:
    return read_status(folder / "tollbridge.db", Budget(name="day", limit=LIMIT))


async def test_a_budget_holds_for_concurrent_requests_of_several_processes(tmp_path: Path) -> None:
    spending = Spending()
    async with Gateway(model=spending, settings=FaultSettings(pace=0.003)) as gateway:
        # Two of the four processes are killed while requests are running.
        kills = [None, None, 1, 3]
        results = await asyncio.gather(
            *(
                run_worker(f"worker-{number}", gateway.url, tmp_path, kill_after=kill_after)
                for number, kill_after in enumerate(kills)
            )
        )
        # The reservations of the killed processes have lapsed, and a fifth process uses what is left: most
        # requests of the storm were refused while the others had reserved more than they used.
        assert read_budget(tmp_path).reserved == 0
        results.append(await run_worker("worker-5", gateway.url, tmp_path, requests=300, concurrency=10))
        # Refusals are fast, so the fifth can have used up its requests while the last ones that were sent
        # still hold reservations. The sixth sends one request after the other.
        results.append(await run_worker("worker-6", gateway.url, tmp_path, requests=60, concurrency=1))
        charged = spending.add_up(gateway.counted)
        unread = sum(answer.usage is None for answer in gateway.counted)
    outcomes = [outcome for result in results for outcome in result]
    counts = {
        kind: sum(each["outcome"] == kind for each in outcomes)
        for kind in ("completed", "refused", "cancelled")
    }
    assert min(*counts.values(), unread) > 0, (counts, unread)
    assert charged <= LIMIT, counts
    for refusal in (outcome for outcome in outcomes if outcome["outcome"] == "refused"):
        limit, spent, reserved, estimate = (
            Decimal(refusal[name]) for name in ("limit", "spent", "reserved", "estimate")
        )
        assert spent + reserved <= limit
        assert estimate <= LARGEST
        assert limit - spent - reserved < estimate, "refused although the budget allows it"
    status = read_budget(tmp_path)
    assert status.reserved == 0
    assert LIMIT - LARGEST < status.spent <= LIMIT
    assert status.spent >= charged
    print(f"{counts}, {unread} answers not read to the end, {charged} charged, {status.spent} recorded")
