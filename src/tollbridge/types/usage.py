"""Token usage, the bill and the cost of a request. Unknown is `None`; zero is a measurement."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Literal

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """The tokens of one or more requests.

    Cached tokens and cache writes are part of the input tokens; reasoning tokens are part of the output
    tokens. Cached tokens were read from the provider's prompt cache, cache writes were stored in it.

    Attributes:
        long_cache_write_tokens: The cache writes with the longer of the provider's lifetimes (Anthropic: 1
            hour, OpenAI: 12 hours), part of `cache_write_tokens`.
        images: The number of generated images.
        web_searches: The number of web searches that the provider ran.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    long_cache_write_tokens: int | None = None
    images: int | None = None
    web_searches: int | None = None

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
            _sum(self.long_cache_write_tokens, other.long_cache_write_tokens),
            _sum(self.images, other.images),
            _sum(self.web_searches, other.web_searches),
        )


# The largest integer that every JSON parser and database represents exactly.
_MAX_COUNT = 2**53


def token_count(value: object) -> int | None:
    """Convert a reported count to `int`. Return `None` if it is not a number, negative or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _MAX_COUNT else None


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right


# --- Cost ---

# Longer numbers, as text, are not read.
_DIGIT_LIMIT = 40


def parse_amount(value: object) -> Decimal | None:
    """Convert a reported amount of money to `Decimal`. Return `None` if it is not a number or negative."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        digits = str(value)
        amount = Decimal(digits) if len(digits) <= _DIGIT_LIMIT else None
    except (InvalidOperation, ValueError):
        return None
    return amount if amount is not None and amount.is_finite() and amount >= 0 else None


# Where the cost of a request comes from. Billed: the gateway's metadata in the stream, the market price there
# (the gateway debited nothing, as with the user's own provider key), `usage.cost`, a response header, or a
# later question to the gateway. Computed: the prices of the gateway's model list, or of `genai-prices`.
CostSource = Literal["gateway", "market", "usage", "header", "generation", "list", "genai-prices"]


class Billing(msgspec.Struct, frozen=True):
    """What the gateway says about the bill of one request.

    Attributes:
        cost: What it charges, in US dollars.
        source: Where the cost was reported.
        provider: The provider that answered, after any fallbacks.
        generation_id: The id under which the gateway can be asked for the cost.
        surcharge: The part of the cost that is not for tokens, but for a feature of the account.
    """

    cost: Decimal | None = None
    source: CostSource | None = None
    provider: str | None = None
    generation_id: str | None = None
    surcharge: Decimal | None = None

    def __or__(self, later: Billing) -> Billing:
        """Return both reports together. Where both have a value, the later report counts."""
        has_cost = later.cost is not None
        return Billing(
            later.cost if has_cost else self.cost,
            later.source if has_cost else self.source,
            later.provider or self.provider,
            later.generation_id or self.generation_id,
            later.surcharge if has_cost else self.surcharge,
        )


class Cost(msgspec.Struct, frozen=True):
    """The cost of a turn in US dollars, with all its attempts. Unknown is `None`, never 0.

    Attributes:
        computed: The reported usage at the prices of the model.
        billed: What the gateway says it charges.
        charge: The billed cost, or else the computed one.
        source: Where `charge` comes from.
        difference: A sentence about a difference of more than 1 % between billed and computed.
    """

    computed: Decimal | None = None
    billed: Decimal | None = None
    charge: Decimal | None = None
    source: CostSource | None = None
    difference: str | None = None

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            _sum_costs(self.computed, other.computed),
            _sum_costs(self.billed, other.billed),
            _sum_costs(self.charge, other.charge),
            other.source or self.source,
            other.difference or self.difference,
        )


def _sum_costs(left: Decimal | None, right: Decimal | None) -> Decimal | None:
    if left is None:
        return right
    return left if right is None else left + right
