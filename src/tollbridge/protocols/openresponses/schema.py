"""The shapes of a request, as the protocol spells them, with its limits.

What a client adds beyond them is ignored. `input` and `tools` are read item by item (see `validation`),
because their shapes depend on `type` and `role`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tollbridge.types.text import MAX_FILE_DATA, MAX_IMAGE_URL, MAX_TEXT

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
CallId = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
Content = Text | list[dict[str, Any]]


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    # Gateways take more efforts than the specification lists.
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["concise", "detailed", "auto"] | None = None


class TextFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CreateBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    input: Text | list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    include: list[str] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=1024)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
            Meta(max_length=16),
        ]
        | None
    ) = None
    text: TextOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: Reasoning | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    instructions: Text | None = None
    store: bool | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class CompactBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    input: Text | list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    instructions: Text | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None


# --- input items -----------------------------------------------------------------------------------------


class ItemReference(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class MessageItem(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: str | None = None
    status: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    name: Name
    arguments: Text
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCallOutputItem(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    output: Content
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True):
    summary: list[dict[str, Any]]
    id: str | None = None
    # The specification's requests have no raw reasoning; clients that replay what they were sent do.
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None


class CompactionItem(msgspec.Struct, frozen=True, kw_only=True):
    encrypted_content: Text
    id: str | None = None


class ImageGenerationItem(msgspec.Struct, frozen=True, kw_only=True):
    """Not of the specification: what the demo model makes, and clients send back."""

    id: str
    result: Annotated[str, Meta(max_length=MAX_FILE_DATA)] | None = None
    status: str | None = None


ITEMS: dict[str, type[msgspec.Struct]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionCallOutputItem,
    "reasoning": ReasoningItem,
    "compaction": CompactionItem,
    "item_reference": ItemReference,
    "image_generation_call": ImageGenerationItem,
}


# --- content parts ---------------------------------------------------------------------------------------


class TextContent(msgspec.Struct, frozen=True, kw_only=True):
    text: Text


class RefusalContent(msgspec.Struct, frozen=True, kw_only=True):
    refusal: Text


class ImageContent(msgspec.Struct, frozen=True, kw_only=True):
    image_url: Annotated[str, Meta(max_length=MAX_IMAGE_URL)] | None = None
    detail: Literal["low", "high", "auto"] | None = None


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    filename: str | None = None
    file_data: Annotated[str, Meta(max_length=MAX_FILE_DATA)] | None = None
    file_url: str | None = None


class VideoContent(msgspec.Struct, frozen=True, kw_only=True):
    video_url: str


CONTENT: dict[str, type[msgspec.Struct]] = {
    "input_text": TextContent,
    "output_text": TextContent,
    "text": TextContent,
    "summary_text": TextContent,
    "reasoning_text": TextContent,
    "refusal": RefusalContent,
    "input_image": ImageContent,
    "input_file": FileContent,
    "input_video": VideoContent,
}

# Which content each kind of item may hold.
ALLOWED: dict[str, frozenset[str]] = {
    "user": frozenset({"input_text", "input_image", "input_file"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
    "assistant": frozenset({"output_text", "refusal"}),
    "function_call_output": frozenset({"input_text", "input_image", "input_file", "input_video"}),
    "summary": frozenset({"summary_text"}),
    "reasoning": frozenset({"reasoning_text", "output_text", "text"}),
}
