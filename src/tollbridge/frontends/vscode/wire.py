"""The shapes of VS Code's API as they travel: messages, parts, models and the usage of an answer.

`docs/protocol.md` documents them. `requests.py` converts what comes from VS Code; `answers.py` and
`models.py` convert what goes to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

# Values of LanguageModelChatMessageRole. SYSTEM is not in the public API, but VS Code sends it.
USER, ASSISTANT, SYSTEM = 1, 2, 3
# Values of LanguageModelChatToolMode.
AUTO, REQUIRED = 1, 2

# The mime type of the data part with the usage of an answer.
USAGE_MIME = "usage"
# The mime type of the data part that VS Code stores for a provider and sends back with the conversation.
MARKER_MIME = "stateful_marker"
# The id of the thinking parts in which the extension says why an answer has not begun.
WAIT_ID = "tollbridge.wait"
# The effort in the model picker that leaves the choice to the model: nothing is sent.
DEFAULT_EFFORT = "default"


class WireStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the structs: field names are in camel case, default values are omitted."""

    @classmethod
    def copy_of(cls, source: object) -> Self:
        """Return a struct with the attributes of an object that have the same names as its fields."""
        return cls(**{name: getattr(source, name) for name in cls.__struct_fields__})


class _Part(WireStruct, frozen=True, tag_field="type"):
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
    """Bytes, encoded as base64 in JSON."""

    mime_type: str
    data: bytes


class PromptTsx(_Part, frozen=True, tag="promptTsx"):
    """A rendered prompt-tsx tree that was not converted to text."""

    value: Any = None


class Unknown(_Part, frozen=True, tag="unknown"):
    """A part of a class that the extension does not know. `name` is the name of the class."""

    name: str = ""


ResultPart = Text | Data | PromptTsx | Unknown


class ToolResult(_Part, frozen=True, tag="toolResult"):
    call_id: str
    content: list[ResultPart] = []
    is_error: bool = False


Part = ResultPart | Thinking | ToolCall | ToolResult


class Message(WireStruct, frozen=True):
    role: int
    content: list[Part] = []
    name: str | None = None


class Tool(WireStruct, frozen=True):
    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None


class Chat(WireStruct, frozen=True):
    """The arguments of `provideLanguageModelChatResponse`.

    The last three say what the request belongs to. VS Code passes them in `model_options` instead.
    """

    model: str
    messages: list[Message]
    tools: list[Tool] = []
    tool_mode: int = AUTO
    model_options: Mapping[str, Any] = {}
    model_configuration: Mapping[str, Any] = {}
    conversation: str | None = None


class ModelCapabilities(WireStruct, frozen=True):
    """Capabilities of a model. Both are required: without them VS Code drops all models of the vendor."""

    tool_calling: bool
    image_input: bool


class Choice(WireStruct, frozen=True):
    """The schema of a value that the user chooses next to the model's name, where the `group` places it.

    The reasoning effort is in the group `navigation`, the context size in tokens in the group `tokens`.
    """

    type: str
    title: str
    group: str
    enum: tuple[str | int, ...]
    enum_item_labels: tuple[str, ...]
    enum_descriptions: tuple[str, ...]
    default: str | int | None = None


class ConfigurationProperties(WireStruct, frozen=True):
    reasoning_effort: Choice | None = None
    context_size: Choice | None = None


class Configuration(WireStruct, frozen=True):
    properties: ConfigurationProperties


class ThemeIcon(WireStruct, frozen=True):
    """One of VS Code's icons."""

    id: str


class ModelInfo(WireStruct, frozen=True, kw_only=True):
    """A LanguageModelChatInformation, and `model`, the id of the model at the gateway.

    The costs are in VS Code's credits per million tokens; `pricing` has the dollars, as a text. The keys of
    `warning_text` and `info_text` are names of our choice; VS Code shows the texts.
    """

    id: str
    model: str
    name: str
    family: str
    version: str
    max_input_tokens: int
    max_output_tokens: int
    context_window: int
    capabilities: ModelCapabilities
    tooltip: str | None = None
    detail: str | None = None
    input_cost: float | None = None
    output_cost: float | None = None
    cache_cost: float | None = None
    cache_write_cost: float | None = None
    long_context_input_cost: float | None = None
    long_context_output_cost: float | None = None
    long_context_cache_cost: float | None = None
    long_context_cache_write_cost: float | None = None
    pricing: str | None = None
    price_category: str | None = None
    category: str | None = None
    max_context_window_tokens: int | None = None
    warning_text: Mapping[str, str] | None = None
    info_text: Mapping[str, str] | None = None
    status_icon: ThemeIcon | None = None
    configuration_schema: Configuration | None = None


class TokenDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class CreditUsage(msgspec.Struct, frozen=True):
    """VS Code shows the sum over a chat as credits: one is 10⁹ of these, and $0.01."""

    total_nano_aiu: int


class UsageJson(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the `usage` data part. VS Code ignores it unless the first three fields are numbers."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    copilot_usage: CreditUsage | None = None
