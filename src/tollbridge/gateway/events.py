"""An answer as the events of a stream, in the order the protocol wants them.

Events leave here without their `sequence_number`: a scenario may still add, change or drop some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from tollbridge.gateway.answers import Answer, Block, Call, Draw, Refuse, Say, Think
from tollbridge.gateway.counting import split_tokens
from tollbridge.gateway.resources import Resource, end_response, make_item, make_response
from tollbridge.gateway.turns import Item, Turn

Event = dict[str, Any]
ReasoningName = Literal["reasoning_summary_text", "reasoning", "reasoning_text"]


class Pause(msgspec.Struct, frozen=True):
    """Say nothing for a while."""

    seconds: float


class HangUp(msgspec.Struct, frozen=True):
    """Close the connection here; with `reset`, rudely."""

    reset: bool = False


# Bytes among the events are sent as they are.
Step = Event | bytes | Pause | HangUp


def make_output(
    turn: Turn, answer: Answer, reasoning: ReasoningName = "reasoning_summary_text"
) -> list[Item]:
    raw = reasoning != "reasoning_summary_text"
    last = len(answer.blocks) - 1
    return [
        make_item(block, turn, "incomplete" if answer.cut and index == last else "completed", raw)
        for index, block in enumerate(answer.blocks)
    ]


def make_events(
    turn: Turn, answer: Answer, reasoning: ReasoningName = "reasoning_summary_text"
) -> Iterator[Step]:
    """The whole stream, from `response.created` to the terminal event."""
    output = make_output(turn, answer, reasoning)
    begun = make_response(turn)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, (block, item) in enumerate(zip(answer.blocks, output, strict=True)):
        for event in _item_events(block, item, reasoning):
            yield {"type": event["type"], "output_index": index, **event}
            if answer.pace and "delta" in event:
                yield Pause(answer.pace)
    yield ending(end_response(turn, answer, output))


def ending(response: Resource) -> Event:
    return {"type": f"response.{response['status']}", "response": response}


def _item_events(block: Block, item: Item, reasoning: ReasoningName) -> Iterator[Event]:
    yield {"type": "response.output_item.added", "item": _empty(item)}
    match block:
        case Say():
            yield from _text_events(item)
        case Refuse():
            yield from _refusal_events(item)
        case Call():
            yield from _call_events(item)
        case Think():
            yield from _reasoning_events(item, block.text, reasoning)
        case Draw():
            for stage in ("in_progress", "generating", "completed"):
                yield {"type": f"response.image_generation_call.{stage}", "item_id": item["id"]}
    yield {"type": "response.output_item.done", "item": item}


def _empty(item: Item) -> Item:
    """The item as it is announced: what it is, and nothing in it yet."""
    empty = {key: value for key, value in item.items() if key != "encrypted_content"}
    for field, nothing in (("content", []), ("summary", []), ("arguments", ""), ("result", None)):
        if field in empty:
            empty[field] = nothing
    if item["type"] == "reasoning":
        empty.pop("content", None)
    if "status" in empty:
        empty["status"] = "in_progress"
    return empty


def _text_events(item: Item) -> Iterator[Event]:
    at = {"item_id": item["id"], "content_index": 0}
    part = item["content"][0]
    yield {
        "type": "response.content_part.added",
        **at,
        "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    }
    for token in split_tokens(part["text"]):
        yield {"type": "response.output_text.delta", **at, "delta": token, "logprobs": []}
    for index, annotation in enumerate(part["annotations"]):
        yield {
            "type": "response.output_text.annotation.added",
            **at,
            "annotation_index": index,
            "annotation": annotation,
        }
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _refusal_events(item: Item) -> Iterator[Event]:
    at = {"item_id": item["id"], "content_index": 0}
    part = item["content"][0]
    yield {"type": "response.content_part.added", **at, "part": {"type": "refusal", "refusal": ""}}
    for token in split_tokens(part["refusal"]):
        yield {"type": "response.refusal.delta", **at, "delta": token}
    yield {"type": "response.refusal.done", **at, "refusal": part["refusal"]}
    yield {"type": "response.content_part.done", **at, "part": part}


def _call_events(item: Item) -> Iterator[Event]:
    for token in split_tokens(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", "item_id": item["id"], "delta": token}
    yield {
        "type": "response.function_call_arguments.done",
        "item_id": item["id"],
        "name": item["name"],
        "arguments": item["arguments"],
    }


def _reasoning_events(item: Item, text: str, name: ReasoningName) -> Iterator[Event]:
    if name == "reasoning_summary_text":
        at: Event = {"item_id": item["id"], "summary_index": 0}
        part, kind = "reasoning_summary_part", "summary_text"
    else:
        at = {"item_id": item["id"], "content_index": 0}
        part, kind = "content_part", "reasoning_text"
    yield {"type": f"response.{part}.added", **at, "part": {"type": kind, "text": ""}}
    for token in split_tokens(text):
        yield {"type": f"response.{name}.delta", **at, "delta": token}
    yield {"type": f"response.{name}.done", **at, "text": text}
    yield {"type": f"response.{part}.done", **at, "part": {"type": kind, "text": text}}


def number(steps: Iterable[Step]) -> Iterator[Step]:
    """The same steps, with every event numbered after its type."""
    sequence = 0
    for step in steps:
        if isinstance(step, dict):
            yield {"type": step.get("type"), "sequence_number": sequence, **step}
            sequence += 1
        else:
            yield step
