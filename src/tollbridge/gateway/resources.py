"""Responses and items as they travel: every field the specification requires, present."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.gateway.answers import Answer, Block, Call, Draw, Refuse, Say, Think
from tollbridge.gateway.turns import Item, Turn, new_id
from tollbridge.gateway.wire import CreateBody

Resource = dict[str, Any]
_Value = TypeVar("_Value")


def make_usage(turn: Turn, output_tokens: int, reasoning_tokens: int = 0) -> Resource:
    return {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": turn.cached_tokens},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": turn.input_tokens + output_tokens,
    }


def make_response(turn: Turn) -> Resource:
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


def end_response(turn: Turn, answer: Answer, output: Sequence[Item]) -> Resource:
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


def make_item(block: Block, turn: Turn, status: str, raw_reasoning: bool = False) -> Item:
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


def make_compaction(turn: Turn, summary: str, output_tokens: int) -> Resource:
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


def _reasoning(block: Think, turn: Turn, raw: bool) -> Item:
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
