"""An answer as the events of a stream, in the order the protocol wants them.

Events leave here without their `sequence_number`: a scenario may still add, change or drop some.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from tollbridge.protocols.openresponses.schema import CreateBody
from tollbridge.testing.requests import AcceptedRequest, Item, count_text, new_id, split_tokens

# SECTION What a scripted model says, before it becomes items and events.


class Say(msgspec.Struct, frozen=True, tag="say"):
    text: str
    # Citations as (phrase in the text, url, title).
    cites: tuple[tuple[str, str, str], ...] = ()


class Think(msgspec.Struct, frozen=True, tag="think"):
    text: str


class Refuse(msgspec.Struct, frozen=True, tag="refuse"):
    text: str


class Call(msgspec.Struct, frozen=True, tag="call"):
    name: str
    arguments: str


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    """An image, as base64 of its bytes."""

    png: str


Block = Say | Think | Refuse | Call | Draw
IMAGE_TOKENS = 16  # what making an image costs


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks in their order. `cut` is why the last one is incomplete; `pace` the seconds a token takes."""

    blocks: tuple[Block, ...]
    cut: str | None = None
    error: dict[str, Any] | None = None
    pace: float = 0.0

    @property
    def output_tokens(self) -> int:
        return sum(count_block(block) for block in self.blocks)

    @property
    def reasoning_tokens(self) -> int:
        return sum(count_block(block) for block in self.blocks if isinstance(block, Think))


def block_text(block: Block) -> str:
    match block:
        case Call():
            return block.arguments
        case Draw():
            return ""
        case _:
            return block.text


def count_block(block: Block) -> int:
    if isinstance(block, Draw):
        return IMAGE_TOKENS
    return count_text(block_text(block)) + (count_text(block.name) if isinstance(block, Call) else 0)


def cut_answer(answer: ScriptedAnswer, limit: int, reason: str = "max_output_tokens") -> ScriptedAnswer:
    """The answer as far as `limit` tokens go. One that fits is left whole."""
    if answer.output_tokens <= limit:
        return answer
    kept: list[Block] = []
    for block in answer.blocks:
        size = count_block(block)
        if size > limit:
            shorter = _cut_block(block, limit)
            if shorter is not None:
                kept.append(shorter)
            break
        kept.append(block)
        limit -= size
    return msgspec.structs.replace(answer, blocks=tuple(kept), cut=reason)


def _cut_block(block: Block, limit: int) -> Block | None:
    if isinstance(block, Draw):
        return None
    if isinstance(block, Call):
        limit -= count_text(block.name)
        text = _first(block.arguments, limit)
        return msgspec.structs.replace(block, arguments=text) if limit > 0 else None
    text = _first(block.text, limit)
    if not text:
        return None
    if isinstance(block, Say):
        return Say(text, tuple(cite for cite in block.cites if cite[0] in text))
    return msgspec.structs.replace(block, text=text)


def _first(text: str, limit: int) -> str:
    return "".join(split_tokens(text)[: max(limit, 0)])


# SECTION Responses and items as they travel: every field the specification requires, present.

Resource = dict[str, Any]
_Value = TypeVar("_Value")


def make_usage(turn: AcceptedRequest, output_tokens: int, reasoning_tokens: int = 0) -> Resource:
    return {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": turn.cached_tokens},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": turn.input_tokens + output_tokens,
    }


def make_response(turn: AcceptedRequest) -> Resource:
    """The response as it stands when it begins: in progress, nothing said, nothing counted."""
    body = turn.body
    return {
        "id": turn.id,
        "object": "response",
        "created_at": turn.created_at,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": body.model,
        "previous_response_id": body.previous_response_id,
        "instructions": body.instructions,
        "output": [],
        "error": None,
        "tools": [msgspec.to_builtins(tool) for tool in turn.tools],
        "tool_choice": _tool_choice(body),
        "truncation": body.truncation or "disabled",
        "parallel_tool_calls": _or(body.parallel_tool_calls, True),
        "text": _text(body),
        "top_p": _or(body.top_p, 1.0),
        "presence_penalty": _or(body.presence_penalty, 0.0),
        "frequency_penalty": _or(body.frequency_penalty, 0.0),
        "top_logprobs": _or(body.top_logprobs, 0),
        "temperature": _or(body.temperature, 1.0),
        "reasoning": {"effort": body.reasoning.effort, "summary": body.reasoning.summary}
        if body.reasoning
        else None,
        "usage": None,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "store": _or(body.store, True),
        "background": _or(body.background, False),
        "service_tier": body.service_tier or "default",
        "metadata": body.metadata or {},
        "safety_identifier": body.safety_identifier,
        "prompt_cache_key": body.prompt_cache_key,
    }


