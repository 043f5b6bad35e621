"""Shapes of an OpenResponses request, field by field, after the specification of 2026-04-24.

The test gateway reads requests with these shapes in two ways:

* Leniently (`tollbridge.testing.validation`): `null` means the same as an omitted field, and values that
  gateways accept beyond the specification are allowed.
* Strictly (`check_schema` there): exactly what the specification's JSON schema allows. The fields in
  `NOT_NULL` may be omitted but must not be null, and `strict` rejects the additional values.

Fields that are not listed here are ignored. The shapes of input items, content parts and tools depend on
`type` and `role`; look them up in the tables `ITEMS`, `CONTENT` and `ALLOWED_CONTENT`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tollbridge.types.text import MAX_FILE_DATA, MAX_IMAGE_URL, MAX_TEXT

Object = dict[str, Any]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
ShortText = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
CallId = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
Content = Text | list[Object]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ToolMode = Literal["none", "auto", "required"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all request shapes."""


class Reasoning(Shape, frozen=True, kw_only=True):
    # Gateways accept more efforts than the specification lists, see EXTRA_EFFORTS.
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["concise", "detailed", "auto"] | None = None


class TextFormat(Shape, frozen=True, kw_only=True):
    # "json_object" is not in the specification; OpenAI's API has it.
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: Object | None = None
    strict: bool | None = None


class TextOptions(Shape, frozen=True, kw_only=True):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(Shape, frozen=True, kw_only=True):
    include_obfuscation: bool | None = None


