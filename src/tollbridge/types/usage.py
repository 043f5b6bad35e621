"""What a turn cost, as the gateway reported it. Unknown is `None`; zero is a measurement."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Cached tokens are part of the input, reasoning tokens of the output; no total counts them twice."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def known(self) -> bool:
        """Whether anything was measured. Servers that do not count report 0 in and 0 out."""
        return bool(self.input_tokens or self.output_tokens or self.total_tokens)

    @property
    def _whole(self) -> int | None:
        """The total, also where only its two halves were reported."""
        if self.total_tokens is not None or self.input_tokens is None or self.output_tokens is None:
            return self.total_tokens
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self._whole, other._whole),
            _sum(self.cached_tokens, other.cached_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
        )


# More tokens than any model will ever count, and the most that every JSON reader and database can hold.
_MOST = 2**53


def token_count(value: object) -> int | None:
    """A count as servers report it; `None` for what cannot be one: less than nothing, beyond all bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _MOST else None


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else one + other
