"""The parameters of a call as an editor sends them; parts of kinds nobody told us of do not spoil them."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from tollbridge.types.reasoning import read_reasoning_pack

# SECTION The host's `stateful_marker`: a model's name, a backslash, and a payload of ours in base64url.


def encode_marker(model: str, data: bytes) -> bytes:
    """`model` is for the host alone; whose reasoning it is, the payload says itself."""
    return f"{model.replace(chr(92), '_')}\\".encode() + urlsafe_b64encode(data).rstrip(b"=")


def decode_marker(marker: bytes) -> bytes | None:
    """The payload, or `None` for a marker that is not ours: other providers leave theirs in the same chat."""
    payload = marker.partition(b"\\")[2]
    try:
        data = urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if read_reasoning_pack(data) is not None else None


# SECTION VS Code's messages, parts and models as they travel between its extension and the sidecar.

# Roles of LanguageModelChatMessageRole. System is not in the public API, and arrives all the same.
USER, ASSISTANT, SYSTEM = 1, 2, 3
# LanguageModelChatToolMode.
AUTO, REQUIRED = 1, 2

# The mime type under which the host looks for what an answer cost.
USAGE_MIME = "usage"
# And the one under which it keeps, and gives back, what a provider wants to remember of an answer. The host
# writes `model\\payload` and reads two pieces between backslashes, so the payload must have none.
MARKER_MIME = "stateful_marker"


class WireStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What travels is spelled as in JavaScript; what is not known is left out."""


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


class Message(WireStruct, frozen=True):
    role: int
    content: list[Part] = []
    name: str | None = None


class Tool(WireStruct, frozen=True):
    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None


class Chat(WireStruct, frozen=True):
    """What `provideLanguageModelChatResponse` was given."""

    model: str
    messages: list[Message]
    tools: list[Tool] = []
    tool_mode: int = AUTO
    model_options: Mapping[str, Any] = {}
    model_configuration: Mapping[str, Any] = {}


class ModelCapabilities(WireStruct, frozen=True):
    """Both always sent: the host drops all models of a vendor whose capabilities it cannot read."""

    tool_calling: bool
    image_input: bool


class Effort(WireStruct, frozen=True):
    """One property of a model's configuration; `navigation` puts it beside the model's name in the chat."""

    type: str
    title: str
    group: str
    enum: tuple[str, ...]
    enum_item_labels: tuple[str, ...]
    enum_descriptions: tuple[str, ...]


class ConfigurationProperties(WireStruct, frozen=True):
    reasoning_effort: Effort


class Configuration(WireStruct, frozen=True):
    properties: ConfigurationProperties


class ModelInfo(WireStruct, frozen=True, kw_only=True):
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
    capabilities: ModelCapabilities
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


# SECTION The parameters of a call as an editor sends them; parts of kinds nobody told us of do not spoil them.

Params = TypeVar("Params")

_RESULT_PARTS = frozenset({"text", "data", "promptTsx", "unknown"})
_PARTS = _RESULT_PARTS | {"thinking", "toolCall", "toolResult"}


class NotUtf8(Exception):
    """The bytes are not UTF-8."""


def read_parameters(raw: msgspec.Raw, shape: type[Params]) -> Params:
    """Raises `msgspec.ValidationError` for what does not fit, and `NotText`."""
    try:
        return _read(raw, shape)
    except UnicodeDecodeError as error:
        raise NotUtf8 from error


def _read(raw: msgspec.Raw, shape: type[Params]) -> Params:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError:
        given = msgspec.json.decode(raw)
        unknown = list(_unknown_parts(given))
        if not unknown:
            raise
    for part in unknown:
        name = str(part.get("type", ""))
        part.clear()
        part.update(type="unknown", name=name)
    return msgspec.convert(given, shape)


def _unknown_parts(given: Any) -> Iterator[dict[str, Any]]:
    """In the messages of a chat, or among the items of a count."""
    for field in ("messages", "items"):
        for message in _list(given, field):
            for part in _list(message, "content"):
                yield from _unknown(part, _PARTS)
                for inner in _list(part, "content"):
                    yield from _unknown(inner, _RESULT_PARTS)


def _unknown(part: Any, known: frozenset[str]) -> Iterator[dict[str, Any]]:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind not in known:
        yield part


def _list(value: Any, field: str) -> list[Any]:
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
