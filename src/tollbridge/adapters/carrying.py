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


class Carrying:
    """Belongs to one answer."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._texts: dict[str, str] = {}  # of the blocks that are open
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
                case TextDelta():
                    self._settle(None)
                case ToolCall() if event.offered:
                    self._settle(event.call_id)
                    if event.metadata:
                        self._calls[event.call_id] = event.metadata
                        found.append(
                            ReasoningEnded(None, bind(self._origin, event.metadata, call=event.call_id))
                        )
            found.append(event)
        return found

    def close(self) -> list[Part]:
        """The pack, where there is anything to carry."""
        self._settle(None)
        if not self._blocks and not self._calls:
            return []
        carried = Carried(self._origin.model, self._origin.gateway, tuple(self._blocks), self._calls)
        data = write_json(carried).encode()
        return [DataPart(data, CARRIED)] if len(data) <= PACK_LIMIT else []

    def _think(self, delta: ReasoningDelta | Corrected) -> None:
        """A summary of several parts (`id`, `id:1`…) is one block."""
        block, _, part = (delta.id or "").partition(":")
        before = self._texts.get(block, "")
        before = before[: -delta.replaces] if delta.replaces else before
        gap = "\n\n" if part and before and not self._texts.get(f"{block}:{part}") else ""
        self._texts[block] = before + gap + delta.text
        if part:
            self._texts[f"{block}:{part}"] = "begun"

    def _ended(self, event: ReasoningEnded) -> ReasoningEnded:
        block = (event.id or "").partition(":")[0]
        text = self._texts.pop(block, "")
        if not text and not event.metadata:
            return event
        self._waiting.append(Block(text, event.id, event.metadata))
        return ReasoningEnded(event.id, bind(self._origin, event.metadata))

    def _settle(self, before: str | None) -> None:
        """What the waiting blocks led to: a call, or words."""
        self._blocks += [Block(block.text, block.id, block.proof, before) for block in self._waiting]
        self._waiting.clear()
