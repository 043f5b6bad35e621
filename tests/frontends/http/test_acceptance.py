"""The acceptance cases of the OpenResponses specification, with `tollbridge serve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from tests.frontends.http.servers import local_server
from tests.testing import test_acceptance as acceptance
from tests.testing.client import Client
from tests.testing.conftest import QUICK

from tollbridge.protocols import BACKENDS, Backend
from tollbridge.testing.server import Gateway

Case = Callable[[Client], Awaitable[None]]
# The cases for every gateway. The others need something that only an OpenResponses gateway has.
CASES: tuple[Case, ...] = (
    acceptance.test_basic_response,
    acceptance.test_assistant_phase,
    acceptance.test_streaming_response,
    acceptance.test_system_prompt,
    acceptance.test_tool_calling,
    acceptance.test_image_input,
    acceptance.test_multi_turn,
    acceptance.test_websocket_response,
    acceptance.test_websocket_sequential_responses,
    acceptance.test_websocket_continuation,
    acceptance.test_websocket_reconnect_store_false_recovery,
    acceptance.test_websocket_previous_response_not_found,
    acceptance.test_websocket_failed_continuation_evicts_cache,
)
FORWARDED_CASES: tuple[Case, ...] = (
    acceptance.test_compact_response,
    acceptance.test_compact_missing_model,
    acceptance.test_websocket_compact_new_chain,
)


async def run_case(case: Case, backend: Backend) -> None:
    async with (
        Gateway(settings=QUICK) as gateway,
        local_server(gateway.url, backend) as server,
        aiohttp.ClientSession() as session,
    ):
        await case(Client(session, f"{server.url}/v1"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
async def test_a_case_passes_with_every_gateway(case: Case, backend: Backend) -> None:
    await run_case(case, backend)


@pytest.mark.parametrize("case", FORWARDED_CASES, ids=lambda case: case.__name__.removeprefix("test_"))
async def test_a_case_passes_with_a_gateway_of_the_same_protocol(case: Case) -> None:
    await run_case(case, "openresponses")


def test_all_cases_are_used() -> None:
    """The remaining case checks a schema, and needs no server."""
    names = {name for name in vars(acceptance) if name.startswith("test_")}
    used = {case.__name__ for case in (*CASES, *FORWARDED_CASES)}
    assert names - used == {"test_response_output_phase_schema"}
