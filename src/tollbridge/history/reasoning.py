"""Reasoning on its way through an editor and back to the model.

Editors return the metadata of a thinking part, but merge the thinking parts of one answer, and cannot attach
metadata to a tool call. Therefore each thinking part is marked with its origin (`ReasoningPacker`), and all
reasoning of an answer is also stored in one data part, the reasoning pack. Before the next request,
`select_reasoning` restores the packed reasoning at its position and drops what the server must not get:
proofs are valid only for the model and the gateway that issued them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tollbridge.history.contents import Changes
from tollbridge.types.events import Corrected, Event, ReasoningDelta, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import (
    PACK_MIME,
    DataPart,
    Message,
    Origin,
    Part,
    ReasoningBlock,
    ReasoningPack,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    add_origin,
    digest,
    read_reasoning_pack,
    split_metadata,
    without_markers,
)
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import MAX_TEXT, exceeds_depth, replace_surrogates, write_json

# A larger pack is not stored; the marks on the thinking parts must suffice.
PACK_LIMIT = 1024 * 1024

FOREIGN = "Dropped reasoning from another model."
STALE = "Dropped unsigned reasoning from an earlier turn."
REFUSED = "Dropped reasoning that the gateway refused before."
UNPROVEN = "Dropped unsigned reasoning."
UNWANTED = "Dropped reasoning: not accepted by this server."
DUPLICATE = "Removed duplicate reasoning."

# The position of a reasoning block: the id of the call after it, and the number of characters of text before
# it.
ReasoningPlace = tuple[str | None, int]
# Reasoning to insert into text: the number of characters before each, in ascending order.
Insertions = deque[tuple[int, ThinkingPart]]


class ReasoningPacker:
    """Marks the reasoning of one answer with its origin, and collects it in a pack."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._text_length = 0
        # The open blocks: their texts, the parts of their summaries, and the positions of those that a text
        # or a call has followed.
        self._open_texts: dict[str, list[str]] = {}
        self._open_parts: set[tuple[str, str]] = set()
        self._open_places: dict[str, ReasoningPlace] = {}
        self._open_unplaced: dict[str, None] = {}  # the open blocks that nothing has followed yet
        self._blocks: list[ReasoningBlock] = []
        self._unplaced: list[ReasoningBlock] = []  # complete, but not yet followed by a text or a call
        self._calls: dict[str, Mapping[str, Any]] = {}

    def take(self, events: Iterable[Event]) -> list[Event]:
        """Return the events with the reasoning marked.

        The metadata of a tool call is marked as well, in a `ReasoningEnded` of its own before the call.
        """
        result: list[Event] = []
        for event in events:
            match event:
                case ReasoningDelta() | Corrected(of="reasoning"):
                    self._add_text(event)
                case ReasoningEnded():
                    event = self._end_block(event)
                case TextDelta(text):
                    self._place_blocks(None)
                    self._text_length += len(text)
                case ToolCall():
                    self._place_blocks(event.call_id)
                    if event.offered and event.metadata:
                        self._calls[event.call_id] = event.metadata
                        result.append(
                            ReasoningEnded(None, add_origin(self._origin, event.metadata, call=event.call_id))
                        )
            result.append(event)
        return result

    def close(self) -> list[Part]:
        """Return the pack as a data part; empty if there is no reasoning or too much.

        A block that nothing followed has no position: it may have arrived late, in the final response object.
        """
        self._blocks += self._unplaced
        if not self._blocks and not self._calls:
            return []
        model, gateway = self._origin.model, self._origin.gateway
        pack = ReasoningPack(model, gateway, tuple(self._blocks), self._calls, self._text_length)
        data = write_json(pack).encode()
        return [DataPart(data, PACK_MIME)] if len(data) <= PACK_LIMIT else []

    def _add_text(self, delta: ReasoningDelta | Corrected) -> None:
        """Add to an open block. A summary of several parts (ids `id`, `id:1`…) is one block."""
        block, _, part = (delta.id or "").partition(":")
        if block not in self._open_texts:
            self._open_texts[block] = []
            self._open_unplaced[block] = None
        texts = self._open_texts[block]
        if delta.replaces:
            texts[:] = ["".join(texts)[: -delta.replaces]]
        if part and any(texts) and (block, part) not in self._open_parts:
            texts.append("\n\n")
        texts.append(delta.text)
        self._open_parts.add((block, part))

    def _end_block(self, event: ReasoningEnded) -> ReasoningEnded:
        name = (event.id or "").partition(":")[0]
        text, place = "".join(self._open_texts.pop(name, [])), self._open_places.pop(name, None)
        self._open_unplaced.pop(name, None)
        if not text and not event.metadata:
            return event
        block = ReasoningBlock(text, event.id, event.metadata, shape=event.shape)
        if place is None:
            self._unplaced.append(block)
        else:
            self._blocks.append(_with_place(block, place))
        metadata = add_origin(self._origin, event.metadata, shape=event.shape)
        return ReasoningEnded(event.id, metadata, event.shape)

    def _place_blocks(self, call: str | None) -> None:
        """Give all blocks before a call, or before a text, their position."""
        if not self._unplaced and not self._open_unplaced:
            return
        place = call, self._text_length
        self._blocks += [_with_place(block, place) for block in self._unplaced]
        self._unplaced.clear()
        self._open_places.update(dict.fromkeys(self._open_unplaced, place))
        self._open_unplaced.clear()


