"""The OpenResponses protocol, release 2026-04-24, with the extensions of OpenAI's Responses API.

wire      event names, typed deltas, and tolerant access to JSON objects
requests  messages to request bodies
stream    response bytes to events
items     the state of the output items while they are streamed; used by `stream`
schema    request bodies as a server validates them
caller    a caller's request body to a `ChatRequest`
answer    events to a stream or to one response
"""

from __future__ import annotations

from tollbridge.protocols.protocol import Json, Lazy, ModelList, Protocol, TokenCounter
from tollbridge.types.urls import VERCEL_URL


def _recognize(chunk: Json, is_event: bool, name: bytes) -> str | None:
    kind = chunk["type"]
    if kind == "error" and is_event and "errorText" not in chunk and (name or "sequence_number" in chunk):
        return OPENRESPONSES.response_form  # the AI SDK has a chunk of the same type
    return OPENRESPONSES.response_form if kind.startswith("response.") else None


OPENRESPONSES = Protocol(
    name="openresponses",
    title="OpenResponses",
    base_url=VERCEL_URL,
    path="/responses",
    encode=Lazy("tollbridge.protocols.openresponses.requests:encode_body"),
    decoders={"openresponses": Lazy("tollbridge.protocols.openresponses.stream:StreamDecoder")},
    response_form="openresponses",
    models=ModelList("/models", Lazy("tollbridge.protocols.model_list:read_only_page")),
    endpoints_path="/models/{}/endpoints",
    counter=TokenCounter(
        "/responses/input_tokens",
        frozenset({"model", "input", "tools", "tool_choice", "reasoning", "text", "instructions"}),
    ),
    min_output_tokens=16,
    diagnose_cache=Lazy("tollbridge.protocols.openresponses.requests:diagnose_cache"),
    feature_headers=("openai-beta",),
    is_examined=True,
    recognize=_recognize,
    any_endpoint=Lazy("tollbridge.protocols.openresponses.stream:AnyEndpointDecoder"),
    advice={"protocol": "Check that --base-url is an OpenResponses server; the URL usually ends in /v1."},
    caller_codec=Lazy("tollbridge.protocols.openresponses.caller:CODEC"),
)
