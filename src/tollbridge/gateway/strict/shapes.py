"""The schema of a request, field by field, as the specification of 2026-04-24 has it.

Optional is not nullable: a field that may be left out but not be null is `UNSET` here. Fields beyond these
are allowed. What depends on `type` or `role` is looked up in the tables at the end.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tollbridge.core.texts import MAX_FILE_DATA, MAX_IMAGE_URL, MAX_TEXT

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
CallId = Annotated[str, Meta(min_length=1, max_length=64)]
Short = Annotated[str, Meta(max_length=64)]
Status = Literal["in_progress", "completed", "incomplete"]
Content = Text | list[Any]


class Reasoning(msgspec.Struct, frozen=True):
    effort: Literal["none", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["concise", "detailed", "auto"] | None = None


class TextOptions(msgspec.Struct, frozen=True):
    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | UnsetType = UNSET


class PlainFormat(msgspec.Struct, frozen=True):
    pass


class JsonFormat(msgspec.Struct, frozen=True):
    description: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_obfuscation: bool | UnsetType = UNSET


class Request(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    input: Text | list[Any] | None = None
    previous_response_id: str | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | UnsetType = UNSET
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    text: TextOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | UnsetType = UNSET
    stream_options: StreamOptions | None = None
    background: bool | UnsetType = UNSET
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: Reasoning | None = None
    safety_identifier: Short | None = None
    prompt_cache_key: Short | None = None
    truncation: Literal["auto", "disabled"] | UnsetType = UNSET
    instructions: str | None = None
    store: bool | UnsetType = UNSET
    service_tier: Literal["auto", "default", "flex", "priority"] | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


# --- tools -----------------------------------------------------------------------------------------------


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | UnsetType = UNSET


class FunctionChoice(msgspec.Struct, frozen=True):
    type: Literal["function"]
    name: str


class AllowedTools(msgspec.Struct, frozen=True):
    type: Literal["allowed_tools"]
    tools: Annotated[list[FunctionChoice], Meta(min_length=1, max_length=128)]
    mode: Literal["none", "auto", "required"] | UnsetType = UNSET


# --- items -----------------------------------------------------------------------------------------------


class ItemReference(msgspec.Struct, frozen=True):
    id: str


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True):
    summary: list[Any]
    id: str | None = None
    content: None = None
    encrypted_content: str | None = None


class CompactionItem(msgspec.Struct, frozen=True, kw_only=True):
    encrypted_content: Text
    id: str | None = None


class MessageItem(msgspec.Struct, frozen=True, kw_only=True):
    content: Content
    id: str | None = None
    status: str | None = None


class AssistantItem(MessageItem, frozen=True, kw_only=True):
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET


class FunctionCallItem(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    name: Name
    arguments: str
    id: str | None = None
    status: Status | None = None


class FunctionOutputItem(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    output: Content
    id: str | None = None
    status: Status | None = None


# --- content ---------------------------------------------------------------------------------------------


class TextContent(msgspec.Struct, frozen=True):
    text: Text


class UrlCitation(msgspec.Struct, frozen=True):
    type: Literal["url_citation"]
    start_index: Annotated[int, Meta(ge=0)]
    end_index: Annotated[int, Meta(ge=0)]
    url: str
    title: str


class OutputText(msgspec.Struct, frozen=True):
    text: Text
    annotations: list[UrlCitation] | UnsetType = UNSET


class Refusal(msgspec.Struct, frozen=True):
    refusal: Text


class Image(msgspec.Struct, frozen=True):
    image_url: Annotated[str, Meta(max_length=MAX_IMAGE_URL)] | None = None
    detail: Literal["low", "high", "auto"] | None = None


class File(msgspec.Struct, frozen=True):
    filename: str | None = None
    file_data: Annotated[str, Meta(max_length=MAX_FILE_DATA)] | None = None
    file_url: str | None = None


class Video(msgspec.Struct, frozen=True):
    video_url: str


Table = dict[str, type[msgspec.Struct]]

MESSAGES: Table = {
    "user": MessageItem,
    "system": MessageItem,
    "developer": MessageItem,
    "assistant": AssistantItem,
}
ITEMS: Table = {
    "item_reference": ItemReference,
    "reasoning": ReasoningItem,
    "compaction": CompactionItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionOutputItem,
}
FORMATS: Table = {"text": PlainFormat, "json_schema": JsonFormat}
CHOICES: Table = {"function": FunctionChoice, "allowed_tools": AllowedTools}

_INPUT: Table = {"input_text": TextContent, "input_image": Image, "input_file": File}
# What the lists inside an item may hold: by the role of a message, or the type of any other item.
CONTENTS: dict[str, tuple[str, Table]] = {
    "user": ("content", _INPUT),
    "system": ("content", {"input_text": TextContent}),
    "developer": ("content", {"input_text": TextContent}),
    "assistant": ("content", {"output_text": OutputText, "refusal": Refusal}),
    "function_call_output": ("output", {**_INPUT, "input_video": Video}),
    "reasoning": ("summary", {"summary_text": TextContent}),
}
