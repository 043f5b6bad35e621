"""Token usage as the gateway reports it. Unknown is `None`; zero is a measurement."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """The tokens of one or more requests.

    Cached tokens and cache writes are part of the input tokens; reasoning tokens are part of the output
    tokens. Cached tokens were read from the provider's prompt cache, cache writes were stored in it.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None

    @property
    def known(self) -> bool:
        """Whether any tokens were counted. Servers that do not count report 0 for everything."""
        return bool(self.input_tokens or self.output_tokens or self.total_tokens)

    def to_dict(self) -> dict[str, int | None]:
        """Return the counts by name, ready for JSON. Unknown counts are `None`."""
        return msgspec.structs.asdict(self)

    @property
    def _total(self) -> int | None:
        """The total, computed if only input and output were reported."""
        if self.total_tokens is not None or self.input_tokens is None or self.output_tokens is None:
            return self.total_tokens
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self._total, other._total),
            _sum(self.cached_tokens, other.cached_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
        )


# The largest integer that every JSON parser and database represents exactly.
_MAX_COUNT = 2**53


def token_count(value: object) -> int | None:
    """Convert a reported count to `int`. Return `None` if it is no number, negative or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _MAX_COUNT else None


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right
