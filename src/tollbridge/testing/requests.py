"""Accepted requests: the whole conversation, with stored responses resolved and tokens counted.

The scripted model has a small tokenizer of its own. It is used for usage, for token counts and for the
context window; `PromptSettings` can replace it for prompts. It is deterministic and reversible (the tokens of
a text join to the text), so an answer that is streamed one token at a time has as many deltas as the usage
has output tokens.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols.openresponses.schema import CompactBody, CreateBody, FunctionTool
from tollbridge.protocols.openresponses.server import new_id
from tollbridge.testing import validation
from tollbridge.testing.catalog import find_language_model
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.validation import read_image
from tollbridge.types.media import split_data_url

Item = dict[str, Any]


# --- Counting tokens ---

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
        image = read_image(split_data_url(url or "")[1])
    except ValueError:
        return _IMAGE_UNKNOWN
    if image is None or image.size is None:
        return _IMAGE_UNKNOWN
    width, height = image.size
    return min(-(-width // 32) * -(-height // 32), _IMAGE_LIMIT)


def count_content(content: str | Sequence[Mapping[str, Any]], count: CountText = count_text) -> int:
    if isinstance(content, str):
        return count(content)
    return sum(_count_part(part, count) for part in content)


def _count_part(part: Mapping[str, Any], count: CountText) -> int:
    if part["type"] == "input_image":
        return count_image(part.get("image_url"), part.get("detail"))
    if part["type"] == "input_file":
        data = part.get("file_data") or ""
        return count(part.get("filename") or "") + -(-len(data) * 3 // 4 // _BYTES_PER_TOKEN)
    return count(part.get("text") or part.get("refusal") or part.get("video_url") or "")


def count_item(item: Mapping[str, Any], count: CountText = count_text) -> int:
    return ITEM_OVERHEAD + sum(
        count_content(item[field], count)
        for field in ("content", "output", "name", "arguments", "summary", "encrypted_content")
        if item.get(field)
    )


def count_preface(
    instructions: str | None,
    tools: Sequence[Mapping[str, Any]],
    output_format: Any,
    count: CountText = count_text,
) -> int:
    """Count what precedes the items: instructions, tools and the output format."""
    total = ITEM_OVERHEAD + count(instructions) if instructions else 0
    for tool in tools:
        total += ITEM_OVERHEAD + count(msgspec.json.encode(tool).decode())
    return total + (count(msgspec.json.encode(output_format).decode()) if output_format else 0)


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a gateway counts and limits prompts.

    Attributes:
        count_text: Counts the tokens of a text in a prompt.
        window: The context window of every model; by default, each has its own.
        shared: Whether the window must also have room for the output limit of a request, which is the model's
            largest if the request has none, as at Anthropic.
    """

    count_text: CountText = count_text
    window: int | None = None
    shared: bool = False


class PrefixCache:
    """A simulated prompt cache: the prefixes of the prompts that were received, up to a limit."""

    def __init__(self, limit: int = 10_000) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._limit = limit

    def cached_tokens(
        self,
        preface: Any,
        preface_tokens: int,
        items: Sequence[Mapping[str, Any]],
        count: CountText = count_text,
    ) -> int:
        """Return the tokens of the longest prefix that is in the cache, in whole items."""
        total, cached = preface_tokens, 0
        for digest, item in zip(self._compute_digests(preface, items), (None, *items), strict=True):
            total += count_item(item, count) if item is not None else 0
            if digest not in self._digests:
                return cached
            cached = total
        return cached

    def add(self, preface: Any, items: Sequence[Mapping[str, Any]]) -> None:
        """Add a prompt with all its prefixes."""
        for digest in self._compute_digests(preface, items):
            self._digests[digest] = None
            self._digests.move_to_end(digest)
        while len(self._digests) > self._limit:
            self._digests.popitem(last=False)

    @staticmethod
    def _compute_digests(preface: Any, items: Sequence[Mapping[str, Any]]) -> Iterable[bytes]:
        """Yield a digest of the preface, and of every prefix of the items."""
        chain = hashlib.sha256(msgspec.json.encode(preface))
        yield chain.digest()
        for item in items:
            chain.update(msgspec.json.encode(_visible_fields(item)))
            yield chain.digest()