class CreateResponseBody(Shape, frozen=True, kw_only=True):
    """The body of `POST /responses`, as the specification's JSON schema defines it."""

    model: str | None = None
    input: Content | None = None
    previous_response_id: str | None = None
    include: list[str] | None = None
    tools: list[Object] | None = None
    tool_choice: ToolMode | Object | None = None
    metadata: Annotated[dict[str, MetadataValue], Meta(max_length=16)] | None = None
    text: TextOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: Object | None = None
    background: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: Reasoning | None = None
    safety_identifier: ShortText | None = None
    prompt_cache_key: ShortText | None = None
    truncation: Literal["auto", "disabled"] | None = None
    instructions: str | None = None
    store: bool | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class CreateBody(CreateResponseBody, frozen=True, kw_only=True):
    """The body of `POST /responses` with the limits that servers enforce.

    The specification gives these limits only in descriptions, or not at all. Its JSON schema does not have
    them, and it also allows a request without a model.
    """

    model: str
    tools: Annotated[list[Object], Meta(max_length=1024)] | None = None
    metadata: Annotated[dict[ShortText, MetadataValue], Meta(max_length=16)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    instructions: Text | None = None


class CompactBody(Shape, frozen=True, kw_only=True):
    """The body of `POST /responses/compact`."""

    model: str
    input: Content | None = None
    previous_response_id: str | None = None
    instructions: Text | None = None
    prompt_cache_key: ShortText | None = None


# Values of `reasoning.effort` that gateways accept and the specification does not list.
EXTRA_EFFORTS = frozenset({"minimal", "max"})
# The values of `include` in the specification. Gateways accept others too.
INCLUDABLE = ("reasoning.encrypted_content", "message.output_text.logprobs")


class FunctionTool(Shape, frozen=True, kw_only=True):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class FunctionChoice(Shape, frozen=True, kw_only=True):
    type: Literal["function"]
    name: str


class AllowedTools(Shape, frozen=True, kw_only=True):
    type: Literal["allowed_tools"]
    tools: Annotated[list[FunctionChoice], Meta(min_length=1, max_length=128)]
    mode: ToolMode | None = None


# Values of `tool_choice` that are objects, by `type`.
TOOL_CHOICES: dict[str, type[Shape]] = {"function": FunctionChoice, "allowed_tools": AllowedTools}


class ItemReference(Shape, frozen=True, kw_only=True):
    id: str


class MessageItem(Shape, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: str | None = None
    status: str | None = None


class AssistantMessageItem(MessageItem, frozen=True, kw_only=True):
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Shape, frozen=True, kw_only=True):
    call_id: CallId
    name: Name
    arguments: Text  # servers enforce this limit; the specification has none
    id: str | None = None
    status: ItemStatus | None = None


class FunctionCallOutputItem(Shape, frozen=True, kw_only=True):
    call_id: CallId
    output: Content
    id: str | None = None
    status: ItemStatus | None = None


class ReasoningItem(Shape, frozen=True, kw_only=True):
    summary: list[Object]
    id: str | None = None
    # The specification allows only null here. Clients that send received items back include raw reasoning.
    content: list[Object] | None = None
    encrypted_content: str | None = None


class CompactionItem(Shape, frozen=True, kw_only=True):
    encrypted_content: Text
    id: str | None = None


class ImageGenerationItem(Shape, frozen=True, kw_only=True):
    """An image that the demo model created and the client sends back. Not part of the specification."""

    id: str
    result: Annotated[str, Meta(max_length=MAX_FILE_DATA)] | None = None
    status: str | None = None


# The input items of the specification by `type`. Messages of the assistant are `AssistantMessageItem`.
SPECIFIED_ITEMS: dict[str, type[Shape]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionCallOutputItem,
    "reasoning": ReasoningItem,
    "compaction": CompactionItem,
    "item_reference": ItemReference,
}
# The input items that the lenient reader accepts, by `type`.
ITEMS: dict[str, type[Shape]] = {
    **SPECIFIED_ITEMS,
    "message": AssistantMessageItem,
    "image_generation_call": ImageGenerationItem,
}


class TextContent(Shape, frozen=True, kw_only=True):
    text: Text


class UrlCitation(Shape, frozen=True, kw_only=True):
    type: Literal["url_citation"]
    start_index: Annotated[int, Meta(ge=0)]
    end_index: Annotated[int, Meta(ge=0)]
    url: str
    title: str


class OutputTextContent(TextContent, frozen=True, kw_only=True):
    annotations: list[UrlCitation] | None = None


class RefusalContent(Shape, frozen=True, kw_only=True):
    refusal: Text


class ImageContent(Shape, frozen=True, kw_only=True):
    image_url: Annotated[str, Meta(max_length=MAX_IMAGE_URL)] | None = None
    detail: Literal["low", "high", "auto"] | None = None


class FileContent(Shape, frozen=True, kw_only=True):
    filename: str | None = None
    file_data: Annotated[str, Meta(max_length=MAX_FILE_DATA)] | None = None
    file_url: str | None = None


class VideoContent(Shape, frozen=True, kw_only=True):
    video_url: str


# The content parts that the lenient reader accepts, by `type`.
CONTENT: dict[str, type[Shape]] = {
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
# In the specification, output text has only citations of URLs as annotations. Servers also send other
# kinds, and clients send them back, so the lenient reader does not check annotations.
SPECIFIED_CONTENT: dict[str, type[Shape]] = {**CONTENT, "output_text": OutputTextContent}

# The optional fields for which the specification does not allow null.
NOT_NULL: dict[type[Shape], tuple[str, ...]] = {
    CreateResponseBody: ("background", "include", "service_tier", "store", "stream", "truncation"),
    TextOptions: ("verbosity",),
    TextFormat: ("description", "name", "schema"),
    StreamOptions: ("include_obfuscation",),
    FunctionTool: ("strict",),
    AllowedTools: ("mode",),
    AssistantMessageItem: ("phase",),
    OutputTextContent: ("annotations",),
}

# The types of content parts that each kind of item can contain: by role for messages, by field for
# reasoning items, else by type.
ALLOWED_CONTENT: dict[str, frozenset[str]] = {
    "user": frozenset({"input_text", "input_image", "input_file"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
    "assistant": frozenset({"output_text", "refusal"}),
    "function_call_output": frozenset({"input_text", "input_image", "input_file", "input_video"}),
    "summary": frozenset({"summary_text"}),
    "reasoning": frozenset({"reasoning_text", "output_text", "text"}),
}


def content_fields(item: Object) -> list[tuple[str, frozenset[str]]]:
    """Return the fields of an input item that can hold content parts, each with the allowed part types.

    The item has a `type` and, if it is a message, a valid `role`.
    """
    match item["type"]:
        case "message":
            return [("content", ALLOWED_CONTENT[item["role"]])]
        case "function_call_output":
            return [("output", ALLOWED_CONTENT["function_call_output"])]
        case "reasoning":
            return [("summary", ALLOWED_CONTENT["summary"]), ("content", ALLOWED_CONTENT["reasoning"])]
    return []
