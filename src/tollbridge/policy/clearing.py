"""Context editing of Anthropic: when old tool results and thinking are removed from a prompt.

Anthropic requires `clear_thinking` to be the first edit, and answers 400 if it is sent while thinking is off.
To clear something makes the cached prompt behind it invalid. docs/cost.md derives how much must be cleared at
once so that this pays, and why cached thinking is kept.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import identify
from tollbridge.types.text import write_json
from tollbridge.types.urls import VERCEL_HOST

Json = dict[str, Any]

CLEAR_TRIGGER, CLEAR_AT_LEAST = 100_000, 40_000  # tokens
CLEAR_THINKING: Json = {"type": "clear_thinking_20251015"}
KEEP_THINKING: Json = {**CLEAR_THINKING, "keep": "all"}
CLEAR_TOOL_USES: Json = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": CLEAR_TRIGGER},
}
CLEAR_MANY_TOOL_USES: Json = {
    **CLEAR_TOOL_USES,
    "clearAtLeast": {"type": "input_tokens", "value": CLEAR_AT_LEAST},
}


def choose_edits(request: ChatRequest, base_url: str, *, caching: bool) -> list[Json]:
    """Return the edits to request; none if they cannot apply.

    Only Vercel AI Gateway is known to pass them on, and only Claude models accept them. `caching` is whether
    the prompt is cached.
    """
    if not identify(request.model).is_claude or urlsplit(base_url).hostname != VERCEL_HOST:
        return []
    if not _may_reach(request, CLEAR_TRIGGER):
        return []
    thinking, tool_uses = CLEAR_THINKING, CLEAR_TOOL_USES
    if caching:
        thinking, tool_uses = KEEP_THINKING, CLEAR_MANY_TOOL_USES
    return [tool_uses] if request.reasoning_effort in (None, "none") else [thinking, tool_uses]


def _may_reach(request: ChatRequest, tokens: int) -> bool:
    """Return whether a prompt can have this many tokens: a token has at least one byte."""
    size = 0
    for message in request.messages:
        size += len(write_json(message).encode("utf-8", "surrogatepass"))
        if size >= tokens:
            return True
    return size + len(write_json(request.tools).encode("utf-8", "surrogatepass")) >= tokens
