"""Reasoning on its way through an editor and back: marked with whose it is, and packed up at the end.

Editors give back a thought's metadata, but run the thoughts of one answer together, and have no place on a
call. So each thought is marked, and the whole of them travels once more in a data part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tollbridge.history.content import Changes, Receiver
from tollbridge.types.events import Corrected, Event, ReasoningDelta, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import DataPart, Message, Part, Role, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.reasoning import (
    PACK_MIME,
    Origin,
    ReasoningBlock,
    ReasoningPack,
    bind,
    digest,
    is_marker,
    read_reasoning_pack,
    unbind,
)
from tollbridge.types.text import MAX_TEXT, replace_surrogates, write_json

# SECTION Carried thoughts back in their places: before the call or the words they led to.

# Thoughts and how many characters of the answer stood before each, in that order.
Waiting = list[tuple[int, ThinkingPart]]


def restore_reasoning(parts: Sequence[Part], carried: ReasoningPack) -> list[Part]:
    """The carried thoughts in place of those an editor may have run together."""
    calls = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    before: dict[str | None, list[Part]] = {}
    waiting: Waiting = []
    homeless: list[ThinkingPart] = []
    for block in carried.blocks:
        thought = ThinkingPart(block.text, block.id, bind(carried.origin, block.proof))
        if block.before in calls:
            before.setdefault(block.before, []).append(thought)
        elif block.after is not None:
            waiting.append((block.after, thought))
        else:
            homeless.append(thought)
    waiting.sort(key=lambda each: each[0])
    # An older pack knows no places in the text; where an editor kept a thought as it was, it stands there.
    stayed = _stayed(parts, homeless) if carried.said is None else {}
    whole = carried.said == sum(len(part.text) for part in parts if isinstance(part, TextPart))
    found: list[Part] = [thought for thought in homeless if thought not in stayed.values()]
    told = 0
    for at, part in enumerate(parts):
        match part:
            case ThinkingPart():
                found += [stayed[at]] if at in stayed else []
            case TextPart(text):
                found += _text(part, told, waiting, whole=whole)
                told += len(text)
            case ToolCallPart(call_id):
                found += [*before.pop(call_id, []), with_metadata(part, carried.calls)]
            case _:
                found.append(part)
    left = [thought for _, thought in waiting]
    return [*found, *left] if whole else [*left, *found]


def with_metadata(part: Part, calls: Mapping[str, Mapping[str, Any]]) -> Part:
    if not isinstance(part, ToolCallPart) or part.call_id not in calls:
        return part
    return ToolCallPart(part.call_id, part.name, part.input, calls[part.call_id])


def _stayed(parts: Sequence[Part], thoughts: Sequence[ThinkingPart]) -> dict[int, ThinkingPart]:
    """Which of these thoughts came back as they were told, and where."""
    alike = {at: part for at, part in enumerate(parts) if isinstance(part, ThinkingPart)}
    found: dict[int, ThinkingPart] = {}
    for thought in thoughts:
        signs = thought.text, unbind(thought.metadata)
        place = next((at for at, part in alike.items() if (part.text, unbind(part.metadata)) == signs), None)
        if place is not None:
            found[place] = thought
            del alike[place]
    return found


def _text(part: TextPart, told: int, waiting: Waiting, *, whole: bool) -> list[Part]:
    """A text with the thoughts that led to it, or to pieces of it where it is as it was told."""
    found: list[Part] = []
    text = part.text
    while waiting and waiting[0][0] < told + len(text):
        after, thought = waiting.pop(0)
        cut = max(0, after - told) if whole else 0
        if cut:
            found.append(TextPart(text[:cut]))
            text, told = text[cut:], told + cut
        found.append(thought)
    return [*found, TextPart(text)]


# SECTION Which reasoning goes back: the reader's own, with what proves it, in its place; nobody else's.

FOREIGN = "Reasoning of another model was left out."
STALE = "Reasoning of an earlier question was left out: it has no proof, and the model has answered."
REFUSED = "Reasoning that the gateway refused before was left out."
UNPROVEN = "Reasoning without a proof was left out."
UNWANTED = "Reasoning was left out: the server takes none back."
DUPLICATE = "Reasoning that stood there twice was sent once."


def own_reasoning(messages: Sequence[Message], target: Receiver, changes: Changes) -> list[Message]:
    """The messages with the thoughts that may be sent. An editor that kept them twice sends them once."""
    known: set[str] = set()
    return [_once(_own(message, target, changes), known, changes) for message in messages]


def current_reasoning(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Thoughts without a proof help a model through the calls of one question, and only then."""
    asked = max((at for at, message in enumerate(messages) if is_question(message)), default=-1)
    found: list[Message] = []
    for at, message in enumerate(messages):
        parts = tuple(part for part in message.parts if at > asked or not _is_plain(part))
        for _ in range(len(message.parts) - len(parts)):
            changes.say("reasoning", STALE)
        if parts:
            found.append(Message(message.role, parts))
    return found


