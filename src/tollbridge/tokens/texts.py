"""The features of a text: its exact count, or its o200k tokens by category. Each text is counted once."""

from __future__ import annotations

from hashlib import sha256
from threading import Lock

from tollbridge.core.texts import mended
from tollbridge.tokens.categories import Vector
from tollbridge.tokens.characters import character_vector
from tollbridge.tokens.families import Family
from tollbridge.tokens.recent import Recent
from tollbridge.tokens.tokenizers import BASE, spread, tokenizer

# Texts up to this length are their own key; longer ones are known by their digest, and not held.
_KEPT = 2_000
# Characters of short texts that one generation of the cache may hold.
_MOST = 4_000_000


class Texts:
    """Vectors of texts. A family with a bundled vocabulary has one feature, the count itself.

    Threads may share it, and count at the same time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._recent: dict[str | None, Recent[str | bytes, Vector]] = {}

    def vector(self, family: Family, text: str) -> Vector:
        if not text:
            return ()
        key = text if len(text) <= _KEPT else sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            recent = self._recent.setdefault(family.vocabulary, Recent(_MOST))
            found = recent.get(key)
        if found is None:
            found = _exact(family.vocabulary, text) if family.vocabulary else _categories(text)
            with self._lock:
                recent.put(key, found, min(len(text), _KEPT) + 100)
        return found


def _exact(vocabulary: str, text: str) -> Vector:
    loaded = tokenizer(vocabulary)
    if loaded is None:
        return ((0, sum(count for _, count in _categories(text))),)
    return ((0, loaded.count(text)),)


def _categories(text: str) -> Vector:
    loaded = tokenizer(BASE)
    return loaded.vector(text) if loaded else spread(mended(text), character_vector)
