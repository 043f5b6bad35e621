"""What is known of a model: its window, what it can do, what it costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import msgspec

from tollbridge.types.usage import Usage

# SECTION Who made a model, what it is called and which version it is, read from its id alone.

# Makers that may stand before a colon. A colon also sets off a variant, as in `llama3.2:3b`.
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
# What may stand at the end of a name, and says nothing of the family.
_STAGE = re.compile(r"[-@](?:latest|preview)$")
_DATE = re.compile(r"[-@](20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])$")
_VERSION = re.compile(r"(?:^|(?<=[-_a-z]))v?(\d+(?:\.\d+|-\d(?=$|[-_]))*)(?=$|[-_:])", re.IGNORECASE)


class Identity(msgspec.Struct, frozen=True):
    """`anthropic/claude-opus-4-5-20251101` is `claude-opus` of `anthropic`, version `4.5`, of 2025-11-01."""

    name: str
    family: str
    creator: str | None = None
    version: str | None = None
    date: str | None = None


def identify(model_id: str) -> Identity:
    """Reads `creator/family-version`, `creator:family` and bare names; never fails."""
    creator, name = _split_creator(model_id)
    stem = _STAGE.sub("", name)
    dated = _DATE.search(stem)
    stem = _DATE.sub("", stem)
    version = _VERSION.search(stem)
    family = stem[: version.start()] + stem[version.end() :] if version else stem
    number = version[1].replace("-", ".") if version else None  # Claude was once `claude-3-5-sonnet`
    family = re.sub(r"[-_]{2,}", "-", family).strip("-_") or stem
    date = "-".join(dated.groups()) if dated else None
    return Identity(name=name, family=family, creator=creator, version=number, date=date)


def _split_creator(model_id: str) -> tuple[str | None, str]:
    creator, slash, name = model_id.rpartition("/")
    if slash and name:
        return creator.rpartition("/")[2] or None, name
    creator, colon, name = model_id.partition(":")
    if colon and name and creator.lower() in CREATORS:
        return creator, name
    return None, model_id


# SECTION What is known of a model: its window, what it can do, what it costs.

# For servers that name a model and say nothing more. Small enough to be true of what people run today.
DEFAULT_WINDOW = 32_768
DEFAULT_OUTPUT = 4_096
# A gateway may promise an output as large as the window; at least this share is kept for the question.
MIN_INPUT_SHARE = 0.5
# Efforts to offer for a model that reasons but whose gateway lists none.
DEFAULT_EFFORTS = ("low", "medium", "high")
# What gateways call a model that one can talk to.
CHAT_TYPES = frozenset({None, "language", "model", "llm", "vlm", "chat"})

# What a million tokens cost, of a conversation with three tokens in for each one out; up to these it is…
PriceCategory = Literal["low", "medium", "high"]
PRICE_CATEGORIES: tuple[tuple[Decimal, PriceCategory], ...] = (
    (Decimal(1), "low"),
    (Decimal(6), "medium"),
    (Decimal("Infinity"), "high"),
)
_MILLION = 1_000_000


class Prices(msgspec.Struct, frozen=True):
    """US dollars for one token. Decimal, because gateways give decimal strings."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def cost(self, usage: Usage) -> Decimal | None:
        """US dollars for what was used; `None` where a price or a number is missing. A cached token costs as
        any other where the gateway names no price for it."""
        if self.input is None or self.output is None:
            return None
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        read = self.input if self.cache_read is None else self.cache_read
        return (usage.input_tokens - cached) * self.input + cached * read + usage.output_tokens * self.output

    @property
    def category(self) -> PriceCategory | None:
        """How dear it is; `None` where it is not known what goes in and comes out costs."""
        if self.input is None or self.output is None:
            return None
        blend = (3 * self.input + self.output) / 4 * _MILLION
        return next(name for most, name in PRICE_CATEGORIES if blend <= most)


class Limits(msgspec.Struct, frozen=True):
    """How a window is shared: what may go in, and what is kept free for the answer."""

    window: int
    input: int
    output: int


class Capabilities(msgspec.Struct, frozen=True):
    tools: bool
    images: bool
    files: bool
    reasoning: bool


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
    # What it can do, in the gateway's words: `tool-use`, `vision`, `file-input`, `reasoning`…
    tags: frozenset[str] = frozenset()
    # The parameters its requests may carry, likewise: `tools`, `reasoning`, `temperature`…
    parameters: frozenset[str] = frozenset()
    # The efforts it can be asked for, weakest first.
    reasoning_efforts: tuple[str, ...] = ()
    prices: Prices | None = None
    # What a person says it can do (`tools`, `images`, `files`, `reasoning`), whatever the gateway says.
    told: Mapping[str, bool] = {}

    @property
    def identity(self) -> Identity:
        return identify(self.id)

    @property
    def is_chat_model(self) -> bool:
        return self.type in CHAT_TYPES

    @property
    def limits(self) -> Limits:
        """The output is reserved: input and output together fill the window and never pass it."""
        window = self.context_window or DEFAULT_WINDOW
        output = self.max_output_tokens or min(DEFAULT_OUTPUT, window // 4)
        output = max(1, min(output, int(window * (1 - MIN_INPUT_SHARE))))
        return Limits(window=window, input=max(1, window - output), output=output)

    @property
    def capabilities(self) -> Capabilities:
        """Where the gateway is silent, tools and files are tried (a refusal can be read), images are not."""
        said = self.tags | self.parameters
        found = {
            "tools": not said or bool(said & {"tool-use", "tools"}),
            "images": "vision" in said,
            "files": not said or "file-input" in said,
            "reasoning": "reasoning" in said or bool(self.reasoning_efforts),
        }
        return Capabilities(**{**found, **self.told})

    @property
    def efforts(self) -> tuple[str, ...]:
        """The reasoning efforts to offer, weakest first."""
        if self.reasoning_efforts:
            return self.reasoning_efforts
        return DEFAULT_EFFORTS if self.capabilities.reasoning else ()
