"""Responses: the scripted answer of a model, as items, response objects and stream events.

Events are created without `sequence_number`, because a scenario can still add, change or drop some of them.
`number_events` adds the numbers.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from tollbridge.protocols.answer import new_id
from tollbridge.protocols.openresponses import answer as response
from tollbridge.protocols.openresponses.wire import encode_usage
from tollbridge.testing.requests import AcceptedRequest, Item, count_text, split_tokens
from tollbridge.types.events import Usage


class Say(msgspec.Struct, frozen=True, tag="say"):
    """A message. `cites` are citations: (phrase in the text, url, title)."""

    text: str
    cites: tuple[tuple[str, str, str], ...] = ()


class Think(msgspec.Struct, frozen=True, tag="think"):
    """Reasoning."""

    text: str


class Refuse(msgspec.Struct, frozen=True, tag="refuse"):
    """A message with a refusal."""

    text: str


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A function call. `arguments` is JSON text."""

    name: str
    arguments: str


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    """A generated image, encoded as base64."""

    png: str


Block = Say | Think | Refuse | Call | Draw
IMAGE_TOKENS = 16  # output tokens of a generated image


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answers."""

    blocks: tuple[Block, ...]
    cut: str | None = None  # why the answer is incomplete
    pace: float = 0.0  # seconds per token

    @property
    def output_tokens(self) -> int:
        return sum(count_block(block) for block in self.blocks)

    @property
    def reasoning_tokens(self) -> int:
        return sum(count_block(block) for block in self.blocks if isinstance(block, Think))


def count_block(block: Block) -> int:
    match block:
        case Draw():
            return IMAGE_TOKENS
        case Call():
            return count_text(block.name) + count_text(block.arguments)
        case _:
            return count_text(block.text)


def cut_answer(answer: ScriptedAnswer, limit: int, reason: str = "max_output_tokens") -> ScriptedAnswer:
    """Cut an answer after `limit` tokens. An answer that fits is returned unchanged."""
    if answer.output_tokens <= limit:
        return answer
    blocks: list[Block] = []
    for block in answer.blocks:
        size = count_block(block)
        if size > limit:
            shorter = _cut_block(block, limit)
            if shorter is not None:
                blocks.append(shorter)
            break
        blocks.append(block)
        limit -= size
    return msgspec.structs.replace(answer, blocks=tuple(blocks), cut=reason)


def _cut_block(block: Block, limit: int) -> Block | None:
    if isinstance(block, Draw):
        return None
    if isinstance(block, Call):
        limit -= count_text(block.name)
        text = _first_tokens(block.arguments, limit)
        return msgspec.structs.replace(block, arguments=text) if limit > 0 else None
    text = _first_tokens(block.text, limit)
    if not text:
        return None
    if isinstance(block, Say):
        return Say(text, tuple(cite for cite in block.cites if cite[0] in text))
    return msgspec.structs.replace(block, text=text)


def _first_tokens(text: str, limit: int) -> str:
    return "".join(split_tokens(text)[: max(limit, 0)])


Resource = dict[str, Any]
ReasoningName = Literal["reasoning_summary_text", "reasoning", "reasoning_text"]


def make_usage(request: AcceptedRequest, output_tokens: int, reasoning_tokens: int = 0) -> Resource:
    return encode_usage(
        Usage(
            input_tokens=request.input_tokens,
            output_tokens=output_tokens,
            cached_tokens=request.cache.cached_tokens,
            cache_write_tokens=request.cache.written_tokens,
            reasoning_tokens=reasoning_tokens,
        )
    )


def make_response(request: AcceptedRequest) -> Resource:
    """Return the response object at the start: in progress, without output and usage."""
    body = msgspec.to_builtins(request.body)
    body["tools"] = [msgspec.to_builtins(tool) for tool in request.tools]
    return response.make_response(body, request.id, request.created_at)


def end_response(request: AcceptedRequest, answer: ScriptedAnswer, output: Sequence[Item]) -> Resource:
    """Return the response object at the end."""
    response = {
        **make_response(request),
        "status": "completed",
        "completed_at": int(time.time()),
        "output": list(output),
        "usage": make_usage(request, answer.output_tokens, answer.reasoning_tokens),
    }
    if request.cache.provider is not None:
        routing = {"finalProvider": request.cache.provider}
        response["provider_metadata"] = {"gateway": {"routing": routing}}
    if answer.cut is not None:
        response |= {
            "status": "incomplete",
            "completed_at": None,
            "incomplete_details": {"reason": answer.cut},
        }
    return response


def make_item(block: Block, request: AcceptedRequest, status: str, reasoning: ReasoningName) -> Item:
    """Return the complete item of a block."""
    match block:
        case Say():
            return _message([make_text_part(block)], status)
        case Refuse():
            return _message([{"type": "refusal", "refusal": block.text}], status)
        case Call():
            return {
                "type": "function_call",
                "id": new_id("fc"),
                "call_id": new_id("call"),
                "name": block.name,
                "arguments": block.arguments,
                "status": status,
            }
        case Draw():
            return {
                "type": "image_generation_call",
                "id": new_id("ig"),
                "status": status,
                "result": block.png,
            }
        case Think():
            item: Item = {"type": "reasoning", "id": new_id("rs"), "summary": []}
            if reasoning == "reasoning_summary_text":
                item["summary"] = [{"type": "summary_text", "text": block.text}]
            else:
                item["content"] = [{"type": "reasoning_text", "text": block.text}]
            if "reasoning.encrypted_content" in (request.body.include or ()):
                item["encrypted_content"] = encode_encrypted_content(block.text)
            return item


def make_text_part(block: Say) -> Item:
    cites = [
        {
            "type": "url_citation",
            "url": url,
            "title": title,
            "start_index": block.text.index(phrase),
            "end_index": block.text.index(phrase) + len(phrase),
        }
        for phrase, url, title in block.cites
    ]
    return {"type": "output_text", "text": block.text, "annotations": cites, "logprobs": []}


def make_compaction(request: AcceptedRequest, summary: str) -> Resource:
    item = {"type": "compaction", "id": new_id("cmp"), "encrypted_content": encode_encrypted_content(summary)}
    return {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": request.created_at,
        "output": [item],
        "usage": make_usage(request, count_text(summary)),
    }


# The encrypted content of this gateway is not encrypted: it is base64 with a prefix, and has no secrets.
_ENCRYPTED_PREFIX = "tollbridge1."


def encode_encrypted_content(text: str) -> str:
    return _ENCRYPTED_PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


def decode_encrypted_content(content: str) -> str | None:
    """Return the text of encrypted content, or None if another server created it."""
    if not content.startswith(_ENCRYPTED_PREFIX):
        return None
    try:
        return base64.b64decode(content.removeprefix(_ENCRYPTED_PREFIX), b"-_", validate=True).decode()
    except ValueError:
        return None


def _message(content: list[Item], status: str) -> Item:
    return {"type": "message", "id": new_id("msg"), "status": status, "role": "assistant", "content": content}


Event = dict[str, Any]


class Pause(msgspec.Struct, frozen=True):
    """Send nothing for some seconds."""

    seconds: float


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connection; with `reset`, by a TCP reset."""

    reset: bool = False


