"""Every fault does what its description says."""

from __future__ import annotations

import gzip
import json
import time
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import brotli  # type: ignore[import-untyped]
import pytest
from tests.testing.client import WEATHER, Client, output_text, read_events, read_loosely, types, user
from tests.testing.conftest import QUICK
from tests.testing.protocol import check_event_shapes, check_stream

from tollbridge.testing.server import Gateway

STATUSES = {
    "unauthorized": (401, "invalid_api_key"),
    "forbidden": (403, "forbidden"),
    "not-found": (404, "model_not_found"),
    "rate-limit": (429, "rate_limit_exceeded"),
    "rate-limit-date": (429, "rate_limit_exceeded"),
    "server-error": (500, "server_error"),
    "overloaded": (503, "overloaded"),
    "context-too-long": (400, "context_length_exceeded"),
}
# Only the framing and the bytes differ, the text does not.
HARMLESS = (
    "brotli",
    "byte-order-mark",
    "cache-writes",
    "changing-ids",
    "cr",
    "crlf",
    "cut-frames",
    "gzip",
    "keep-alive",
    "line-separators",
    "multi-line",
    "no-done",
    "no-event-lines",
    "no-sequence",
    "no-space",
    "one-write",
    "only-deltas",
    "open-items",
    "streams-anyway",
    "unterminated",
    "usage-null",
    "usage-zero",
)
BROKEN = ("disconnect", "reset", "stall")


@pytest.mark.parametrize("name", STATUSES)
async def test_an_error_has_its_status_and_code(client: Client, name: str) -> None:
    answer = await client.stream(f"Hi fault:{name}")
    assert (answer.status, answer.error["code"]) == STATUSES[name]
    assert all(isinstance(answer.error[field], str) for field in ("message", "type", "param", "code"))


async def test_retry_after_is_a_number_or_a_date(client: Client) -> None:
    assert (await client.ask("Hi fault:rate-limit")).headers["retry-after"] == "1"
    when = parsedate_to_datetime((await client.ask("Hi fault:rate-limit-date")).headers["retry-after"])
    assert 0 < when.timestamp() - time.time() <= 2


@pytest.mark.parametrize(("name", "status"), [("server-error-once", 500), ("rate-limit-once", 429)])
async def test_scenarios_that_fail_once_fail_once_per_request(client: Client, name: str, status: int) -> None:
    assert [(await client.ask(f"Hi fault:{name}")).status for _ in range(3)] == [status, 200, 200]
    assert (await client.ask(f"Something else fault:{name}")).status == status


async def test_reasoning_is_rejected_only_if_there_is_some(client: Client) -> None:
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "from elsewhere"}
    refused = await client.ask([thought, user("Hi fault:reject-reasoning")])
    assert (refused.status, refused.error["code"]) == (400, "invalid_encrypted_content")
    assert (await client.ask([user("Hi fault:reject-reasoning")])).status == 200


@pytest.mark.parametrize(
    ("name", "status", "kind", "start"),
    [
        ("html-error", 502, "text/html", b"<!DOCTYPE"),
        ("html-page", 200, "text/html", b"<!DOCTYPE"),
        ("text-error", 500, "text/plain", b"Internal"),
        ("empty-error", 500, "text/plain", b""),
        ("detail-error", 422, "application/json", b'{"detail":['),
        ("list-error", 400, "application/json", b'{"success":false,"error":['),
        ("string-error", 400, "application/json", b'{"error":"'),
        ("bare-error", 400, "application/json", b'{"error":{"message":"'),
        ("sse-error", 500, "text/event-stream", b"event: error\ndata: {"),
    ],
)
async def test_error_bodies_have_every_shape(
    client: Client, name: str, status: int, kind: str, start: bytes
) -> None:
    answer = await client.stream(f"Hi fault:{name}")
    assert (answer.status, answer.headers["content-type"].split(";")[0]) == (status, kind)
    assert answer.data.startswith(start)
    assert bool(answer.data) == bool(start)


@pytest.mark.parametrize("name", HARMLESS)
async def test_unusual_framing_does_not_change_the_text(client: Client, name: str) -> None:
    text = output_text((await client.ask("Grüße, 漢字, 🌉")).json)
    answer = await client.stream(f"Grüße, 漢字, 🌉 fault:{name}")
    events = read_loosely(answer.data.removeprefix(b"\xef\xbb\xbf"))
    deltas = "".join(event["delta"] for event in events if "delta" in event)
    assert deltas.startswith(text)
    assert output_text(events[-1]["response"]) == deltas


