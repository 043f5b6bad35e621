"""OpenResponses wire format: the events of a stream and the items of a response.

Nearly all events of a stream are deltas, so deltas have typed structs, which msgspec decodes at C speed. All
other events are read from plain JSON values. Wrong types are tolerated, because none of the tested servers
follows the specification exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from tollbridge.types.events import CacheDiagnosis, Usage, token_count
from tollbridge.types.text import TOO_DEEP, Fields, exceeds_depth, write_json

EventKind = Literal[
    "text",
    "reasoning",
    "arguments",
    "text done",
    "reasoning done",
    "arguments done",
    "item added",
    "item done",
    "part done",
    "annotation",
    "ended",
    "error",
    "ignored",
]

# The events of the specification (24) and of OpenAI's API (59), and names that only some servers use.
EVENTS: dict[str, EventKind] = {
    # The response
    "response.created": "ignored",
    "response.queued": "ignored",
    "response.in_progress": "ignored",
    "response.completed": "ended",
    "response.failed": "ended",
    "response.incomplete": "ended",
    "response.cancelled": "ended",
    "response.done": "ended",  # used by one gateway
    "error": "error",
    "response.error": "error",
    # Items and content parts
    "response.output_item.added": "item added",
    "response.output_item.done": "item done",
    "response.content_part.added": "ignored",
    "response.content_part.done": "part done",
    "response.reasoning_summary_part.added": "ignored",
    "response.reasoning_summary_part.done": "ignored",
    "response.reasoning_part.added": "ignored",
    "response.reasoning_part.done": "ignored",
    # Text
    "response.output_text.delta": "text",
    "response.output_text.done": "text done",
    "response.output_text.annotation.added": "annotation",
    "response.refusal.delta": "text",
    "response.refusal.done": "text done",
    # Reasoning
    "response.reasoning.delta": "reasoning",
    "response.reasoning.done": "reasoning done",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_text.done": "reasoning done",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_summary_text.done": "reasoning done",
    "response.reasoning_summary.delta": "reasoning",
    "response.reasoning_summary.done": "reasoning done",
    # Tool calls
    "response.function_call_arguments.delta": "arguments",
    "response.function_call_arguments.done": "arguments done",
    "response.custom_tool_call_input.delta": "arguments",
    "response.custom_tool_call_input.done": "arguments done",
    # Sent only by OpenAI. Editors cannot show them, and the completed item contains the result.
    "response.audio.delta": "ignored",
    "response.audio.done": "ignored",
    "response.audio.transcript.delta": "ignored",
    "response.audio.transcript.done": "ignored",
    "response.apply_patch_call_operation_diff.delta": "ignored",
    "response.apply_patch_call_operation_diff.done": "ignored",
    "response.code_interpreter_call.completed": "ignored",
    "response.code_interpreter_call.in_progress": "ignored",
    "response.code_interpreter_call.interpreting": "ignored",
    "response.code_interpreter_call_code.delta": "ignored",
    "response.code_interpreter_call_code.done": "ignored",
    "response.compaction.compacting": "ignored",
    "response.file_search_call.completed": "ignored",
    "response.file_search_call.in_progress": "ignored",
    "response.file_search_call.searching": "ignored",
    "response.image_generation_call.completed": "ignored",
    "response.image_generation_call.generating": "ignored",
    "response.image_generation_call.in_progress": "ignored",
    "response.image_generation_call.partial_image": "ignored",  # a preview; the item contains the image
    "response.mcp_call.completed": "ignored",
    "response.mcp_call.failed": "ignored",
    "response.mcp_call.in_progress": "ignored",
    "response.mcp_call_arguments.delta": "ignored",
    "response.mcp_call_arguments.done": "ignored",
    "response.mcp_list_tools.completed": "ignored",
    "response.mcp_list_tools.failed": "ignored",
    "response.mcp_list_tools.in_progress": "ignored",
    "response.ping": "ignored",
    "response.shell_call_command.added": "ignored",
    "response.shell_call_command.delta": "ignored",
    "response.shell_call_command.done": "ignored",
    "response.shell_call_output_content.delta": "ignored",
    "response.shell_call_output_content.done": "ignored",
    "response.web_search_call.completed": "ignored",
    "response.web_search_call.in_progress": "ignored",
    "response.web_search_call.searching": "ignored",
}

# Fields by which a provider verifies that reasoning came from its model.
REASONING_SIGNATURES = ("encrypted_content", "signature", "thought_signature", "format")
# The same for tool calls: some gateways add these fields to calls of Gemini models.
CALL_SIGNATURES = (
    "thought_signature",
    "thoughtSignature",
    "signature",
    "extra_content",
    "provider_specific_fields",
)


class Delta(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """A piece of an item. Servers often omit some or all of the fields that identify the item and part."""

    delta: str
    output_index: int | None = None
    item_id: str | None = None
    part: int | None = msgspec.field(name="content_index", default=None)


class TextDelta(Delta, frozen=True, gc=False, tag="response.output_text.delta"):
    pass


class SummaryDelta(Delta, frozen=True, gc=False, tag="response.reasoning_summary_text.delta"):
    part: int | None = msgspec.field(name="summary_index", default=None)


class _UnnumberedDelta(Delta, frozen=True, gc=False):
    # `content_index` is not read: raw reasoning has one part, and one server increments it with every token.
    part: int | None = msgspec.field(name="", default=None)


class ReasoningDelta(_UnnumberedDelta, frozen=True, gc=False, tag="response.reasoning.delta"):
    pass


class ReasoningTextDelta(_UnnumberedDelta, frozen=True, gc=False, tag="response.reasoning_text.delta"):
    pass


class ArgumentsDelta(_UnnumberedDelta, frozen=True, gc=False, tag="response.function_call_arguments.delta"):
    pass


# Decodes the most frequent deltas. Events that it rejects are read as plain JSON.
read_delta = msgspec.json.Decoder(
    TextDelta | ReasoningDelta | ReasoningTextDelta | SummaryDelta | ArgumentsDelta
).decode


def classify_event(event: Fields) -> EventKind | None:
    """Return the kind of an event, or `None` if it is unknown. An error event can have no `type`."""
    name = event.text("type")
    if name is None:
        return "error" if is_error(event) else None
    return EVENTS.get(name)


def classify_reasoning(event: Fields) -> Literal["reasoning", "summary"]:
    """Return whether a reasoning event belongs to the raw reasoning or to its summary."""
    return "summary" if "reasoning_summary" in (event.text("type") or "") else "reasoning"


def is_error(body: Fields) -> bool:
    """Return whether a body without type and status is an error: nested, flat, or in FastAPI's format."""
    return bool(body.raw.get("error") or body.raw.get("detail")) or ("message" in body and "code" in body)


