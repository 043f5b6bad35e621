"""What servers in the wild do that the protocol does not: harmless to a reader that is ready for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from tollbridge.testing.responses import (
    Event,
    HangUp,
    Pause,
    Say,
    ScriptedAnswer,
    Step,
    cut_answer,
    fail_response,
)

# SECTION Events as bytes of a server-sent event stream, in the ways that are written in the wild.

Chunk = bytes | Pause | HangUp


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """The default is what every client reads: LF, `event:` lines, a space after the colon, `[DONE]`."""

    newline: bytes = b"\n"
    event_lines: bool = True
    space: bytes = b" "
    # Whether the JSON is spread over several `data:` lines.
    multi_line: bool = False
    done: bool = True


def make_frame(event: Event, framing: Framing = Framing()) -> bytes:  # noqa: B008 (frozen)
    data = msgspec.json.encode(event)
    if framing.multi_line:
        data = msgspec.json.format(data, indent=1)
    lines = [b"data:" + framing.space + line for line in data.split(b"\n")]
    if framing.event_lines:
        lines.insert(0, b"event:" + framing.space + str(event["type"]).encode())
    return framing.newline.join([*lines, b"", b""])


def make_chunks(steps: Iterable[Step], framing: Framing) -> Iterator[Chunk]:
    """One frame, one chunk: readers exist that lose their place when a frame comes in two."""
    for step in steps:
        yield make_frame(step, framing) if isinstance(step, dict) else step
        if isinstance(step, HangUp):
            return
    if framing.done:
        yield framing.newline.join([b"data:" + framing.space + b"[DONE]", b"", b""])


_ODD_SIZES = (1, 2, 3, 5, 7, 11, 13, 17)


def cut_oddly(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes in pieces of a few bytes, so that cuts fall into frames and characters."""
    turn = 0
    for chunk in chunks:
        if not isinstance(chunk, bytes):
            yield chunk
            continue
        at = 0
        while at < len(chunk):
            size = _ODD_SIZES[turn % len(_ODD_SIZES)]
            yield chunk[at : at + size]
            at, turn = at + size, turn + 1


