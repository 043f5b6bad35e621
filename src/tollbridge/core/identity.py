"""Who made a model, what it is called and which version it is, read from its id alone."""

from __future__ import annotations

import re

import msgspec

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
