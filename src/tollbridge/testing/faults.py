"""Faults and quirks of servers: functions that change the answer, its events or their bytes.

An answer passes three stages, and a scenario can change each of them: the `ScriptedAnswer` of the model, the
steps of the stream (events, raw bytes, pauses, disconnects), and the chunks in which the bytes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, groupby, zip_longest
from typing import Any

import msgspec

from tollbridge.testing.responses import (
    Disconnect,
    Event,
    Pause,
    Say,
    ScriptedAnswer,
    Step,
    cut_answer,
)

Chunk = bytes | Pause | Disconnect
GARBAGE = (
    b"\x00\xff\xfe\xc3\x28 this is not a frame\n\n"
    b'data: {"type": "response.output_text.delta", "delta": "cut in the mid\n\n'
    b"data: <html>\n\n"
)
FAILURE = "The model stopped working in the middle of its answer because the scenario requires it."


class FaultSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations and sizes of faults."""

    stall_seconds: float = 30.0
    oversized_bytes: int = 65 * 1024 * 1024
    pace: float = 0.05  # seconds per token of a slow answer
    websocket_seconds: float = 60 * 60  # how long a WebSocket stays open at most


Fault = Callable[[Iterable[Step], FaultSettings], Iterable[Step]]


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """How events are written as bytes. Every client can read the default."""

    newline: bytes = b"\n"
    event_lines: bool = True
    space: bytes = b" "  # after the colons
    multi_line: bool = False  # the JSON is spread over several `data:` lines
    done: bool = True  # the stream ends with `[DONE]`


def make_frame(event: Event, framing: Framing) -> bytes:
    data = msgspec.json.encode(event)
    if framing.multi_line:
        data = msgspec.json.format(data, indent=1)
    lines = [b"data:" + framing.space + line for line in data.split(b"\n")]
    if framing.event_lines:
        lines.insert(0, b"event:" + framing.space + str(event["type"]).encode())
    return framing.newline.join([*lines, b"", b""])


def make_chunks(steps: Iterable[Step], framing: Framing) -> Iterator[Chunk]:
    """Encode steps, one frame per chunk: some clients cannot read a frame that arrives in two parts."""
    for step in steps:
        yield make_frame(step, framing) if isinstance(step, dict) else step
        if isinstance(step, Disconnect):
            return
    if framing.done:
        yield framing.newline.join([b"data:" + framing.space + b"[DONE]", b"", b""])


