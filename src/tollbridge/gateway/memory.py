"""Responses that later requests may build on, by id."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

Item = dict[str, Any]


class Remembered(msgspec.Struct, frozen=True):
    """The whole conversation up to and including a response."""

    items: tuple[Item, ...]


class Memory:
    """The newest `limit` responses. A server has one, and every WebSocket connection one of its own."""

    def __init__(self, limit: int = 1_000) -> None:
        self._responses: OrderedDict[str, Remembered] = OrderedDict()
        self._limit = limit

    def keep(self, response_id: str, items: tuple[Item, ...]) -> None:
        self._responses[response_id] = Remembered(items)
        while len(self._responses) > self._limit:
            self._responses.popitem(last=False)

    def find(self, response_id: str) -> Remembered | None:
        return self._responses.get(response_id)

    def find_item(self, item_id: str) -> Item | None:
        for remembered in reversed(self._responses.values()):
            for item in remembered.items:
                if item.get("id") == item_id:
                    return item
        return None

    def forget(self, response_id: str) -> None:
        self._responses.pop(response_id, None)
