"""Messages wire format: names of events, blocks and stop reasons, typed deltas, usage and proofs.

Nearly all events of a stream are deltas, so deltas have typed structs, which msgspec decodes at C speed. All
other events are read from plain JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec

from tollbridge.protocols.lenient import read_object
from tollbridge.protocols.model_list import read_model
from tollbridge.protocols.openresponses.wire import ReportedUsage, read_long_writes, read_searches
from tollbridge.types.errors import StreamError
from tollbridge.types.events import CacheDiagnosis, FinishReason, Usage, token_count
from tollbridge.types.messages import decode_metadata, encode_metadata
from tollbridge.types.models import Model
from tollbridge.types.text import Fields, read_json

Json = dict[str, Any]


EventKind = Literal[
    "start", "block start", "delta", "block stop", "message delta", "stop", "error", "ignored"
]

EVENTS: dict[str, EventKind] = {
    "message_start": "start",
    "content_block_start": "block start",
    "content_block_delta": "delta",
    "content_block_stop": "block stop",
    "message_delta": "message delta",
    "message_stop": "stop",
    "error": "error",
    "ping": "ignored",
}

BlockKind = Literal["text", "thinking", "redacted", "call", "server call", "ignored"]

# The content blocks of an answer. The results of tools that the server ran are ignored: the text that follows
# them cites what matters.
BLOCKS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted",
    "tool_use": "call",
    "server_tool_use": "server call",
    "mcp_tool_use": "server call",
    "bash_code_execution_tool_result": "ignored",
    "code_execution_tool_result": "ignored",
    "compaction": "ignored",
    "container_upload": "ignored",
    "fallback": "ignored",
    "mcp_tool_result": "ignored",
    "text_editor_code_execution_tool_result": "ignored",
    "tool_search_tool_result": "ignored",
    "web_fetch_tool_result": "ignored",
    "web_search_tool_result": "ignored",
}

# Why an answer ended, and whether it is complete.
STOP_REASONS: dict[str, tuple[FinishReason, Literal["finish", "incomplete"]]] = {
    "end_turn": ("stop", "finish"),
    "stop_sequence": ("stop", "finish"),
    "tool_use": ("tool-calls", "finish"),
    "max_tokens": ("length", "incomplete"),
    "model_context_window_exceeded": ("length", "incomplete"),
    "pause_turn": ("other", "incomplete"),
    "refusal": ("content-filter", "incomplete"),
}

# The other direction. Reasons that the protocol does not have end the turn: with `pause_turn`, a caller would
# send the request again.
FINISH_REASONS: dict[FinishReason | None, str] = {
    "length": "max_tokens",
    "content-filter": "refusal",
    "tool-calls": "tool_use",
}


# The block that a delta belongs to, and the field with its text, by the type of the delta.
DELTAS: dict[str, tuple[BlockKind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("call", "partial_json"),
}


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text_delta"):
    kind: ClassVar[BlockKind] = "text"
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking_delta"):
    kind: ClassVar[BlockKind] = "thinking"
    text: str = msgspec.field(name="thinking")


class InputDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="input_json_delta"):
    kind: ClassVar[BlockKind] = "call"
    text: str = msgspec.field(name="partial_json")


class ContentDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="content_block_delta"):
    """A piece of a content block."""

    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


# Decodes the most frequent deltas. Events that it rejects are read as plain JSON.
read_delta = msgspec.json.Decoder(ContentDelta).decode


_PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class UsageCounts:
    """The token counts of one answer.

    Every report is cumulative and replaces the earlier ones, except what it omits. A report of zero input
    tokens omits them: some gateways count them only at the start, others only at the end.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int | None] = {}

    def add(self, usage: Fields) -> None:
        """Add one report: the usage of `message_start`, of `message_delta` or of a complete message."""
        prompt = {name: token_count(usage.number(name)) for name in _PROMPT_COUNTS}
        lifetimes = usage.inner("cache_creation")
        writes = [token_count(lifetimes.number(name)) for name in lifetimes.raw]
        if prompt["cache_creation_input_tokens"] is None and writes:
            prompt["cache_creation_input_tokens"] = sum(filter(None, writes))
        counted = read_object(usage.raw, ReportedUsage)
        prompt["long_writes"] = read_long_writes(counted)
        reported: dict[str, int | None] = prompt if any(prompt.values()) or not self._counts else {}
        details = usage.inner("output_tokens_details")
        reported["output_tokens"] = token_count(usage.number("output_tokens"))
        reported["web_searches"] = read_searches(counted)
        reported["thinking_tokens"] = token_count(details.number("thinking_tokens"))
        self._counts |= {name: count for name, count in reported.items() if count is not None}

    def total(self) -> Usage | None:
        """Return the usage, or `None` if nothing was counted.

        The protocol's input tokens exclude what was read from and written to the cache; ours include it.
        """
        counts = self._counts
        read, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        input_tokens, output_tokens = counts.get("input_tokens"), counts.get("output_tokens")
        if input_tokens is not None or read or written:
            input_tokens = (input_tokens or 0) + (read or 0) + (written or 0)
        is_complete = input_tokens is not None and output_tokens is not None
        usage = Usage(
            input_tokens,
            output_tokens,
            (input_tokens or 0) + (output_tokens or 0) if is_complete else None,
            read,
            counts.get("thinking_tokens"),
            written,
            counts.get("long_writes"),
            web_searches=counts.get("web_searches"),
        )
        return usage if usage.known else None


