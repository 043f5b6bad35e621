"""The limits of the model lists: how long they are valid, and how much is kept and fetched."""

from __future__ import annotations

import msgspec


class CatalogLimits(msgspec.Struct, frozen=True):
    """The limits of the model lists.

    Attributes:
        fresh: Seconds for which a list is not fetched again, except with `refresh`.
        retry: Seconds after a failed fetch in which the gateway is not tried again, except with `refresh`.
        lists: The lists in memory, one per gateway, account and key.
        details: The models whose endpoints are fetched in one refresh. The others follow in later ones.
        concurrency: How many of them are fetched at the same time.
        details_valid: Seconds for which endpoints are valid; so is the answer that a gateway has none.
        file_size: The bytes of a cached list; a larger file is not read.
        files: The files in the cache; the oldest are deleted.
        temporary: Seconds after which a temporary file was left by a process that was killed.
        prices: The models whose prices are kept: more than gateways list. All are dropped then.
    """

    fresh: float = 300.0
    retry: float = 30.0
    lists: int = 64
    details: int = 50
    concurrency: int = 8
    details_valid: float = 86_400.0
    file_size: int = 32 * 1024 * 1024
    files: int = 32
    temporary: float = 60.0
    prices: int = 10_000


LIMITS = CatalogLimits()
