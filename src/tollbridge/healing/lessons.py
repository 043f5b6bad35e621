"""What was learned of each model at each gateway, so that the second request is right at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from tollbridge.core.quirks import Quirks

# Models remembered, and refused proofs and calls remembered for each; the oldest are forgotten.
MODEL_LIMIT = 256
REFUSED_LIMIT = 4_096


class Learned(msgspec.Struct, frozen=True):
    """`quirks` hold for every request. `refused` are proofs of reasoning, and files, and `spoken` ids of
    calls, of which only those very ones were turned down: what comes from now on is tried again."""

    quirks: Quirks = Quirks()
    refused: frozenset[str] = frozenset()
    spoken: frozenset[str] = frozenset()


class Lessons(Protocol):
    def recall(self, base_url: str, model: str) -> Learned: ...

    def learn(self, base_url: str, model: str, learned: Learned) -> None: ...


class RememberedLessons:
    """In memory. `profile` says what is known of a model's server: where that has changed since, because a
    file was written or a list was read, what was learned begins anew from it."""

    def __init__(self, profile: Callable[[str, str], Quirks | None] | None = None) -> None:
        self._profile = profile
        self._known: dict[tuple[str, str], tuple[Quirks | None, Learned]] = {}

    def recall(self, base_url: str, model: str) -> Learned:
        told = self._profile(base_url, model) if self._profile is not None else None
        before, learned = self._known.get((base_url, model), (None, None))
        if learned is None or before != told:
            learned = Learned(told or Quirks())
            self._keep(base_url, model, told, learned)
        return learned

    def profile(self, base_url: str, model: str) -> Quirks | None:
        """What was known of the server beforehand when it was last recalled; `None`: nothing was."""
        return self._known.get((base_url, model), (None, None))[0]

    def learn(self, base_url: str, model: str, learned: Learned) -> None:
        told, _ = self._known.get((base_url, model), (None, None))
        self._keep(base_url, model, told, learned)

    def _keep(self, base_url: str, model: str, told: Quirks | None, learned: Learned) -> None:
        self._known.pop((base_url, model), None)
        while len(self._known) >= MODEL_LIMIT:
            self._known.pop(next(iter(self._known)))
        self._known[(base_url, model)] = told, learned
