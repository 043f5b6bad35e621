"""What a ledger needs to remember, and a memory that lasts as long as the process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Protocol

# The chain of a prefix, its tool set, the input tokens reported for it, and how many of them were reasoning
# that goes when the user speaks again.
Prefix = tuple[bytes, bytes, int, int]
# The key of a message, its tokens, and the tokens of reasoning that came with it.
Measured = tuple[bytes, int, int]
# A model, the method of the estimate, the estimate before anything was learned, the one given, the truth.
Outcome = tuple[str, str, int, int, int]


class LedgerStore(Protocol):
    """Values are plain, so that what keeps them knows nothing of tokens."""

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes until the block is left; all of it is kept, or none."""

    def changes(self) -> int:
        """Another number whenever somebody else may have written."""

    def prefixes(self, chains: Sequence[bytes]) -> list[Prefix]: ...

    def put_prefix(self, prefix: Prefix) -> None: ...

    def measured(self, keys: Sequence[bytes]) -> list[Measured]: ...

    def put_measured(self, rows: Sequence[Measured]) -> None: ...

    def learned(self, name: str) -> bytes | None: ...

    def put_learned(self, name: str, data: bytes) -> None: ...

    def outcomes(self) -> list[Outcome]: ...

    def put_outcome(self, outcome: Outcome) -> None: ...

    def clear(self) -> None: ...


class Memory:
    """A ledger's memory without a file. The oldest entries go when it is full."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._prefixes: dict[bytes, dict[bytes, Prefix]] = {}
        self._measured: dict[bytes, Measured] = {}
        self._learned: dict[str, bytes] = {}
        self._outcomes: list[Outcome] = []

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def changes(self) -> int:
        return 0

    def prefixes(self, chains: Sequence[bytes]) -> list[Prefix]:
        return [row for chain in chains for row in self._prefixes.get(chain, {}).values()]

    def put_prefix(self, prefix: Prefix) -> None:
        self._prefixes.setdefault(prefix[0], {})[prefix[1]] = prefix
        _trim(self._prefixes, self._most)

    def measured(self, keys: Sequence[bytes]) -> list[Measured]:
        return [row for key in keys if (row := self._measured.get(key))]

    def put_measured(self, rows: Sequence[Measured]) -> None:
        self._measured |= {row[0]: row for row in rows}
        _trim(self._measured, self._most)

    def learned(self, name: str) -> bytes | None:
        return self._learned.get(name)

    def put_learned(self, name: str, data: bytes) -> None:
        self._learned[name] = data
        _trim(self._learned, self._most)

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes)

    def put_outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        del self._outcomes[: -self._most]

    def clear(self) -> None:
        self._prefixes.clear()
        self._measured.clear()
        self._learned.clear()
        self._outcomes.clear()


def _trim(entries: dict[Any, Any], most: int) -> None:
    # A quarter at a time, so that a full memory is not trimmed at every entry.
    if len(entries) > most:
        for key in list(islice(entries, len(entries) - most * 3 // 4)):
            del entries[key]