def encode_usage(usage: Usage) -> Json:
    """Return the usage of a complete answer, with the cached tokens apart from the input tokens."""
    read, written = usage.cached_tokens, usage.cache_write_tokens
    encoded: Json = {
        "input_tokens": max(0, (usage.input_tokens or 0) - (read or 0) - (written or 0)),
        "output_tokens": usage.output_tokens or 0,
    }
    if written is not None:
        encoded["cache_creation_input_tokens"] = written
    if usage.long_cache_write_tokens is not None:
        long = usage.long_cache_write_tokens
        encoded["cache_creation"] = {
            "ephemeral_5m_input_tokens": max(0, (written or 0) - long),
            "ephemeral_1h_input_tokens": long,
        }
    if usage.web_searches is not None:
        encoded["server_tool_use"] = {"web_search_requests": usage.web_searches}
    if read is not None:
        encoded["cache_read_input_tokens"] = read
    if usage.reasoning_tokens is not None:
        encoded["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return encoded


# The metadata of reasoning that this protocol issues: of a `thinking` and of a `redacted_thinking` block.
SIGNATURE, REDACTED = "signature", "redacted_data"


def pack_proof(metadata: Mapping[str, Any], block_id: str | None = None) -> str:
    """Return metadata as a string that a caller sends back unchanged as a signature.

    Used for the proofs of other protocols, and for those that contain their origin.
    """
    return encode_metadata({"id": block_id, "metadata": metadata})


def unpack_proof(signature: str) -> tuple[Mapping[str, Any], str | None] | None:
    """Return the metadata and the block id of a packed proof; `None` for the signature of a provider."""
    packed = Fields(decode_metadata(signature))
    metadata = packed.inner("metadata")
    return (metadata.raw, packed.text("id")) if metadata else None


_MODEL_TAGS = {"image_input": "vision", "pdf_input": "file-input", "thinking": "reasoning"}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def read_model_page(body: bytes) -> tuple[list[Model], str | None]:
    """Decode one page of `GET /v1/models`, in Anthropic's form or in OpenAI's, which proxies use.

    Returns:
        The models, and the id after which the next page starts, if there is one.

    Raises:
        StreamError: The body is not a model list.
    """
    try:
        page = Fields(read_json(body))
    except ValueError:
        raise StreamError("The gateway's model list is not JSON.") from None
    if not isinstance(page.raw.get("data"), list):
        raise StreamError("The gateway's model list has no `data` list.")
    models = [model for entry in page.list("data") if (model := read_model(_common_entry(entry)))]
    return models, page.text("last_id") if page.raw.get("has_more") is True else None


def _common_entry(entry: Fields) -> Json:
    """Return an entry with the field names of other gateways."""
    capabilities = entry.inner("capabilities")
    common = dict(entry.raw)
    if any("supported" in capabilities.inner(name) for name in capabilities.raw):
        supported = {name for name in capabilities.raw if capabilities.inner(name).raw.get("supported")}
        effort = capabilities.inner("effort")
        efforts = [name for name in _EFFORTS if effort.inner(name).raw.get("supported")]
        common |= {
            "capabilities": None,
            # Every model that lists its capabilities can call tools.
            "tags": ["tool-use", *(tag for name, tag in _MODEL_TAGS.items() if name in supported)],
            "reasoning_options": [{"type": "effort", "values": efforts}] if efforts else [],
        }
    names = {"name": entry.text("display_name"), "context_window": entry.number("max_input_tokens")}
    common |= {name: value for name, value in names.items() if value is not None}
    with suppress(ValueError, OverflowError):
        common["created"] = int(datetime.fromisoformat(entry.text("created_at") or "").timestamp())
    return common


def read_cache_diagnosis(message: Fields) -> CacheDiagnosis | None:
    """Return Anthropic's reason why the prompt was not read from its cache, if the message has one."""
    reason = message.inner("diagnostics").inner("cache_miss_reason")
    name = reason.text("type")
    return CacheDiagnosis(name, token_count(reason.number("cache_missed_input_tokens"))) if name else None
