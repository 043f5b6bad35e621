"""A model of a gateway: its identity, context window, capabilities and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import msgspec

from tollbridge.types.usage import Usage

# Creators that can precede a colon in a model id. A colon also separates a variant, as in `llama3.2:3b`.
CREATORS = frozenset(
    {
        "alibaba",
        "amazon",
        "anthropic",
        "cohere",
        "deepseek",
        "google",
        "inception",
        "meta",
        "minimax",
        "mistral",
        "moonshotai",
        "morph",
        "nvidia",
        "openai",
        "perplexity",
        "vercel",
        "xai",
        "zai",
    }
)
# The longest model id, in characters. Of a longer text only the beginning is read.
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


# --- Models ---

# Used if a server reports only the name of a model. Small enough for the models that people run locally.
DEFAULT_WINDOW = 32_768
# Tokens of the window that are kept free for an answer: the length that VS Code assumes. Editors fill nine
# tenths of the rest before they summarise a conversation, so much longer answers fit too.
OUTPUT_RESERVE = 8_192
# The largest share of a small window that is kept free, and that the user can ask to keep free.
MAX_RESERVE_SHARE, MAX_CHOSEN_RESERVE_SHARE = 1 / 8, 1 / 2
# Sizes that are offered for the context of a model with a larger window: conversations that are summarised
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


class Prices(msgspec.Struct, frozen=True):
    """Prices in US dollars per token. `Decimal`, because gateways report decimal strings."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def cost(self, usage: Usage) -> Decimal | None:
        """Return the cost in US dollars, or `None` if a price or a token count is missing.

        Cached tokens and cache writes cost as much as other input tokens if the gateway reports no price for
        them.
        """
        if self.input is None or self.output is None:
            return None
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        uncached = usage.input_tokens - cached - written
        return uncached * self.input + cached * read + written * write + usage.output_tokens * self.output

    @property
    def category(self) -> PriceCategory | None:
        """The price category, or `None` if the input or the output price is unknown."""
        if self.input is None or self.output is None:
            return None
        blend = (3 * self.input + self.output) / 4 * _MILLION
        return next(name for upper_bound, name in PRICE_CATEGORIES if blend <= upper_bound)


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
    # The name in cached model lists is the one of the first release.
    overrides: Mapping[str, bool] = msgspec.field(default_factory=dict, name="told")

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
        if self.output_reserve:
            output = min(self.output_reserve, int(window * MAX_CHOSEN_RESERVE_SHARE))
        else:
            largest = min(OUTPUT_RESERVE, int(window * MAX_RESERVE_SHARE))
            output = min(self.max_output_tokens or largest, largest)
        output = max(1, output)
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
