"""State of the output items of one response, and the emitters that make events of them.

Servers send the same content up to four times: in deltas, in the `.done` event of a part, in
`response.output_item.done` and in the final response, or only in some of these places. The emitters compare
every copy with the content emitted so far, and emit only the difference.

Servers also omit indexes and ids, change ids between events, and use one index for two items. `Items` looks
for an item among the items of its kind, by its index unless its id differs, and creates an item that was not
announced.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from zlib import crc32

import msgspec

from tollbridge.protocols.openresponses import wire
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
from tollbridge.types.quirks import ReasoningShape
from tollbridge.types.text import exceeds_depth, read_json

ItemKind = Literal["message", "reasoning", "call"]

KINDS: dict[str, ItemKind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "call",
}

# Identifies a part of an item: the kind of its events and its index.
PartKey = tuple[str, int]
# Identifies an item of the final response: its kind, its id and its call id.
ItemKey = tuple[ItemKind, str | None, str | None]


class EmittedText(msgspec.Struct, eq=False, gc=False):
    """The length and checksum of emitted text, to find what a later copy of the text adds.

    The text itself is not stored, so memory use does not grow with the response.
    """

    length: int = 0
    checksum: int = 0

    def copy(self) -> EmittedText:
        return EmittedText(self.length, self.checksum)

    def add(self, text: str) -> None:
        self.length += len(text)
        self.checksum = _checksum(text, self.checksum)

    def equals(self, full: str) -> bool:
        """Return whether the emitted text is equal to `full`."""
        return len(full) == self.length and self.is_prefix_of(full)

    def remainder(self, full: str) -> str:
        """Return the part of `full` after the emitted text, or `""` if `full` does not start with it."""
        return full[self.length :] if self.is_prefix_of(full) else ""

    def is_prefix_of(self, full: str) -> bool:
        """Return whether `full` starts with the emitted text."""
        return len(full) >= self.length and _checksum(full[: self.length]) == self.checksum


def _checksum(text: str, start: int = 0) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"), start)


class Item(msgspec.Struct, eq=False):
    """One output item: a message, reasoning or a tool call."""

    kind: ItemKind
    index: int | None
    id: str | None
    emitted: EmittedText = msgspec.field(default_factory=EmittedText)
    parts: dict[PartKey, EmittedText] = {}
    emitted_before: dict[PartKey, EmittedText] = {}  # text of the item when each part began
    has_unnumbered_text: bool = False  # there was text in an event without a part index
    call_id: str | None = None
    name: str | None = None
    custom: bool = False  # the input of the tool is text, not JSON
    arguments: list[str] = []  # from deltas
    final_arguments: str | None = None  # from the `.done` event
    signatures: dict[str, object] | None = None  # `wire.CALL_SIGNATURES` of the call
    done: bool = False  # whether its `output_item.done` was received
    closed: bool = False  # whether it is complete

    @property
    def is_unidentified(self) -> bool:
        return self.index is None and self.id is None and self.call_id is None

    @property
    def is_replaceable(self) -> bool:
        """Whether the item was announced without content, so that another announcement can be the same item.

        Never true for calls: two calls can be announced before any of their arguments.
        """
        return self.kind != "call" and not self.emitted.length

    def add_text(self, text: str, part: PartKey) -> None:
        if part not in self.parts:
            self.parts[part], self.emitted_before[part] = EmittedText(), self.emitted.copy()
        self.emitted.add(text)
        self.parts[part].add(text)

    def replace_part(self, full: str, part: PartKey) -> int:
        """Replace the text of a part by `full` if `full` does not start with the emitted text.

        Only the last part of an item can be replaced.

        Returns:
            The number of emitted characters at the end that `full` replaces, or 0 if nothing was replaced.
        """
        emitted = self.parts.get(part)
        if not full or emitted is None or emitted.is_prefix_of(full):
            return 0
        replaced_length = emitted.length
        if self.emitted_before[part].length + replaced_length != self.emitted.length:
            return 0
        self.parts[part], self.emitted = EmittedText(), self.emitted_before[part].copy()
        self.parts[part].add(full)
        self.emitted.add(full)
        return replaced_length


class Items:
    """All items of one response, found by kind, index, id and call id."""

    def __init__(self) -> None:
        self._all: list[Item] = []
        self._open: dict[ItemKind, list[Item]] = {}  # without the closed items at the end
        self._by_index: dict[tuple[ItemKind, int | None], Item] = {}
        self._by_id: dict[tuple[ItemKind, str | None], Item] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all)

    def resolve(self, kind: ItemKind, index: int | None, id: str | None, *, ending: bool = False) -> Item:
        """Return the item with this index or id; create it if it was not announced.

        Args:
            kind: The kind of the item.
            index: Its `output_index`, if the event has one.
            id: Its id, if the event has one.
            ending: Whether the event completes the item or a part. An index and id that first occur in such
                an event belong to the open item without index and id, if there is one.
        """
        by_index, by_id = self._by_index.get((kind, index)), self._by_id.get((kind, id))
        if by_index is not None and (by_id is None or by_index.id == id):
            return by_index
        if by_id is not None:
            return by_id
        latest = self._find_latest(kind) if index is None or ending else None
        if latest is None or (index is not None and not latest.is_unidentified):
            return self._create(kind, index, id)
        return self._register(latest, index, id, None) if ending else latest

    def find_kind(self, index: int | None, id: str | None) -> ItemKind | None:
        """Return whether the item with this id or index is a message or reasoning, if it exists."""
        kinds: tuple[ItemKind, ...] = ("message", "reasoning")
        by_id = [kind for kind in kinds if (kind, id) in self._by_id]
        by_index = [kind for kind in kinds if (kind, index) in self._by_index]
        return next(iter(by_id + by_index), None)

    def open(self, kind: ItemKind, index: int | None, id: str | None, call_id: str | None) -> Item:
        """Return the item that an event announces; create it unless a delta or an event before created it."""
        item = self._find_call(call_id)
        if item is not None:  # the same call, announced twice with two ids
            return self._register(item, index, id, call_id)
        item = self._by_index.get((kind, index)) if index is not None else self._by_id.get((kind, id))
        if item is None or item.closed or item.call_id or not (item.id in (None, id) or item.is_replaceable):
            item = self._create(kind, index, id)
        return self._register(item, index, id, call_id)

    def resolve_done(self, kind: ItemKind, index: int | None, id: str | None, call_id: str | None) -> Item:
        """Return the item that an `output_item.done` event completes; create it if it was not announced."""
        item = self._find_call(call_id) or self.resolve(kind, index, id, ending=True)
        if item.closed and call_id is not None and item.call_id != call_id:
            item = self._create(kind, index, id)  # a second call with the same index
        return self._register(item, None, None, call_id)

    def match(self, output: Mapping[int, ItemKey]) -> dict[int, Item]:
        """Match the items of the final response to the streamed items.

        Items are matched by call id, then by id, then by position, then in order. An item without a match is
        created.

        Args:
            output: The items of the final response by position.

        Returns:
            The matching item for each position.
        """
        matches: dict[int, Item] = {}
        unmatched: dict[ItemKind, dict[Item, None]] = {kind: {} for kind, _, _ in output.values()}
        for item in self._all:
            unmatched.setdefault(item.kind, {})[item] = None
        for use_call_id in (True, False):
            for position, (kind, id, call_id) in output.items():
                by_id = self._by_id.get((kind, call_id if use_call_id else id))
                if by_id in unmatched[kind] and position not in matches:
                    matches[position] = by_id
                    del unmatched[kind][by_id]
        # One iterator per kind: finding the first key of a dict whose first keys were deleted is slow.
        in_order = {kind: iter(list(items)) for kind, items in unmatched.items()}
        for position, (kind, id, call_id) in output.items():
            if position in matches:
                continue
            candidate = self._by_index.get((kind, position))
            if candidate is None or candidate not in unmatched[kind]:
                candidate = next((item for item in in_order[kind] if item in unmatched[kind]), None)
            if candidate is None:
                candidate = self._create(kind, None, id)
            unmatched[kind].pop(candidate, None)
            matches[position] = self._register(candidate, None, None, call_id)
        return matches

    def _find_latest(self, kind: ItemKind) -> Item | None:
        """Return the latest open item of a kind. An item that is closed is never opened again."""
        items = self._open.get(kind, [])
        while items and items[-1].closed:
            items.pop()
        return items[-1] if items else None

    def _find_call(self, call_id: str | None) -> Item | None:
        item = self._by_id.get(("call", call_id)) if call_id else None
        return item if item is not None and item.call_id == call_id else None

    def _create(self, kind: ItemKind, index: int | None, id: str | None) -> Item:
        item = Item(kind, index, id)
        self._all.append(item)
        self._open.setdefault(kind, []).append(item)
        return self._register(item, index, id, None)

    def _register(self, item: Item, index: int | None, id: str | None, call_id: str | None) -> Item:
        """Make the item findable by this index and these ids. Its own id and index are the first ones."""
        item.id = item.id or id
        item.call_id = item.call_id or call_id
        if index is not None:
            item.index = index if item.index is None else item.index
            self._by_index[item.kind, index] = item
        for key in (id, call_id):  # some servers use the call id as `item_id`
            if key:
                self._by_id[item.kind, key] = item
        return item


# One item can have both raw reasoning and a summary, each with its own parts.
TextEvent = Literal["text", "reasoning", "summary"]


class TextEmitter:
    """Emits the text and reasoning of one response without repetition."""

    def __init__(self) -> None:
        self._text = EmittedText()  # the text of all messages
        self._text_before_part = EmittedText()  # the same, before the last emitted part began
        self._last_parts: dict[bool, tuple[Item, PartKey]] = {}  # the last emitted part, by `is_text`
        self._ended_blocks: set[int] = set()  # reasoning items whose end was emitted, by object identity
        # The latest reasoning item with each text, to find a copy of it under another id.
        self._reasoning_items: dict[tuple[int, int], Item] = {}

    def emit(self, kind: TextEvent, item: Item, part: int | None, text: str) -> list[Event]:
        if not text:
            return []
        key = kind, part or 0
        is_text = kind == "text"
        last = self._last_parts.get(is_text)
        if last != (item, key):
            if last is not None and not is_text:
                self._remember_reasoning(last[0])
            self._last_parts[is_text] = item, key
            self._text_before_part = self._text.copy() if is_text else self._text_before_part
            item.has_unnumbered_text = item.has_unnumbered_text or part is None
        item.add_text(text, key)
        if not is_text:
            return [ReasoningDelta(text, _block_id(item, part))]
        self._text.add(text)
        return [TextDelta(text)]

    def emit_text_done(self, item: Item, part: int | None, full: str) -> list[Event]:
        if ("text", part or 0) in item.parts:
            return self._emit_part_done("text", item, part, full)
        # No delta had this index: it is another part, or the deltas of this part had another index or none.
        is_copy = item.has_unnumbered_text or item.emitted.equals(full)
        return self.emit("text", item, part, item.emitted.remainder(full) if is_copy else full)

    def emit_reasoning_done(self, kind: TextEvent, item: Item, part: int | None, full: str) -> list[Event]:
        if (kind, part or 0) in item.parts:
            return self._emit_part_done(kind, item, part, full)
        return self.emit(kind, item, part, item.emitted.remainder(full))

    def emit_message(self, item: Item, full: str) -> list[Event]:
        """Close a message; `full` is its complete text."""
        return self.emit_remainder(item, item.emitted.remainder(full))

    def emit_remainder(self, item: Item, remainder: str) -> list[Event]:
        """Close a message; `remainder` is the text that was not emitted yet."""
        item.closed = True
        item.emitted.add(remainder)
        self._text.add(remainder)
        return [TextDelta(remainder)] if remainder else []

    def find_remainders(self, messages: list[str]) -> list[str] | None:
        """Return what each message of the final response adds to the emitted text.

        The emitted text is compared as a whole, because the streamed messages can be divided differently.

        Returns:
            One text per message, or `None` if the messages do not start with the emitted text.
        """
        if not self._text.is_prefix_of("".join(messages)):
            return None
        emitted_length, remainders = self._text.length, []
        for message in messages:
            remainders.append(message[emitted_length:])
            emitted_length = max(0, emitted_length - len(message))
        return remainders

    def emit_reasoning(self, item: Item, complete: wire.OutputItem) -> list[Event]:
        """Close a reasoning item; `complete` is its complete copy.

        Both content and summary are compared with the emitted text: one server streams the reasoning as
        summary and then sends it as content. Another streams it under the id of the message, and then sends
        it as an item of its own.
        """
        content, summary = (wire.join_texts(parts or ()) for parts in (complete.content, complete.summary))
        item.closed = True
        if not item.emitted.length:
            streamed = self._find_streamed_copy(content) or self._find_streamed_copy(summary)
            if streamed is not None:
                item.emitted, item.id, streamed.closed = streamed.emitted, streamed.id, True
        events: list[Event] = []
        for copy in (content, summary):
            remainder = item.emitted.remainder(copy)
            if remainder:
                item.emitted.add(remainder)
                events.append(ReasoningDelta(remainder, item.id))
                break
        self._remember_reasoning(item)
        signatures = wire.read_reasoning_signatures(complete)
        if (signatures or item.emitted.length) and id(item) not in self._ended_blocks:
            self._ended_blocks.add(id(item))
            metadata = {"id": complete.id, **signatures} if signatures else None
            is_content = item.emitted.equals(content) and not item.emitted.equals(summary)
            shape: ReasoningShape | None = "content" if content and is_content else None
            events.append(ReasoningEnded(item.id, metadata, shape))
        return events

    def _remember_reasoning(self, item: Item) -> None:
        self._reasoning_items[item.emitted.length, item.emitted.checksum] = item

    def _find_streamed_copy(self, text: str) -> Item | None:
        """Return the reasoning item that was streamed with this text, or with its start, and not completed.

        A copy of an item that was completed is other reasoning with the same text.
        """
        if not text:
            return None
        last, _ = self._last_parts.get(False, (None, None))
        candidates = (self._reasoning_items.get((len(text), _checksum(text))), last)
        streamed = (item for item in candidates if item is not None and not item.closed)
        return next((item for item in streamed if item.emitted.is_prefix_of(text)), None)

    def _emit_part_done(self, kind: TextEvent, item: Item, part: int | None, full: str) -> list[Event]:
        """Emit the remainder of a part with emitted text, or a correction if `full` is a different text.

        Only the last emitted part can be corrected, and only if the event has a part index: on a server that
        sends no indexes, `full` can be the end of a longer text.
        """
        key = kind, part or 0
        remainder = item.parts[key].remainder(full)
        is_text = kind == "text"
        if remainder or part is None or self._last_parts.get(is_text) != (item, key):
            return self.emit(kind, item, part, remainder)
        replaced_length = item.replace_part(full, key)
        if not replaced_length:
            return []
        if not is_text:
            return [Corrected(full, replaced_length, "reasoning", _block_id(item, part))]
        self._text = self._text_before_part.copy()
        self._text.add(full)
        return [Corrected(full, replaced_length)]


def _block_id(item: Item, part: int | None) -> str | None:
    """Return the id of a reasoning block. Each part of a summary is a block of its own."""
    return f"{item.id}:{part}" if part and item.id else item.id


# Values of the status of a call.
UNFINISHED = frozenset({"in_progress", "incomplete"})
ABANDONED = frozenset({"failed", "cancelled"})
# Items with the result of a call that the server executed.
CALL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})


class CallEmitter:
    """Emits each call of one response once.

    A call is offered (to be executed by the caller) only if it is complete and the server does not execute it
    itself. Errors are added to `errors`.
    """

    def __init__(self, errors: list[BridgeError]) -> None:
        self._errors = errors
        self._emitted_ids: set[str] = set()
        self._runnable_ids: set[str] = set()  # of emitted calls that the caller can execute
        self._executed_ids: set[str] = set()  # of calls that the server executed
        self._returned_ids: set[str] = set()  # of calls that were returned and cannot change any more
        # Calls that wait for the next event; see `delay_calls`.
        self.delayed_calls: list[ToolCall] = []

    @property
    def has_pending_calls(self) -> bool:
        return bool(self._runnable_ids - self._executed_ids)

    def announce(self, item: Item, announced: wire.OutputItem) -> None:
        item.name = item.name or announced.name
        item.custom = announced.type == "custom_tool_call"
        item.signatures = wire.read_call_signatures(msgspec.structs.asdict(announced)) or item.signatures
        arguments = wire.encode_arguments(announced.arguments) or announced.input
        if arguments and not item.arguments:
            item.arguments.append(arguments)

    def apply_output(self, output: wire.OutputItem) -> None:
        """Mark a call as executed by the server, unless it was already returned to the caller."""
        self._executed_ids.update({output.call_id or ""} - self._returned_ids)

    def finish(self, item: Item, complete: wire.OutputItem, ending: str | None) -> list[Event]:
        """Emit a call of which `complete` is the complete copy.

        Args:
            item: The call.
            complete: The item from `output_item.done` or from the final response.
            ending: The status of the final response, or `None` for `output_item.done`.
        """
        item.name = item.name or complete.name
        item.signatures = wire.read_call_signatures(msgspec.structs.asdict(complete)) or item.signatures
        item.custom = complete.type == "custom_tool_call"
        text = complete.input if item.custom else wire.encode_arguments(complete.arguments)
        if complete.status in UNFINISHED:
            item.final_arguments = text or item.final_arguments
            return []
        if complete.status in ABANDONED:
            item.closed = True
            return self._emit_withheld(item, text)
        if ending is None:
            item.done = True
            if not (item.custom or text or item.final_arguments or item.arguments):
                return []  # still open: some servers send the arguments only in the final response
        item.closed = True
        if _is_complete(item, text, ending):
            return self._emit(item, text)
        return self._emit_withheld(item, text)

    def finish_open_call(self, item: Item, *, complete: bool) -> list[Event]:
        """Emit a call that was never closed. It is offered only if the response is complete."""
        return self._emit(item, None) if complete else self._emit_withheld(item, None)

    def delay_calls(self, events: list[Event], *, last: bool) -> list[Event]:
        """Delay the calls among the events until another event follows, or until the end of the response.

        A server that executes a call itself sends the result next. Such a call must not be offered to the
        caller, and a call that was returned cannot be changed any more.

        Args:
            events: The next events.
            last: Whether the response ends with them.

        Returns:
            The events to return now, with earlier calls that need not wait any longer.
        """
        result: list[Event] = []
        for event in events:
            if isinstance(event, ToolCall):
                self.delayed_calls.append(event)
            else:
                result += [*self._release_calls(), event]
        return result + self._release_calls() if last else result

    def _release_calls(self) -> list[Event]:
        calls, self.delayed_calls = self.delayed_calls, []
        self._returned_ids.update(call.call_id for call in calls)
        return [
            msgspec.structs.replace(call, offered=False) if call.call_id in self._executed_ids else call
            for call in calls
        ]

    def _emit(self, item: Item, arguments: str | None) -> list[Event]:
        """Emit a complete call with the first valid arguments: of the item, of `.done`, of the deltas."""
        call_id = self._call_id(item)
        if call_id in self._emitted_ids:
            return []
        self._emitted_ids.add(call_id)
        self._runnable_ids.add(call_id)
        name = item.name or ""
        copies = [arguments, item.final_arguments, "".join(item.arguments)]
        item.arguments.clear()
        text = next((copy for copy in copies if copy and copy.strip()), "")
        if item.custom:
            return [ToolCall(call_id, name, text, metadata=item.signatures)]
        for copy in filter(None, copies):
            value = _parse_object(copy)
            if value is not None and name:
                return [ToolCall(call_id, name, value, metadata=item.signatures)]
        if not text and name:
            return [ToolCall(call_id, name, {}, metadata=item.signatures)]
        self._errors.append(broken_call(call_id, name))
        return [ToolCall(call_id, name, text, offered=False, metadata=item.signatures)]

    def _emit_withheld(self, item: Item, arguments: str | None) -> list[Event]:
        """Emit a call that must not be executed."""
        call_id = self._call_id(item)
        if call_id in self._emitted_ids or not item.name:
            return []
        self._emitted_ids.add(call_id)
        text = arguments or item.final_arguments or "".join(item.arguments)
        value = None if item.custom else _parse_object(text)
        return [ToolCall(call_id, item.name, text if value is None else value, offered=False)]

    def _call_id(self, item: Item) -> str:
        return item.call_id or item.id or f"call_{len(self._emitted_ids) + 1}"


def broken_call(call_id: str, name: str) -> BrokenCall:
    """Return the error of a call without a name, or with arguments that are not a JSON object."""
    problem = (
        f"the tool {name} with arguments that are not a JSON object" if name else "a tool without a name"
    )
    return BrokenCall(f"The model called {problem}. Ask it to try again.", calls=(call_id,))


def _is_complete(item: Item, text: str | None, ending: str | None) -> bool:
    """Return whether a call is complete.

    That is the case if the call itself has ended, if the response is complete, or if the response was
    truncated after valid JSON arguments.
    """
    match ending:
        case None | "completed":
            return True
        case "incomplete" if not item.done:
            return bool(text) and not item.custom and _parse_object(text or "") is not None
        case _:
            return item.done and ending != "failed"


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = read_json(text)
    except ValueError:
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) and not exceeds_depth(value) else None


class MediaEmitter:
    """Emits each image and source of one response once. Errors are added to `errors`."""

    def __init__(self, errors: list[BridgeError]) -> None:
        self._errors = errors
        self._sources: set[wire.Annotation] = set()
        self._files: set[str] = set()

    def emit_image(self, item: wire.OutputItem) -> list[Event]:
        encoded = item.result or ""
        name = item.id or str(len(self._files))
        if not encoded or name in self._files:
            return []
        self._files.add(name)
        label = f"image/{item.output_format or 'png'}"
        return decode_image(encoded.partition(";base64,")[2] or encoded, label, self._errors)

    def emit_sources(self, parts: list[wire.ContentPart]) -> list[Event]:
        annotations = (annotation for part in parts for annotation in part.annotations or ())
        return [event for annotation in annotations for event in self.emit_source(annotation)]

    def emit_source(self, annotation: wire.Annotation) -> list[Event]:
        url, title, filename, file_id = msgspec.structs.astuple(annotation)
        if annotation in self._sources or not (url or filename or file_id):
            return []
        self._sources.add(annotation)
        if url:
            return [Source("url", url=url, title=title)]
        return [Source("document", id=file_id, title=title or filename, filename=filename)]


def decode_image(encoded: str, label: str, errors: list[BridgeError]) -> list[Event]:
    """Return an image in base64. If it is invalid, an error is added to `errors`."""
    try:
        data = b64decode(encoded)
    except ValueError:
        errors.append(StreamError("The gateway sent an image that is not valid base64."))
        return []
    return [File(detect_mime(data, label), data)]
