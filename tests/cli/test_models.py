from __future__ import annotations

import json

from tests.cli.driving import tollbridge

from tollbridge.gateway import Gateway


async def test_models_are_a_table_for_people() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("models", env={"TOLLBRIDGE_BASE_URL": gateway.url})
    assert (result.code, result.err) == (0, "")
    header, demo, *_ = result.out.splitlines()
    assert header.split() == ["model", "window", "output", "in", "$/M", "out", "$/M", "can"]
    assert demo.split()[:5] == ["tollbridge/demo", "128,000", "64,000", "1.00", "4.00"]
    assert "embedding" in result.out


async def test_models_are_json_for_programs() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("models", "--json", "--base-url", gateway.url)
    demo, *_ = [json.loads(line) for line in result.out.splitlines()]
    assert demo["id"] == "tollbridge/demo"
    assert demo["context_window"] == 128_000
    assert "vision" in demo["tags"]
    assert demo["prices"] == {
        "input": "0.000001",
        "output": "0.000004",
        "cache_read": "0.0000001",
        "cache_write": "0.00000125",
    }


async def test_a_gateway_that_fails_is_an_error_of_one_line() -> None:
    async with Gateway(api_key="k") as gateway:
        result = await tollbridge("models", "--base-url", gateway.url + "/nowhere")
    assert result.code == 1
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
