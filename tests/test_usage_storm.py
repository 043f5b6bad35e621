"""2,000 requests of several processes with random faults, kills and full disks: no usage is lost unnoticed.

The gateway notes what it reported for each answer. A process that keeps running records exactly that,
whatever happens to the stream or the disk. A process that is killed, or that cancels a request, may not have
seen what the gateway reported last: then a row says that its usage is not known, so that a sum is partial.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.storage.stored import open_store, stored_rows
from tollbridge.storage.rows import UsageRow
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.events import Usage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

REQUESTS, CONCURRENCY = 200, 4
# Eight processes run to their end, four of them with a disk that is full from time to time. The others are
# killed at about half of their requests.
WORKERS = {
    **{f"steady-{number}": "steady" for number in range(2)},
    **{f"cancelling-{number}": "cancelling" for number in range(2)},
    **{f"full-{number}": "full" for number in range(4)},
    **{f"killed-{number}": "killed" for number in range(4)},
}
FAULTS = (
    *("failed-counted", "failed-at-once", "failed", "disconnect", "reset", "error-event", "garbage"),
    *("hang-up-once", "server-error-once", "no-terminal", "usage-null", "cache-writes", "unauthorized"),
    *("reject-developer", "gzip", "cut-frames", "slow", "demo", "demo", "demo"),
)

WORKER = """
import asyncio, random, sys
from tollbridge import ChatRequest, Engine, Message, OpenResponsesClient, Role
from tollbridge.config.schema import Account
from tollbridge.config.schema import Settings
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import BridgeError

url, name, kind, requests, concurrency, *faults = sys.argv[1:]
chance = random.Random(name)

def fill_disk(full):
    import resource
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (0 if full else hard, hard))

async def ask(engine, account, number):
    text = f"Request {number} of {name} fault:{chance.choice(faults)}"
    messages = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, text))
    try:
        async with asyncio.timeout(chance.uniform(0.001, 0.05) if kind == "cancelling" else None):
            async with engine.turn(ChatRequest(model="tollbridge/demo", messages=messages), account) as turn:
                async for _ in turn.batches():
                    pass
    except (BridgeError, TimeoutError):
        pass

async def main():
    retries, timeouts = RetryPolicy(first=0.01, longest=0.1), Timeouts(idle=5)
    account = Account(name, url, "openresponses", "none", api_key=name)
    numbers = iter(range(int(requests)))
    async with (
        OpenResponsesClient(url, retries=retries, timeouts=timeouts) as client,
        Engine.open(Settings(), client=client) as engine,
    ):
        async def work():
            for number in numbers:
                if kind == "full":
                    fill_disk(number % 60 >= 20)  # 40 of 60 requests
                await ask(engine, account, number)
                print(number, flush=True)

        await asyncio.gather(*(work() for _ in range(int(concurrency))))
        if kind == "full":
            fill_disk(False)

asyncio.run(main())
"""


async def run_worker(name: str, kind: str, url: str, folder: Path) -> None:
    """Run a process to its end, or kill it while it has requests in flight."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, url, name, kind, str(REQUESTS), str(CONCURRENCY), *FAULTS),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TOLLBRIDGE_DATA_DIR": str(folder)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.ensure_future(process.stderr.read())
    kill_after = random.Random(name).randrange(REQUESTS // 4, REQUESTS * 3 // 4) if kind == "killed" else None
    done = 0
    while await process.stdout.readline():
        done += 1
        if done == kill_after:
            process.kill()
    code = await process.wait()
    assert code == (-9 if kind == "killed" else 0), (name, (await errors).decode())
    await errors


async def read_rows(folder: Path) -> list[UsageRow]:
    with open_store(folder / "tollbridge.db") as store:
        await store.usage.sums((), 0, 0)  # marks the rows of the killed processes
        return stored_rows(store)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit of the file size")
async def test_the_gateways_count_equals_the_ledgers(tmp_path: Path) -> None:
    async with Gateway(settings=FaultSettings(pace=0.001)) as gateway:
        waiting = list(WORKERS.items())
        random.Random(1).shuffle(waiting)

        async def work() -> None:
            while waiting:
                await run_worker(*waiting.pop(), gateway.url, tmp_path)

        await asyncio.gather(*(work() for _ in range(3)))
        counted = list(gateway.counted)
    assert len(counted) > 1500
    rows = await read_rows(tmp_path)
    assert {row.outcome for row in rows} == {"completed", "failed", "cancelled", "interrupted"}
    for name, kind in WORKERS.items():
        own = [row for row in rows if row.account == name]
        recorded = Counter(row.usage for row in own if row.usage.known)
        reported = Counter(answer.usage for answer in counted if answer.bearer == name and answer.usage)
        answers = [answer for answer in counted if answer.bearer == name]
        incomplete = Counter(row.outcome for row in own if row.incomplete)
        unseen = reported - recorded
        assert recorded - reported == Counter(), name
        # Every answer has a row: with its usage, or one that says that the usage is not known.
        assert len(own) >= len(answers), name
        assert incomplete.total() >= len(answers) - recorded.total(), name
        if kind in ("steady", "full"):
            assert unseen == Counter(), name
            assert total(recorded) == total(reported), name
            assert len({row.turn for row in own}) == REQUESTS, name
        else:
            assert unseen.total() <= incomplete["cancelled"] + incomplete["interrupted"], name
        assert incomplete["interrupted"] <= (CONCURRENCY if kind == "killed" else 0), name


def total(usages: Counter[Usage]) -> Usage:
    return sum((usage for usage in usages.elements()), Usage())
