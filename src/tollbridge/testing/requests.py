"""Accepted requests: the whole conversation, with stored responses resolved and tokens counted.

The scripted model has a small tokenizer of its own. It is used for usage, for token counts and for the
context window; `PromptSettings` can replace it for prompts. It is deterministic and reversible (the tokens of
a text join to the text), so an answer that is streamed one token at a time has as many deltas as the usage
has output tokens.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols.answer import new_id
from tollbridge.protocols.openresponses.schema import CompactBody, CreateBody, FunctionTool
from tollbridge.testing import validation
from tollbridge.testing.catalog import find_language_model
from tollbridge.testing.limits import LIMITS
from tollbridge.testing.prompt_cache import CacheUse, PromptCache, Unit, encode_visible
from tollbridge.testing.refusals import RequestRejected, show_value
from tollbridge.types.media import image_size, split_data_url

Item = dict[str, Any]


_TOKEN = re.compile(r" ?\w{1,6}| ?[^\w\s]|\s+")
ITEM_OVERHEAD = 4  # tokens of every item, tool and the instructions in addition to their text
# Tokens of an image of unknown size, of one with low detail, and of the largest images.
_IMAGE_UNKNOWN, _IMAGE_LOW, _IMAGE_LIMIT = 256, 85, 1_600
_BYTES_PER_TOKEN = 4

CountText = Callable[[str], int]


def split_tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def count_text(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def count_image(url: str | None, detail: str | None = None) -> int:
    """Count an image by its size: one token per 32 x 32 pixels."""
    if detail == "low":
        return _IMAGE_LOW
    try:
        size = image_size(split_data_url(url or "")[1])
    except ValueError:
        size = None
    if size is None:
        return _IMAGE_UNKNOWN
    width, height = size
    return min(-(-width // 32) * -(-height // 32), _IMAGE_LIMIT)


def _count_part(part: Mapping[str, Any], count: CountText) -> int:
    if part["type"] == "input_image":
        return count_image(part.get("image_url"), part.get("detail"))
    if part["type"] == "input_file":
        data = part.get("file_data") or ""
        return count(part.get("filename") or "") + -(-len(data) * 3 // 4 // _BYTES_PER_TOKEN)
    return count(part.get("text") or part.get("refusal") or part.get("video_url") or "")


def _count_item(item: Mapping[str, Any], count: CountText) -> int:
    tokens = ITEM_OVERHEAD
    for field in ("content", "output", "name", "arguments", "summary", "encrypted_content"):
        value = item.get(field) or ()
        parts = [{"type": "text", "text": value}] if isinstance(value, str) else value
        tokens += sum(_count_part(part, count) for part in parts)
    return tokens


def make_preface(body: CreateBody, count: CountText = count_text) -> list[Unit]:
    """Return what precedes the items, with its tokens: model, effort, tools, output format, instructions."""
    units = [(msgspec.json.encode((body.model, body.reasoning and body.reasoning.effort)), 0)]
    for tool in body.tools or ():
        content = msgspec.json.encode(tool)
        units.append((content, ITEM_OVERHEAD + count(content.decode())))
    if body.text and body.text.format:
        content = msgspec.json.encode(body.text.format)
        units.append((content, count(content.decode())))
    if body.instructions:
        content = msgspec.json.encode(body.instructions)
        units.append((content, ITEM_OVERHEAD + count(body.instructions)))
    return units


def count_units(units: Iterable[Unit]) -> int:
    return sum(tokens for _, tokens in units)


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a gateway counts and limits prompts."""

    count_text: CountText = count_text
    window: int | None = None  # the context window of every model; by default, each has its own
    # As at Anthropic, prompt and output limit share the window; without a limit, the model's maximum counts.
    shared: bool = False


def make_units(items: Sequence[Mapping[str, Any]], count: CountText = count_text) -> list[Unit]:
    """Return what the model sees of the items, with their tokens."""
    return [(encode_visible(item), _count_item(item, count)) for item in items]