@pytest.mark.parametrize("name", HARMLESS)
async def test_harmless_faults_do_not_change_an_answer_in_one_body(client: Client, name: str) -> None:
    answer = await client.ask(f"Hi fault:{name}")
    if name == "streams-anyway":
        assert check_stream(read_events(answer.data))["status"] == "completed"
    else:
        assert answer.text.startswith("You said “Hi”.")


async def test_frames_are_split_inside_characters(gateway: Gateway) -> None:
    async with aiohttp.ClientSession() as session:
        body = {"model": "tollbridge/demo", "input": "🌉🌉🌉🌉🌉🌉 fault:cut-frames", "stream": True}
        async with session.post(f"{gateway.url}/responses", json=body) as reply:
            pieces = [chunk async for chunk, _ in reply.content.iter_chunks()]
    assert max(map(len, pieces)) <= 17 * 8  # one read can return several writes
    assert any(piece and piece[-1] >= 0x80 and not _decodes(piece) for piece in pieces)


@pytest.mark.parametrize(
    ("name", "there", "absent"),
    [
        ("crlf", b"\r\n\r\n", b"}\n"),
        ("cr", b"\r\r", b"\n"),
        ("no-event-lines", b"data: ", b"event:"),
        ("no-space", b"\ndata:{", b"data: "),
        ("no-done", b"response.completed", b"[DONE]"),
        ("keep-alive", b": keep-alive\n\nevent:", b"\r"),
        ("multi-line", b"\ndata: {\ndata:  ", b"data: {}"),
        ("byte-order-mark", b"\xef\xbb\xbfevent:", b"\r"),
        ("line-separators", "One\u2028".encode()[:3], b"\r"),
        ("no-sequence", b"response.completed", b"sequence_number"),
        ("only-deltas", b"output_text.delta", b"content_part"),
        ("open-items", b"output_item.added", b".done"),
    ],
)
async def test_the_framing_matches_the_name_of_the_scenario(
    client: Client, name: str, there: bytes, absent: bytes
) -> None:
    data = (await client.stream(f"Hi fault:{name}")).data
    assert there in data
    assert absent not in data


async def test_an_unterminated_stream_ends_in_its_json(client: Client) -> None:
    assert (await client.stream("Hi fault:unterminated")).data.endswith(b"}}")


@pytest.mark.parametrize(("name", "unpack"), [("gzip", gzip.decompress), ("brotli", brotli.decompress)])
async def test_compressed_streams_are_compressed(gateway: Gateway, name: str, unpack: Any) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        body = {"model": "tollbridge/demo", "input": f"Hi fault:{name}", "stream": True}
        async with session.post(f"{gateway.url}/responses", json=body) as reply:
            packed = await reply.read()
    assert check_stream(read_events(unpack(packed)))["status"] == "completed"


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_stream_has_some_output(gateway: Gateway, name: str) -> None:
    data = b""
    async with aiohttp.ClientSession() as session:
        body = {"model": "tollbridge/demo", "input": f"Hi fault:{name}", "stream": True}
        async with session.post(f"{gateway.url}/responses", json=body) as reply:
            with pytest.raises(aiohttp.ClientError):  # noqa: PT012
                async for chunk in reply.content.iter_any():
                    data += chunk
    assert "response.output_text.delta" in types(read_loosely(data))
    assert b"response.completed" not in data
    [received] = gateway.requests
    assert received.dropped
    assert received.disconnected_at is None


@pytest.mark.parametrize("name", [*BROKEN, "hang-up", "stall-headers"])
async def test_a_broken_answer_in_one_body_is_incomplete(client: Client, name: str) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.ask(f"Hi fault:{name}")


async def test_a_connection_that_is_closed_once_works_on_the_second_attempt(client: Client) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.ask("Hi fault:hang-up-once")
    assert (await client.ask("Hi fault:hang-up-once")).status == 200


