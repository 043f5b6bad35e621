"""What a turn of several steps cost: the sum is billed, the last step fills the window."""

from __future__ import annotations

from tollbridge.core.usage import Usage


class Toll:
    def __init__(self) -> None:
        self._billed: Usage | None = None
        self._steps: Usage | None = None  # of the turn that is not finished yet
        self._last: Usage | None = None

    def add_step(self, usage: Usage | None) -> None:
        self._steps = _sum(self._steps, usage)
        self._last = usage or self._last

    def add_turn(self, total: Usage | None) -> None:
        """A total replaces the sum of its steps. Merged streams send several, one for each of theirs."""
        self._billed = _sum(self._billed, total or self._steps)
        self._last = self._last if self._steps is not None else total or self._last
        self._steps = None

    def total(self) -> Usage | None:
        return _sum(self._billed, self._steps)

    def context(self) -> Usage | None:
        """The last step's usage, where it is not the whole."""
        return self._last if self._last != self.total() else None


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return one + other
