"""Prompt caches of providers: which prompts they keep and for how long, and how caching is requested."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Role,
    TextPart,
    ToolResultPart,
    part_digest,
    without_markers,
)
from tollbridge.types.models import ID_LIMIT
from tollbridge.types.text import read_mapping


class CacheRules(msgspec.Struct, frozen=True):
    """How a provider caches prompts."""

    minimum: int = 1024  # the shortest prompt that is cached, in tokens
    lifetime: float = 600.0  # seconds without use after which a prompt is removed
    explicit: bool = False  # prompts are cached only on request


# The first pattern found in the model id decides. The default is that of OpenAI's older models, which keep
# prompts for 5 to 10 minutes.
RULES: tuple[tuple[str, CacheRules], ...] = (
    (r"claude.{0,40}(opus-4[.-][5-9]|haiku-4[.-]5)", CacheRules(4096, 300.0, explicit=True)),
    (r"claude.{0,40}(sonnet-4[.-]6|haiku)", CacheRules(2048, 300.0, explicit=True)),
    (r"claude", CacheRules(1024, 300.0, explicit=True)),
    (r"minimax", CacheRules(1024, 300.0, explicit=True)),
    (r"gemini-2", CacheRules(2048, 300.0)),
    (r"gemini", CacheRules(4096, 300.0)),
    (r"deepseek", CacheRules(64, 7200.0)),  # "a few hours to a few days"
    (r"gpt-(5\.([6-9]|\d\d)|[6-9])", CacheRules(1024, 1800.0)),
)
# The models that need `cache_control`. The others cache by themselves, and their servers may reject it.
_CACHE_CONTROL = re.compile(r"claude|gemini|qwen", re.IGNORECASE)
# The options of a cache breakpoint with the provider's default lifetime.
_BREAKPOINT: Mapping[str, Any] = {"type": "ephemeral"}
_COMPILED = tuple((re.compile(pattern), rules) for pattern, rules in RULES)


def rules_for(model: str) -> CacheRules:
    lowered = model[:ID_LIMIT].lower()
    return next((rules for pattern, rules in _COMPILED if pattern.search(lowered)), CacheRules())


def needs_cache_control(model: str) -> bool:
    return _CACHE_CONTROL.search(model) is not None


def default_cache_points(messages: Sequence[Message]) -> dict[str, Mapping[str, Any]]:
    """Return breakpoints for the prompt cache of Anthropic's API, as `ChatRequest.cache_points`.

    They are at the end of the system prompt, which the tools precede, and at the end of the last two user
    messages: the request before this one ended at the first of these, so its whole prompt is read from the
    cache. The API allows four breakpoints.
    """
    system = [message for message in messages if message.role is Role.SYSTEM]
    users = [message for message in messages if message.role is Role.USER]
    points: dict[str, Mapping[str, Any]] = {}
    for message in (*system[-1:], *users[-2:]):
        parts = [part for part in without_markers(message.parts) if part != TextPart("")]
        # Tool results come first in a message of that API, whatever their order here.
        last = [part for part in parts if not isinstance(part, ToolResultPart)] or parts
        if last:
            points[part_digest(last[-1])] = _BREAKPOINT
    return points


def extra_with_caching(request: ChatRequest) -> dict[str, Any]:
    """Return the extra fields of a request, with the caching option of Vercel AI Gateway if requested.

    Its Responses endpoint has a field for it; in the other protocols it is a provider option. An option of
    the caller has precedence.
    """
    extra = dict(request.extra or {})
    if request.asks_for("caching"):
        options = read_mapping(extra.get("providerOptions"))
        gateway = read_mapping(options.get("gateway"))
        extra["providerOptions"] = {**options, "gateway": {"caching": "auto", **gateway}}
    return extra