async def test_a_stall_before_the_headers_ends(client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.stream("Hi fault:stall-headers")
    assert QUICK.stall_seconds <= time.monotonic() - began < QUICK.stall_seconds + 2


async def test_an_error_event_is_followed_by_failed(client: Client) -> None:
    events = (await client.stream("Hi fault:error-event")).events
    check_event_shapes(events)
    assert types(events)[-2:] == ["error", "response.failed"]
    assert check_stream(events)["error"]["code"] == "server_error"
    assert any("delta" in event for event in events)


async def test_a_flat_error_event_ends_the_stream(client: Client) -> None:
    last = read_loosely((await client.stream("Hi fault:error-event-flat")).data)[-1]
    assert sorted(last) == ["code", "message", "param", "sequence_number", "type"]


@pytest.mark.parametrize("name", ["failed", "failed-at-once", "failed-counted"])
async def test_a_failed_response_has_an_error(client: Client, name: str) -> None:
    events = (await client.stream(f"Hi fault:{name}")).events
    check_event_shapes(events)
    last = events[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["message"]
    assert any("delta" in event for event in events) == (name == "failed")
    whole = await client.ask(f"Hi fault:{name}")
    assert (whole.status, whole.json["status"]) == (200, "failed")


async def test_a_stream_without_a_terminal_event_ends_cleanly(client: Client) -> None:
    assert "delta" in (await client.stream("Hi fault:no-terminal")).events[-1]


async def test_garbage_follows_some_output(client: Client) -> None:
    data = (await client.stream("Hi fault:garbage")).data
    assert b"output_text.delta" in data
    with pytest.raises(UnicodeDecodeError):
        data.decode()


async def test_a_content_filter_makes_the_response_incomplete(client: Client) -> None:
    response = (await client.ask("Hi fault:content-filter")).json
    assert response["incomplete_details"] == {"reason": "content_filter"}


async def test_an_oversized_frame_has_the_configured_size(client: Client) -> None:
    frames = (await client.stream("Hi fault:oversized-frame")).data.split(b"\n\n")
    assert QUICK.oversized_bytes < max(map(len, frames)) < QUICK.oversized_bytes + 1_000


async def test_ids_change_with_every_event(client: Client) -> None:
    events = (await client.stream("Hi fault:changing-ids")).events
    ids = [event["item_id"] for event in events if "item_id" in event]
    assert len(set(ids)) == len(ids) > 5


ARGUMENTS = '{"location":"location"}'


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("arguments-in-done", ["arguments.done", "item.done", "completed"]),
        ("arguments-in-item", ["item.done", "completed"]),
        ("arguments-in-response", ["completed"]),
    ],
)
async def test_arguments_are_only_in_a_later_event(client: Client, name: str, places: list[str]) -> None:
    events = (await client.stream(f"Hi fault:{name}", tools=[WEATHER])).events
    escaped = json.dumps(ARGUMENTS)
    holding = list(types([e for e in events if escaped in json.dumps(e)]))
    assert [kind.replace("response.function_call_", "").split(".", 1)[-1] for kind in holding] == [
        place.replace("item.done", "output_item.done").replace("arguments.done", "done") for place in places
    ]
    assert not any("delta" in event for event in events)


async def test_a_call_is_announced_twice(client: Client) -> None:
    events = (await client.stream("Hi fault:duplicate-added", tools=[WEATHER])).events
    one, other = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert one["call_id"] == other["call_id"]
    assert one["id"] != other["id"]


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("reasoning-summary", "response.reasoning_summary_text.delta"),
        ("reasoning-raw", "response.reasoning.delta"),
        ("reasoning-text", "response.reasoning_text.delta"),
    ],
)
async def test_reasoning_has_three_names(client: Client, name: str, event: str) -> None:
    events = (await client.stream(f"Hi fault:{name}")).events
    assert event in types(events)
    check_stream(events)


@pytest.mark.parametrize(("name", "total"), [("usage-null", None), ("usage-zero", 0)])
async def test_usage_is_null_or_zero(client: Client, name: str, total: int | None) -> None:
    usage = (await client.stream(f"Hi fault:{name}")).events[-1]["response"]["usage"]
    assert (usage["total_tokens"] if usage else usage) == total


async def test_a_failed_response_can_report_what_it_has_used(client: Client) -> None:
    usage = (await client.stream("Hi fault:failed-counted")).events[-1]["response"]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


async def test_cache_writes_are_the_input_that_was_not_in_the_cache(client: Client) -> None:
    usage = (await client.stream("Hi fault:cache-writes")).events[-1]["response"]["usage"]
    details = usage["input_tokens_details"]
    assert details["cache_write_tokens"] == usage["input_tokens"] - details["cached_tokens"] > 0


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


async def test_a_fault_is_found_after_a_quotation_mark(client: Client) -> None:
    assert (await client.ask('"fault:rate-limit"')).status == 429


async def test_a_retry_with_another_order_of_members_is_the_same_request(client: Client) -> None:
    first = await client.ask("Hi fault:rate-limit-once", metadata={"a": "1", "b": "2"})
    second = await client.ask("Hi fault:rate-limit-once", metadata={"b": "2", "a": "1"})
    assert (first.status, second.status) == (429, 200)
