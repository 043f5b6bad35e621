"""Reasoning on its way through an editor and back: marked with whose it is, and packed up at the end.

Editors give back a thought's metadata, but run the thoughts of one answer together, and have no place on a
call. So each thought is marked, and the whole of them travels once more in a data part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tollbridge.core.events import Corrected, Event, ReasoningDelta, ReasoningEnded, TextDelta, ToolCall
from tollbridge.core.json import write_json
from tollbridge.core.messages import DataPart, Part
from tollbridge.core.reasoning import CARRIED, Block, Carried, Origin, bind

# A larger pack is not sent; the marks on the thoughts must do.
PACK_LIMIT = 1024 * 1024


# What a thought led to: the call after it, and how many characters of text stood before it.
Place = tuple[str | None, int]


class Carrying:
    """Belongs to one answer."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._said = 0  # characters of text
        self._texts: dict[str, str] = {}  # of the blocks that are open
        self._begun: set[tuple[str, str]] = set()  # parts of them
        self._places: dict[str, Place] = {}  # of those of them that something has followed
        self._blocks: list[Block] = []
        self._waiting: list[Block] = []  # complete, and nothing has followed them yet
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
        data = write_json(Carried(model, gateway, tuple(self._blocks), self._calls, self._said)).encode()
        return [DataPart(data, CARRIED)] if len(data) <= PACK_LIMIT else []

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
        block = Block(text, event.id, event.metadata)
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


def _placed(block: Block, place: Place) -> Block:
    before, after = place
    return Block(block.text, block.id, block.proof, before, after)
