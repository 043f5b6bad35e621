"""A model of a gateway: its identity, context window, capabilities and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import msgspec

from tollbridge.types.events import CostSource, Usage

# Creators that can precede a colon in a model id. A colon also separates a variant, as in `llama3.2:3b`.
CREATORS = frozenset(
    "alibaba amazon anthropic cohere deepseek google inception meta minimax mistral moonshotai morph nvidia "
    "openai perplexity vercel xai zai".split()
)
# The longest model id, in characters. Only this much of a longer text is read.
ID_LIMIT = 512
# The largest number of tokens that a model can have as its window. Larger numbers in a model list are wrong.
TOKEN_LIMIT = 10**12
# Suffixes that are not part of the family name.
_STAGE = re.compile(r"[-@](?:latest|preview)$")
_DATE = re.compile(r"[-@](20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])$")
_VERSION = re.compile(
    r"(?:^|(?<=[-_a-z]))v?(\d{1,9}(?:\.\d{1,9}|-\d(?=$|[-_])){0,9})(?=$|[-_:])", re.IGNORECASE
)


class Identity(msgspec.Struct, frozen=True):
    """The parts of a model id.

    `anthropic/claude-opus-4-5-20251101` has the creator `anthropic`, the family `claude-opus`, the version
    `4.5` and the date `2025-11-01`.
    """

    name: str
    family: str
    creator: str | None = None
    version: str | None = None
    date: str | None = None

    @property
    def is_claude(self) -> bool:
        return self.creator == "anthropic" or self.family.startswith("claude")


def identify(model_id: str) -> Identity:
    """Parse a model id: `creator/family-version`, `creator:family`, or a bare name. Never fails."""
    creator, name = _split_creator(model_id[:ID_LIMIT])
    stem = _STAGE.sub("", name)
    date_match = _DATE.search(stem)
    stem = _DATE.sub("", stem)
    version = _VERSION.search(stem)
    family = stem[: version.start()] + stem[version.end() :] if version else stem
    number = version[1].replace("-", ".") if version else None  # `claude-3-5-sonnet`
    family = re.sub(r"[-_]{2,}", "-", family).strip("-_") or stem
    date = "-".join(date_match.groups()) if date_match else None
    return Identity(name=name, family=family, creator=creator, version=number, date=date)


def _split_creator(model_id: str) -> tuple[str | None, str]:
    creator, slash, name = model_id.rpartition("/")
    if slash and name:
        return creator.rpartition("/")[2] or None, name
    creator, colon, name = model_id.partition(":")
    if colon and name and creator.lower() in CREATORS:
        return creator, name
    return None, model_id


# Used if a server reports only the name of a model. Small enough for the models that people run locally.
DEFAULT_WINDOW = 32_768
# Tokens of the window that are kept free for an answer: the length that VS Code assumes. Editors fill nine
# tenths of the rest before they summarize a conversation, so much longer answers fit too.
OUTPUT_RESERVE = 8_192
# The largest share of a small window that is kept free, and that the user can ask to keep free. In a small
# window the error of the first estimate needs room too.
MAX_RESERVE_SHARE, MAX_CHOSEN_RESERVE_SHARE = 1 / 4, 1 / 2
# Sizes that are offered for the context of a model with a larger window: conversations that are summarized
# earlier cost less, and some providers charge more per token from 200,000 on.
CONTEXT_SIZES = (64_000, 128_000, 200_000, 400_000, 1_000_000)
# The efforts of a reasoning model whose gateway lists none.
DEFAULT_EFFORTS = ("low", "medium", "high")
# The types that gateways report for chat models.
CHAT_TYPES = frozenset({None, "language", "model", "llm", "vlm", "chat"})

PriceCategory = Literal["low", "medium", "high"]
# The upper bounds of the categories, in US dollars per million tokens of a mix of three input tokens and one
# output token.
PRICE_CATEGORIES: tuple[tuple[Decimal, PriceCategory], ...] = (
    (Decimal(1), "low"),
    (Decimal(6), "medium"),
    (Decimal("Infinity"), "high"),
)
_MILLION = 1_000_000
_TIER_PRICES = ("input", "output", "cache_read", "cache_write")


class PriceTier(msgspec.Struct, frozen=True):
    """The token prices of prompts of at least `min_input` tokens. They hold for all tokens of the request.

    A price that is `None` is the same as for shorter prompts.
    """

    min_input: int
    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class Prices(msgspec.Struct, frozen=True):
    """Prices in US dollars per token. `Decimal`, because gateways report decimal strings.

    Attributes:
        cache_write: For the shorter lifetime, if the provider has two.
        cache_write_long: For the longer lifetime.
        reasoning: For reasoning tokens, if they do not cost as much as other output tokens.
        image: For one generated image, in addition to its tokens.
        web_search: For one web search.
        tiers: Other token prices for long prompts, the shortest first.
        source: Where the prices come from.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_long: Decimal | None = None
    reasoning: Decimal | None = None
    image: Decimal | None = None
    web_search: Decimal | None = None
    tiers: tuple[PriceTier, ...] = ()
    source: CostSource = "list"

    def cost(self, usage: Usage) -> Decimal | None:
        """Return the cost in US dollars, or `None` if a price or a token count is missing.

        Cached tokens and cache writes cost as much as other input tokens if the gateway reports no price for
        them, and writes of the longer lifetime as much as the others. Images and web searches without a
        price are not included.
        """
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        prices = self.for_prompt(usage.input_tokens)
        if prices.input is None or prices.output is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
        long = min(usage.long_cache_write_tokens or 0, written)
        reasoning = min(usage.reasoning_tokens or 0, usage.output_tokens) if prices.reasoning else 0
        read = prices.input if prices.cache_read is None else prices.cache_read
        write = prices.input if prices.cache_write is None else prices.cache_write
        cost = (usage.input_tokens - cached - written) * prices.input + cached * read
        cost += (written - long) * write
        cost += long * (write if prices.cache_write_long is None else prices.cache_write_long)
        cost += (usage.output_tokens - reasoning) * prices.output + reasoning * (prices.reasoning or 0)
        cost += (usage.images or 0) * (prices.image or 0)
        return cost + (usage.web_searches or 0) * (prices.web_search or 0)

    def for_prompt(self, tokens: int) -> Prices:
        """Return the prices for a prompt of this length, without tiers."""
        if not self.tiers:
            return self
        fields: dict[str, Decimal | None] = {}
        for tier in self.tiers:
            if tokens >= tier.min_input:
                for name in _TIER_PRICES:
                    if (price := getattr(tier, name)) is not None:
                        fields[name] = price
        if self.cache_write_long is not None and self.cache_write and (write := fields.get("cache_write")):
            # Price lists have no tiers for the longer lifetime; its ratio to the shorter one is constant.
            fields["cache_write_long"] = self.cache_write_long * write / self.cache_write
        return msgspec.structs.replace(self, tiers=(), **fields)

    @property
    def category(self) -> PriceCategory | None:
        """The price category, or `None` if the input or the output price is unknown."""
        if self.input is None or self.output is None:
            return None
        blend = (3 * self.input + self.output) / 4 * _MILLION
        return next(name for upper_bound, name in PRICE_CATEGORIES if blend <= upper_bound)