def _visible_fields(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a model sees of an item: no ids, no status, and plain text in one form."""
    content = item.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = [_plain_text(part) for part in content]
    elif isinstance(content, str):
        content = [content]
    fields = ("call_id", "name", "arguments", "output", "summary", "encrypted_content", "result")
    return item["type"], item.get("role"), content, *(item.get(field) for field in fields)


def _plain_text(part: Mapping[str, Any]) -> Any:
    return part.get("text") or part.get("refusal") or part


# --- Stored responses ---


class ResponseStore:
    """The conversations of the newest `limit` responses, by response id, for later requests to continue.

    The server has one store, and every WebSocket connection has its own.
    """

    def __init__(self, limit: int = 1_000) -> None:
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


# --- Accepted requests ---


class AcceptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request for a response.

    Attributes:
        id: The id of the response.
        created_at: The time of the response, in seconds since 1970.
        body: The body.
        model: The entry of the model list.
        tools: The tools of the body.
        items: The whole conversation, including that of `previous_response_id`.
        input_tokens: The tokens of the prompt.
        cached_tokens: The tokens of the prompt that were in the prompt cache.
    """

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
        """What precedes the items in the prompt cache."""
        return self.body.model, self.body.instructions, self.body.tools


def accept_request(
    body: CreateBody,
    stores: Sequence[ResponseStore],
    cache: PrefixCache | None = None,
    prompts: PromptSettings = PromptSettings(),  # noqa: B008 (frozen)
) -> AcceptedRequest:
    """Validate a body against the model and the stored responses.

    Args:
        body: The body of `POST /responses`.
        stores: Where to find previous responses and items.
        cache: The prompt cache, if the request uses it. The prompt is looked up and then added.
        prompts: How the prompt is counted and limited.

    Raises:
        RequestRejected: The request is invalid.
    """
    model = find_language_model(body.model)
    tools = validation.read_tools(body.tools)
    validation.check_tool_choice(body.tool_choice, tools)
    validation.check_output_format(body)
    items = _read_conversation(body, stores)
    validation.check_abilities(model, items, tools)
    count = prompts.count_text
    preface_tokens = count_preface(body.instructions, body.tools or (), body.text and body.text.format, count)
    tokens = preface_tokens + sum(count_item(item, count) for item in items)
    window = prompts.window or model["context_window"]
    validation.check_window(window, tokens)
    if prompts.shared:
        validation.check_shared_window(window, tokens, body.max_output_tokens or model["max_tokens"])
    request = AcceptedRequest(
        id=new_id("resp"),
        created_at=int(time.time()),
        body=body,
        model=model,
        tools=tuple(tools),
        items=tuple(items),
        input_tokens=tokens,
    )
    if cache is None:
        return request
    cached = cache.cached_tokens(request.preface, preface_tokens, request.items, count)
    cache.add(request.preface, request.items)
    return msgspec.structs.replace(request, cached_tokens=cached)


def _read_conversation(body: CreateBody | CompactBody, stores: Sequence[ResponseStore]) -> list[Item]:
    previous = _find_previous(body.previous_response_id, stores)
    new = validation.read_input(body.input)
    if not new and not (previous and isinstance(body, CompactBody)):
        validation.check_conversation([], [])
    new_names = [f"input[{index}]" for index in range(len(new))]
    items = [
        *previous,
        *(_resolve_reference(item, stores, name) for item, name in zip(new, new_names, strict=True)),
    ]
    validation.check_conversation(items, [*("previous_response_id" for _ in previous), *new_names])
    return items


def _find_previous(response_id: str | None, stores: Sequence[ResponseStore]) -> tuple[Item, ...]:
    if response_id is None:
        return ()
    for store in stores:
        if (items := store.find(response_id)) is not None:
            return items
    shown_id = response_id if len(response_id) <= 80 else f"{response_id[:80]}…"
    raise RequestRejected(
        400,
        "previous_response_not_found",
        f"Previous response with id {shown_id!r} not found. "
        "Responses created with store: false are not stored.",
        param="previous_response_id",
    )


def _resolve_reference(item: Item, stores: Sequence[ResponseStore], name: str) -> Item:
    if item["type"] != "item_reference":
        return item
    for store in stores:
        if (stored_item := store.find_item(item["id"])) is not None:
            return stored_item
    raise RequestRejected(
        404,
        "item_not_found",
        f"Item with id {item['id'][:80]!r} not found. Items are not stored when store is false.",
        param=f"{name}.id",
    )


def accept_compaction(body: CompactBody, stores: Sequence[ResponseStore]) -> AcceptedRequest:
    """Validate a body of `POST /responses/compact`, like `accept_request`."""
    model = find_language_model(body.model)
    items = _read_conversation(body, stores)
    tokens = count_preface(body.instructions, (), None) + sum(count_item(item) for item in items)
    validation.check_window(model["context_window"], tokens)
    return AcceptedRequest(
        id=new_id("resp"),
        created_at=int(time.time()),
        body=CreateBody(model=body.model, instructions=body.instructions),
        model=model,
        tools=(),
        items=tuple(items),
        input_tokens=tokens,
    )
