"""Convert VS Code's chat requests and messages to ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.images import shorten_images
from tollbridge.frontends.vscode.limits import LIMITS
from tollbridge.frontends.vscode.markers import decode_marker
from tollbridge.types.errors import RequestError
from tollbridge.types.media import detect_mime, is_text
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)
from tollbridge.types.text import MAX_DEPTH, limit_depth, write_json

ROLES = {wire.USER: Role.USER, wire.ASSISTANT: Role.ASSISTANT, wire.SYSTEM: Role.SYSTEM}
TOOL_CHOICES: dict[int, ToolChoice | None] = {wire.AUTO: None, wire.REQUIRED: "required"}

# The options that an extension can set: the field of the request, and the type of the value.
OPTIONS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "maxOutputTokens": ("max_output_tokens", int),
    "maxTokens": ("max_output_tokens", int),
    "max_output_tokens": ("max_output_tokens", int),
    "max_tokens": ("max_output_tokens", int),
    "parallel_tool_calls": ("parallel_tool_calls", bool),
    "reasoningEffort": ("reasoning_effort", str),
    "reasoning_effort": ("reasoning_effort", str),
    "temperature": ("temperature", (int, float)),
    "topP": ("top_p", (int, float)),
    "top_p": ("top_p", (int, float)),
}
# The options in which VS Code says what a request belongs to. They are not sent.
CONVERSATION = "_conversationId"
# False for requests that should be answered at once: inline chat, terminal chat, titles. Not sent either.
THINKING = "_enableThinking"

# What the user chose for VS Code itself, which applies it to the prompt before it sends the request.
EDITOR_OPTIONS = frozenset({"contextSize"})
# Fields of the request body that an extension cannot set.
RESERVED = frozenset({"input", "instructions", "messages", "model", "store", "stream", "tools"})

# The PromptNodeType of a text in the JSON of a prompt-tsx tree.
PROMPT_TEXT = 2


class DecodedChat(msgspec.Struct, frozen=True):
    """A chat request, and the number of parts that cannot be sent to a gateway, by mime type or class."""

    request: ChatRequest
    dropped: Mapping[str, int]


def decode_chat(chat: wire.Chat, *, takes_files: bool = True, efforts: Sequence[str] = ()) -> DecodedChat:
    """Decode a chat request for a model that accepts these reasoning efforts, and maybe files such as PDF.

    Raises:
        RequestError: A role, the tool mode or an option is invalid.
    """
    dropped: Counter[str] = Counter()
    messages = _join_system_messages(
        [
            _decode_message(message, f"messages[{index}]", dropped, takes_files)
            for index, message in enumerate(chat.messages)
        ]
    )
    if chat.tool_mode not in TOOL_CHOICES:
        raise RequestError(f"Invalid toolMode {chat.tool_mode}. Valid values: 1 (Auto), 2 (Required).")
    request = ChatRequest(
        model=chat.model,
        messages=tuple(message for message in messages if message.parts),
        tools=tuple(Tool(tool.name, tool.description, _read_schema(tool)) for tool in chat.tools),
        tool_choice=TOOL_CHOICES[chat.tool_mode] if chat.tools else None,
        conversation=_read_conversation(chat),
        **_decode_options(chat.model_options, chat.model_configuration, efforts),
    )
    return DecodedChat(request, dict(dropped))


def decode_message(message: wire.Message) -> Message:
    """Decode a single message, as the editor sends it for a token count."""
    return _decode_message(message, "message", Counter(), takes_files=True)


def _decode_message(message: wire.Message, path: str, dropped: Counter[str], takes_files: bool) -> Message:
    role = ROLES.get(message.role)
    if role is None:
        raise RequestError(f"Invalid {path}.role {message.role}. Valid values: 1, 2, 3.")
    parts = (_decode_part(part, dropped, takes_files) for part in message.content)
    return Message(role, tuple(part for part in parts if part is not None), message.name or None)


def _decode_part(part: wire.Part, dropped: Counter[str], takes_files: bool) -> Part | None:
    match part:
        case wire.Thinking(id=wire.WAIT_ID):
            return None  # a note of the extension for the user
        case wire.Thinking(value, id, metadata):
            text = value if isinstance(value, str) else "".join(value)
            # An empty part can contain the signature that the next turn needs.
            return ThinkingPart(text, id, metadata) if text or metadata else None
        case wire.ToolCall(call_id, name, arguments):
            return ToolCallPart(call_id, name, {} if arguments in (None, []) else arguments)
        case wire.ToolResult(call_id, content, is_error):
            parts = (_decode_content(item, dropped, takes_files) for item in content)
            return ToolResultPart(call_id, tuple(item for item in parts if item is not None), is_error)
        case _:
            return _decode_content(part, dropped, takes_files)


def _decode_content(
    part: wire.ResultPart, dropped: Counter[str], takes_files: bool
) -> TextPart | DataPart | None:
    match part:
        case wire.Text(value):
            return TextPart(shorten_images(value)) if value else None
        case wire.PromptTsx(value):
            return TextPart(read_prompt_text(value))
        case wire.Data(mime_type, data):
            return _decode_data(data, mime_type, dropped, takes_files)
        case wire.Unknown(name):
            dropped[name or "unknown"] += 1
            return None


def _decode_data(
    data: bytes, label: str, dropped: Counter[str], takes_files: bool
) -> TextPart | DataPart | None:
    """Decode a data part; its bytes determine the type.

    VS Code scales images and encodes them as PNG, but keeps the original label.
    """
    if label == wire.MARKER_MIME and (reasoning := decode_marker(data)) is not None:
        return DataPart(reasoning, PACK_MIME)
    mime = detect_mime(data, label)
    if is_text(mime):
        return TextPart(data.decode("utf-8", "replace"))
    if mime.startswith("image/") or (mime == "application/pdf" and takes_files):
        return DataPart(data, mime)
    dropped[mime] += 1  # markers of VS Code, and files that the model does not accept
    return None


def _read_schema(tool: wire.Tool) -> dict[str, Any] | None:
    """Return the schema of a tool. Some languages encode the empty object for "no arguments" as `[]`."""
    schema = tool.input_schema
    return {**schema, "properties": {}} if schema and schema.get("properties") == [] else schema


def _join_system_messages(messages: Sequence[Message]) -> list[Message]:
    """Join all system messages to one at the start, where all gateways accept it."""
    system = [message for message in messages if message.role is Role.SYSTEM]
    if len(system) <= 1 and (not system or messages[0] is system[0]):
        return list(messages)
    texts = ("\n".join(part.text for part in m.parts if isinstance(part, TextPart)) for m in system)
    joined = Message(Role.SYSTEM, (TextPart("\n\n".join(text for text in texts if text)),))
    return [joined, *(message for message in messages if message.role is not Role.SYSTEM)]


def _read_conversation(chat: wire.Chat) -> str | None:
    """Return the conversation of a request: VS Code passes it in the options, other editors in a field."""
    value = chat.conversation or chat.model_options.get(CONVERSATION)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value[: LIMITS.id_characters] or None if isinstance(value, str) else None


def _decode_options(
    options: Mapping[str, Any], configuration: Mapping[str, Any], efforts: Sequence[str]
) -> dict[str, Any]:
    """Return the options as fields of the request. Names that start with `_` are internal to VS Code."""
    fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in {**configuration, **options}.items():
        if name.startswith("_") or name in EDITOR_OPTIONS or value is None:
            continue
        if name in RESERVED:
            raise RequestError(f"modelOptions.{name} cannot be set; Tollbridge sets this field.")
        if name not in OPTIONS:
            extra[name] = value
            continue
        field, kind = OPTIONS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise RequestError(f"modelOptions.{name} has the wrong type: {value!r}.")
        fields[field] = value
    if fields.get("reasoning_effort") == wire.DEFAULT_EFFORT:
        del fields["reasoning_effort"]
    if options.get(THINKING) is False and efforts:
        fields["reasoning_effort"] = efforts[0]
    return {**fields, "extra": extra} if extra else fields


def read_prompt_text(value: Any) -> str:
    """Return the text of a prompt-tsx tree, which a tool of an extension can return as its result.

    The result for a value that is not such a tree is its JSON.
    """
    root = value.get("node") if isinstance(value, dict) else None
    if isinstance(root, dict) and ("children" in root or "text" in root):
        texts: list[str] = []
        _collect_texts(root, texts, 0)
        return "".join(texts)
    return value if isinstance(value, str) else write_json(limit_depth(value))


def _collect_texts(node: Any, texts: list[str], depth: int) -> None:
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return
    if node.get("type") == PROMPT_TEXT or isinstance(node.get("text"), str):
        if node.get("lineBreakBefore") and texts:
            texts.append("\n")
        text = node.get("text")
        texts.append(text if isinstance(text, str) else "")
    children = node.get("children")
    for child in children if isinstance(children, list) else ():
        _collect_texts(child, texts, depth + 1)
