"""Every recorded AI SDK stream decodes to the events of its scenario.

The recordings are bytes that real releases of the SDK sent. `index.json` contains the expected result of each
scenario; it was written from the scenario, not from the output of a decoder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollbridge.protocols.ai_sdk.stream import DataDecoder, FullDecoder, ModelDecoder, UiDecoder
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

T = TypeVar("T")
RECORDINGS = Path(__file__).parents[2] / "recordings" / "aisdk"
Decoder = DataDecoder | FullDecoder | ModelDecoder | UiDecoder
DECODERS: dict[str, type[Decoder]] = {
    ".full.jsonl": FullDecoder,
    ".ui.ds.txt": DataDecoder,
    ".ui.sse": UiDecoder,
}


class Recorded(NamedTuple):
    path: Path
    decoder: type[Decoder]
    expected: dict[str, Any]


def _recorded() -> list[Recorded]:
    recordings = []
    for index in sorted(RECORDINGS.glob("*/index.json")):
        for scenario in json.loads(index.read_text(encoding="utf-8"))["scenarios"]:
            for kind in ("full", "ui"):
                name = scenario["files"].get(kind)
                if name and (index.parent / name).exists():
                    suffix = next(suffix for suffix in DECODERS if name.endswith(suffix))
                    recordings.append(
                        Recorded(index.parent / name, DECODERS[suffix], scenario["expected"][kind])
                    )
    return recordings


RECORDED = _recorded()
BY_NAME = {f"{item.path.parent.name}/{item.path.name}": item for item in RECORDED}
every = pytest.mark.parametrize("recorded", RECORDED, ids=list(BY_NAME))


def decode(decoder: Decoder, chunks: Iterable[bytes]) -> list[Event]:
    events: list[Event] = []
    for chunk in chunks:
        events += decoder.feed(chunk)
    return events + decoder.close()


def fold(events: Sequence[Event]) -> dict[str, Any]:
    """Return the result of a stream, independent of how its deltas are split."""
    texts = {TextDelta: "", ReasoningDelta: ""}
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            before = texts[type(event)]
            texts[type(event)] = before[: len(before) - event.replaces] + event.text
    return {
        "text": texts[TextDelta],
        "reasoning": texts[ReasoningDelta],
        "rest": [event for event in events if not isinstance(event, TextDelta | ReasoningDelta)],
    }


def of_kind(events: Sequence[Event], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def events_of(recorded: Recorded) -> list[Event]:
    return decode(recorded.decoder(), [recorded.path.read_bytes()])


def test_there_is_a_recording_for_every_version() -> None:
    assert len(RECORDED) == 290
    assert {item.path.parent.name for item in RECORDED} == {"4.3.19", "6.0.326", "7.0.169"}


@every
def test_text_and_reasoning_are_those_of_the_scenario(recorded: Recorded) -> None:
    texts = fold(events_of(recorded))
    if recorded.path.name == "unknown-type-model.ui.sse":
        # Here the SDK ended its own stream before it sent anything: the recording is empty.
        assert texts["text"] in (recorded.expected["text"], "")
    else:
        assert texts["text"] == recorded.expected["text"]
    assert texts["reasoning"] == recorded.expected["reasoning"]


@every
def test_calls_are_those_of_the_scenario_and_only_the_editors_are_offered(
    recorded: Recorded,
) -> None:
    expected = recorded.expected
    answered = {result["id"] for result in expected["toolResults"]} | set(expected.get("deniedToolCalls", ()))
    if recorded.path.match("4.3.19/tool-executed-error.*"):
        answered.add("call_1")  # the backend ran it; version 4 tells of its failure in an error
    calls = [
        {
            "call_id": call["id"],
            "name": call["name"],
            "input": call["input"],
            "offered": not (call.get("invalid") or call.get("providerExecuted") or call["id"] in answered),
        }
        for call in expected["toolCalls"]
    ]
    calls += [
        {"call_id": pending["id"], "name": pending["name"], "input": pending["parsed"], "offered": True}
        for pending in expected.get("pendingToolInputs", ())
        if pending["parsed"] is not None
    ]
    recordings = [
        {"call_id": call.call_id, "name": call.name, "input": call.input, "offered": call.offered}
        for call in of_kind(events_of(recorded), ToolCall)
    ]
    assert recordings == calls


@every
def test_files_sources_and_data_are_those_of_the_scenario(recorded: Recorded) -> None:
    events, expected = events_of(recorded), recorded.expected
    for file, wanted in zip(of_kind(events, File), expected["files"], strict=True):
        assert file.mime == wanted["mediaType"]
        if "sha256" in wanted:
            assert file.data is not None
            assert hashlib.sha256(file.data).hexdigest() == wanted["sha256"]
        else:
            assert (file.url, file.data) == (wanted["url"], None)
    for source, wanted in zip(of_kind(events, Source), expected["sources"], strict=True):
        named = {"mediaType": "mime"}
        assert source == Source(**{named.get(key, key): value for key, value in wanted.items()})
    for data, wanted in zip(of_kind(events, Data), expected["data"], strict=True):
        if recorded.decoder is DataDecoder:
            assert data.value == wanted
        else:
            assert (data.name, data.id, data.value) == (wanted["name"], wanted.get("id"), wanted["data"])


@every
def test_the_usage_is_the_total_and_the_context_is_the_last_step(recorded: Recorded) -> None:
    finished = of_kind(events_of(recorded), Finished)
    expected = recorded.expected["usage"] if recorded.decoder is not UiDecoder else None
    if not expected or not expected["total"]:
        assert all(item.usage is None for item in finished)
        return
    [finish] = finished
    assert _numbers(finish.usage) == expected["total"]
    assert _numbers(finish.context or finish.usage) == expected["steps"][-1]
    details = recorded.expected.get("usageDetails")
    if details and finish.usage:
        assert finish.usage.cached_tokens == details["cacheRead"]
        assert finish.usage.reasoning_tokens == details["reasoning"]


def _numbers(usage: Usage | None) -> dict[str, int | None]:
    assert usage is not None
    return {"input": usage.input_tokens, "output": usage.output_tokens, "total": usage.total_tokens}


@every
def test_the_end_is_that_of_the_scenario(recorded: Recorded) -> None:
    events, expected = events_of(recorded), recorded.expected
    finished, failed = of_kind(events, Finished), of_kind(events, Failed)
    if finished:
        ended: str = finished[0].ended
    else:
        ended = "cut" if failed[0].error.kind == "disconnected" else "error"
    assert ended == expected["ended"]
    assert (finished[0].reason if finished else None) == expected["finishReason"]
    endings = [isinstance(event, Finished) + 2 * isinstance(event, Failed) for event in events]
    assert endings == sorted(endings), "the end comes last, and failures after it"
    assert len(finished) <= 1


@every
def test_the_errors_are_those_of_the_scenario(recorded: Recorded) -> None:
    failed = of_kind(events_of(recorded), Failed)
    if recorded.expected["ended"] == "cut":
        assert [item.error.kind for item in failed] == ["disconnected"]
        return
    truncated = [item for item in recorded.expected.get("pendingToolInputs", ()) if item["parsed"] is None]
    for item in truncated:
        assert item["name"] in failed[-1].error.message
    wanted = recorded.expected["errors"]
    assert len(failed) == len(wanted) + len(truncated)
    for item, sentence in zip(failed, wanted, strict=False):
        if isinstance(sentence, dict):
            names = {"AI_NoSuchToolError": "no_such_tool", "AI_InvalidToolArgumentsError": "get_weather"}
            assert sentence["name"] in item.error.message or names[sentence["name"]] in item.error.message
        elif recorded.path.suffix == ".jsonl" and b'"error":{}' in recorded.path.read_bytes():
            assert item.error.message == "The stream reported an error without a message."
        elif recorded.path.match("4.3.19/tool-executed-error.full.jsonl"):
            assert 'AI_ToolExecutionError in the tool "srv_boom"' in item.error.message
        elif recorded.path.name == "stream-cut-empty.full.jsonl":
            assert "AI_NoOutputGeneratedError" in item.error.message
        else:
            assert item.error.message == sentence


@every
def test_reasoning_metadata_is_kept(recorded: Recorded) -> None:
    metadata = [event.metadata for event in of_kind(events_of(recorded), ReasoningEnded)]
    if "reasoningSignature" in recorded.expected:
        assert {"anthropic": {"signature": recorded.expected["reasoningSignature"]}} in metadata
    if "redacted" in recorded.expected:
        assert {"anthropic": {"redactedData": recorded.expected["redacted"]}} in metadata


@every
def test_decoding_byte_by_byte_gives_the_same_result(recorded: Recorded) -> None:
    body = recorded.path.read_bytes()
    one_by_one = decode(recorded.decoder(), [body[i : i + 1] for i in range(len(body))])
    assert fold(one_by_one) == fold(events_of(recorded))


BODIES = {name: (item.decoder, item.path.read_bytes()) for name, item in BY_NAME.items()}
WHOLE = {name: fold(events_of(item)) for name, item in BY_NAME.items()}


@given(name=st.sampled_from(sorted(BODIES)), cuts=st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=2_000, deadline=None)
def test_the_result_does_not_depend_on_where_the_bytes_are_split(name: str, cuts: list[float]) -> None:
    decoder, body = BODIES[name]
    edges = [0, *sorted(int(cut * len(body)) for cut in cuts), len(body)]
    assert fold(decode(decoder(), [body[a:b] for a, b in pairwise(edges)])) == WHOLE[name]


@given(name=st.sampled_from(sorted(BY_NAME)), data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_stream_truncated_anywhere_fails_unless_it_was_complete(name: str, data: st.DataObject) -> None:
    recorded = BY_NAME[name]
    body = recorded.path.read_bytes()
    events = decode(recorded.decoder(), [body[: data.draw(st.integers(0, len(body)))]])
    assert any(isinstance(event, Finished | Failed) for event in events)
    whole, texts = fold(events_of(recorded))["text"], fold(events)["text"]
    assert _halves(whole).startswith(_halves(texts)) or "reset-step" in name


def _halves(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


@given(
    decoder=st.sampled_from([DataDecoder, FullDecoder, ModelDecoder, UiDecoder]),
    name=st.sampled_from(sorted(BY_NAME)),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_events_and_never_an_exception(
    decoder: type[Decoder], name: str, data: st.DataObject
) -> None:
    body = bytearray(BY_NAME[name].path.read_bytes())
    for _ in range(data.draw(st.integers(0, 6))):
        if not body:
            break
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    events = decode(decoder(), [bytes(body)])
    assert events
    assert not [event for event in events if isinstance(event, Finished)][1:]


_FIELDS = sorted(
    {word for item in RECORDED for word in re.findall(r'"(\w+)":', item.path.read_text(encoding="utf-8"))}
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=5),
    max_leaves=12,
)
_TYPES = sorted(
    {
        word
        for item in RECORDED
        for word in re.findall(r'"type":"([\w-]+)"', item.path.read_text(encoding="utf-8"))
    }
)


@given(st.sampled_from([DataDecoder, FullDecoder, ModelDecoder, UiDecoder]), _VALUES, st.sampled_from(_TYPES))
@settings(max_examples=300, deadline=None)
def test_chunks_of_any_shape_never_raise(decoder: type[Decoder], value: Any, kind: str) -> None:
    chunk = {**value, "type": kind} if isinstance(value, dict) else value
    text = json.dumps(chunk).encode()
    codes = b"0238" + b"9abcdefghijkz"
    body = b"".join(bytes([code]) + b":" + text + b"\n" for code in codes)
    for framed in (b"data: " + text + b"\n\n", text + b"\n", body):
        assert decode(decoder(), [framed])


@pytest.mark.parametrize("version", ["4.3.19", "6.0.326", "7.0.169"])
def test_cache_writes_are_read_from_the_recordings(version: str) -> None:
    """Version 4 passes on Anthropic's metadata; later versions have a field."""
    decoder = FullDecoder()
    events = decoder.feed((RECORDINGS / version / "usage-detailed.full.jsonl").read_bytes()) + decoder.close()
    (finished,) = (event for event in events if isinstance(event, Finished))
    assert finished.usage is not None
    assert finished.usage.cache_write_tokens == 100
    assert finished.context is None
