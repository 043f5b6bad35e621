"""A request that was accepted: the whole conversation behind it, and what it weighs."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols.openresponses.schema import CompactBody, CreateBody, FunctionTool
from tollbridge.testing import validation
from tollbridge.testing.catalog import find_language_model
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.validation import read_image, split_data_url

# SECTION How the demo model counts: a small tokenizer of its own, the same for usage, counting and the window.
#
# It is deterministic and reversible (the tokens of a text join to the text), so an answer streamed one token
# at a time has exactly as many deltas as the usage says.

_TOKEN = re.compile(r" ?\w{1,6}| ?[^\w\s]|\s+")
ITEM_OVERHEAD = 4  # what every item, tool and the instructions cost beyond their words
_IMAGE_UNKNOWN, _IMAGE_LOW, _IMAGE_MOST = 256, 85, 1_600
_BYTES_PER_TOKEN = 4


def split_tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def count_text(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def count_image(url: str | None, detail: str | None = None) -> int:
    if detail == "low":
        return _IMAGE_LOW
    try:
        picture = read_image(split_data_url(url or "")[1])
    except ValueError:
        return _IMAGE_UNKNOWN
    if picture is None or picture.size is None:
        return _IMAGE_UNKNOWN
    width, height = picture.size
    return min(-(-width // 32) * -(-height // 32), _IMAGE_MOST)


def count_content(content: str | Sequence[Mapping[str, Any]]) -> int:
    if isinstance(content, str):
        return count_text(content)
    return sum(_count_part(part) for part in content)


def _count_part(part: Mapping[str, Any]) -> int:
    if part["type"] == "input_image":
        return count_image(part.get("image_url"), part.get("detail"))
    if part["type"] == "input_file":
        data = part.get("file_data") or ""
        return count_text(part.get("filename") or "") + -(-len(data) * 3 // 4 // _BYTES_PER_TOKEN)
    return count_text(part.get("text") or part.get("refusal") or part.get("video_url") or "")


def count_item(item: Mapping[str, Any]) -> int:
    return ITEM_OVERHEAD + sum(
        count_content(item[field])
        for field in ("content", "output", "name", "arguments", "summary", "encrypted_content")
        if item.get(field)
    )


def count_preface(instructions: str | None, tools: Sequence[Mapping[str, Any]], output_format: Any) -> int:
    """What comes before the items: instructions, tools and the output format."""
    total = ITEM_OVERHEAD + count_text(instructions) if instructions else 0
    for tool in tools:
        total += ITEM_OVERHEAD + count_text(msgspec.json.encode(tool).decode())
    return total + (count_text(msgspec.json.encode(output_format).decode()) if output_format else 0)


class PrefixCache:
    """Which beginnings of prompts were seen before: what a prompt cache would hold."""

    def __init__(self, limit: int = 10_000) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._limit = limit

    def cached_tokens(self, preface: Any, preface_tokens: int, items: Sequence[Mapping[str, Any]]) -> int:
        """The tokens of the longest beginning seen before, item by item."""
        total, cached = preface_tokens, 0
        for mark, item in zip(self._marks(preface, items), (None, *items), strict=True):
            total += count_item(item) if item is not None else 0
            if mark not in self._seen:
                return cached
            cached = total
        return cached

    def remember(self, preface: Any, items: Sequence[Mapping[str, Any]]) -> None:
        for mark in self._marks(preface, items):
            self._seen[mark] = None
            self._seen.move_to_end(mark)
        while len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    @staticmethod
    def _marks(preface: Any, items: Sequence[Mapping[str, Any]]) -> Iterable[bytes]:
        chain = hashlib.sha256(msgspec.json.encode(preface))
        yield chain.digest()
        for item in items:
            chain.update(msgspec.json.encode(_essence(item)))
            yield chain.digest()


def _essence(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of an item a model reads: ids, statuses and the ways to write plain text make no difference."""
    content = item.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = [_plain(part) for part in content]
    elif isinstance(content, str):
        content = [content]
    fields = ("call_id", "name", "arguments", "output", "summary", "encrypted_content", "result")
    return item["type"], item.get("role"), content, *(item.get(field) for field in fields)


def _plain(part: Mapping[str, Any]) -> Any:
    return part.get("text") or part.get("refusal") or part


# SECTION Responses that later requests may build on, by id.

Item = dict[str, Any]


class Remembered(msgspec.Struct, frozen=True):
    """The whole conversation up to and including a response."""

    items: tuple[Item, ...]


class ResponseStore:
    """The newest `limit` responses. A server has one, and every WebSocket connection one of its own."""

    def __init__(self, limit: int = 1_000) -> None:
        self._responses: OrderedDict[str, Remembered] = OrderedDict()
        self._limit = limit

    def keep(self, response_id: str, items: tuple[Item, ...]) -> None:
        self._responses[response_id] = Remembered(items)
        while len(self._responses) > self._limit:
            self._responses.popitem(last=False)

    def find(self, response_id: str) -> Remembered | None:
        return self._responses.get(response_id)

    def find_item(self, item_id: str) -> Item | None:
        for remembered in reversed(self._responses.values()):
            for item in remembered.items:
                if item.get("id") == item_id:
                    return item
        return None

    def forget(self, response_id: str) -> None:
        self._responses.pop(response_id, None)


# SECTION A request that was accepted: the whole conversation behind it, and what it weighs.


class AcceptedRequest(msgspec.Struct, frozen=True, kw_only=True):
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


def accept(
    body: CreateBody, memories: Sequence[ResponseStore], cache: PrefixCache | None = None
) -> AcceptedRequest:
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
    turn = AcceptedRequest(
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


def _conversation(body: CreateBody | CompactBody, memories: Sequence[ResponseStore]) -> list[Item]:
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


def _remembered(response_id: str | None, memories: Sequence[ResponseStore]) -> tuple[Item, ...]:
    if response_id is None:
        return ()
    for memory in memories:
        if (found := memory.find(response_id)) is not None:
            return found.items
    shown = response_id if len(response_id) <= 80 else f"{response_id[:80]}…"
    raise RequestRejected(
        400,
        "previous_response_not_found",
        f"Previous response with id {shown!r} not found. Responses made with store: false are not kept.",
        param="previous_response_id",
    )


def _dereferenced(item: Item, memories: Sequence[ResponseStore], name: str) -> Item:
    if item["type"] != "item_reference":
        return item
    for memory in memories:
        if (found := memory.find_item(item["id"])) is not None:
            return found
    raise RequestRejected(
        404,
        "item_not_found",
        f"Item with id {item['id'][:80]!r} not found. Items are not kept when store is false.",
        param=f"{name}.id",
    )


def accept_compaction(body: CompactBody, memories: Sequence[ResponseStore]) -> AcceptedRequest:
    model = find_language_model(body.model)
    items = _conversation(body, memories)
    tokens = count_preface(body.instructions, (), None) + sum(count_item(item) for item in items)
    validation.check_window(model, tokens)
    return AcceptedRequest(
        id=new_id("resp"),
        created_at=int(time.time()),
        body=CreateBody(model=body.model, instructions=body.instructions),
        model=model,
        tools=(),
        items=tuple(items),
        input_tokens=tokens,
    )
