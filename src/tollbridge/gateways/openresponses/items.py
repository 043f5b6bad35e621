"""What is known of an answer's items while they stream in.

Servers leave out indexes and ids, change ids between events, and give two items one index. An item is found
by its index unless its id says otherwise, among those of its kind, and is made where it was never announced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal
from zlib import crc32

ItemKind = Literal["message", "reasoning", "call"]

KINDS: dict[str, ItemKind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "call",
}

# A piece of an item: which kind of event tells it, and its number there.
PartKey = tuple[str, int]
# How an item of the final answer is recognised: its kind, its id, its call's id.
Sign = tuple[ItemKind, str | None, str | None]


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

    def is_all(self, full: str) -> bool:
        """Whether what was told is `full`, whole."""
        return len(full) == self.length and self.begins(full)

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
        "done",
        "final_arguments",
        "id",
        "index",
        "kind",
        "name",
        "parts",
        "proof",
        "said",
        "unnumbered",
    )

    def __init__(self, kind: ItemKind, index: int | None, id: str | None) -> None:
        self.kind = kind
        self.index = index
        self.id = id
        self.said = Said()
        self.parts: dict[PartKey, Said] = {}
        self.before: dict[PartKey, Said] = {}  # what had been told of the item when each part began
        self.unnumbered = False  # something was told that did not say of which part it is
        self.call_id: str | None = None
        self.name: str | None = None
        self.custom = False  # a call of a tool whose input is text and not JSON
        self.arguments: list[str] = []  # as they stream
        self.final_arguments: str | None = None  # as `.done` gives them
        self.proof: dict[str, object] | None = None  # what the model needs to know its call again
        self.done = False  # its own `output_item.done` has come
        self.closed = False  # nothing more is expected of it

    @property
    def nameless(self) -> bool:
        return self.index is None and self.id is None and self.call_id is None

    @property
    def untouched(self) -> bool:
        """Announced, and nothing more. Of calls no two are one because of it."""
        return self.kind != "call" and not self.said.length

    def tell(self, text: str, part: PartKey) -> None:
        if part not in self.parts:
            self.parts[part], self.before[part] = Said(), self.said.copy()
        self.said.add(text)
        self.parts[part].add(text)

    def correct(self, full: str, part: PartKey) -> int:
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
        self._by_index: dict[tuple[ItemKind, int | None], Item] = {}
        self._by_id: dict[tuple[ItemKind, str | None], Item] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all)

    def at(self, kind: ItemKind, index: int | None, id: str | None, *, ending: bool = False) -> Item:
        """The item these names mean, made now if it was never announced. Names that come only when it ends
        are those of an item that had none."""
        here, named = self._by_index.get((kind, index)), self._by_id.get((kind, id))
        if here is not None and (named is None or here.id == id):
            return here
        if named is not None:
            return named
        latest = self._latest(kind) if index is None or ending else None
        if latest is None or (index is not None and not latest.nameless):
            return self._new(kind, index, id)
        return self._name(latest, index, id, None) if ending else latest

    def kind_at(self, index: int | None, id: str | None) -> ItemKind | None:
        """Whether these names mean text or reasoning, where that was told before."""
        kinds: tuple[ItemKind, ...] = ("message", "reasoning")
        named = [kind for kind in kinds if (kind, id) in self._by_id]
        here = [kind for kind in kinds if (kind, index) in self._by_index]
        return next(iter(named + here), None)

    def open(self, kind: ItemKind, index: int | None, id: str | None, call_id: str | None) -> Item:
        """An item that is announced, and was not met before in a delta or a first announcement."""
        item = self._called(call_id)
        if item is not None:  # one call announced twice, under two ids
            return self._name(item, index, id, call_id)
        item = self._by_index.get((kind, index)) if index is not None else self._by_id.get((kind, id))
        if item is None or item.closed or item.call_id or not (item.id in (None, id) or item.untouched):
            item = self._new(kind, index, id)
        return self._name(item, index, id, call_id)

    def ended(self, kind: ItemKind, index: int | None, id: str | None, call_id: str | None) -> Item:
        """The item that is complete now."""
        item = self._called(call_id) or self.at(kind, index, id, ending=True)
        if item.closed and call_id is not None and item.call_id != call_id:
            item = self._new(kind, index, id)  # a second call under the index of the first
        return self._name(item, None, None, call_id)

    def match(self, output: Mapping[int, Sign]) -> dict[int, Item]:
        """The streamed item that each item of the final answer, by its position, is: by its names where they
        are known, and only then, of what is left, by its position or its turn; else a new one."""
        found: dict[int, Item] = {}
        left: dict[ItemKind, dict[Item, None]] = {kind: {} for kind, _, _ in output.values()}
        for item in self._all:
            left.setdefault(item.kind, {})[item] = None
        for of_call in (True, False):
            for position, (kind, id, call_id) in output.items():
                named = self._by_id.get((kind, call_id if of_call else id))
                if named in left[kind] and position not in found:
                    found[position] = named
                    del left[kind][named]
        for position, (kind, id, call_id) in output.items():
            if position in found:
                continue
            here = self._by_index.get((kind, position))
            if here is None or here not in left[kind]:
                here = next(iter(left[kind]), None) or self._new(kind, None, id)
            left[kind].pop(here, None)
            found[position] = self._name(here, None, None, call_id)
        return found

    def _latest(self, kind: ItemKind) -> Item | None:
        return next((item for item in reversed(self._all) if item.kind == kind and not item.closed), None)

    def _called(self, call_id: str | None) -> Item | None:
        found = self._by_id.get(("call", call_id)) if call_id else None
        return found if found is not None and found.call_id == call_id else None

    def _new(self, kind: ItemKind, index: int | None, id: str | None) -> Item:
        item = Item(kind, index, id)
        self._all.append(item)
        return self._name(item, index, id, None)

    def _name(self, item: Item, index: int | None, id: str | None, call_id: str | None) -> Item:
        """The first name stays the item's own; it is found by all of them."""
        item.id = item.id or id
        item.call_id = item.call_id or call_id
        if index is not None:
            item.index = index if item.index is None else item.index
            self._by_index[item.kind, index] = item
        for name in (id, call_id):  # some servers name a call's events by its call_id
            if name:
                self._by_id[item.kind, name] = item
        return item