def is_question(message: Message) -> bool:
    """Whether the user speaks, and not only the tools."""
    return message.role is Role.USER and any(isinstance(part, TextPart | DataPart) for part in message.parts)


def _is_plain(part: Part) -> bool:
    return isinstance(part, ThinkingPart) and not unbind(part.metadata)[1]


def _own(message: Message, target: Receiver, changes: Changes) -> Message:
    kept = _joined([part for part in message.parts if not is_marker(part)])
    data = (part.data for part in message.parts if isinstance(part, DataPart) and part.mime == PACK_MIME)
    markers = filter(None, map(read_reasoning_pack, data))
    carried = next((one for one in markers if one.origin == target.origin), None)
    if carried is not None and message.role is Role.ASSISTANT:
        kept = restore_reasoning(kept, carried)
    calls: dict[str, Mapping[str, Any]] = {}
    parts: list[Part] = []
    for part in kept:
        if not isinstance(part, ThinkingPart):
            parts.append(part)
            continue
        problem = _problem(part, message.role, target)
        bound, proof = unbind(part.metadata)
        if problem is not None:
            changes.say("reasoning", problem)
        elif bound is not None and bound.call is not None:
            calls[bound.call] = proof
        else:
            parts.append(part)
    found = tuple(with_metadata(part, calls) for part in parts)
    return Message(message.role, found, message.name)


def _once(message: Message, known: set[str], changes: Changes) -> Message:
    """Without the thoughts that were told before. No two items may have one id; where a proof names no item,
    only one answer's own thoughts can be told to be one."""
    here: set[str] = set()
    parts: list[Part] = []
    for part in message.parts:
        proof = unbind(part.metadata)[1] if isinstance(part, ThinkingPart) else None
        if proof:
            sign, seen = digest(proof), known if proof.get("id") else here
            if sign in seen:
                changes.say("reasoning", DUPLICATE)
                continue
            seen.add(sign)
        parts.append(part)
    return Message(message.role, tuple(parts), message.name)


def _problem(part: ThinkingPart, role: Role, target: Receiver) -> str | None:
    bound, proof = unbind(part.metadata)
    if not target.reasoning:
        return UNWANTED
    if role is not Role.ASSISTANT or (target.origin and (bound is None or bound.origin != target.origin)):
        return FOREIGN
    if proof:
        return REFUSED if digest(proof) in target.refused else None
    if bound is None or not part.text.strip() or len(part.text) > MAX_TEXT:
        return UNPROVEN
    return None


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Streamed pieces of one thought put together; its proof comes last, in a piece without text."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, ThinkingPart) and isinstance(last, ThinkingPart) and _are_one(last, part):
            glue = "\n\n" if part.id != last.id and last.text and part.text else ""
            metadata = {**(last.metadata or {}), **(part.metadata or {})}
            whole[-1] = ThinkingPart(
                replace_surrogates(last.text + glue + part.text), last.id, metadata or None
            )
        elif isinstance(part, ThinkingPart):
            whole.append(ThinkingPart(replace_surrogates(part.text), part.id, part.metadata))
        else:
            whole.append(part)
    return whole


