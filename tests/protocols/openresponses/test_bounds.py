"""Unlimited or invalid input of a server has no effect."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.pumps import compare

from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.protocols.openresponses.wire import read_usage
from tollbridge.types.events import Event, Finished, TextDelta, ToolCall, Usage

ANSWER: dict[str, Any] = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello."}]}],
}
TOLD = [TextDelta("Hello."), Finished("stop")]


def read(*chunks: bytes) -> list[Event]:
    decoder = StreamDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


def essence(events: list[Event]) -> list[Event]:
    """Return the text and the end of the response."""
    return [
        TextDelta(event.text) if isinstance(event, TextDelta) else Finished(event.reason)
        for event in events
        if isinstance(event, TextDelta | Finished)
    ]


@pytest.mark.series
@pytest.mark.parametrize("space", [b" ", b"\n", b"\r\n", b" \t \r\n"], ids=repr)
@pytest.mark.parametrize("form", ["body", "stream"])
def test_white_space_before_a_response_needs_no_memory(space: bytes, form: str) -> None:
    body = json.dumps(ANSWER).encode()
    if form == "stream":
        body = b'\ndata: {"type":"response.completed","response":' + body + b"}\n\n"
    flood = [space * (16_384 // len(space))] * 2_000
    started = time.process_time()
    assert essence(read(*flood, body)) == TOLD
    assert time.process_time() - started < 2.0


def test_a_byte_order_mark_can_be_split_anywhere() -> None:
    body = b"\xef\xbb\xbf" + json.dumps(ANSWER).encode()
    for cut in range(1, 6):
        assert essence(read(body[:cut], body[cut:])) == TOLD


@pytest.mark.parametrize("odd", [10**30, 2**63, 1e300, -7, float("inf"), True, "many"])
@pytest.mark.parametrize("place", ["input_tokens", "output_tokens", "total_tokens", "cached", "reasoning"])
def test_an_invalid_token_count_is_unknown(odd: object, place: str) -> None:
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    details = {"cached": ("input_tokens_details", "cached_tokens")}
    details["reasoning"] = ("output_tokens_details", "reasoning_tokens")
    if place in details:
        outer, inner = details[place]
        usage[outer] = {inner: odd}
    else:
        usage[place] = odd
    events = read_usage(usage)
    assert events is not None
    counts = (events.input_tokens, events.output_tokens, events.total_tokens)
    assert all(count in (None, 5, 10, 15) for count in counts)
    assert (events.cached_tokens, events.reasoning_tokens) == (None, None)


def test_valid_token_counts_are_kept() -> None:
    events = read_usage({"input_tokens": 0, "output_tokens": "12", "total_tokens": 12.0})
    assert events == Usage(0, 12, 12)


@pytest.mark.slow
@pytest.mark.parametrize("ended", [False, True])
def test_decoding_time_is_linear_in_the_number_of_items(ended: bool) -> None:
    count = 40_000
    call: dict[str, Any] = {"type": "function_call", "name": "f", "arguments": "{}"}
    items = [{**call, "id": f"fc_{n}", "call_id": f"c{n}"} for n in range(count)]
    events = [
        {"type": "response.output_item.added", "output_index": n, "item": {**item, "arguments": ""}}
        for n, item in enumerate(items)
    ]
    end = {
        "type": "response.completed",
        "response": {"status": "completed", "output": items if ended else []},
    }
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in [*events, end]).encode()
    started = time.process_time()
    calls = [event for event in read(stream) if isinstance(event, ToolCall)]
    assert time.process_time() - started < 10.0  # 2 s on an idle core; a quadratic search took 14 s
    assert len(calls) == count


def unindexed(kind: str, count: int) -> bytes:
    """Return a stream of items without index and id, each of them complete."""
    items: list[dict[str, Any]] = []
    for number in range(count):
        match kind:
            case "message":
                content = {"content": [{"type": "output_text", "text": f"{number} "}]}
            case "reasoning":
                content = {"summary": [{"type": "summary_text", "text": f"{number} "}]}
            case _:
                content = {"name": "f", "arguments": "{}", "call_id": f"c{number}"}  # type: ignore[dict-item]
        items.append({"type": kind, **content})
    events: list[dict[str, Any]] = [{"type": "response.output_item.done", "item": item} for item in items]
    events.append({"type": "response.completed", "response": {"status": "completed", "output": items}})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


@pytest.mark.series
@pytest.mark.timed
@pytest.mark.parametrize("kind", ["message", "reasoning", "function_call"])
def test_decoding_time_is_linear_in_the_number_of_items_without_index(kind: str) -> None:
    # Four times the items; a quadratic search took 16 times as long.
    assert compare(read, unindexed(kind, 4_000), unindexed(kind, 16_000), limit=7, repeats=3) < 7
