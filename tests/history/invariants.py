"""Checks on a history and the request made from it. All marks (generated texts) of a history are distinct."""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tollbridge.history.arguments import valid_input
from tollbridge.history.names import Names
from tollbridge.history.pairing import MISSING_RESULT
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    Origin,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    is_marker,
    read_reasoning_pack,
    split_metadata,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import read_json, write_json

Item = dict[str, Any]
_MARK = re.compile(r"(?:text|data|thought|input|raw)\d+z[0-9a-f]{8}")
_DATA_URL = re.compile(r"data:[^;,]*;base64,(.*)", re.DOTALL)


def check_order(request: ChatRequest, items: Sequence[Item]) -> None:
    """Check that all content occurs once and in order: the system prompt first, results with their calls."""
    system = [
        mark
        for message, part in _fixed_parts(request)
        if message.role is Role.SYSTEM and _is_plain_text(part)
        for mark in _marks(part)
    ]
    others = [mark for _, part in _fixed_parts(request) for mark in _marks(part) if mark not in system]
    expected = system + others
    counted = Counter(mark for item in items for mark in marks_of(item) if not mark.startswith("thought"))
    assert set(counted.values()) <= {1}
    content = [item for item in items if item["type"] != "function_call_output"]
    marks = [mark for item in content for mark in marks_of(item) if mark in set(expected)]
    assert marks == [mark for mark in expected if mark in set(marks)]


def check_results(request: ChatRequest, items: Sequence[Item], names: Names) -> None:
    """Check that the calls are those of the history in order, and that each has a result with its id.

    No result is without a call while a call with its id has no result.
    """
    call_items = [item for item in items if item["type"] == "function_call"]
    calls = [part for message in request.messages for part in _distinct_calls(message)]
    assert [item["name"] for item in call_items] == [names.out(call.name) for call in calls]
    outputs = {item["call_id"]: item for item in items if item["type"] == "function_call_output"}
    results = [part for message in request.messages for part in message.parts]
    result_parts = [part for part in results if isinstance(part, ToolResultPart)]
    answered: Counter[str] = Counter()
    for item, call in zip(call_items, calls, strict=True):
        output = outputs[item["call_id"]]
        marks = set(marks_of(output))
        own = [result for result in result_parts if result.call_id == call.call_id]
        assert not marks or any(marks <= set(_marks(result)) for result in own)
        answered[call.call_id] += MISSING_RESULT not in write_json(output)
    wanted = Counter(call.call_id for call in calls)
    for call_id, count in Counter(result.call_id for result in result_parts).items():
        assert answered[call_id] == min(count, wanted[call_id])


def check_reasoning(
    request: ChatRequest, quirks: Quirks, origin: Origin | None, items: Sequence[Item], here: Origin
) -> None:
    """Check that only reasoning of the receiver is sent, with its proof, before the text or call after it."""
    sent = [item for item in items if item["type"] == "reasoning"]
    if not quirks.reasoning:
        assert sent == []
        return
    proofs = {value for item in sent for value in _values(item)}
    if origin is not None:
        assert proofs <= {value for value, owner in _proofs(request) if owner == origin}
    if quirks.calls:  # a call sent as text needs no reasoning before it
        for message in request.messages:
            for proof, follower in _proofs_with_followers(message, here):
                assert proof in proofs
                _check_precedes(items, proof, follower)


def _check_precedes(items: Sequence[Item], proof: str, mark: str | None) -> None:
    """Check that only reasoning stands between a proof and the text or call that followed it."""
    places = [at for at, item in enumerate(items) if proof in set(_values(item))]
    after = [next(item for item in items[at:] if item["type"] != "reasoning") for at in places]
    assert any(mark in marks_of(item) if mark else item["type"] == "function_call" for item in after)


