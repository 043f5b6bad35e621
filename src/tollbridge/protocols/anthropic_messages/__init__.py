"""Anthropic's Messages API, version 2023-06-01, as a client and as a server.

wire      tables of names, typed deltas, usage, proofs of reasoning, model lists
requests  messages to request bodies
stream    response bytes to events
caller    a caller's request body to a `ChatRequest`
answer    events to a stream or to one JSON body
"""

from __future__ import annotations

from tollbridge.protocols.protocol import BEARER, Json, KeyHeader, Lazy, ModelList, Protocol, TokenCounter

# The page size of the model list is the largest that Anthropic allows.
_MODELS = "/models?limit=1000"


def _complete_url(base_url: str) -> str:
    """Add `/v1` to a bare host."""
    base_url = base_url.rstrip("/")
    has_path = "/" in base_url.partition("://")[2]
    return base_url if has_path or "://" not in base_url else f"{base_url}/v1"


def _recognize(chunk: Json, _is_event: bool, _name: bytes) -> str | None:
    return ANTHROPIC_MESSAGES.response_form if chunk["type"] == "message_start" else None


ANTHROPIC_MESSAGES = Protocol(
    name="anthropic-messages",
    title="Anthropic Messages",
    base_url="https://api.anthropic.com/v1",
    complete_url=_complete_url,
    path="/messages",
    encode=Lazy("tollbridge.protocols.anthropic_messages.requests:encode_body"),
    decoders={"anthropic-messages": Lazy("tollbridge.protocols.anthropic_messages.stream:StreamDecoder")},
    response_form="anthropic-messages",
    auth={"x-api-key": KeyHeader("x-api-key"), "bearer": BEARER},
    headers={"anthropic-version": "2023-06-01"},
    feature_headers=("anthropic-beta", "anthropic-version"),
    models=ModelList(
        _MODELS, Lazy("tollbridge.protocols.anthropic_messages.wire:read_model_page"), f"{_MODELS}&after_id="
    ),
    counter=TokenCounter(
        "/messages/count_tokens",
        frozenset(
            "model messages system tools tool_choice thinking output_config cache_control mcp_servers "
            "context_management".split()
        ),
    ),
    default_output_limit=Lazy("tollbridge.policy.limits:default_max_tokens"),
    diagnose_cache=Lazy("tollbridge.protocols.anthropic_messages.requests:diagnose_cache"),
    recognize=_recognize,
    advice={"protocol": "Check that --base-url supports the Anthropic Messages API, or remove --backend."},
    caller_codec=Lazy("tollbridge.protocols.anthropic_messages.caller:CODEC"),
)