# A smaller difference between billed and computed cost is not explained.
DIFFERENCE = Decimal("0.01")
# How close another calculation must be to the billed cost to be its explanation.
_MATCH = Decimal("0.005")


def explain_difference(
    billed: Decimal | None,
    prices: Prices | None,
    usage: Usage | None,
    provider: str | None = None,
    surcharge: Decimal | None = None,
) -> str | None:
    """Return a sentence about a billed cost that differs from the computed one by more than 1 %.

    It names the surcharge if that is the whole difference, or the other calculation that gives the billed
    cost, if there is one. `None` if there is no such difference or one of the costs is unknown.
    """
    if billed is None or prices is None or usage is None:
        return None
    computed = prices.cost(usage)
    if computed is None or abs(billed - computed) <= DIFFERENCE * max(billed, computed):
        return None
    if surcharge and abs(billed - surcharge - computed) <= DIFFERENCE * max(billed - surcharge, computed):
        return f"The gateway added ${surcharge.normalize():f} for a feature of the account."
    for sentence, cost in _other_costs(prices, usage, computed).items():
        if cost is not None and cost != computed and abs(billed - cost) <= _MATCH * max(billed, cost):
            return sentence
    if provider is not None:
        return f"The provider {provider} may charge other prices than the model list says."
    return "The reason for the difference is not known."


