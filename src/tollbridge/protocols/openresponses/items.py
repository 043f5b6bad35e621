"""What an answer holds besides text, thoughts and calls: sources and images, each told once."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from zlib import crc32

import msgspec

from tollbridge.protocols.openresponses import wire
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.types.errors import BridgeError, BrokenCall, StreamError
from tollbridge.types.events import (
    Corrected,
    Event,
    File,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.media import detect_mime
from tollbridge.types.text import read_json

# SECTION What is known of an answer's items while they stream in.
#
# Servers leave out indexes and ids, change ids between events, and give two items one index. An item is found
# by its index unless its id says otherwise, among those of its kind, and is made where it was never announced.

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
ItemKey = tuple[ItemKind, str | None, str | None]


class EmittedText:
    """How much of a text was told, and its checksum: enough to see what a later, fuller copy adds to it.

    The text itself is not kept, so a long answer costs no memory.
    """

    __slots__ = ("checksum", "length")

    def __init__(self, length: int = 0, checksum: int = 0) -> None:
        self.length = length
        self.checksum = checksum

    def copy(self) -> EmittedText:
        return EmittedText(self.length, self.checksum)

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
        self.said = EmittedText()
        self.parts: dict[PartKey, EmittedText] = {}
        self.before: dict[PartKey, EmittedText] = {}  # what had been told of the item when each part began
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
            self.parts[part], self.before[part] = EmittedText(), self.said.copy()
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
        self.parts[part], self.said = EmittedText(), self.before[part].copy()
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

    def match(self, output: Mapping[int, ItemKey]) -> dict[int, Item]:
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


# SECTION The words of one answer, text and reasoning, each told once.
#
# Servers say them in deltas, in `.done`, in the item and in the final response, or in any one of these.

# Raw reasoning and its summary may both be told of one item, each in parts of its own.
TextEvent = Literal["text", "reasoning", "summary"]


class TextEmitter:
    def __init__(self) -> None:
        self._text = EmittedText()  # of all messages together
        self._before = EmittedText()  # the same, when the part that was told last began
        self._last: dict[bool, tuple[Item, PartKey]] = {}  # what was told last: of text, of reasoning
        self._ended: set[int] = set()  # blocks of reasoning

    def tell(self, kind: TextEvent, item: Item, part: int | None, text: str) -> list[Event]:
        if not text:
            return []
        key = kind, part or 0
        is_text = kind == "text"
        if self._last.get(is_text) != (item, key):
            self._last[is_text] = item, key
            self._before = self._text.copy() if is_text else self._before
            item.unnumbered = item.unnumbered or part is None
        item.tell(text, key)
        if not is_text:
            return [ReasoningDelta(text, _block(item, part))]
        self._text.add(text)
        return [TextDelta(text)]

    def text_done(self, item: Item, part: int | None, full: str) -> list[Event]:
        if ("text", part or 0) in item.parts:
            return self._done("text", item, part, full)
        # A number that no delta had: another part, or the one whose deltas had another number or none.
        known = item.unnumbered or item.said.is_all(full)
        return self.tell("text", item, part, item.said.rest(full) if known else full)

    def reasoning_done(self, kind: TextEvent, item: Item, part: int | None, full: str) -> list[Event]:
        if (kind, part or 0) in item.parts:
            return self._done(kind, item, part, full)
        return self.tell(kind, item, part, item.said.rest(full))

    def message(self, item: Item, full: str) -> list[Event]:
        """A message at its end."""
        return self.rest_of(item, item.said.rest(full))

    def rest_of(self, item: Item, rest: str) -> list[Event]:
        """What a complete message has that was not told."""
        item.closed = True
        item.said.add(rest)
        self._text.add(rest)
        return [TextDelta(rest)] if rest else []

    def rests(self, messages: list[str]) -> list[str] | None:
        """What each message of the final answer adds to everything that was told, however it was parted into
        messages before; nothing is known where it is another text altogether."""
        if not self._text.begins("".join(messages)):
            return None
        told, found = self._text.length, []
        for message in messages:
            found.append(message[told:])
            told = max(0, told - len(message))
        return found

    def reasoning(self, known: Item, item: Fields) -> list[Event]:
        """Reasoning at its end. One server streams as summary what it then gives as content: either may copy
        what was told."""
        found: list[Event] = []
        for copy in (wire.texts(item.list("content")), wire.texts(item.list("summary"))):
            rest = known.said.rest(copy)
            if rest:
                known.said.add(rest)
                found.append(ReasoningDelta(rest, known.id))
                break
        proof = {name: said for name in wire.PROOFS if (said := item.text(name))}
        if (proof or known.said.length) and id(known) not in self._ended:
            self._ended.add(id(known))
            metadata = {"id": item.text("id"), **proof} if proof else None
            found.append(ReasoningEnded(known.id, metadata))
        known.closed = True
        return found

    def _done(self, kind: TextEvent, item: Item, part: int | None, full: str) -> list[Event]:
        """A part in full, of which something was told: its rest, or what it should have been.

        Only the part that was told last can be corrected, and only where the event names it: of a server that
        numbers nothing, it may be the end of a longer text."""
        key = kind, part or 0
        rest = item.parts[key].rest(full)
        is_text = kind == "text"
        if rest or part is None or self._last.get(is_text) != (item, key):
            return self.tell(kind, item, part, rest)
        void = item.correct(full, key)
        if not void:
            return []
        if not is_text:
            return [Corrected(full, void, "reasoning", _block(item, part))]
        self._text = self._before.copy()
        self._text.add(full)
        return [Corrected(full, void)]


def _block(item: Item, part: int | None) -> str | None:
    """A summary of several parts is several blocks of thinking."""
    return f"{item.id}:{part}" if part and item.id else item.id


# SECTION The calls of one answer: each told once, and offered only where it is whole and still to be answered.

# What a call's own status says of it.
UNFINISHED = frozenset({"in_progress", "incomplete"})
GIVEN_UP = frozenset({"failed", "cancelled"})
# The items that answer a call: the server has run it.
ANSWERS = frozenset({"function_call_output", "custom_tool_call_output"})


class CallEmitter:
    """What makes no sense is added to `broken`."""

    def __init__(self, broken: list[BridgeError]) -> None:
        self._broken = broken
        self._told: set[str] = set()
        self._wanted: set[str] = set()  # those of them that somebody is to run
        self._answered: set[str] = set()
        self._handed: set[str] = set()  # told already, and not to be taken back
        # Told when something follows them: a server that answers a call itself does so next.
        self._held: list[ToolCall] = []

    @property
    def wanted(self) -> bool:
        return bool(self._wanted - self._answered)

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def announce(self, item: Item, given: Fields) -> None:
        item.name = item.name or given.text("name")
        item.custom = given.text("type") == "custom_tool_call"
        item.proof = wire.call_proof(given) or item.proof
        arguments = wire.as_text(given.raw.get("arguments")) or given.text("input")
        if arguments and not item.arguments:
            item.arguments.append(arguments)

    def answer(self, given: Fields) -> None:
        """The server has run a call: nobody else is to run it, unless it was told before."""
        self._answered.update({given.text("call_id") or ""} - self._handed)

    def end(self, item: Item, given: Fields, ending: str | None) -> list[Event]:
        """A call in full: at its own end, or in a final answer that ended as `ending` says."""
        item.name = item.name or given.text("name")
        item.proof = wire.call_proof(given) or item.proof
        item.custom = given.text("type") == "custom_tool_call"
        text = given.text("input") if item.custom else wire.as_text(given.raw.get("arguments"))
        if given.text("status") in UNFINISHED:
            item.final_arguments = text or item.final_arguments
            return []
        if given.text("status") in GIVEN_UP:
            item.closed = True
            return self._withhold(item, text)
        if ending is None:
            item.done = True
            if not (item.custom or text or item.final_arguments or item.arguments):
                return []  # left open: there are servers that give the arguments only in the final answer
        item.closed = True
        return self._tell(item, text) if _is_vouched(item, text, ending) else self._withhold(item, text)

    def unfinished(self, item: Item, *, complete: bool) -> list[Event]:
        """A call that was never closed. Only an answer that is complete vouches for it."""
        return self._tell(item, None) if complete else self._withhold(item, None)

    def in_order(self, found: list[Event], *, last: bool) -> list[Event]:
        """Calls that are held are told before whatever follows them, and at the end."""
        told: list[Event] = []
        for event in found:
            if isinstance(event, ToolCall):
                self._held.append(event)
            else:
                told += [*self._released(), event]
        return told + self._released() if last else told

    def _released(self) -> list[Event]:
        held, self._held = self._held, []
        self._handed.update(call.call_id for call in held)
        return [
            msgspec.structs.replace(call, offered=False) if call.call_id in self._answered else call
            for call in held
        ]

    def _tell(self, item: Item, given: str | None) -> list[Event]:
        """The item's own arguments before those of `.done`, and those before the deltas."""
        call_id = self._id(item)
        if call_id in self._told:
            return []
        self._told.add(call_id)
        self._wanted.add(call_id)
        name = item.name or ""
        copies = [given, item.final_arguments, "".join(item.arguments)]
        item.arguments.clear()
        text = next((copy for copy in copies if copy and copy.strip()), "")
        if item.custom:
            return [ToolCall(call_id, name, text, metadata=item.proof)]
        for copy in filter(None, copies):
            value = _object(copy)
            if value is not None and name:
                return [ToolCall(call_id, name, value, metadata=item.proof)]
        if not text and name:
            return [ToolCall(call_id, name, {}, metadata=item.proof)]
        problem = (
            f"the tool {name} with arguments that are not a JSON object" if name else "a tool without a name"
        )
        message = f"The model called {problem}. Ask it to try again."
        self._broken.append(BrokenCall(message, calls=(call_id,)))
        return [ToolCall(call_id, name, text, offered=False, metadata=item.proof)]

    def _withhold(self, item: Item, given: str | None) -> list[Event]:
        """Nobody is to run it; what is known of it is told."""
        call_id = self._id(item)
        if call_id in self._told or not item.name:
            return []
        self._told.add(call_id)
        text = given or item.final_arguments or "".join(item.arguments)
        value = None if item.custom else _object(text)
        return [ToolCall(call_id, item.name, text if value is None else value, offered=False)]

    def _id(self, item: Item) -> str:
        return item.call_id or item.id or f"call_{len(self._told) + 1}"


