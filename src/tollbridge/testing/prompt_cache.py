"""A simulated prompt cache: which part of a prompt the provider has read before.

By default everything is cached for ever, in whole items. `CacheSettings` makes it behave like the cache of a
provider: with a minimum, a lifetime, blocks of tokens, and one cache per provider.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from tollbridge.testing.limits import LIMITS

# The bytes of a prompt whose tokens are cached together, if the cache has blocks.
_PIECE = 128

# What a model reads at once, and its tokens.
Unit = tuple[bytes, int]


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the simulated prompt cache behaves."""

    minimum: int = 0  # the tokens of the shortest prompt that is cached
    block: int | None = None  # cached tokens are a multiple of it; without blocks, whole items are cached
    lifetime: float = math.inf  # seconds without use after which a prompt is removed
    reports_writes: bool = False  # the usage has the tokens written to the cache
    # The providers that can answer, each with a cache of its own. The first one answers, until
    # `PromptCache.switch_provider` is called. Without names, no provider is reported.
    providers: tuple[str, ...] = ()


# OpenAI's documented minimum and blocks, and the lifetime that it calls typical.
PROVIDER_CACHE = CacheSettings(
    minimum=1024, block=128, lifetime=600.0, reports_writes=True, providers=("alpha", "beta")
)


class CacheUse(msgspec.Struct, frozen=True):
    """What the cache did for a prompt."""

    cached_tokens: int = 0
    written_tokens: int | None = None
    provider: str | None = None


class PromptCache:
    """The prefixes of the prompts that were received, by their digests, with the time of their last use.

    Tests can move its clock.
    """

    def __init__(self, settings: CacheSettings | None = None, limit: int = LIMITS.prefixes) -> None:
        self.settings = settings or CacheSettings()
        self._limit = limit  # prefixes
        self._provider = 0
        self._offset = 0.0
        self._uses: OrderedDict[bytes, float] = OrderedDict()

    @property
    def clock(self) -> float:
        return time.monotonic() + self._offset

    def advance(self, seconds: float) -> None:
        """Move the clock of the cache forward."""
        self._offset += seconds

    @property
    def provider(self) -> str | None:
        """The provider that answers."""
        providers = self.settings.providers
        return providers[self._provider % len(providers)] if providers else None

    def switch_provider(self) -> None:
        """Let the next provider answer from now on."""
        self._provider += 1

    def use(self, preface: Sequence[Unit], items: Sequence[Unit]) -> CacheUse:
        """Look a prompt up, and add it with all its prefixes.

        The preface is what precedes the items: the model and options, each tool, the instructions.
        """
        settings, now = self.settings, self.clock
        units = list(self._split(preface, items))
        digests = list(self._digests(units))
        total = sum(tokens for _, tokens in units)
        cached = 0
        for digest, prefix in zip(digests, accumulate(tokens for _, tokens in units), strict=True):
            last_use = self._uses.get(digest)
            if last_use is None or now - last_use > settings.lifetime:
                break
            cached = prefix
        cached = self._round(cached)
        if cached < settings.minimum:
            cached = 0
        written = 0
        if total >= settings.minimum:
            written = max(0, self._round(total) - cached)
            self._add(digests, now)
        return CacheUse(cached, written if settings.reports_writes else None, self.provider)

    def _round(self, tokens: int) -> int:
        return tokens - tokens % (self.settings.block or 1)

    def _add(self, digests: Sequence[bytes], now: float) -> None:
        for digest in digests:
            self._uses[digest] = now
            self._uses.move_to_end(digest)
        while len(self._uses) > self._limit:
            self._uses.popitem(last=False)

    def _split(self, preface: Sequence[Unit], items: Sequence[Unit]) -> Iterator[Unit]:
        if self.settings.block is None:
            yield b"".join(content for content, _ in preface), sum(tokens for _, tokens in preface)
            yield from items
            return
        for content, tokens in (*preface, *items):
            pieces = [content[start : start + _PIECE] for start in range(0, len(content), _PIECE)]
            for index, piece in enumerate(pieces):
                yield piece, tokens * (index + 1) // len(pieces) - tokens * index // len(pieces)

    def _digests(self, units: Sequence[Unit]) -> Iterator[bytes]:
        """Yield a digest of every prefix."""
        chain = hashlib.sha256((self.provider or "").encode())
        for content, _ in units:
            chain.update(content)
            yield chain.digest()[:16]


def encode_visible(item: Mapping[str, Any]) -> bytes:
    """Encode what a model sees of an item: no ids, no status, and plain text in one form."""
    content = item.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = [part.get("text") or part.get("refusal") or part for part in content]
    elif isinstance(content, str):
        content = [content]
    fields = ("call_id", "name", "arguments", "output", "summary", "encrypted_content", "result")
    visible = item["type"], item.get("role"), content, *(item.get(field) for field in fields)
    return msgspec.json.encode(visible)
