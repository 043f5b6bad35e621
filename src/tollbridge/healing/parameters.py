"""Parameters a server does not take: which of those that were sent a refusal is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from tollbridge.core.errors import BridgeError
from tollbridge.core.messages import ChatRequest
from tollbridge.core.quirks import Quirks

CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter", "invalid_parameter"})
_REFUSED = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|not (?:supported|permitted|allowed|accepted)"
    r"|not available|only supported|only the default|does(?:n't| not) (?:support|accept|allow)|is invalid"
    r"|extra (?:inputs|fields|parameters)|additional propert|invalid (?:value|parameter|argument)",
    re.IGNORECASE,
)

# The fields of the body a turn can do without, and whether a request has them. Not among them: the model, the
# conversation, its tools, and the form the answer must have.
FIELDS: Mapping[str, Callable[[ChatRequest], bool]] = {
    "temperature": lambda request: request.temperature is not None,
    "top_p": lambda request: request.top_p is not None,
    "max_output_tokens": lambda request: request.max_output_tokens is not None,
    "reasoning": lambda request: bool(request.reasoning_effort or request.reasoning_summary),
    "include": lambda request: bool(
        request.reasons or request.reasoning_effort or request.reasoning_summary or _extra(request, "include")
    ),
    "metadata": lambda request: bool(request.metadata),
    "parallel_tool_calls": lambda request: request.parallel_tool_calls is not None,
    "tool_choice": lambda request: request.tool_choice is not None,
    "store": lambda _request: True,
}
# Other names for them, in refusals that come from behind the gateway.
ALIASES: Mapping[str, str] = {
    "topP": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "maxOutputTokens": "max_output_tokens",
    "reasoning_effort": "reasoning",
    "reasoningEffort": "reasoning",
    "reasoning.effort": "reasoning",
    "reasoning.summary": "reasoning",
    "thinking": "reasoning",
    "reasoning.encrypted_content": "include",
    "encrypted content": "include",
    "toolChoice": "tool_choice",
}


def refused_fields(error: BridgeError, request: ChatRequest) -> list[str]:
    """The fields to leave out. A field the refusal names outright is meant before any that its words hold."""
    if error.code not in CODES and not _REFUSED.search(error.message):
        return []
    known = {**{name: name for name in (*FIELDS, *(request.extra or {}))}, **ALIASES}
    named = re.split(r"[\[.]", error.param or "")[0] if error.param not in known else error.param
    if named in known:
        found = [known[named]]
    else:
        found = list(dict.fromkeys(known[name] for name in known if _says(error.message, name)))
    return [name for name in found if _has(request, name)]


def calls_it_a_parameter(error: BridgeError) -> bool:
    """`reasoning` is a parameter and a kind of item: which is meant shows in the words around it."""
    return error.code in CODES or re.search(r"\b(?:parameter|argument)s?\b", error.message, re.I) is not None


def left_out(request: ChatRequest, quirks: Quirks) -> list[str]:
    """The fields of a request that its server is known not to take; ours (`store`) are not worth a word."""
    return sorted(field for field in quirks.without if field != "store" and _has(request, field))


def sent_without(fields: Iterable[str]) -> tuple[str, ...]:
    """The same for a person, a sentence each."""
    return tuple(f"Sent without {field}: the server does not take it." for field in fields)


def _says(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)", message, re.IGNORECASE) is not None


def _has(request: ChatRequest, name: str) -> bool:
    return FIELDS[name](request) if name in FIELDS else _extra(request, name)


def _extra(request: ChatRequest, name: str) -> bool:
    return name in (request.extra or {})
