"""Output of commands: tables that fit the terminal, and the summary of a turn."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_process import tollbridge
from tests.storage.stored import write_rows
from tests.turns import answer_of

from tollbridge.cli.output import Column, describe_answer, fit_columns, to_json
from tollbridge.storage.rows import UsageRow
from tollbridge.testing.server import Gateway
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
    Usage,
)

NAME, WINDOW, PRICE = Column("name", min_width=6), Column("window"), Column("price", drop_order=1)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, {0: 10, 1: 6, 2: 5}),
        (25, {0: 10, 1: 6, 2: 5}),  # fits exactly
        (24, {0: 9, 1: 6, 2: 5}),  # the name is wrapped
        (20, {0: 10, 1: 6}),  # the price is dropped, and the name uses its width
        (14, {0: 6, 1: 6}),
        (13, {0: 5, 1: 6}),  # too narrow for the table: the name is wrapped as far as necessary
        (1, {0: 1, 1: 6}),
    ],
)
def test_the_least_important_columns_are_dropped_first(width: int, shown: dict[int, int]) -> None:
    assert fit_columns((NAME, WINDOW, PRICE), (10, 6, 5), width) == shown


def test_an_empty_column_is_not_shown() -> None:
    assert fit_columns((NAME, WINDOW, PRICE), (10, 0, 5), 80) == {0: 10, 2: 5}


def fill_usage(folder: Path) -> None:
    usage, now = Usage(12_345_678, 123_456, None, 9_876_543), time.time()
    models = ("anthropic/claude-sonnet-4.5", "openai/gpt-5.4")
    rows = [
        UsageRow(started=now, model=model, outcome="completed", usage=usage, first=1.2) for model in models
    ]
    failed = UsageRow(started=now, model="openai/gpt-5.4", outcome="failed")
    write_rows(folder / "tollbridge.db", *rows, failed)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
async def test_usage_fits_the_terminal_without_split_words(columns: int, tmp_path: Path) -> None:
    fill_usage(tmp_path)
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "COLUMNS": str(columns)}
    header, *lines = (await tollbridge("usage", env=env)).out.splitlines()
    assert max(map(len, [header, *lines[:-1]])) <= columns
    assert {"day", "model", "in", "out"} <= set(header.split())
    assert set(header.split()) <= set(
        "day model requests not completed in cached cache hits out first token by tokens cost".split()
    )
    table = "\n".join(lines)
    assert table.count("12,345,678") == 2
    if columns >= 80:
        assert "anthropic/claude-sonnet-4.5" in table
    assert lines[-1].startswith("Total: 3 requests (1 failed), 24,938,268 tokens")
    assert ("█" in table) == (columns >= 100)


@pytest.mark.parametrize("columns", [40, 80, 120])
async def test_models_and_settings_fit_the_terminal(columns: int, tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_CATALOG_DIR": str(tmp_path), "COLUMNS": str(columns)}
    async with Gateway() as gateway:
        listed = (await tollbridge("models", "--base-url", gateway.url, env=env)).out
    settings, _, _file = (await tollbridge("config", env=env)).out.partition("\n\n")
    assert max(map(len, (listed + settings).splitlines())) <= columns
    assert "…" not in listed + settings
    assert "128,000" in listed
    if columns >= 80:
        assert "tollbridge/plain " in listed
        assert "https://ai-gateway.vercel.sh/v1" in settings


async def test_without_a_terminal_nothing_is_wrapped(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_CATALOG_DIR": str(tmp_path), "COLUMNS": ""}
    async with Gateway() as gateway:
        listed = (await tollbridge("models", "--base-url", gateway.url, env=env)).out
    header, *lines = listed.splitlines()
    assert header.split()[0] == "model"
    assert [line.split()[0] for line in lines] == ["tollbridge/demo", "tollbridge/plain"]
    assert lines[0].endswith("implicit-caching, reasoning, tool-use, vision")


def describe(events: list[Event]) -> dict[str, Any]:
    return describe_answer(answer_of(events))


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
    assert describe(events) == {
        "text": "Hello",
        "reasoning": "Let me think.",
        "tool_calls": [
            {"call_id": "c1", "name": "get_weather", "input": {"city": "Oslo"}, "offered": True},
            {"call_id": "c2", "name": "search", "input": "free text", "offered": False},
        ],
        "files": [
            {
                "mime": "image/png",
                "length": 3,
                "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            },
            {"mime": "image/png", "length": None, "sha256": None, "url": "https://example.com/x.png"},
        ],
        "sources": [{"kind": "url", "id": "s1", "url": "https://example.com/", "title": "A"}],
        "data": [{"name": "status", "id": "st1", "value": {"state": "done"}}],
        "usage": {"input": 10, "output": 3, "total": 13, "cached": 2, "reasoning": None},
        "finish_reason": "tool-calls",
        "errors": [],
        "ended": "finish",
    }


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
    description = describe(events)
    assert (description["ended"], description["finish_reason"]) == (ended, reason)


def test_text_and_usage_before_a_failure_are_kept() -> None:
    error = RateLimited("slow down", status=429, code="rate_limit", request_id="r1", retry_after=2.0)
    error.usage = Usage(input_tokens=5)
    description = describe([TextDelta("Hi"), Failed(error)])
    assert description["text"] == "Hi"
    assert description["errors"] == [
        {
            "kind": "rate_limited",
            "message": "slow down",
            "status": 429,
            "code": "rate_limit",
            "request_id": "r1",
            "retry_after": 2.0,
        }
    ]
    assert description["usage"]["input"] == 5


@pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 0, 0)])
def test_unknown_usage_is_null_and_not_zero(usage: Usage | None) -> None:
    assert describe([Finished("stop", usage=usage)])["usage"] is None


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
