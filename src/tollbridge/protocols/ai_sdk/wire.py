"""AI SDK wire format: the chunks of all supported versions.

The field names of a chunk type differ between versions. The functions here look them up in an order that is
unambiguous for all versions. A chunk is a plain mapping; only deltas, which are nearly all chunks of a
stream, have typed structs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from tollbridge.types.events import FinishReason, Usage, token_count
from tollbridge.types.text import exceeds_depth, read_mapping

Chunk = Mapping[str, Any]


class TextDelta(msgspec.Struct, tag="text-delta", tag_field="type", gc=False):
    """A piece of text: `delta` in UI and model streams, `text` in full streams, `textDelta` in version 4."""

    delta: str = ""
    text: str = ""
    textDelta: str = ""


class ReasoningDelta(msgspec.Struct, tag="reasoning-delta", tag_field="type"):
    id: str | None = None
    delta: str = ""
    text: str = ""
    providerMetadata: dict[str, Any] | None = None


class ToolInputDelta(msgspec.Struct, tag="tool-input-delta", tag_field="type", gc=False):
    """A piece of tool arguments: `id` and `delta` in the full stream, the other names in the UI stream."""

    id: str = ""
    toolCallId: str = ""
    delta: str = ""
    inputTextDelta: str = ""


Delta = TextDelta | ReasoningDelta | ToolInputDelta

# The chunk type for each code of the version 4 data stream.
CODES: dict[bytes, str] = {
    b"0": "text-delta",
    b"2": "data",
    b"3": "error",
    b"8": "message-metadata",
    b"9": "tool-call",
    b"a": "tool-result",
    b"b": "tool-call-streaming-start",
    b"c": "tool-call-delta",
    b"d": "finish",
    b"e": "finish-step",
    b"f": "start-step",
    b"g": "reasoning",
    b"h": "source",
    b"i": "redacted-reasoning",
    b"j": "reasoning-signature",
    b"k": "file",
}
# For codes whose value is not an object: the field of the chunk for the value, and the type of the value.
CODE_FIELDS: dict[bytes, tuple[str, type]] = {
    b"0": ("textDelta", str),
    b"2": ("data", list),
    b"3": ("error", str),
    b"8": ("messageMetadata", list),
    b"g": ("textDelta", str),
}

REASONS: dict[str, FinishReason] = {reason: reason for reason in get_args(FinishReason)}


def repair_text(text: str) -> str:
    """Join surrogate pairs to one character; keep lone surrogates."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def first_text(chunk: Chunk, *names: str) -> str | None:
    """Return the first of these fields that is a string."""
    for name in names:
        value = chunk.get(name)
        if isinstance(value, str):
            return value
    return None


def call_id(chunk: Chunk) -> str | None:
    return first_text(chunk, "toolCallId", "id")


def tool_name(chunk: Chunk) -> str:
    return first_text(chunk, "toolName") or ""


def metadata(chunk: Chunk) -> dict[str, Any] | None:
    value = chunk.get("providerMetadata")
    return dict(value) if isinstance(value, Mapping) and value and not exceeds_depth(value) else None


def finish_reason(chunk: Chunk) -> FinishReason | None:
    """Return the finish reason, or `None`. Models of specification 3 and 4 send `{unified, raw}`."""
    reason = chunk.get("finishReason")
    if isinstance(reason, Mapping):
        reason = reason.get("unified")
    return REASONS.get(reason, "other") if isinstance(reason, str) else None


def is_model_finish(chunk: Chunk) -> bool:
    """Return whether a specification 3 or 4 model sent a `finish` chunk.

    Models send objects for the finish reason and the token counts; the SDK converts both to plain values.
    """
    tokens = read_mapping(chunk.get("usage")).get("inputTokens")
    return isinstance(chunk.get("finishReason"), Mapping) or isinstance(tokens, Mapping)


def usage(chunk: Chunk) -> Usage | None:
    """Return the reported usage, or `None`: servers that do not count send nothing, null or zeros."""
    fields = chunk.get("totalUsage")
    fields = read_mapping(fields if fields is not None else chunk.get("usage"))
    input_tokens, input_parts = _read_tokens(fields, "inputTokens", "promptTokens")
    output_tokens, output_parts = _read_tokens(fields, "outputTokens", "completionTokens")
    input_details = read_mapping(fields.get("inputTokenDetails"))
    output_details = read_mapping(fields.get("outputTokenDetails"))
    total = token_count(fields.get("totalTokens"))
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    anthropic = read_mapping(read_mapping(chunk.get("providerMetadata")).get("anthropic"))
    lifetimes = read_mapping(read_mapping(anthropic.get("usage")).get("cache_creation"))
    result = Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total,
        # Newer versions send the same number twice: in the details and as a field of its own.
        cached_tokens=_first(
            input_parts.get("cacheRead"),
            input_details.get("cacheReadTokens"),
            fields.get("cachedInputTokens"),
        ),
        reasoning_tokens=_first(
            output_parts.get("reasoning"),
            output_details.get("reasoningTokens"),
            fields.get("reasoningTokens"),
        ),
        cache_write_tokens=_first(
            input_parts.get("cacheWrite"),
            input_details.get("cacheWriteTokens"),
            # Versions 4 and 5 pass on Anthropic's own count.
            anthropic.get("cacheCreationInputTokens"),
        ),
        long_cache_write_tokens=_first(lifetimes.get("ephemeral_1h_input_tokens")),
    )
    return result if result.known else None


def _read_tokens(fields: Chunk, *names: str) -> tuple[int | None, Chunk]:
    """Return a number of tokens, and its parts if the value is an object (`{total, cacheRead, …}`)."""
    value = next((fields[name] for name in names if fields.get(name) is not None), None)
    if isinstance(value, Mapping):
        return token_count(value.get("total")), value
    return token_count(value), {}


def _first(*values: object) -> int | None:
    return next((count for count in map(token_count, values) if count is not None), None)
