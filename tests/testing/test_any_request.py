"""Any JSON is answered or rejected, and never causes an exception in the server."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testing.client import DEMO, WEATHER, assistant, result, user

from tollbridge.testing.conversation import find_fault_name
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.service import Service

CALL = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}
PARTS = [
    {"type": "input_text", "text": "Think and use a tool"},
    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
]
BODY: dict[str, Any] = {
    "model": DEMO,
    "input": [
        {"role": "system", "content": "Be brief"},
        user(PARTS),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "x"},
        CALL,
        result("c1", [*PARTS, {"type": "input_video", "video_url": "https://x/"}]),
        assistant([{"type": "output_text", "text": "Hi"}, {"type": "refusal", "refusal": "No"}]),
        {"type": "compaction", "encrypted_content": "tollbridge1.!!"},
        {"type": "item_reference", "id": "msg_1"},
        user("Draw, cite, in parallel, at length"),
    ],
    "tools": [WEATHER, {"type": "function", "name": "f", "parameters": {"$ref": "#/x"}}],
    "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}], "mode": "auto"},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"a": "b"},
    "include": ["reasoning.encrypted_content"],
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [here] if here else []
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        paths += _paths(inner, (*here, key))
    return paths


PATHS = _paths(BODY)
DROP = object()


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with the value at the path replaced or dropped."""
    if not path:
        return new
    if not isinstance(value, dict | list):
        return value
    copy = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    if path[0] in copy:
        copy[path[0]] = _changed(copy[path[0]], path[1:], new)
    kept = {key: inner for key, inner in copy.items() if inner is not DROP}
    return kept if isinstance(value, dict) else list(kept.values())


def _answered_or_refused(body: Any, scenario: str) -> None:
    service = Service("demo", None, FaultSettings())
    find_fault_name(body.get("input"))
    try:
        turn = service.accept(body)
    except RequestRejected as refused:
        assert 400 <= refused.status < 500  # noqa: PT017
        return
    assert list(service.make_steps(turn, SCENARIOS[scenario]))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PATHS), JSON | st.just(DROP)), min_size=1, max_size=3),
    st.sampled_from(sorted(SCENARIOS)),
)
def test_an_invalid_request_is_answered_or_rejected(
    changes: list[tuple[tuple[Any, ...], Any]], scenario: str
) -> None:
    body = _changed(BODY, ("input", 7), DROP)  # there is no stored item to refer to
    for path, new in changes:
        body = _changed(body, path, new)
    _answered_or_refused(body, scenario if scenario != "oversized-frame" else "demo")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([*BODY, "stream", "store", "previous_response_id"]), JSON))
def test_any_object_is_answered_or_rejected(body: dict[str, Any]) -> None:
    _answered_or_refused({"model": DEMO, **body}, "demo")


def test_the_unchanged_request_is_valid() -> None:
    service = Service("demo", None, FaultSettings())
    service.accept(_changed(BODY, ("input", 7), DROP))
