"""A request that was accepted: the whole conversation behind it, and what it weighs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.gateway import validation
from tollbridge.gateway.catalog import find_language_model
from tollbridge.gateway.counting import PrefixCache, count_item, count_preface
from tollbridge.gateway.memory import Memory
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.wire import CompactBody, CreateBody, FunctionTool

Item = dict[str, Any]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created_at: int
    body: CreateBody
    model: Mapping[str, Any]
    tools: tuple[FunctionTool, ...]
    items: tuple[Item, ...]
    input_tokens: int
    cached_tokens: int = 0

    @property
    def preface(self) -> tuple[Any, ...]:
        return self.body.model, self.body.instructions, self.body.tools


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def accept(body: CreateBody, memories: Sequence[Memory], cache: PrefixCache | None = None) -> Turn:
    """The turn a body asks for, or a refusal. With a cache, it is looked up and then remembers the prompt."""
    model = find_language_model(body.model)
    tools = validation.read_tools(body.tools)
    validation.check_tool_choice(body.tool_choice, tools)
    validation.check_output_format(body)
    items = _conversation(body, memories)
    validation.check_abilities(model, items, tools)
    preface_tokens = count_preface(body.instructions, body.tools or (), body.text and body.text.format)
    tokens = preface_tokens + sum(count_item(item) for item in items)
    validation.check_window(model, tokens)
    turn = Turn(
        id=new_id("resp"),
        created_at=int(time.time()),
        body=body,
        model=model,
        tools=tuple(tools),
        items=tuple(items),
        input_tokens=tokens,
    )
    if cache is None:
        return turn
    cached = cache.cached_tokens(turn.preface, preface_tokens, turn.items)
    cache.remember(turn.preface, turn.items)
    return msgspec.structs.replace(turn, cached_tokens=cached)


def _conversation(body: CreateBody | CompactBody, memories: Sequence[Memory]) -> list[Item]:
    before = _remembered(body.previous_response_id, memories)
    fresh = validation.read_input(body.input)
    if not fresh and not (before and isinstance(body, CompactBody)):
        validation.check_conversation([], [])
    names = [*("previous_response_id" for _ in before), *(f"input[{index}]" for index in range(len(fresh)))]
    items = [
        *before,
        *(_dereferenced(item, memories, name) for item, name in zip(fresh, names, strict=False)),
    ]
    validation.check_conversation(items, names)
    return items


def _remembered(response_id: str | None, memories: Sequence[Memory]) -> tuple[Item, ...]:
    if response_id is None:
        return ()
    for memory in memories:
        if (found := memory.find(response_id)) is not None:
            return found.items
    shown = response_id if len(response_id) <= 80 else f"{response_id[:80]}…"
    raise Refused(
        400,
        "previous_response_not_found",
        f"Previous response with id {shown!r} not found. Responses made with store: false are not kept.",
        param="previous_response_id",
    )


def _dereferenced(item: Item, memories: Sequence[Memory], name: str) -> Item:
    if item["type"] != "item_reference":
        return item
    for memory in memories:
        if (found := memory.find_item(item["id"])) is not None:
            return found
    raise Refused(
        404,
        "item_not_found",
        f"Item with id {item['id'][:80]!r} not found. Items are not kept when store is false.",
        param=f"{name}.id",
    )


def accept_compaction(body: CompactBody, memories: Sequence[Memory]) -> Turn:
    model = find_language_model(body.model)
    items = _conversation(body, memories)
    tokens = count_preface(body.instructions, (), None) + sum(count_item(item) for item in items)
    validation.check_window(model, tokens)
    return Turn(
        id=new_id("resp"),
        created_at=int(time.time()),
        body=CreateBody(model=body.model, instructions=body.instructions),
        model=model,
        tools=(),
        items=tuple(items),
        input_tokens=tokens,
    )