def end_response(turn: AcceptedRequest, answer: ScriptedAnswer, output: Sequence[Item]) -> Resource:
    """The response as it stands when all is said."""
    ended = {
        **make_response(turn),
        "status": "completed",
        "completed_at": int(time.time()),
        "output": list(output),
        "usage": make_usage(turn, answer.output_tokens, answer.reasoning_tokens),
    }
    if answer.cut is not None:
        ended |= {"status": "incomplete", "completed_at": None, "incomplete_details": {"reason": answer.cut}}
    return ended


def fail_response(response: Resource, code: str, message: str, output: Sequence[Item] = ()) -> Resource:
    error = {"code": code, "message": message}
    return {**response, "status": "failed", "error": error, "output": list(output)}


def make_item(block: Block, turn: AcceptedRequest, status: str, raw_reasoning: bool = False) -> Item:
    """The finished item a block becomes."""
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
            return _reasoning(block, turn, raw_reasoning)


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


def make_compaction(turn: AcceptedRequest, summary: str, output_tokens: int) -> Resource:
    item = {"type": "compaction", "id": new_id("cmp"), "encrypted_content": seal(summary)}
    return {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": turn.created_at,
        "output": [item],
        "usage": make_usage(turn, output_tokens),
    }


# Sealed content is opaque to clients and readable to us; nothing secret is in it.
_SEAL = "tollbridge1."


def seal(text: str) -> str:
    return _SEAL + base64.urlsafe_b64encode(text.encode()).decode()


def unseal(sealed: str) -> str | None:
    """What we sealed, or `None` for what another server sealed."""
    if not sealed.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(sealed.removeprefix(_SEAL), b"-_", validate=True).decode()
    except ValueError:
        return None


def _message(content: list[Item], status: str) -> Item:
    return {"type": "message", "id": new_id("msg"), "status": status, "role": "assistant", "content": content}


def _reasoning(block: Think, turn: AcceptedRequest, raw: bool) -> Item:
    item: Item = {"type": "reasoning", "id": new_id("rs"), "summary": []}
    if raw:
        item["content"] = [{"type": "reasoning_text", "text": block.text}]
    else:
        item["summary"] = [{"type": "summary_text", "text": block.text}]
    if "reasoning.encrypted_content" in (turn.body.include or ()):
        item["encrypted_content"] = seal(block.text)
    return item


def _tool_choice(body: CreateBody) -> Any:
    choice = body.tool_choice or "auto"
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {"mode": "auto", **choice}
    return choice


def _text(body: CreateBody) -> Resource:
    form = body.text.format if body.text else None
    described: Resource = {"type": form.type if form else "text"}
    if form is not None and form.type == "json_schema":
        # The specification's responses have `schema: null` only.
        described |= {
            "name": form.name,
            "description": form.description,
            "schema": None,
            "strict": bool(form.strict),
        }
    verbosity = body.text.verbosity if body.text else None
    return {"format": described, **({"verbosity": verbosity} if verbosity else {})}


def _or(given: _Value | None, default: _Value) -> _Value:
    return default if given is None else given


# SECTION An answer as the events of a stream, in the order the protocol wants them.
#
# Events leave here without their `sequence_number`: a scenario may still add, change or drop some.

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
    turn: AcceptedRequest, answer: ScriptedAnswer, reasoning: ReasoningName = "reasoning_summary_text"
) -> list[Item]:
    raw = reasoning != "reasoning_summary_text"
    last = len(answer.blocks) - 1
    return [
        make_item(block, turn, "incomplete" if answer.cut and index == last else "completed", raw)
        for index, block in enumerate(answer.blocks)
    ]


def make_events(
    turn: AcceptedRequest, answer: ScriptedAnswer, reasoning: ReasoningName = "reasoning_summary_text"
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
