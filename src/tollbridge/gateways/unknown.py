"""Names that stand in no table of ours, counted while a stream is read."""

from __future__ import annotations

from collections import Counter

# Names that are kept apart; a server that makes up more is counted under "…".
UNKNOWN_LIMIT = 100


class Unknown(Counter[str]):
    def note(self, name: str) -> None:
        self[name if name in self or len(self) < UNKNOWN_LIMIT else "…"] += 1