# Bytes are sent unchanged.
Step = Event | bytes | Pause | Disconnect


def make_events(request: AcceptedRequest, answer: ScriptedAnswer, reasoning: ReasoningName) -> Iterator[Step]:
    """Yield all events, from `response.created` to the terminal event, with pauses if the answer is slow."""
    output: list[Item] = []
    response = make_response(request)
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    for index, block in enumerate(answer.blocks):
        is_cut = answer.cut is not None and index == len(answer.blocks) - 1
        item = make_item(block, request, "incomplete" if is_cut else "completed", reasoning)
        output.append(item)
        for event in _item_events(block, item, reasoning):
            yield {"type": event["type"], "output_index": index, **event}
            if answer.pace and "delta" in event:
                yield Pause(answer.pace)
    response = end_response(request, answer, output)
    yield {"type": f"response.{response['status']}", "response": response}


def _item_events(block: Block, item: Item, reasoning: ReasoningName) -> Iterator[Event]:
    yield {"type": "response.output_item.added", "item": _empty_item(item)}
    match block:
        case Say():
            yield from _part_events(item["id"], item["content"][0], "output_text")
        case Refuse():
            yield from _part_events(item["id"], item["content"][0], "refusal")
        case Think():
            [part] = item["summary"] or item["content"]
            yield from _part_events(item["id"], part, reasoning)
        case Call():
            place = {"item_id": item["id"]}
            for token in split_tokens(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": token}
            arguments = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, **arguments}
        case Draw():
            for stage in ("in_progress", "generating", "completed"):
                yield {"type": f"response.image_generation_call.{stage}", "item_id": item["id"]}
    yield {"type": "response.output_item.done", "item": item}


def _empty_item(item: Item) -> Item:
    """Return the item as it is announced: without content, in progress."""
    empty = {key: value for key, value in item.items() if key != "encrypted_content"}
    for field, value in (("content", []), ("summary", []), ("arguments", ""), ("result", None)):
        if field in empty:
            empty[field] = value
    if item["type"] == "reasoning":
        empty.pop("content", None)
    if "status" in empty:
        empty["status"] = "in_progress"
    return empty


def _part_events(item_id: str, part: Item, name: str) -> Iterator[Event]:
    """Yield the events of the only part of an item; `name` is how the events call its text."""
    field = "refusal" if part["type"] == "refusal" else "text"
    kind, index = "content_part", "content_index"
    if part["type"] == "summary_text":
        kind, index = "reasoning_summary_part", "summary_index"
    place = {"item_id": item_id, index: 0}
    extra = {name: part[name] for name in ("logprobs",) if name in part}
    empty = {**part, field: "", **({"annotations": []} if "annotations" in part else {})}
    yield {"type": f"response.{kind}.added", **place, "part": empty}
    for token in split_tokens(part[field]):
        yield {"type": f"response.{name}.delta", **place, "delta": token, **extra}
    for number, annotation in enumerate(part.get("annotations", ())):
        added = {"annotation_index": number, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **place, **added}
    yield {"type": f"response.{name}.done", **place, field: part[field], **extra}
    yield {"type": f"response.{kind}.done", **place, "part": part}


def number_events(steps: Iterable[Step]) -> Iterator[Step]:
    """Add a `sequence_number` to every event, after its type."""
    number = 0
    for step in steps:
        if isinstance(step, dict):
            yield {"type": step.get("type"), "sequence_number": number, **step}
            number += 1
        else:
            yield step