def split_chunks(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Divide the bytes into small chunks, so that frames and characters are split."""
    sizes = cycle((1, 2, 3, 5, 7, 11, 13, 17))
    for chunk in chunks:
        if not isinstance(chunk, bytes):
            yield chunk
            continue
        while chunk:
            size = next(sizes)
            yield chunk[:size]
            chunk = chunk[size:]


def join_chunks(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Join the bytes into as few chunks as possible."""
    for is_bytes, group in groupby(chunks, lambda chunk: isinstance(chunk, bytes)):
        if is_bytes:
            yield b"".join(chunk for chunk in group if isinstance(chunk, bytes))
        else:
            yield from group


def strip_last_newlines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Remove the newlines that terminate the last frame."""
    last: list[Chunk] = []
    for chunk in chunks:
        yield from last
        last = [chunk]
    yield from (chunk.rstrip(b"\r\n") if isinstance(chunk, bytes) else chunk for chunk in last)


def cut_answer_by_filter(answer: ScriptedAnswer) -> ScriptedAnswer:
    return cut_answer(answer, answer.output_tokens // 2, "content_filter")


def add_line_separators(answer: ScriptedAnswer) -> ScriptedAnswer:
    """Add characters that some languages treat as line ends, and the protocol does not."""
    text = " One\u2028two\u2029three\u0085four."
    blocks = [Say(block.text + text) if isinstance(block, Say) else block for block in answer.blocks]
    return msgspec.structs.replace(answer, blocks=tuple(blocks))


def change_events(change: Callable[[Event], Event | None]) -> Fault:
    """Return a fault that replaces every event by what a function returns for it; `None` drops the event."""

    def fault(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
        for step in steps:
            changed = change(step) if isinstance(step, dict) else step
            if changed is not None:
                yield changed

    return fault


def break_stream(*ending: Step) -> Fault:
    """Return a fault that replaces everything from the middle delta on: the output has started then."""
    return lambda steps, _: [*_first_half(steps), *ending]


def _first_half(steps: Iterable[Step]) -> list[Step]:
    all_steps = list(steps)
    deltas = [index for index, step in enumerate(all_steps) if isinstance(step, dict) and "delta" in step]
    return all_steps[: deltas[len(deltas) // 2]] if deltas else all_steps[:2]


def _failed_event(steps: list[Step]) -> Event:
    """Return the `response.failed` event that follows the steps."""
    events = [step for step in steps if isinstance(step, dict)]
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    error = {"code": "server_error", "message": FAILURE}
    response = {**events[0]["response"], "status": "failed", "error": error, "output": items}
    return {"type": "response.failed", "response": response}


def fail(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    half = _first_half(steps)
    return [*half, _failed_event(half)]


def fail_at_once(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    start = list(steps)[:1]
    return [*start, _failed_event(start)]


def fail_after_counting(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    all_steps = list(steps)
    last = next(step for step in reversed(all_steps) if isinstance(step, dict) and "response" in step)
    failed = _failed_event(all_steps[:1])
    failed["response"]["usage"] = last["response"]["usage"]
    return [*all_steps[:1], failed]


def send_error(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    half = _first_half(steps)
    error = {"type": "server_error", "code": "server_error", "message": FAILURE, "param": ""}
    return [*half, {"type": "error", "error": error}, _failed_event(half)]


def stall(steps: Iterable[Step], settings: FaultSettings) -> list[Step]:
    return [*_first_half(steps), Pause(settings.stall_seconds), Disconnect()]


def send_oversized_frame(steps: Iterable[Step], settings: FaultSettings) -> list[Step]:
    all_steps = list(steps)
    half = _first_half(all_steps)
    last = next(step for step in reversed(half) if isinstance(step, dict) and "delta" in step)
    return [*half, {**last, "delta": "x" * settings.oversized_bytes}, *all_steps[len(half) :]]


def send_byte_order_mark(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    yield b"\xef\xbb\xbf"
    yield from steps


def send_comments(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    for step in steps:
        yield b": keep-alive\n\n"
        yield step


def add_odd_lines(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Add lines of the event stream format that have no event."""
    yield b"retry: 3000\n\n"
    for index, step in enumerate(steps):
        yield b"id: %d\n" % index
        yield step
        if index % 5 == 0:
            yield b"data:\n\n"


def add_vendor_events(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Add vendor events and fields, which the protocol allows, and unknown events, which it does not."""
    for index, step in enumerate(steps):
        yield {**step, "model": "tollbridge/demo"} if isinstance(step, dict) else step
        if index == 1:
            yield {"type": "tollbridge:weather", "outlook": "fair"}
            yield {"type": "response.premonition.delta", "delta": "not to be shown", "item_id": "omen_1"}
            yield {"type": "response.output_item.added", "output_index": 99, "item": None}


def change_ids(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    for index, step in enumerate(steps):
        if not isinstance(step, dict):
            yield step
            continue
        changed = dict(step)
        if "item_id" in changed:
            changed["item_id"] += f"_{index}"
        if "item" in changed:
            changed["item"] = {**changed["item"], "id": f"{changed['item']['id']}_{index}"}
        yield changed


def announce_twice(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Announce every call twice, then use the call id as the item id, as one gateway does."""
    calls: dict[str, str] = {}
    for step in steps:
        if not isinstance(step, dict):
            yield step
            continue
        item = step.get("item", {})
        if step["type"] == "response.output_item.added" and item.get("type") == "function_call":
            calls[item["id"]] = item["call_id"]
            yield step
            yield {**step, "item": {**item, "id": f"{item['id']}_again"}}
        elif step["type"] == ARGUMENTS_DONE:
            yield {**step, "item_id": calls[step["item_id"]]}
        else:
            yield step


def interleave(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Send the events of all items in turn, so that several items are open at the same time."""
    all_steps = list(steps)
    items: dict[int, list[Step]] = {}
    first = len(all_steps)
    for index, step in enumerate(all_steps):
        if isinstance(step, dict) and "output_index" in step:
            items.setdefault(step["output_index"], []).append(step)
            first = min(first, index)
    yield from all_steps[:first]
    for group in zip_longest(*items.values()):
        yield from (step for step in group if step is not None)
    yield all_steps[-1]


ARGUMENTS_DELTA = "response.function_call_arguments.delta"
ARGUMENTS_DONE = "response.function_call_arguments.done"


def drop_events(*types: str) -> Fault:
    """Return a fault that drops the events whose type ends in one of these texts."""
    return change_events(lambda event: None if event["type"].endswith(types) else event)


def set_usage(usage: Any) -> Fault:
    """Return a fault that replaces the usage in all events with a response."""
    return change_events(lambda event: _set_in_response(event, usage=usage))


def _set_in_response(event: Event, **fields: Any) -> Event:
    return {**event, "response": {**event["response"], **fields}} if "response" in event else event


@change_events
def report_cache_writes(event: Event) -> Event:
    """Report the input tokens that were not in the prompt cache as written to it."""
    usage = event["response"]["usage"] if "response" in event else None
    if usage is not None:
        details = usage["input_tokens_details"]
        details["cache_write_tokens"] = usage["input_tokens"] - details["cached_tokens"]
    return event


@change_events
def move_arguments_to_response(event: Event) -> Event | None:
    """Send the events that normally have the arguments with empty arguments."""
    if event["type"] == ARGUMENTS_DELTA:
        return None
    if event.get("item", {}).get("type") == "function_call":
        return {**event, "item": {**event["item"], "arguments": ""}}
    return {**event, "arguments": ""} if "arguments" in event else event


@change_events
def keep_only_deltas(event: Event) -> Event | None:
    # Keep the items of calls: without them, clients cannot distinguish one call from another.
    is_call = event.get("item", {}).get("type") == "function_call"
    parts = ("response.output_item.", "response.content_part.", "response.reasoning_summary_part.")
    is_dropped = event["type"].startswith(parts) or event["type"].endswith(".done")
    return event if is_call or not is_dropped else None


@change_events
def scramble_arguments(event: Event) -> Event:
    """Obfuscate the deltas of arguments and mark them with a field; `.done` has the plain arguments."""
    if event["type"] != ARGUMENTS_DELTA:
        return event
    return {**event, "delta": event["delta"][::-1].swapcase() + "#", "obfuscation": "x" * 8}


@change_events
def announce_at_index_zero(event: Event) -> Event:
    """Announce every item at index 0; the events that follow have the correct index."""
    return {**event, "output_index": 0} if event["type"] == "response.output_item.added" else event


@change_events
def rename_calls(event: Event) -> Event:
    """Change the `call_id` of every call in the final response."""
    output = [
        {**item, "call_id": f"{item['call_id']}_again"} if "call_id" in item else item
        for item in event.get("response", {}).get("output", ())
    ]
    return _set_in_response(event, output=output)


@change_events
def remove_optional_fields(event: Event) -> Event:
    """Remove null and unnecessary fields and use fractional times, as some proxies do."""
    sparse = {name: value for name, value in event.items() if name not in ("logprobs", "content_index")}
    if response := sparse.get("response"):
        names = ("id", "object", "status", "output", "usage", "error", "incomplete_details", "model")
        fields = {name: value for name, value in response.items() if name in names and value is not None}
        sparse["response"] = {**fields, "created_at": response["created_at"] + 0.5}
    return sparse
