"""How a scenario is chosen, redirects, and the table of scenarios."""

from __future__ import annotations

import re
from pathlib import Path

from tests.testing.client import Client

from tollbridge.testing.scenarios import SCENARIOS, describe_scenarios
from tollbridge.testing.server import Gateway
from tollbridge.testing.service import SCENARIO_HEADER


async def test_a_redirect_stays_on_its_host(client: Client, gateway: Gateway) -> None:
    assert (await client.ask("Hi fault:redirect")).status == 200
    assert [received.path for received in gateway.requests] == ["/v1/responses", "/moved/v1/responses"]


async def test_a_redirect_to_another_port_is_recorded_there(client: Client, gateway: Gateway) -> None:
    answer = await client.post(
        "/responses",
        {"model": "tollbridge/demo", "input": "Hi fault:redirect-elsewhere"},
        {"Authorization": "Bearer secret"},
    )
    assert answer.status == 200
    here, there = gateway.requests
    assert here.port == gateway.port != there.port
    assert (here.bearer, there.bearer) == ("secret", None)  # aiohttp's client removes the key


async def test_a_scenario_is_chosen_by_header_then_message_then_server(client: Client) -> None:
    body = {"model": "tollbridge/demo", "input": "Hi fault:forbidden"}
    headers = {SCENARIO_HEADER: "overloaded"}
    assert (await client.post("/responses", body, headers)).status == 503
    assert (await client.post("/responses", body)).status == 403
    async with Gateway(scenario="server-error") as gateway:
        async with client.session.post(f"{gateway.url}/responses", json={**body, "input": "Hi"}) as reply:
            assert reply.status == 500
        async with client.session.get(f"{gateway.url}/models") as reply:
            assert reply.status == 500


async def test_an_unknown_scenario_in_a_header_is_rejected(client: Client) -> None:
    answer = await client.get("/models", {SCENARIO_HEADER: "nonsense"})
    assert (answer.status, answer.error["code"]) == (400, "unknown_scenario")
    assert "cut-frames" in answer.error["message"]


def test_every_scenario_has_a_description_of_one_line() -> None:
    table = dict(describe_scenarios())
    assert set(table) == set(SCENARIOS)
    assert all(says and "\n" not in says and len(says) < 100 for says in table.values())


def test_the_documentation_has_the_same_table() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", page, re.MULTILINE)
    assert rows == describe_scenarios()
