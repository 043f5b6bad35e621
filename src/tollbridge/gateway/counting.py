"""How the demo model counts: a small tokenizer of its own, the same for usage, counting and the window.

It is deterministic and reversible (the tokens of a text join to the text), so an answer streamed one token
at a time has exactly as many deltas as the usage says.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.gateway.pictures import read_picture, split_data_url

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
        picture = read_picture(split_data_url(url or "")[1])
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