class ResponseStore:
    """The conversations of the newest `limit` responses, by response id, for later requests to continue.

    The server has one store, and every WebSocket connection has its own.
    """

    def __init__(self, limit: int = LIMITS.responses) -> None:
        self._conversations: OrderedDict[str, tuple[Item, ...]] = OrderedDict()
        self._limit = limit

    def add(self, response_id: str, items: tuple[Item, ...]) -> None:
        """Store the whole conversation up to and including the response."""
        self._conversations[response_id] = items
        while len(self._conversations) > self._limit:
            self._conversations.popitem(last=False)

    def find(self, response_id: str) -> tuple[Item, ...] | None:
        return self._conversations.get(response_id)

    def find_item(self, item_id: str) -> Item | None:
        for items in reversed(self._conversations.values()):
            for item in items:
                if item.get("id") == item_id:
                    return item
        return None

    def remove(self, response_id: str) -> None:
        self._conversations.pop(response_id, None)


class AcceptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request for a response, whose id and time are those of the response."""

    id: str = msgspec.field(default_factory=lambda: new_id("resp"))
    created_at: int = msgspec.field(default_factory=lambda: int(time.time()))
    body: CreateBody
    model: Mapping[str, Any]  # the entry of the model list
    tools: tuple[FunctionTool, ...] = ()
    items: tuple[Item, ...]  # the whole conversation, including that of `previous_response_id`
    input_tokens: int
    cache: CacheUse = CacheUse()


def accept_request(
    body: CreateBody,
    stores: Sequence[ResponseStore],
    cache: PromptCache | None = None,
    prompts: PromptSettings = PromptSettings(),  # noqa: B008 (frozen)
) -> AcceptedRequest:
    """Validate a body against the model and the stored responses, and reject it if it is invalid.

    If there is a prompt cache, the prompt is looked up there and then added.
    """
    model = find_language_model(body.model)
    tools = validation.read_tools(body.tools)
    validation.check_tool_choice(body.tool_choice, tools)
    validation.check_output_format(body)
    items = _read_conversation(body, stores)
    validation.check_abilities(model, items, tools)
    preface, units = make_preface(body, prompts.count_text), make_units(items, prompts.count_text)
    tokens = count_units(preface) + count_units(units)
    output = (body.max_output_tokens or model["max_tokens"]) if prompts.shared else 0
    validation.check_window(prompts.window or model["context_window"], tokens, output)
    return AcceptedRequest(
        body=body,
        model=model,
        tools=tuple(tools),
        items=tuple(items),
        input_tokens=tokens,
        cache=CacheUse() if cache is None else cache.use(preface, units),
    )


def _read_conversation(body: CreateBody | CompactBody, stores: Sequence[ResponseStore]) -> list[Item]:
    previous = _find_previous(body.previous_response_id, stores)
    new = validation.read_input(body.input)
    if not new and not (previous and isinstance(body, CompactBody)):
        validation.check_conversation([], [])  # raises: the input is empty
    names = [f"input[{index}]" for index in range(len(new))]
    resolved = [_resolve_reference(item, stores, name) for item, name in zip(new, names, strict=True)]
    items = [*previous, *resolved]
    validation.check_conversation(items, [*("previous_response_id" for _ in previous), *names])
    return items


def _find_previous(response_id: str | None, stores: Sequence[ResponseStore]) -> tuple[Item, ...]:
    if response_id is None:
        return ()
    for store in stores:
        if (items := store.find(response_id)) is not None:
            return items
    advice = "Responses created with store: false are not stored."
    message = f"Previous response with id {show_value(response_id)} not found. {advice}"
    raise RequestRejected(400, "previous_response_not_found", message, param="previous_response_id")


def _resolve_reference(item: Item, stores: Sequence[ResponseStore], name: str) -> Item:
    if item["type"] != "item_reference":
        return item
    for store in stores:
        if (stored_item := store.find_item(item["id"])) is not None:
            return stored_item
    message = f"Item with id {show_value(item['id'])} not found. Items are not stored when store is false."
    raise RequestRejected(404, "item_not_found", message, param=f"{name}.id")


def accept_compaction(body: CompactBody, stores: Sequence[ResponseStore]) -> AcceptedRequest:
    """Validate a body of `POST /responses/compact`, like `accept_request`."""
    model = find_language_model(body.model)
    items = _read_conversation(body, stores)
    prompt = CreateBody(model=body.model, instructions=body.instructions)
    tokens = count_units(make_preface(prompt)) + count_units(make_units(items))
    validation.check_window(model["context_window"], tokens)
    return AcceptedRequest(body=prompt, model=model, items=tuple(items), input_tokens=tokens)