def _is_vouched(item: Item, text: str | None, ending: str | None) -> bool:
    """Whether a call is whole: it has ended, its answer is complete, or all of its arguments are there though
    the answer was cut after them."""
    match ending:
        case None | "completed":
            return True
        case "incomplete" if not item.done:
            return bool(text) and not item.custom and _object(text or "") is not None
        case _:
            return item.done and ending != "failed"


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = read_json(text)
    except ValueError:
        return None
    return {} if value is None else value if isinstance(value, dict) else None


# SECTION What an answer holds besides text, thoughts and calls: sources and images, each told once.


class MediaEmitter:
    """What makes no sense is added to `broken`."""

    def __init__(self, broken: list[BridgeError]) -> None:
        self._broken = broken
        self._sources: set[tuple[str | None, ...]] = set()
        self._files: set[str] = set()

    def image(self, item: Fields) -> list[Event]:
        encoded = item.text("result") or ""
        name = item.text("id") or str(len(self._files))
        if not encoded or name in self._files:
            return []
        self._files.add(name)
        try:
            data = b64decode(encoded.partition(";base64,")[2] or encoded)
        except (binascii.Error, ValueError):
            self._broken.append(StreamError("The gateway sent an image that is not valid base64."))
            return []
        label = f"image/{item.text('output_format') or 'png'}"
        return [File(detect_mime(data, label), data)]

    def cited(self, parts: list[Fields]) -> list[Event]:
        return [event for part in parts for note in part.list("annotations") for event in self.cite(note)]

    def cite(self, note: Fields) -> list[Event]:
        url, title = note.text("url"), note.text("title")
        filename, file_id = note.text("filename"), note.text("file_id")
        key = (url, title, filename, file_id)
        if key in self._sources or not (url or filename or file_id):
            return []
        self._sources.add(key)
        if url:
            return [Source("url", url=url, title=title)]
        return [Source("document", id=file_id, title=title or filename, filename=filename)]
