"""The limits of token counting: what is kept in memory, and how much text is counted at once."""

from __future__ import annotations

import msgspec


class TokenLimits(msgspec.Struct, frozen=True):
    """The limits of token counting. Caches have two generations, so they hold up to twice as much.

    Attributes:
        messages: The messages whose features are cached, about 3 kB each.
        toolsets: The tool sets whose features are cached. A conversation has one or two.
        text_bytes: The bytes of cached text features, by vocabulary.
        entry_bytes: What a place in that cache takes besides its key and its features.
        text_key: The characters of a text that is its own cache key. Of a longer one, the cache keeps the
            hash and the length.
        piece: The characters of a text that are counted in one call, which holds the interpreter's lock. A
            longer text is split at line ends, which costs at most one token per split.
        pieces: The pieces of a text that are counted. Of a longer text this many are, evenly spread.
        long_text: The characters of a text that takes about a millisecond to count.
        lower_bounds: The prompts that a gateway has rejected as too long, with what it said about them.
        refused: The prompts whose report was refused; a later report is compared with them.
        providers: The latest providers of a model. Each can serve the next request.
    """

    messages: int = 3_000
    toolsets: int = 200
    text_bytes: int = 8_000_000
    entry_bytes: int = 500
    text_key: int = 2_000
    piece: int = 250_000
    pieces: int = 16
    long_text: int = 10_000
    lower_bounds: int = 1_000
    refused: int = 100
    providers: int = 4


LIMITS = TokenLimits()
