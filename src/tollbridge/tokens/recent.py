"""A cache that keeps what was asked lately and forgets the rest, at the price of a dictionary."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Two generations: when the young one is full the old one is forgotten, and the young grows old.

    `most` is the weight of a generation; what is put says its own weight (1 unless told).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, *found)
        return found[0] if found else None

    def put(self, key: K, value: V, weight: int = 1) -> None:
        self._weight += weight
        if self._weight > self._most:
            self._old, self._young = self._young, {}
            self._weight = weight
        self._young[key] = value, weight

    def clear(self) -> None:
        self._young, self._old, self._weight = {}, {}, 0
