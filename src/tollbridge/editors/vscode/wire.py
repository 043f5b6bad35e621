"""VS Code's messages, parts and models as they travel between its extension and the sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# Roles of LanguageModelChatMessageRole. System is not in the public API, and arrives all the same.
USER, ASSISTANT, SYSTEM = 1, 2, 3
# LanguageModelChatToolMode.
AUTO, REQUIRED = 1, 2

# The mime type under which the host looks for what an answer cost.
USAGE_MIME = "usage"
# And the one under which it keeps, and gives back, what a provider wants to remember of an answer. The host
# writes `model\\payload` and reads two pieces between backslashes, so the payload must have none.
MARKER_MIME = "stateful_marker"


class Shape(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What travels is spelled as in JavaScript; what is not known is left out."""


class _Part(Shape, frozen=True, tag_field="type"):
    pass


class Text(_Part, frozen=True, tag="text"):
    value: str


class Thinking(_Part, frozen=True, tag="thinking"):
    value: str | list[str]
    id: str | None = None
    metadata: dict[str, Any] | None = None


class ToolCall(_Part, frozen=True, tag="toolCall"):
    call_id: str
    name: str
    input: Any = None


class Data(_Part, frozen=True, tag="data"):
    """`data` is base64 in JSON."""

    mime_type: str
    data: bytes


class PromptTsx(_Part, frozen=True, tag="promptTsx"):
    """A piece of a prompt that its author has not made text of."""

    value: Any = None


class Unknown(_Part, frozen=True, tag="unknown"):
    """A part of a class the extension does not know, by its class's name."""

    name: str = ""


class ToolResult(_Part, frozen=True, tag="toolResult"):
    call_id: str
    content: list[Text | Data | PromptTsx | Unknown] = []
    is_error: bool = False


Part = Text | Thinking | ToolCall | ToolResult | Data | PromptTsx | Unknown


class Message(Shape, frozen=True):
    role: int
    content: list[Part] = []
    name: str | None = None


class Tool(Shape, frozen=True):
    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None


class Chat(Shape, frozen=True):
    """What `provideLanguageModelChatResponse` was given."""

    model: str
    messages: list[Message]
    tools: list[Tool] = []
    tool_mode: int = AUTO
    model_options: Mapping[str, Any] = {}
    model_configuration: Mapping[str, Any] = {}


class Abilities(Shape, frozen=True):
    """Both always sent: the host drops all models of a vendor whose capabilities it cannot read."""

    tool_calling: bool
    image_input: bool


class Effort(Shape, frozen=True):
    """One property of a model's configuration; `navigation` puts it beside the model's name in the chat."""

    type: str
    title: str
    group: str
    enum: tuple[str, ...]
    enum_item_labels: tuple[str, ...]
    enum_descriptions: tuple[str, ...]


class ConfigurationProperties(Shape, frozen=True):
    reasoning_effort: Effort


class Configuration(Shape, frozen=True):
    properties: ConfigurationProperties


class ModelInfo(Shape, frozen=True, kw_only=True):
    """A LanguageModelChatInformation, and `model`, the name the gateway answers to.

    The costs are US dollars for a million tokens.
    """

    id: str
    model: str
    name: str
    family: str
    version: str
    max_input_tokens: int
    max_output_tokens: int
    context_window: int
    capabilities: Abilities
    tooltip: str | None = None
    detail: str | None = None
    input_cost: float | None = None
    output_cost: float | None = None
    cache_cost: float | None = None
    cache_write_cost: float | None = None
    price_category: str | None = None
    configuration_schema: Configuration | None = None


class TokenDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class UsageJson(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the `usage` part; the host ignores it unless the first three are numbers."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
