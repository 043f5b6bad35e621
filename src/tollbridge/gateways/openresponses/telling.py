"""The words of one answer, text and reasoning, each told once.

Servers say them in deltas, in `.done`, in the item and in the final response, or in any one of these.
"""

from __future__ import annotations

from typing import Literal

from tollbridge.core.events import Corrected, Event, ReasoningDelta, ReasoningEnded, TextDelta
from tollbridge.gateways.openresponses import wire
from tollbridge.gateways.openresponses.items import Item, PartKey, Said
from tollbridge.gateways.openresponses.wire import Fields

# Raw reasoning and its summary may both be told of one item, each in parts of its own.
Words = Literal["text", "reasoning", "summary"]


class Telling:
    def __init__(self) -> None:
        self._text = Said()  # of all messages together
        self._before = Said()  # the same, when the part that was told last began
        self._last: dict[bool, tuple[Item, PartKey]] = {}  # what was told last: of text, of reasoning
        self._ended: set[int] = set()  # blocks of reasoning

    def tell(self, kind: Words, item: Item, part: int | None, text: str) -> list[Event]:
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

    def reasoning_done(self, kind: Words, item: Item, part: int | None, full: str) -> list[Event]:
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

    def _done(self, kind: Words, item: Item, part: int | None, full: str) -> list[Event]:
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
