"""Text and reasoning on their way: neighbours joined, halves of a character made whole."""

from __future__ import annotations

import re

from tollbridge.core.events import ReasoningDelta, TextDelta
from tollbridge.gateways.aisdk import wire
from tollbridge.gateways.aisdk.calls import Calls

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT, _REASONING = range(2)


class Deltas:
    """Collects what one network read brings; `flush` makes one event of it.

    JavaScript cuts an emoji in two: half of it may end one delta, the other half begin the next. A first half
    at the end is kept for the next delta of its kind; what stays a half to the end leaves as it is.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._kind = _TEXT
        self._block: str | None = None
        self._pieces: list[str] = []
        self._halves = False  # from the first half a character on
        self._kept = ["", ""]
        self._said = [0, 0]  # characters of this step
        self._void = [0, 0]  # characters that the next delta replaces

    def add_text(self, text: str) -> None:
        if self._kind != _TEXT:
            self.flush()
            self._kind = _TEXT
        self._pieces.append(text)

    def add_reasoning(self, text: str, block: str | None) -> None:
        if self._kind != _REASONING or self._block != block:
            self.flush()
            self._kind, self._block = _REASONING, block
        self._pieces.append(text)

    def watch(self, text: str) -> None:
        """Look for half characters. The fast path cannot meet any: its reader refuses them."""
        if not self._halves and _SURROGATE.search(text):
            self._halves = True

    def flush(self) -> None:
        pieces = self._pieces
        if pieces:
            text = "".join(pieces) if len(pieces) > 1 else pieces[0]
            pieces.clear()
            self._give(self._kind, self._mended(text) if self._halves else text)

    def close(self) -> None:
        self.flush()
        for kind in (_TEXT, _REASONING):
            text, self._kept[kind] = self._kept[kind], ""
            self._give(kind, text)

    def start_step(self) -> None:
        self.flush()
        self._said = [0, 0]

    def reset_step(self) -> None:
        """What this step has said is void. It has left already; the next delta says how much it replaces."""
        self.flush()
        self._kept = ["", ""]
        for kind in (_TEXT, _REASONING):
            self._void[kind] += self._said[kind]
        self._said = [0, 0]

    def _give(self, kind: int, text: str) -> None:
        void = self._void[kind]
        if void:
            self._void[kind] = 0
        elif not text:
            return
        self._said[kind] += len(text)
        delta = TextDelta(text, void) if kind == _TEXT else ReasoningDelta(text, self._block, void)
        self._calls.emit(delta)

    def _mended(self, text: str) -> str:
        text = wire.mend(self._kept[self._kind] + text)
        last = text[-1:]
        keep = last if "\ud800" <= last <= "\udbff" else ""
        self._kept[self._kind] = keep
        return text[:-1] if keep else text