def join_texts(parts: Iterable[Fields]) -> str:
    """Return the text of content parts. A refusal is text of the model, too."""
    return "".join(part.text("text") or part.text("refusal") or "" for part in parts)


# Names for the input tokens that were written to the prompt cache; those of Anthropic's API are passed on by
# some gateways.
_CACHE_WRITES = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")


def read_usage(usage: Fields, tool_usage: Fields | None = None) -> Usage | None:
    """Return the reported usage, or `None` if there is none or all counts are zero (not counted).

    Args:
        usage: The usage of a response.
        tool_usage: The usage of the tools that the provider ran, if reported.
    """
    input_tokens = _first(usage, "input_tokens", "prompt_tokens")
    output_tokens = _first(usage, "output_tokens", "completion_tokens")
    total = token_count(usage.number("total_tokens"))
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    input_details = usage.inner("input_tokens_details") or usage.inner("prompt_tokens_details")
    output_details = usage.inner("output_tokens_details") or usage.inner("completion_tokens_details")
    result = Usage(
        input_tokens,
        output_tokens,
        total,
        token_count(input_details.number("cached_tokens")),
        token_count(output_details.number("reasoning_tokens")),
        _first(Fields({**usage.raw, **input_details.raw}), *_CACHE_WRITES),
        read_long_writes(input_details) or read_long_writes(usage),
        web_searches=read_searches(usage, tool_usage),
    )
    return result if result.known else None


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage of a response. The protocol has no unknown counts, so they are 0."""
    details = {"cached_tokens": usage.cached_tokens or 0}
    if usage.cache_write_tokens is not None:
        details["cache_write_tokens"] = usage.cache_write_tokens
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": details,
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": input_tokens + output_tokens if usage.total_tokens is None else usage.total_tokens,
    }


def read_long_writes(fields: Fields) -> int | None:
    """Return the cache writes with the longer lifetime; `None` if only their sum is reported."""
    details = fields.inner("cache_write_tokens_details") or fields.inner("cache_creation")
    return _first(details, "ttl_12h_tokens", "ephemeral_1h_input_tokens")  # OpenAI, Anthropic


def read_searches(usage: Fields, tool_usage: Fields | None = None) -> int | None:
    """Return the number of web searches: Anthropic's, OpenRouter's and OpenAI's field."""
    searches = _first(usage.inner("server_tool_use"), "web_search_requests")
    if searches is None and tool_usage is not None:
        searches = _first(tool_usage.inner("web_search"), "num_requests")
    return searches


def _first(fields: Fields, *names: str) -> int | None:
    return next((n for name in names if (n := token_count(fields.number(name))) is not None), None)


def has_error_message(event: Fields) -> bool:
    """Return whether an error event has a message. If not, the next event can contain it."""
    inner = event.inner("error") or event
    return bool(inner.text("message") or event.text("error") or event.raw.get("detail"))


def read_call_signatures(item: Fields) -> dict[str, Any] | None:
    signatures = {name: value for name in CALL_SIGNATURES if (value := item.raw.get(name))}
    return signatures if signatures and not exceeds_depth(signatures) else None


def encode_arguments(value: object) -> str | None:
    """Return arguments as JSON text. Some servers send the object instead of a string."""
    if isinstance(value, dict):
        return TOO_DEEP if exceeds_depth(value) else write_json(value)
    return value if isinstance(value, str) else None


def read_cache_diagnosis(response: Fields) -> CacheDiagnosis | None:
    """Return OpenAI's reason why the prompt was not read from its cache, if the response has one."""
    diagnostics = response.inner("prompt_cache_diagnostics")
    reason = diagnostics.text("reason")
    if not reason or diagnostics.text("type") != "cache_miss":
        return None
    return CacheDiagnosis(reason, token_count(diagnostics.number("cache_missed_tokens")))