def _with_place(block: ReasoningBlock, place: ReasoningPlace) -> ReasoningBlock:
    before, after = place
    return ReasoningBlock(block.text, block.id, block.proof, before, after, block.shape)


def select_reasoning(
    messages: Sequence[Message], learned: LearnedQuirks, origin: Origin | None, changes: Changes
) -> list[Message]:
    """Restore packed reasoning, and drop reasoning that the server must not get, and duplicates.

    Args:
        learned: Whether the server accepts reasoning, and which reasoning it has refused.
        origin: The model and gateway that will receive the messages; `None` if unknown.
    """
    seen: set[str] = set()
    result: list[Message] = []
    for message in messages:
        parts = _select(message, learned, origin, changes)
        result.append(Message(message.role, _drop_duplicates(parts, seen, changes), message.name))
    return result


def drop_stale_reasoning(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Drop reasoning without a proof before the last user message.

    It helps a model through the tool calls of one question, and is useless afterwards.
    """
    last_question = max((at for at, message in enumerate(messages) if is_question(message)), default=-1)
    remaining: list[Message] = []
    for at, message in enumerate(messages):
        parts = tuple(
            part
            for part in message.parts
            if at > last_question or not isinstance(part, ThinkingPart) or split_metadata(part.metadata)[1]
        )
        for _ in range(len(message.parts) - len(parts)):
            changes.add("reasoning", STALE)
        if parts:
            remaining.append(message if len(parts) == len(message.parts) else Message(message.role, parts))
    return remaining


def is_question(message: Message) -> bool:
    """Return whether a message is from the user, and not only tool results."""
    return message.role is Role.USER and any(isinstance(part, TextPart | DataPart) for part in message.parts)


def _select(message: Message, learned: LearnedQuirks, origin: Origin | None, changes: Changes) -> list[Part]:
    all_parts = _join_thinking(without_markers(message.parts))
    data = (part.data for part in message.parts if isinstance(part, DataPart) and part.mime == PACK_MIME)
    packs = filter(None, map(read_reasoning_pack, data))
    pack = next((pack for pack in packs if pack.origin == origin), None)
    if pack is not None and message.role is Role.ASSISTANT:
        all_parts = restore_reasoning(all_parts, pack)
    call_metadata: dict[str, Mapping[str, Any]] = {}
    parts: list[Part] = []
    for part in all_parts:
        if not isinstance(part, ThinkingPart):
            parts.append(part)
            continue
        problem = _find_problem(part, message.role, learned, origin)
        metadata, proof = split_metadata(part.metadata)
        if problem is not None:
            changes.add("reasoning", problem)
        elif metadata is not None and metadata.call is not None:
            call_metadata[metadata.call] = proof
        else:
            parts.append(part)
    return [add_call_metadata(part, call_metadata) for part in parts]


def _find_problem(
    part: ThinkingPart, role: Role, learned: LearnedQuirks, origin: Origin | None
) -> str | None:
    """Return why reasoning must be dropped, or `None`."""
    metadata, proof = split_metadata(part.metadata)
    if not learned.quirks.reasoning:
        return UNWANTED
    if role is not Role.ASSISTANT or (origin and (metadata is None or metadata.origin != origin)):
        return FOREIGN
    if exceeds_depth(proof):
        return UNPROVEN
    if proof:
        return REFUSED if digest(proof) in learned.refused else None
    if metadata is None or not part.text.strip() or len(part.text) > MAX_TEXT:
        return UNPROVEN
    return None


def _drop_duplicates(parts: Iterable[Part], seen: set[str], changes: Changes) -> tuple[Part, ...]:
    """Drop reasoning that occurred before.

    Two items with one id are duplicates anywhere in the conversation. Proofs without an id are compared only
    within one message.
    """
    seen_here: set[str] = set()
    distinct: list[Part] = []
    for part in parts:
        proof = split_metadata(part.metadata)[1] if isinstance(part, ThinkingPart) else None
        if proof:
            key, digests = digest(proof), seen if proof.get("id") else seen_here
            if key in digests:
                changes.add("reasoning", DUPLICATE)
                continue
            digests.add(key)
        distinct.append(part)
    return tuple(distinct)


def _join_thinking(parts: Sequence[Part]) -> list[Part]:
    """Join the streamed pieces of each reasoning block. Its proof is in the last piece, which has no text."""
    result: list[Part] = []
    texts: list[str] = []  # of the last part, if that is a thinking part
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, ThinkingPart) and isinstance(last, ThinkingPart) and _is_same_block(last, part):
            separator = "\n\n" if part.id != last.id and part.text and any(texts) else ""
            texts += [separator, part.text]
            metadata = {**(last.metadata or {}), **(part.metadata or {})}
            result[-1] = ThinkingPart("", last.id, metadata or None)
            continue
        _set_text(result, texts)
        result.append(part)
        texts = [part.text] if isinstance(part, ThinkingPart) else []
    _set_text(result, texts)
    return result


def _set_text(parts: list[Part], texts: list[str]) -> None:
    """Set the text of the last part, if it is a thinking part."""
    last = parts[-1] if parts else None
    if isinstance(last, ThinkingPart):
        parts[-1] = ThinkingPart(replace_surrogates("".join(texts)), last.id, last.metadata)


def _is_same_block(last: ThinkingPart, part: ThinkingPart) -> bool:
    """Return whether two pieces belong to one block. The parts of a summary have the ids `id`, `id:1`…"""
    same_id = (last.id or "").partition(":")[0] == (part.id or "").partition(":")[0]
    return same_id and not (last.metadata and (part.metadata or part.text))


def restore_reasoning(parts: Sequence[Part], pack: ReasoningPack) -> list[Part]:
    """Replace the thinking parts of an answer, which an editor may have merged, by those of its pack.

    Each block is inserted before the call or the text that followed it.
    """
    call_ids = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    before_call: dict[str | None, list[Part]] = {}
    insertions: Insertions = deque()
    unplaced: list[ThinkingPart] = []
    for block in pack.blocks:
        thinking = ThinkingPart(block.text, block.id, add_origin(pack.origin, block.proof, shape=block.shape))
        if block.before in call_ids:
            before_call.setdefault(block.before, []).append(thinking)
        elif block.after is not None:
            insertions.append((block.after, thinking))
        else:
            unplaced.append(thinking)
    insertions = deque(sorted(insertions, key=lambda insertion: insertion[0]))
    is_same_text = pack.text_length == sum(len(part.text) for part in parts if isinstance(part, TextPart))
    result: list[Part] = [*unplaced]
    offset = 0
    for part in parts:
        match part:
            case ThinkingPart():
                pass
            case TextPart(text):
                result += _insert(part, offset, insertions, split=is_same_text)
                offset += len(text)
            case ToolCallPart(call_id):
                result += [*before_call.pop(call_id, []), add_call_metadata(part, pack.calls)]
            case _:
                result.append(part)
    remaining = [thinking for _, thinking in insertions]
    return [*result, *remaining] if is_same_text else [*remaining, *result]


def add_call_metadata(part: Part, metadata: Mapping[str, Mapping[str, Any]]) -> Part:
    """Return a tool call with its metadata, which is given by call id; other parts are returned unchanged."""
    if not isinstance(part, ToolCallPart) or part.call_id not in metadata:
        return part
    return ToolCallPart(part.call_id, part.name, part.input, metadata[part.call_id])


def _insert(part: TextPart, offset: int, insertions: Insertions, *, split: bool) -> list[Part]:
    """Insert reasoning into a text, or before it if the text may not be split because it has changed."""
    pieces: list[Part] = []
    start = 0
    while insertions and insertions[0][0] < offset + len(part.text):
        after, thinking = insertions.popleft()
        cut = after - offset if split else 0
        if cut > start:
            pieces.append(TextPart(part.text[start:cut]))
            start = cut
        pieces.append(thinking)
    return [*pieces, TextPart(part.text[start:])]
