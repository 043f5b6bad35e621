from __future__ import annotations

import json
from typing import Any

import pytest

from tollbridge.cli.summary import Summary, summarise, to_json
from tollbridge.types.errors import Disconnected, RateLimited, StreamError
from tollbridge.types.events import (
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.usage import Usage


def test_the_events_of_a_turn_are_combined_in_order() -> None:
    events: list[Event] = [
        ReasoningDelta("Let me "),
        ReasoningDelta("think."),
        ReasoningEnded(metadata={"signature": "x"}),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCall("c1", "get_weather", {"city": "Oslo"}),
        ToolCall("c2", "search", "free text", offered=False),
        File("image/png", data=b"abc"),
        File("image/png", url="https://example.com/x.png"),
        Source("url", id="s1", url="https://example.com/", title="A"),
        Data("status", {"state": "done"}, id="st1"),
        Finished("tool-calls", usage=Usage(10, 3, 13, cached_tokens=2)),
    ]
    assert summarise(events) == Summary(
        text="Hello",
        reasoning="Let me think.",
        tool_calls=[
            {"call_id": "c1", "name": "get_weather", "input": {"city": "Oslo"}, "offered": True},
            {"call_id": "c2", "name": "search", "input": "free text", "offered": False},
        ],
        files=[
            {
                "mime": "image/png",
                "length": 3,
                "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            },
            {"mime": "image/png", "length": None, "sha256": None, "url": "https://example.com/x.png"},
        ],
        sources=[{"kind": "url", "id": "s1", "url": "https://example.com/", "title": "A"}],
        data=[{"name": "status", "id": "st1", "value": {"state": "done"}}],
        usage={"input": 10, "output": 3, "total": 13, "cached": 2, "reasoning": None},
        finish_reason="tool-calls",
        errors=[],
        ended="finish",
    )


@pytest.mark.parametrize(
    ("events", "ended", "reason"),
    [
        ([], "cut", None),
        ([Failed(Disconnected("gone"))], "cut", None),
        ([TextDelta("a"), Failed(RateLimited("slow down"))], "error", None),
        ([Failed(StreamError("nonsense")), Failed(Disconnected("gone"))], "error", None),
        ([Finished("unknown", ended="abort")], "abort", "unknown"),
        ([Finished("length", ended="incomplete")], "incomplete", "length"),
        ([Finished("error"), Failed(RateLimited("slow down"))], "finish", "error"),
    ],
)
def test_how_a_turn_ended(events: list[Event], ended: str, reason: str | None) -> None:
    summary = summarise(events)
    assert (summary.ended, summary.finish_reason) == (ended, reason)


def test_text_and_usage_before_a_failure_are_kept() -> None:
    error = RateLimited("slow down", status=429, code="rate_limit", request_id="r1", retry_after=2.0)
    error.usage = Usage(input_tokens=5)
    summary = summarise([TextDelta("Hi"), Failed(error)])
    assert summary.text == "Hi"
    assert summary.errors == [
        {
            "kind": "rate_limited",
            "message": "slow down",
            "status": 429,
            "code": "rate_limit",
            "request_id": "r1",
            "retry_after": 2.0,
        }
    ]
    assert summary.usage is not None
    assert summary.usage["input"] == 5


@pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 0, 0)])
def test_unknown_usage_is_null_and_not_zero(usage: Usage | None) -> None:
    assert summarise([Finished("stop", usage=usage)]).usage is None


@pytest.mark.parametrize(
    ("value", "read_back"),
    [
        ("\ud83d" + "\ude00", "😀"),
        ("half \ud83d of it", "half \ufffd of it"),
        ({"\ud83d": 1}, {"\ufffd": 1}),
        (float("nan"), None),
        ([float("inf"), -float("inf"), 1.5], [None, None, 1.5]),
        ({"a": [float("nan"), "\udc00", "é\u2028\x00"]}, {"a": [None, "\ufffd", "é\u2028\x00"]}),
        (10**400, 10**400),
    ],
)
def test_json_is_valid_for_every_parser(value: Any, read_back: Any) -> None:
    line = to_json(value)
    assert json.loads(line.encode()) == read_back
    assert "\n" not in line


def test_control_characters_are_escaped_and_read_back() -> None:
    controls = "".join(map(chr, (*range(32), *range(0x7F, 0xA0))))
    line = to_json({controls: controls, "é": "ü\u00a0"})
    assert not set(line) & set(controls)
    assert json.loads(line) == {controls: controls, "é": "ü\u00a0"}
    assert "é" in line
