"""What can go wrong inside a stream: functions from the right events to the wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from tollbridge.gateway.answers import Answer, Say, cut_answer
from tollbridge.gateway.events import Event, HangUp, Pause, Step
from tollbridge.gateway.resources import fail_response

KEEP_ALIVE = b": keep-alive\n\n"
GARBAGE = (
    b"\x00\xff\xfe\xc3\x28 this is not a frame\n\n"
    b'data: {"type": "response.output_text.delta", "delta": "cut in the mid\n\n'
    b"data: <html>\n\n"
)
FAILURE = "The model stopped working in the middle of its answer (a fault that was asked for)."


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how large faults are: `stall_seconds` bounds a silence, `pace` is a slow token's time,
    `websocket_seconds` the longest a WebSocket stays open."""

    stall_seconds: float = 30.0
    oversized_bytes: int = 65 * 1024 * 1024
    pace: float = 0.05
    websocket_seconds: float = 60 * 60


Tamper = Callable[[Iterable[Step], Settings], Iterable[Step]]


def leave(steps: Iterable[Step], _: Settings) -> Iterable[Step]:
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


def fail(steps: Iterable[Step], _: Settings) -> list[Step]:
    said = _first_half(steps)
    return [*said, _failed(said)]


def fail_at_once(steps: Iterable[Step], _: Settings) -> list[Step]:
    said = list(steps)[:1]
    return [*said, _failed(said)]


def say_error(steps: Iterable[Step], _: Settings) -> list[Step]:
    said = _first_half(steps)
    error = {"type": "server_error", "code": "server_error", "message": FAILURE, "param": ""}
    return [*said, {"type": "error", "error": error}, _failed(said)]


def say_flat_error(steps: Iterable[Step], _: Settings) -> list[Step]:
    said = _first_half(steps)
    return [*said, {"type": "error", "code": "server_error", "message": FAILURE, "param": None}]


def disconnect(steps: Iterable[Step], _: Settings) -> list[Step]:
    return [*_first_half(steps), HangUp()]


def reset(steps: Iterable[Step], _: Settings) -> list[Step]:
    return [*_first_half(steps), HangUp(reset=True)]


def stall(steps: Iterable[Step], settings: Settings) -> list[Step]:
    return [*_first_half(steps), Pause(settings.stall_seconds), HangUp()]


def end_early(steps: Iterable[Step], _: Settings) -> list[Step]:
    return _first_half(steps)


def send_garbage(steps: Iterable[Step], _: Settings) -> list[Step]:
    return [*_first_half(steps), GARBAGE]


def send_byte_order_mark(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    yield b"\xef\xbb\xbf"
    yield from steps


def keep_alive(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    for step in steps:
        yield KEEP_ALIVE
        yield step


def oversize(steps: Iterable[Step], settings: Settings) -> list[Step]:
    whole = list(steps)
    half = _first_half(whole)
    last = next(step for step in reversed(half) if isinstance(step, dict) and "delta" in step)
    return [*half, {**last, "delta": "x" * settings.oversized_bytes}, *whole[len(half) :]]


def change_ids(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
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


def arguments_in_done(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    return _without(steps, _LATER["done"])


def arguments_in_item(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    return _without(steps, _LATER["item"])


def arguments_in_response(steps: Iterable[Step], settings: Settings) -> Iterator[Step]:
    """The events that should have held them come all the same, with nothing in them."""
    for step in arguments_in_done(steps, settings):
        if isinstance(step, dict) and step.get("item", {}).get("type") == "function_call":
            yield {**step, "item": {**step["item"], "arguments": ""}}
        elif isinstance(step, dict) and "arguments" in step:
            yield {**step, "arguments": ""}
        else:
            yield step


def announce_twice(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
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


def leave_open(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    return (step for step in steps if not (isinstance(step, dict) and step["type"].endswith(".done")))


_BARE = ("response.output_item.", "response.content_part.", "response.reasoning_summary_part.")


def only_deltas(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    for step in steps:
        kind = step["type"] if isinstance(step, dict) else ""
        # A call without its item could not be told from another: its announcement stays.
        call = isinstance(step, dict) and step.get("item", {}).get("type") == "function_call"
        if call or not (kind.startswith(_BARE) or kind.endswith(".done")):
            yield step


def usage_null(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    return _with_usage(steps, None)


def usage_zero(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
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


def same_answer(answer: Answer) -> Answer:
    return answer


def filter_answer(answer: Answer) -> Answer:
    return cut_answer(answer, answer.output_tokens // 2, "content_filter")


def separate_lines(answer: Answer) -> Answer:
    """Characters that some languages take for line ends, and the protocol does not."""
    odd = Say(" One\u2028two\u2029three\u0085four.")
    blocks = [Say(block.text + odd.text) if isinstance(block, Say) else block for block in answer.blocks]
    return msgspec.structs.replace(answer, blocks=tuple(blocks))