def _are_one(last: ThinkingPart, part: ThinkingPart) -> bool:
    """A summary's parts are named `id:1`, `id:2`. Two proofs are two thoughts."""
    same = (last.id or "").partition(":")[0] == (part.id or "").partition(":")[0]
    return same and not (last.metadata and (part.metadata or part.text))


# SECTION Reasoning on its way through an editor and back: marked with whose it is, and packed up at the end.
#
# Editors give back a thought's metadata, but run the thoughts of one answer together, and have no place on a
# call. So each thought is marked, and the whole of them travels once more in a data part.

# A larger pack is not sent; the marks on the thoughts must do.
PACK_LIMIT = 1024 * 1024


# What a thought led to: the call after it, and how many characters of text stood before it.
ReasoningPlace = tuple[str | None, int]


class ReasoningPacker:
    """Belongs to one answer."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._said = 0  # characters of text
        self._texts: dict[str, str] = {}  # of the blocks that are open
        self._begun: set[tuple[str, str]] = set()  # parts of them
        self._places: dict[str, ReasoningPlace] = {}  # of those of them that something has followed
        self._blocks: list[ReasoningBlock] = []
        self._waiting: list[ReasoningBlock] = []  # complete, and nothing has followed them yet
        self._calls: dict[str, Mapping[str, Any]] = {}

    def take(self, events: Iterable[Event]) -> list[Event]:
        found: list[Event] = []
        for event in events:
            match event:
                case ReasoningDelta():
                    self._think(event)
                case Corrected(of="reasoning"):
                    self._think(event)
                case ReasoningEnded():
                    event = self._ended(event)
                case TextDelta(text):
                    self._settle(None)
                    self._said += len(text)
                case ToolCall():
                    self._settle(event.call_id)
                    if event.offered and event.metadata:
                        self._calls[event.call_id] = event.metadata
                        found.append(
                            ReasoningEnded(None, bind(self._origin, event.metadata, call=event.call_id))
                        )
            found.append(event)
        return found

    def close(self) -> list[Part]:
        """The pack, where there is anything to carry. A thought that nothing followed may have come late, in
        the final answer: where it stood is not known."""
        self._blocks += self._waiting
        if not self._blocks and not self._calls:
            return []
        model, gateway = self._origin.model, self._origin.gateway
        data = write_json(
            ReasoningPack(model, gateway, tuple(self._blocks), self._calls, self._said)
        ).encode()
        return [DataPart(data, PACK_MIME)] if len(data) <= PACK_LIMIT else []

    def _think(self, delta: ReasoningDelta | Corrected) -> None:
        """A summary of several parts (`id`, `id:1`…) is one block."""
        block, _, part = (delta.id or "").partition(":")
        before = self._texts.get(block, "")
        before = before[: -delta.replaces] if delta.replaces else before
        gap = "\n\n" if part and before and (block, part) not in self._begun else ""
        self._texts[block] = before + gap + delta.text
        self._begun.add((block, part))

    def _ended(self, event: ReasoningEnded) -> ReasoningEnded:
        name = (event.id or "").partition(":")[0]
        text, place = self._texts.pop(name, ""), self._places.pop(name, None)
        if not text and not event.metadata:
            return event
        block = ReasoningBlock(text, event.id, event.metadata)
        if place is None:
            self._waiting.append(block)
        else:
            self._blocks.append(_placed(block, place))
        return ReasoningEnded(event.id, bind(self._origin, event.metadata))

    def _settle(self, call: str | None) -> None:
        """What the thoughts before it led to: a call, or words."""
        if not self._waiting and not self._texts:
            return
        place = call, self._said
        self._blocks += [_placed(block, place) for block in self._waiting]
        self._waiting.clear()
        for name in self._texts:
            self._places.setdefault(name, place)


def _placed(block: ReasoningBlock, place: ReasoningPlace) -> ReasoningBlock:
    before, after = place
    return ReasoningBlock(block.text, block.id, block.proof, before, after)
