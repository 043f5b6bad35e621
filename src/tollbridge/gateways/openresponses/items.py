"""What is known of an answer's items while they stream in.

Servers leave out indexes and ids, change ids between events, and give two items one index. An item is found
by its index unless its id says otherwise, and is made where it was never announced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from zlib import crc32

ItemKind = Literal["message", "reasoning", "call"]

KINDS: dict[str, ItemKind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "call",
}


class Said:
    """How much of a text was told, and its checksum: enough to see what a later, fuller copy adds to it.

    The text itself is not kept, so a long answer costs no memory.
    """

    __slots__ = ("checksum", "length")

    def __init__(self, length: int = 0, checksum: int = 0) -> None:
        self.length = length
        self.checksum = checksum

    def copy(self) -> Said:
        return Said(self.length, self.checksum)

    def add(self, text: str) -> None:
        self.length += len(text)
        self.checksum = _checksum(text, self.checksum)

    def rest(self, full: str) -> str:
        """What `full` has beyond what was told: nothing, where it is another text altogether."""
        return full[self.length :] if self.begins(full) else ""

    def begins(self, full: str) -> bool:
        """Whether what was told is `full`, or its beginning."""
        return len(full) >= self.length and _checksum(full[: self.length]) == self.checksum


def _checksum(text: str, start: int = 0) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"), start)


class Item:
    __slots__ = (
        "arguments",
        "before",
        "call_id",
        "closed",
        "custom",
        "final_arguments",
        "id",
        "index",
        "kind",
        "matched",
        "name",
        "parts",
        "proof",
        "said",
    )

    def __init__(self, kind: ItemKind, index: int | None, id: str | None) -> None:
        self.kind = kind
        self.index = index
        self.id = id
        self.said = Said()
        self.parts: dict[int, Said] = {}
        self.before: dict[int, Said] = {}  # what had been told of the item when each part began
        self.call_id: str | None = None
        self.name: str | None = None
        self.custom = False  # a call of a tool whose input is text and not JSON
        self.arguments: list[str] = []  # as they stream
        self.final_arguments: str | None = None  # as `.done` gives them
        self.proof: dict[str, object] | None = None  # what the model needs to know its call again
        self.closed = False  # `output_item.done` has come
        self.matched = False  # found again in the final answer

    def tell(self, text: str, part: int) -> None:
        if part not in self.parts:
            self.parts[part], self.before[part] = Said(), self.said.copy()
        self.said.add(text)
        self.parts[part].add(text)

    def correct(self, full: str, part: int) -> int:
        """How many of the last characters that were told `full` replaces: all of its part, where that was
        told otherwise. None where other parts came after it."""
        said = self.parts.get(part)
        if not full or said is None or said.begins(full):
            return 0
        void = said.length
        if self.before[part].length + void != self.said.length:
            return 0
        self.parts[part], self.said = Said(), self.before[part].copy()
        self.parts[part].add(full)
        self.said.add(full)
        return void


class Items:
    def __init__(self) -> None:
        self._all: list[Item] = []
        self._by_index: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all)

    def at(self, kind: ItemKind, index: int | None, id: str | None) -> Item:
        """The item these names mean, made now if it was never announced."""
        here = self._by_index.get(index) if index is not None else None
        named = self._by_id.get(id) if id else None
        if here is not None and here.kind == kind and (named is None or here.id == id):
            return here
        if named is not None and named.kind == kind:
            return named
        if index is None and (latest := self._latest(kind)) is not None:
            return latest
        return self._new(kind, index, id)

    def open(self, kind: ItemKind, index: int | None, id: str | None, call_id: str | None) -> Item:
        """An item that is announced, and was not met before in a delta or a first announcement."""
        item = self._called(call_id)
        if item is not None:  # one call announced twice, under two ids
            return self._name(item, index, id, call_id)
        item = self._by_index.get(index) if index is not None else self._by_id.get(id or "")
        if item is None or item.closed or item.kind != kind or item.id not in (None, id) or item.call_id:
            item = self._new(kind, index, id)
        return self._name(item, index, id, call_id)

    def ended(self, kind: ItemKind, index: int | None, id: str | None, call_id: str | None) -> Item:
        """The item that is complete now."""
        item = self._called(call_id) or self.at(kind, index, id)
        if item.closed and call_id is not None and item.call_id != call_id:
            item = self._new(kind, index, id)  # a second call under the index of the first
        return self._name(item, None, None, call_id)

    def match(self, kind: ItemKind, position: int, id: str | None, call_id: str | None) -> Item:
        """The streamed item that an item of the final answer is, by the surest sign; else a new one."""
        alike = [item for item in self._all if item.kind == kind and not item.matched]
        item = (
            next((i for i in alike if id and i.id == id), None)
            or next((i for i in alike if call_id and i.call_id == call_id), None)
            or next((i for i in alike if i.index == position), None)
            or next(iter(alike), None)
            or self._name(self._new(kind, None, id), None, None, call_id)
        )
        item.matched = True
        return item

    def _latest(self, kind: ItemKind) -> Item | None:
        return next((item for item in reversed(self._all) if item.kind == kind and not item.closed), None)

    def _called(self, call_id: str | None) -> Item | None:
        return next((item for item in self._all if call_id and item.call_id == call_id), None)

    def _new(self, kind: ItemKind, index: int | None, id: str | None) -> Item:
        item = Item(kind, index, id)
        self._all.append(item)
        return self._name(item, index, id, None)

    def _name(self, item: Item, index: int | None, id: str | None, call_id: str | None) -> Item:
        """The first name stays the item's own; it is found by all of them."""
        item.id = item.id or id
        item.call_id = item.call_id or call_id
        if index is not None:
            self._by_index[index] = item
        for name in (id, call_id):  # some servers name a call's events by its call_id
            if name:
                self._by_id[name] = item
        return item
