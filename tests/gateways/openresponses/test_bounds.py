"""What a server may say without end or measure, and what comes of it: nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tollbridge.core.events import Event, Finished, TextDelta
from tollbridge.core.usage import Usage
from tollbridge.gateways.openresponses.decode import StreamDecoder
from tollbridge.gateways.openresponses.wire import Fields, read_usage

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
    """The text and how it ended."""
    return [
        TextDelta(event.text) if isinstance(event, TextDelta) else Finished(event.reason)
        for event in events
        if isinstance(event, TextDelta | Finished)
    ]


@pytest.mark.parametrize("space", [b" ", b"\n", b"\r\n", b" \t \r\n"], ids=repr)
@pytest.mark.parametrize("form", ["body", "stream"])
def test_any_amount_of_white_space_before_an_answer_costs_next_to_nothing(space: bytes, form: str) -> None:
    body = json.dumps(ANSWER).encode()
    if form == "stream":
        body = b'\ndata: {"type":"response.completed","response":' + body + b"}\n\n"
    flood = [space * (16_384 // len(space))] * 2_000
    started = time.process_time()
    assert essence(read(*flood, body)) == TOLD
    assert time.process_time() - started < 2.0


def test_a_byte_order_mark_may_be_cut_anywhere() -> None:
    body = b"\xef\xbb\xbf" + json.dumps(ANSWER).encode()
    for cut in range(1, 6):
        assert essence(read(body[:cut], body[cut:])) == TOLD


@pytest.mark.parametrize("odd", [10**30, 2**63, 1e300, -7, float("inf"), True, "many"])
@pytest.mark.parametrize("place", ["input_tokens", "output_tokens", "total_tokens", "cached", "reasoning"])
def test_a_count_that_cannot_be_one_is_unknown(odd: object, place: str) -> None:
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    details = {"cached": ("input_tokens_details", "cached_tokens")}
    details["reasoning"] = ("output_tokens_details", "reasoning_tokens")
    if place in details:
        outer, inner = details[place]
        usage[outer] = {inner: odd}
    else:
        usage[place] = odd
    found = read_usage(Fields(usage))
    assert found is not None
    counts = (found.input_tokens, found.output_tokens, found.total_tokens)
    assert all(count in (None, 5, 10, 15) for count in counts)
    assert (found.cached_tokens, found.reasoning_tokens) == (None, None)


def test_counts_that_are_right_are_kept() -> None:
    found = read_usage(Fields({"input_tokens": 0, "output_tokens": "12", "total_tokens": 12.0}))
    assert found == Usage(0, 12, 12)