def _proofs_with_followers(message: Message, here: Origin) -> Iterable[tuple[str, str | None]]:
    """Yield the proofs of the receiver, each with the mark of the text after it; `None` for a call."""
    parts = list(message.parts)
    if message.role is not Role.ASSISTANT or any(map(is_marker, parts)):
        return  # packed reasoning replaces the thinking parts; it has its own tests
    calls = _distinct_calls(message)
    for at, part in enumerate(parts):
        if not isinstance(part, ThinkingPart):
            continue
        bound, proof = split_metadata(part.metadata)
        after = next((each for each in parts[at:] if not isinstance(each, ThinkingPart)), None)
        if bound is None or bound.origin != here or bound.call is not None or not proof:
            continue
        if isinstance(after, TextPart) and _MARK.search(after.text):
            yield from ((value, _marks(after)[0]) for value in _strings(proof))
        elif isinstance(after, ToolCallPart) and any(after is call for call in calls):
            yield from ((value, None) for value in _strings(proof))


def _proofs(request: ChatRequest) -> Iterable[tuple[str, Origin | None]]:
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ThinkingPart):
                bound, proof = split_metadata(part.metadata)
                yield from ((value, bound.origin if bound else None) for value in _strings(proof))
            elif isinstance(part, DataPart) and part.mime == PACK_MIME:
                carried = read_reasoning_pack(part.data)
                assert carried is not None
                for block in carried.blocks:
                    yield from ((value, carried.origin) for value in _strings(block.proof))


def _values(item: Item) -> Iterable[str]:
    return (item[name] for name in ("encrypted_content", "signature") if name in item)


def _fixed_parts(request: ChatRequest) -> Iterable[tuple[Message, Part]]:
    """Yield the parts that keep their position: not results, which follow their calls, and not reasoning."""
    for message in request.messages:
        calls = _distinct_calls(message)
        for part in message.parts:
            if isinstance(part, ToolCallPart) and not any(part is call for call in calls):
                continue
            if not isinstance(part, ToolResultPart | ThinkingPart) and not is_marker(part):
                yield message, part


def _distinct_calls(message: Message) -> list[ToolCallPart]:
    """Return the calls of a message without duplicates."""
    calls: dict[tuple[str, str, str], ToolCallPart] = {}
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            text = write_json(valid_input(part.input)[0])
            calls.setdefault((part.call_id, part.name, text), part)
    return list(calls.values())


def _is_plain_text(part: Part) -> bool:
    if isinstance(part, DataPart):
        mime = detect_mime(part.data, part.mime)
        return mime.startswith(("text/", "application/json")) and is_text(part.data)
    return isinstance(part, TextPart)


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _marks(part: Part) -> list[str]:
    match part:
        case TextPart(text):
            return _MARK.findall(text)
        case DataPart(data):
            return _MARK.findall(data.decode("latin-1"))
        case ToolResultPart(_, parts):
            return [mark for each in parts for mark in _marks(each)]
        case ToolCallPart(_, _, given):
            return [mark for text in _strings(given) for mark in _MARK.findall(text)]
        case _:
            return []


def marks_of(item: Item) -> list[str]:
    """Return the marks of an item, also those in files, in the order in which a model reads them."""
    content = item.get("content") or item.get("output") or item.get("arguments") or ""
    if isinstance(content, str):
        return _MARK.findall(content)
    return [mark for part in content for value in part.values() for mark in _marks_in(value)]


def _marks_in(value: object) -> list[str]:
    text = value if isinstance(value, str) else ""
    data = _DATA_URL.match(text)
    return _MARK.findall(b64decode(data[1]).decode("latin-1") if data else text)


def _strings(value: Any) -> Iterable[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _strings(each)


def texts(items: Sequence[Item]) -> Iterable[str]:
    """Yield every text of the input that a model reads, with the arguments of calls parsed."""
    for item in items:
        content = item.get("content") or item.get("output") or ""
        yield from [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
        if item["type"] == "function_call":
            yield item["name"]
            yield from _strings(read_json(item["arguments"]))


def urls(items: Sequence[Item]) -> Iterable[str]:
    for item in items:
        content = item.get("content") or item.get("output") or ""
        for part in content if isinstance(content, list) else ():
            yield part.get("image_url") or part.get("file_data") or ""
