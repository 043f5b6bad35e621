"""The gateway's own count of what it reported equals the sum of the rows, in every scenario."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.storage.stored import read_rows
from tests.turns import Runner
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.protocols import AiSdkClient, OpenResponsesClient
from tollbridge.protocols import BACKENDS, Backend
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.storage.tracker import UsageTracker
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Role

# The AI SDK's protocol has no usage in a failure.
NOT_IN_THE_AI_SDK = {"failed-counted"}
# The client stops reading before the usage.
NOT_READ = {"oversized-frame"}


def open_client(backend: Backend, gateway: Gateway) -> GatewayClient:
    timeouts, retries = Timeouts(idle=0.3), RetryPolicy(attempts=3, first=0.01, longest=0.5)
    if backend == "openresponses":
        return OpenResponsesClient(gateway.url, timeouts=timeouts, retries=retries)
    url = gateway.url.removesuffix("/v1") + "/v4/ai"
    return AiSdkClient(url, timeouts=timeouts, retries=retries)


CASES = [
    (scenario, backend)
    for scenario in sorted(SCENARIOS)
    for backend in BACKENDS
    if backend == "openresponses" or scenario not in NOT_IN_THE_AI_SDK
]


@pytest.mark.parametrize(("scenario", "backend"), CASES)
async def test_the_rows_add_up_to_what_the_gateway_counted(
    scenario: str, backend: Backend, tmp_path: Path
) -> None:
    settings = FaultSettings(stall_seconds=2, pace=0.001)
    store = SqliteStore(tmp_path / "store.db")
    tracker = UsageTracker(store.usage)
    messages = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hello"))
    request = ChatRequest(model="tollbridge/demo", messages=messages)
    async with Gateway(scenario=scenario, settings=settings) as gateway:
        async with open_client(backend, gateway) as client:
            for _ in range(2):
                with suppress(BridgeError):
                    async with Runner(client, tracker).turn(request) as turn:
                        async for _ in turn.batches():
                            pass
        store.close()
        counted = list(gateway.counted)
        attempts = [request for request in gateway.requests if not request.path.startswith("/moved")]
    rows = read_rows(tmp_path / "store.db")
    reported = [answer.usage for answer in counted if answer.usage and scenario not in NOT_READ]
    total = sum((row.usage for row in rows), Usage())
    # Images are counted by the client: no gateway reports their number.
    assert msgspec.structs.replace(total, images=None) == sum(reported, Usage())
    # Every answer without reported usage is a row that says so. There may be more: the gateway may end a
    # connection before it counts anything, which a client cannot know.
    assert sum(row.incomplete for row in rows) >= len(counted) - len(reported)
    assert len(rows) == len(attempts)
    assert {row.outcome for row in rows} <= {"completed", "failed"}