def _other_costs(prices: Prices, usage: Usage, computed: Decimal) -> dict[str, Decimal | None]:
    """Return the cost of other ways to charge for the same usage."""
    applied = prices.for_prompt(usage.input_tokens or 0)

    def with_prices(**changes: Decimal | None) -> Decimal | None:
        return msgspec.structs.replace(applied, **changes).cost(usage)

    free = Decimal(0)
    reasoning = (usage.reasoning_tokens or 0) * (applied.reasoning or applied.output or free)
    return {
        "The request was not charged.": free,
        "Cache writes were not charged.": with_prices(cache_write=free, cache_write_long=free),
        "Cache writes were charged as other input.": with_prices(
            cache_write=applied.input, cache_write_long=applied.input
        ),
        "Cache writes were charged as those of the shorter lifetime.": with_prices(cache_write_long=None),
        "Cached input was charged as other input.": with_prices(cache_read=applied.input),
        "The prices for long prompts were not applied.": prices.for_prompt(0).cost(usage),
        "Reasoning was charged in addition to the output.": computed + reasoning,
        "Web searches and images were not charged.": with_prices(web_search=None, image=None),
    }


class Limits(msgspec.Struct, frozen=True):
    """The limits for the prompts of a model, in tokens.

    Attributes:
        window: The context window: the most tokens of a prompt and its answer together.
        input: The longest prompt to offer to a caller that divides the window, such as an editor. The gateway
            accepts longer ones, up to the window.
        output: What is kept free for the answer. A request can ask for more, if the prompt is shorter.
    """

    window: int
    input: int
    output: int


class Capabilities(msgspec.Struct, frozen=True):
    """Whether a model supports tool calls, image input, file input and reasoning."""

    tools: bool
    images: bool
    files: bool
    reasoning: bool


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a gateway lists it. `None` and empty mean that the gateway did not report the field.

    Attributes:
        id: The name to use in requests.
        tags: The gateway's names for capabilities: `tool-use`, `vision`, `file-input`, `reasoning`…
        parameters: The request parameters the model accepts: `tools`, `reasoning`, `temperature`…
        reasoning_efforts: The reasoning efforts the model accepts, weakest first.
        context_size: The longest prompt that the user wants, in tokens.
        output_reserve: The tokens that the user wants to keep free for an answer.
        overrides: The capabilities set by the user (`tools`, `images`, `files`, `reasoning`), which take
            precedence over the gateway's.
    """

    id: str
    name: str | None = None
    description: str | None = None
    owner: str | None = None
    type: str | None = None
    created: int | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    tags: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()
    reasoning_efforts: tuple[str, ...] = ()
    prices: Prices | None = None
    context_size: int | None = None
    output_reserve: int | None = None
    overrides: Mapping[str, bool] = {}

    @property
    def identity(self) -> Identity:
        return identify(self.id)

    @property
    def is_chat_model(self) -> bool:
        return self.type in CHAT_TYPES

    @property
    def limits(self) -> Limits:
        """The token limits. Unless the user chose a context size, input and output add up to the window."""
        window = min(self.context_window or DEFAULT_WINDOW, TOKEN_LIMIT)
        largest = min(OUTPUT_RESERVE, int(window * MAX_RESERVE_SHARE))
        # A low limit of the user does not lower the reserve, which is also for the error of the estimate.
        chosen = min(self.output_reserve or 0, int(window * MAX_CHOSEN_RESERVE_SHARE))
        output = max(1, chosen, min(self.max_output_tokens or largest, largest))
        prompt = max(1, window - output)
        return Limits(window=window, input=min(self.context_size or prompt, prompt), output=output)

    @property
    def context_sizes(self) -> tuple[int, ...]:
        """The prompt sizes to choose from, the largest last; empty if there is no choice."""
        largest = self.limits.input
        # A size close to the largest one is no choice.
        smaller = tuple(size for size in CONTEXT_SIZES if size <= 0.8 * largest)
        return (*smaller[-3:], largest) if smaller else ()

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities. If the gateway reports none, tools and files are assumed and images are not.

        Sending tools or files to a model that does not support them causes an error that can be repaired.
        """
        reported = self.tags | self.parameters
        capabilities = {
            "tools": not reported or bool(reported & {"tool-use", "tools"}),
            "images": "vision" in reported,
            "files": not reported or "file-input" in reported,
            "reasoning": "reasoning" in reported or bool(self.reasoning_efforts),
        }
        return Capabilities(**{**capabilities, **self.overrides})

    @property
    def efforts(self) -> tuple[str, ...]:
        """The reasoning efforts to offer, weakest first."""
        if self.reasoning_efforts:
            return self.reasoning_efforts
        return DEFAULT_EFFORTS if self.capabilities.reasoning else ()
