"""What servers in the wild do that the protocol does not: harmless to a reader that is ready for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from tollbridge.gateway.events import Event, Step
from tollbridge.gateway.tampering import Settings

_ARGUMENTS = "response.function_call_arguments"


def interleave(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
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


def scramble(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    """Deltas of arguments that are not the arguments, and a field that says so; `.done` has them plain."""
    for step in steps:
        if isinstance(step, dict) and step["type"] == f"{_ARGUMENTS}.delta":
            yield {**step, "delta": step["delta"][::-1].swapcase() + "#", "obfuscation": "x" * 8}
        else:
            yield step


def lose_count(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    """Every item is announced at index 0; only what follows has the right index."""
    for step in steps:
        if isinstance(step, dict) and step["type"] == "response.output_item.added":
            yield {**step, "output_index": 0}
        else:
            yield step


def rename_calls(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
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


def add_vendor_events(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    """Events and fields of the server's own, as the protocol allows, and events nobody has heard of."""
    for index, step in enumerate(steps):
        yield {**step, "model": "tollbridge/demo"} if isinstance(step, dict) else step
        if index == 1:
            yield {"type": "tollbridge:weather", "outlook": "fair"}
            yield {"type": "response.premonition.delta", "delta": "not to be shown", "item_id": "omen_1"}
            yield {"type": "response.output_item.added", "output_index": 99, "item": None}


def add_lines(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
    """Lines of the event stream format that carry no event."""
    yield b"retry: 3000\n\n"
    for index, step in enumerate(steps):
        yield b"id: %d\n" % index
        yield step
        if index % 5 == 0:
            yield b"data:\n\n"


_KEPT = frozenset({"id", "object", "status", "output", "usage", "error", "incomplete_details", "model"})


def thin_out(steps: Iterable[Step], _: Settings) -> Iterator[Step]:
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
