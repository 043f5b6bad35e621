"""What is known of a model: its window, what it can do, what it costs."""

from __future__ import annotations

from decimal import Decimal

import msgspec


class Prices(msgspec.Struct, frozen=True):
    """US dollars for one token. Decimal, because gateways give decimal strings."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is the name the gateway answers to. `None` and empty mean that the gateway did not say."""

    id: str
    name: str | None = None
    description: str | None = None
    owner: str | None = None
    type: str | None = None
    created: int | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    tags: frozenset[str] = frozenset()
    prices: Prices | None = None
