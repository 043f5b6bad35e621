"""Quirks of real servers."""

from __future__ import annotations

import json

from tests.testing.client import LIST_DIR, WEATHER, Client, calls, read_loosely, types

TOOLS = [WEATHER, LIST_DIR]


async def test_items_are_interleaved(client: Client) -> None:
    events = (await client.stream("Hi fault:interleaved", tools=TOOLS)).events
    indexes = [event["output_index"] for event in events if "delta" in event]
    assert indexes[:4] == [0, 1, 0, 1]
    assert types(events)[2:4] == ["response.output_item.added"] * 2
    assert types(events)[-1] == "response.completed"


async def test_argument_deltas_are_obfuscated_and_done_is_plain(client: Client) -> None:
    events = (await client.stream("Hi fault:scrambled-arguments", tools=TOOLS)).events
    deltas = "".join(event["delta"] for event in events if "delta" in event)
    [done] = [event["arguments"] for event in events if event["type"].endswith("arguments.done")]
    assert deltas != done
    assert json.loads(done) == {"location": "location"}


async def test_both_calls_are_announced_at_index_0(client: Client) -> None:
    events = (await client.stream("Hi fault:wrong-index", tools=TOOLS)).events
    announced = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    ended = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert (announced, ended) == ([0, 0], [0, 1])


async def test_the_final_response_has_different_call_ids(client: Client) -> None:
    events = (await client.stream("Hi fault:renamed-calls", tools=TOOLS)).events
    [item] = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    [final] = calls(events[-1]["response"])
    assert final["call_id"] == item["call_id"] + "_again"


async def test_there_are_unknown_events(client: Client) -> None:
    kinds = types((await client.stream("Hi fault:vendor-events")).events)
    assert {"tollbridge:weather", "response.premonition.delta"} <= set(kinds)


async def test_there_are_lines_without_events(client: Client) -> None:
    data = (await client.stream("Hi fault:odd-lines")).data
    assert data.startswith(b"retry: 3000\n\nid: 0\nevent: response.created\n")
    assert b"\n\ndata:\n\n" in data
    assert read_loosely(data)[-1]["type"] == "response.completed"


async def test_a_sparse_stream_omits_optional_fields(client: Client) -> None:
    events = (await client.stream("Hi fault:sparse")).events
    final = events[-1]["response"]
    assert None not in final.values()
    assert "tools" not in final
    assert isinstance(final["created_at"], float)
    assert not any("content_index" in event for event in events)
