"""The AI SDK's chunks as they travel, in all versions at once.

No type of chunk means two things, if its facts are looked up in the order given here. A chunk is a plain
mapping; only the deltas, which are nearly all there is, have shapes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tollbridge.types.events import FinishReason
from tollbridge.types.usage import Usage, token_count

Chunk = Mapping[str, Any]


class TextDelta(msgspec.Struct, tag="text-delta", tag_field="type", gc=False):
    """`delta` in the UI stream and from a model, `text` in the full stream, `textDelta` in version 4."""

    delta: str = ""
    text: str = ""
    textDelta: str = ""


class ReasoningDelta(msgspec.Struct, tag="reasoning-delta", tag_field="type"):
    id: str | None = None
    delta: str = ""
    text: str = ""
    providerMetadata: dict[str, Any] | None = None


class ToolInputDelta(msgspec.Struct, tag="tool-input-delta", tag_field="type", gc=False):
    """`id` and `delta` in the full stream, `toolCallId` and `inputTextDelta` in the UI stream."""

    id: str = ""
    toolCallId: str = ""
    delta: str = ""
    inputTextDelta: str = ""


Delta = TextDelta | ReasoningDelta | ToolInputDelta

# The codes of version 4's data stream, and the chunks they stand for.
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
# The codes whose value is not an object: the field that it is in a chunk, and its type.
CODE_FIELDS: dict[bytes, tuple[str, type]] = {
    b"0": ("textDelta", str),
    b"2": ("data", list),
    b"3": ("error", str),
    b"8": ("messageMetadata", list),
    b"g": ("textDelta", str),
}

REASONS: dict[str, FinishReason] = {
    "content-filter": "content-filter",
    "error": "error",
    "interrupted": "interrupted",
    "length": "length",
    "other": "other",
    "stop": "stop",
    "tool-calls": "tool-calls",
    "unknown": "unknown",
}


def repair_text(text: str) -> str:
    """Two halves side by side become the character they are; a lone half stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def first_text(chunk: Chunk, *names: str) -> str | None:
    """The first of the fields that holds a string."""
    for name in names:
        value = chunk.get(name)
        if isinstance(value, str):
            return value
    return None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def call_id(chunk: Chunk) -> str | None:
    return first_text(chunk, "toolCallId", "id")


def tool_name(chunk: Chunk) -> str:
    return first_text(chunk, "toolName") or ""


def metadata(chunk: Chunk) -> dict[str, Any] | None:
    given = chunk.get("providerMetadata")
    return dict(given) if isinstance(given, Mapping) and given else None


def finish_reason(chunk: Chunk) -> FinishReason | None:
    """Why the turn ended; `None` where nobody said. Models of version 3 and 4 say `{unified, raw}`."""
    given = chunk.get("finishReason")
    if isinstance(given, Mapping):
        given = given.get("unified")
    return REASONS.get(given, "other") if isinstance(given, str) else None


def is_models_finish(chunk: Chunk) -> bool:
    """Whether a model of version 3 or 4 says this itself: the SDK around it makes plain values of both."""
    counted = mapping(chunk.get("usage")).get("inputTokens")
    return isinstance(chunk.get("finishReason"), Mapping) or isinstance(counted, Mapping)


def usage(chunk: Chunk) -> Usage | None:
    """What was counted. Servers that do not count send nothing, null or zeros."""
    given = chunk.get("totalUsage")
    given = mapping(given if given is not None else chunk.get("usage"))
    received, parts = _counts(given, "inputTokens", "promptTokens")
    sent, sent_parts = _counts(given, "outputTokens", "completionTokens")
    read, written = mapping(given.get("inputTokenDetails")), mapping(given.get("outputTokenDetails"))
    total = token_count(given.get("totalTokens"))
    if total is None and received is not None and sent is not None:
        total = received + sent
    found = Usage(
        input_tokens=received,
        output_tokens=sent,
        total_tokens=total,
        # Late versions say it twice, in the details and flat: it is one number.
        cached_tokens=_first(
            parts.get("cacheRead"), read.get("cacheReadTokens"), given.get("cachedInputTokens")
        ),
        reasoning_tokens=_first(
            sent_parts.get("reasoning"), written.get("reasoningTokens"), given.get("reasoningTokens")
        ),
    )
    return found if found.known else None


def _counts(given: Chunk, *names: str) -> tuple[int | None, Chunk]:
    """A number of tokens, and its parts where the model gave an object (`{total, cacheRead, …}`)."""
    value = next((given[name] for name in names if given.get(name) is not None), None)
    if isinstance(value, Mapping):
        return token_count(value.get("total")), value
    return token_count(value), {}


def _first(*values: object) -> int | None:
    return next((count for count in map(token_count, values) if count is not None), None)
