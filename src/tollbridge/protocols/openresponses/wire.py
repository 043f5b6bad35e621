"""OpenResponses wire format: the events of a stream and the items of a response.

Nearly all events of a stream are deltas, so the frequent deltas have structs of their own, which msgspec
decodes from the bytes at C speed. All other events are read as `StreamEvent`, whose fields are all optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from tollbridge.protocols.lenient import Count, first_count, read_object
from tollbridge.types.events import CacheDiagnosis, Usage
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


class Annotation(msgspec.Struct, frozen=True):
    """A citation: of a page by its URL, or of a file."""

    url: str | None = None
    title: str | None = None
    filename: str | None = None
    file_id: str | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message or of reasoning. A refusal is text of the model, too."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    annotations: list[Annotation] | None = None


class OutputItem(msgspec.Struct, frozen=True):
    """An item of a response, of any type."""

    type: str | None = None
    id: str | None = None
    status: str | None = None
    # Of messages and reasoning
    content: list[ContentPart] | None = None
    summary: list[ContentPart] | None = None
    # Of calls
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    input: str | None = None
    # Of generated images
    result: str | None = None
    output_format: str | None = None
    # `REASONING_SIGNATURES` and `CALL_SIGNATURES`
    encrypted_content: Any = None
    format: Any = None
    signature: Any = None
    thought_signature: Any = None
    thoughtSignature: Any = None
    extra_content: Any = None
    provider_specific_fields: Any = None


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str | None = None


class CacheDiagnostics(msgspec.Struct, frozen=True):
    type: str | None = None
    reason: str | None = None
    cache_missed_tokens: Count = None


class Response(msgspec.Struct, frozen=True):
    """A response at any time: it is sent at its start, at its end, and as the body of an answer."""

    id: str | None = None
    status: str | None = None
    model: str | None = None
    output: list[OutputItem] | None = None
    error: Any = None
    incomplete_details: IncompleteDetails | None = None
    prompt_cache_diagnostics: CacheDiagnostics | None = None
    usage: Any = None
    tool_usage: Any = None
    provider: Any = None
    provider_metadata: Any = None


class StreamEvent(msgspec.Struct, frozen=True):
    """An event of any type. Which fields it has depends on the type, and on the server."""

    type: str | None = None
    # The item and the part that the event belongs to
    output_index: int | None = None
    item_id: str | None = None
    id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    # What it adds
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: Any = None
    input: str | None = None
    part: ContentPart | None = None
    item: OutputItem | None = None
    annotation: Annotation | None = None
    response: Response | None = None


def is_error(body: Fields) -> bool:
    """Return whether a body without type and status is an error: nested, flat, or in FastAPI's format."""
    return bool(body.raw.get("error") or body.raw.get("detail")) or ("message" in body and "code" in body)


def join_texts(parts: Iterable[ContentPart]) -> str:
    return "".join(part.text or part.refusal or "" for part in parts)


class LongWrites(msgspec.Struct, frozen=True):
    """The cache writes with the longer lifetime: OpenAI's and Anthropic's name."""

    ttl_12h_tokens: Count = None
    ephemeral_1h_input_tokens: Count = None


class TokenDetails(msgspec.Struct, frozen=True):
    """Details of a usage. Servers send some of them in an object of their own and some beside the sums."""

    cached_tokens: Count = None
    reasoning_tokens: Count = None
    # Tokens that were written to the prompt cache. The last name is Anthropic's, passed on by gateways.
    cache_write_tokens: Count = None
    cache_creation_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_write_tokens_details: LongWrites | None = None
    cache_creation: LongWrites | None = None


class WebSearches(msgspec.Struct, frozen=True):
    web_search_requests: Count = None
    num_requests: Count = None


class ReportedUsage(TokenDetails, frozen=True):
    """A usage under the names of this protocol and of Chat Completions."""

    input_tokens: Count = None
    prompt_tokens: Count = None
    output_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    input_tokens_details: TokenDetails | None = None
    prompt_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    server_tool_use: WebSearches | None = None  # Anthropic's and OpenRouter's


class ToolUsage(msgspec.Struct, frozen=True):
    """The usage of the tools that OpenAI ran."""

    web_search: WebSearches | None = None


def read_usage(usage: object, tool_usage: object = None) -> Usage | None:
    """Return the reported usage, or `None` if there is none or all counts are zero (not counted).

    Args:
        usage: The usage of a response.
        tool_usage: The usage of the tools that the provider ran, if reported.
    """
    if not usage and not tool_usage:
        return None
    reported = read_object(usage, ReportedUsage)
    details = reported.input_tokens_details or reported.prompt_tokens_details or TokenDetails()
    output_details = reported.output_tokens_details or reported.completion_tokens_details or TokenDetails()
    input_tokens = first_count(reported.input_tokens, reported.prompt_tokens)
    output_tokens = first_count(reported.output_tokens, reported.completion_tokens)
    total = reported.total_tokens
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    result = Usage(
        input_tokens,
        output_tokens,
        total,
        details.cached_tokens,
        output_details.reasoning_tokens,
        first_count(
            *(details.cache_write_tokens, reported.cache_write_tokens),
            *(details.cache_creation_tokens, reported.cache_creation_tokens),
            *(details.cache_creation_input_tokens, reported.cache_creation_input_tokens),
        ),
        read_long_writes(details) or read_long_writes(reported),
        web_searches=read_searches(reported, tool_usage),
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


def read_long_writes(details: TokenDetails) -> int | None:
    """Return the cache writes with the longer lifetime; `None` if only their sum is reported."""
    writes = details.cache_write_tokens_details or details.cache_creation or LongWrites()
    return first_count(writes.ttl_12h_tokens, writes.ephemeral_1h_input_tokens)


def read_searches(usage: ReportedUsage, tool_usage: object = None) -> int | None:
    """Return the number of web searches."""
    searches = (usage.server_tool_use or WebSearches()).web_search_requests
    if searches is None and tool_usage:
        searches = (read_object(tool_usage, ToolUsage).web_search or WebSearches()).num_requests
    return searches


def has_error_message(event: Fields) -> bool:
    """Return whether an error event has a message. If not, the next event can contain it."""
    inner = event.inner("error") or event
    return bool(inner.text("message") or event.text("error") or event.raw.get("detail"))


def read_reasoning_signatures(item: OutputItem) -> dict[str, str]:
    values = {name: getattr(item, name) for name in REASONING_SIGNATURES}
    return {name: value for name, value in values.items() if value and isinstance(value, str)}


def read_call_signatures(call: Mapping[str, Any]) -> dict[str, Any] | None:
    signatures = {name: value for name in CALL_SIGNATURES if (value := call.get(name))}
    return signatures if signatures and not exceeds_depth(signatures) else None


def encode_arguments(value: object) -> str | None:
    """Return arguments as JSON text. Some servers send the object instead of a string."""
    if isinstance(value, dict):
        return TOO_DEEP if exceeds_depth(value) else write_json(value)
    return value if isinstance(value, str) else None


def read_cache_diagnosis(response: Response) -> CacheDiagnosis | None:
    """Return OpenAI's reason why the prompt was not read from its cache, if the response has one."""
    diagnostics = response.prompt_cache_diagnostics
    if diagnostics is None or not diagnostics.reason or diagnostics.type != "cache_miss":
        return None
    return CacheDiagnosis(diagnostics.reason, diagnostics.cache_missed_tokens)