def join_all(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes in as few pieces as can be."""
    held = b""
    for chunk in chunks:
        if isinstance(chunk, bytes):
            held += chunk
        else:
            yield held
            yield chunk
            held = b""
    if held:
        yield held


def without_last_newlines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes, but the last frame is never ended."""
    held: list[Chunk] = []
    for chunk in chunks:
        yield from held
        held = [chunk]
    yield from (last.rstrip(b"\r\n") if isinstance(last, bytes) else last for last in held)


def as_they_are(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    yield from chunks


# SECTION What can go wrong inside a stream: functions from the right events to the wrong ones.

KEEP_ALIVE = b": keep-alive\n\n"
GARBAGE = (
    b"\x00\xff\xfe\xc3\x28 this is not a frame\n\n"
    b'data: {"type": "response.output_text.delta", "delta": "cut in the mid\n\n'
    b"data: <html>\n\n"
)
FAILURE = "The model stopped working in the middle of its answer (a fault that was asked for)."


class FaultSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how large faults are: `stall_seconds` bounds a silence, `pace` is a slow token's time,
    `websocket_seconds` the longest a WebSocket stays open."""

    stall_seconds: float = 30.0
    oversized_bytes: int = 65 * 1024 * 1024
    pace: float = 0.05
    websocket_seconds: float = 60 * 60


Tamper = Callable[[Iterable[Step], FaultSettings], Iterable[Step]]


def leave(steps: Iterable[Step], _: FaultSettings) -> Iterable[Step]:
    return steps


def _first_half(steps: Iterable[Step]) -> list[Step]:
    """Everything up to the middle delta: something was said, and more was to come."""
    whole = list(steps)
    deltas = [index for index, step in enumerate(whole) if isinstance(step, dict) and "delta" in step]
    return whole[: deltas[len(deltas) // 2]] if deltas else whole[:2]


def _failed(said: list[Step], code: str = "server_error", message: str = FAILURE) -> Event:
    begun: Event = next(step for step in said if isinstance(step, dict))
    finished = [
        step["item"]
        for step in said
        if isinstance(step, dict) and step["type"] == "response.output_item.done"
    ]
    return {"type": "response.failed", "response": fail_response(begun["response"], code, message, finished)}


def fail(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    said = _first_half(steps)
    return [*said, _failed(said)]


def fail_at_once(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    said = list(steps)[:1]
    return [*said, _failed(said)]


def say_error(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    said = _first_half(steps)
    error = {"type": "server_error", "code": "server_error", "message": FAILURE, "param": ""}
    return [*said, {"type": "error", "error": error}, _failed(said)]


def say_flat_error(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    said = _first_half(steps)
    return [*said, {"type": "error", "code": "server_error", "message": FAILURE, "param": None}]


def disconnect(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    return [*_first_half(steps), HangUp()]


def reset(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    return [*_first_half(steps), HangUp(reset=True)]


def stall(steps: Iterable[Step], settings: FaultSettings) -> list[Step]:
    return [*_first_half(steps), Pause(settings.stall_seconds), HangUp()]


def end_early(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    return _first_half(steps)


def send_garbage(steps: Iterable[Step], _: FaultSettings) -> list[Step]:
    return [*_first_half(steps), GARBAGE]


def send_byte_order_mark(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    yield b"\xef\xbb\xbf"
    yield from steps


def keep_alive(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    for step in steps:
        yield KEEP_ALIVE
        yield step


def oversize(steps: Iterable[Step], settings: FaultSettings) -> list[Step]:
    whole = list(steps)
    half = _first_half(whole)
    last = next(step for step in reversed(half) if isinstance(step, dict) and "delta" in step)
    return [*half, {**last, "delta": "x" * settings.oversized_bytes}, *whole[len(half) :]]


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


_LATER: dict[str, frozenset[str]] = {
    "done": frozenset({"response.function_call_arguments.delta"}),
    "item": frozenset({"response.function_call_arguments.delta", "response.function_call_arguments.done"}),
}


def arguments_in_done(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    return _without(steps, _LATER["done"])


def arguments_in_item(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    return _without(steps, _LATER["item"])


def arguments_in_response(steps: Iterable[Step], settings: FaultSettings) -> Iterator[Step]:
    """The events that should have held them come all the same, with nothing in them."""
    for step in arguments_in_done(steps, settings):
        if isinstance(step, dict) and step.get("item", {}).get("type") == "function_call":
            yield {**step, "item": {**step["item"], "arguments": ""}}
        elif isinstance(step, dict) and "arguments" in step:
            yield {**step, "arguments": ""}
        else:
            yield step


def announce_twice(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """As a gateway was seen to do: one call announced twice, then the call's id in place of the item's."""
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
        elif step["type"] == "response.function_call_arguments.done":
            yield {**step, "item_id": calls[step["item_id"]]}
        else:
            yield step


def leave_open(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    return (step for step in steps if not (isinstance(step, dict) and step["type"].endswith(".done")))


_BARE = ("response.output_item.", "response.content_part.", "response.reasoning_summary_part.")


def only_deltas(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    for step in steps:
        kind = step["type"] if isinstance(step, dict) else ""
        # A call without its item could not be told from another: its announcement stays.
        call = isinstance(step, dict) and step.get("item", {}).get("type") == "function_call"
        if call or not (kind.startswith(_BARE) or kind.endswith(".done")):
            yield step


def usage_null(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    return _with_usage(steps, None)


def usage_zero(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    nothing = {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }
    return _with_usage(steps, nothing)


def _with_usage(steps: Iterable[Step], usage: Any) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, dict) and "response" in step:
            yield {**step, "response": {**step["response"], "usage": usage}}
        else:
            yield step


def _without(steps: Iterable[Step], types: frozenset[str]) -> Iterator[Step]:
    return (step for step in steps if not (isinstance(step, dict) and step["type"] in types))


# --- before it becomes events ------------------------------------------------------------------------------


def same_answer(answer: ScriptedAnswer) -> ScriptedAnswer:
    return answer


def filter_answer(answer: ScriptedAnswer) -> ScriptedAnswer:
    return cut_answer(answer, answer.output_tokens // 2, "content_filter")


def separate_lines(answer: ScriptedAnswer) -> ScriptedAnswer:
    """Characters that some languages take for line ends, and the protocol does not."""
    odd = Say(" One\u2028two\u2029three\u0085four.")
    blocks = [Say(block.text + odd.text) if isinstance(block, Say) else block for block in answer.blocks]
    return msgspec.structs.replace(answer, blocks=tuple(blocks))


# SECTION What servers in the wild do that the protocol does not: harmless to a reader that is ready for it.

_ARGUMENTS = "response.function_call_arguments"


def interleave(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Items side by side: each is open while the others are still being told."""
    whole = list(steps)
    items: dict[int, list[Step]] = {}
    for step in whole:
        if isinstance(step, dict) and "output_index" in step:
            items.setdefault(step["output_index"], []).append(step)
    first = next((at for at, step in enumerate(whole) if _has(step, "output_index")), len(whole))
    yield from whole[:first]
    for together in zip_longest(*items.values()):
        yield from (step for step in together if step is not None)
    yield whole[-1]


def scramble(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Deltas of arguments that are not the arguments, and a field that says so; `.done` has them plain."""
    for step in steps:
        if isinstance(step, dict) and step["type"] == f"{_ARGUMENTS}.delta":
            yield {**step, "delta": step["delta"][::-1].swapcase() + "#", "obfuscation": "x" * 8}
        else:
            yield step


def lose_count(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Every item is announced at index 0; only what follows has the right index."""
    for step in steps:
        if isinstance(step, dict) and step["type"] == "response.output_item.added":
            yield {**step, "output_index": 0}
        else:
            yield step


def rename_calls(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """The final response gives every call another `call_id` than the stream did."""
    for step in steps:
        if not (isinstance(step, dict) and "response" in step):
            yield step
            continue
        output = [
            {**item, "call_id": f"{item['call_id']}_again"} if "call_id" in item else item
            for item in step["response"]["output"]
        ]
        yield {**step, "response": {**step["response"], "output": output}}


def add_vendor_events(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Events and fields of the server's own, as the protocol allows, and events nobody has heard of."""
    for index, step in enumerate(steps):
        yield {**step, "model": "tollbridge/demo"} if isinstance(step, dict) else step
        if index == 1:
            yield {"type": "tollbridge:weather", "outlook": "fair"}
            yield {"type": "response.premonition.delta", "delta": "not to be shown", "item_id": "omen_1"}
            yield {"type": "response.output_item.added", "output_index": 99, "item": None}


def add_lines(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """Lines of the event stream format that carry no event."""
    yield b"retry: 3000\n\n"
    for index, step in enumerate(steps):
        yield b"id: %d\n" % index
        yield step
        if index % 5 == 0:
            yield b"data:\n\n"


_KEPT = frozenset({"id", "object", "status", "output", "usage", "error", "incomplete_details", "model"})


def thin_out(steps: Iterable[Step], _: FaultSettings) -> Iterator[Step]:
    """As proxies send it: nothing that is null, no field that is not needed, times with fractions."""
    for step in steps:
        yield _thin(step) if isinstance(step, dict) else step


def _thin(step: Event) -> Event:
    thin = {key: value for key, value in step.items() if key not in ("logprobs", "content_index")}
    if "response" in thin:
        kept = {key: value for key, value in thin["response"].items() if key in _KEPT and value is not None}
        thin["response"] = {**kept, "created_at": thin["response"]["created_at"] + 0.5}
    return thin


def _has(step: Any, field: str) -> bool:
    return isinstance(step, dict) and field in step
