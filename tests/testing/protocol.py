"""Check values against the specification: its JSON schema, if available, and the order of events."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

_ROOT = Path(__file__).resolve().parents[2]
_FILE = Path("openresponses") / "openapi-2026-04-24.json"
_PLACES = [os.environ.get("TOLLBRIDGE_SHARED"), _ROOT.parent / "shared", _ROOT.parent.parent / "shared"]


@functools.cache
def _document() -> dict[str, Any] | None:
    for place in _PLACES:
        if place and (path := Path(place) / _FILE).is_file():
            document = json.loads(path.read_text())
            assert isinstance(document, dict)
            return document
    return None


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    document = _document() or {}
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


@functools.cache
def _event_schemas() -> dict[str, str]:
    schemas = (_document() or {})["components"]["schemas"]
    names = [name for name in schemas if name.endswith("StreamingEvent")]
    return {schemas[name]["properties"]["type"]["enum"][0]: name for name in names}


def check_shape(value: Any, name: str) -> None:
    """Assert that the schema of that name allows the value. Without the file nothing is checked."""
    if _document() is None:
        return
    errors = sorted(_validator(name).iter_errors(value), key=lambda error: len(error.path))
    assert not errors, f"{name}: {errors[0].json_path}: {errors[0].message[:400]}"


def allows(value: Any, name: str) -> bool | None:
    """Whether the schema of that name allows the value; None if the file is not available."""
    return None if _document() is None else bool(_validator(name).is_valid(value))


def check_event_shapes(events: Sequence[dict[str, Any]]) -> None:
    if _document() is None:
        return
    for event in events:
        check_shape(event, _event_schemas()[event["type"]])


# Which event can follow which, for the events of a response.
_NEXT: dict[str, frozenset[str]] = {
    "": frozenset({"created"}),
    "created": frozenset({"queued", "in_progress"}),
    "queued": frozenset({"in_progress"}),
    "in_progress": frozenset({"completed", "failed", "incomplete"}),
}


def check_stream(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Assert that events are in order and add up, and return the final response."""
    numbers = [event["sequence_number"] for event in events]
    assert all(one < other for one, other in itertools.pairwise(numbers)), "numbers must increase"
    stage, items = "", _Items()
    for event in events:
        name = event["type"].removeprefix("response.")
        if "response" in event:
            assert name in _NEXT.get(stage, ()), f"{name} after {stage or 'nothing'}"
            assert event["response"]["id"] == events[0]["response"]["id"]
            stage = name
        elif name != "error":
            assert stage == "in_progress", f"{name} while {stage}"
            items.take(name, event)
    assert stage in ("completed", "failed", "incomplete"), "the response must end"
    final: dict[str, Any] = events[-1]["response"]
    assert final["status"] == stage
    if stage != "failed":
        assert items.finished == final["output"], "the items must be those of the response"
        check_usage(final)
    return final


def check_usage(response: dict[str, Any]) -> None:
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 <= usage["input_tokens_details"]["cached_tokens"] <= usage["input_tokens"]
    assert 0 <= usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]


_TEXTS = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning": "text",
    "reasoning_text": "text",
    "reasoning_summary_text": "text",
    "function_call_arguments": "arguments",
}


class _Items:
    """The items of a stream. Each is open from `added` to `done`, and its deltas are collected."""

    def __init__(self) -> None:
        self.finished: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._part: tuple[Any, ...] | None = None
        self._text = ""

    def take(self, name: str, event: dict[str, Any]) -> None:
        assert event["output_index"] == len(self.finished)
        if name == "output_item.added":
            assert self._open is None
            self._open, self._text = event["item"], ""
            return
        assert self._open is not None, f"{name} before its item"
        assert event.get("item_id", self._open["id"]) == self._open["id"]
        kind, _, stage = name.rpartition(".")
        if name == "output_item.done":
            self._end_item(event["item"])
        elif kind in ("content_part", "reasoning_summary_part"):
            self._take_part(stage, event)
        elif stage in ("delta", "done") and kind in _TEXTS:
            assert kind == "function_call_arguments" or self._part is not None, f"{name} outside its part"
            if stage == "delta":
                assert event["delta"]
                self._text += event["delta"]
            else:
                assert event[_TEXTS[kind]] == self._text, "the deltas must add up"

    def _take_part(self, stage: str, event: dict[str, Any]) -> None:
        at = (event.get("content_index"), event.get("summary_index"))
        if stage == "added":
            assert self._part is None
            assert not event["part"].get("text", "")
            self._part = at
        else:
            assert self._part == at
            self._part = None
            assert event["part"].get("text", event["part"].get("refusal")) == self._text

    def _end_item(self, item: dict[str, Any]) -> None:
        assert self._open is not None
        assert self._part is None
        for field in ("id", "type", "role", "name", "call_id"):
            assert item.get(field) == self._open.get(field)
        assert self._open.get("status", "in_progress") == "in_progress"
        assert item.get("status", "completed") in ("completed", "incomplete")
        self.finished.append(item)
        self._open = None
