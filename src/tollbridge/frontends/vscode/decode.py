"""From what VS Code asks to a request any gateway understands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.wire import decode_marker
from tollbridge.types.errors import RequestError
from tollbridge.types.media import detect_mime, is_text
from tollbridge.types.messages import (
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
from tollbridge.types.reasoning import PACK_MIME

# SECTION The text of a prompt-tsx tree: what an extension's tool answers when it renders its result as a prompt.

# PromptNodeType, as the JSON of a rendered element spells it.
PIECE, TEXT = 1, 2
MAX_DEPTH = 200


def read_text(value: Any) -> str:
    """The text of the tree, in order; of a value that is no such tree, its JSON."""
    root = value.get("node") if isinstance(value, dict) else None
    if isinstance(root, dict) and ("children" in root or "text" in root):
        said: list[str] = []
        _collect(root, said, 0)
        return "".join(said)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _collect(node: Any, said: list[str], depth: int) -> None:
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return
    if node.get("type") == TEXT or isinstance(node.get("text"), str):
        if node.get("lineBreakBefore") and said:
            said.append("\n")
        text = node.get("text")
        said.append(text if isinstance(text, str) else "")
    children = node.get("children")
    for child in children if isinstance(children, list) else ():
        _collect(child, said, depth + 1)


# SECTION From what VS Code asks to a request any gateway understands.

ROLES = {wire.USER: Role.USER, wire.ASSISTANT: Role.ASSISTANT, wire.SYSTEM: Role.SYSTEM}
TOOL_CHOICES: dict[int, ToolChoice | None] = {wire.AUTO: None, wire.REQUIRED: "required"}

# Options an extension may set under several spellings, and what must come of them.
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
# Fields of the wire that are ours to fill.
RESERVED = frozenset({"input", "instructions", "messages", "model", "store", "stream", "tools"})

FILES = frozenset({"application/pdf"})


class Decoded(msgspec.Struct, frozen=True):
    """The request, and what of the question no gateway would understand, by mime type or class."""

    request: ChatRequest
    dropped: Mapping[str, int]


def decode_chat(chat: wire.Chat, *, takes_files: bool = True) -> Decoded:
    dropped: Counter[str] = Counter()
    messages = _with_one_system_message(
        [
            _message(message, f"messages[{index}]", dropped, takes_files)
            for index, message in enumerate(chat.messages)
        ]
    )
    if chat.tool_mode not in TOOL_CHOICES:
        raise RequestError(f"toolMode is {chat.tool_mode}, which is neither Auto (1) nor Required (2).")
    request = ChatRequest(
        model=chat.model,
        messages=tuple(message for message in messages if message.parts),
        tools=tuple(Tool(tool.name, tool.description, tool.input_schema) for tool in chat.tools),
        tool_choice=TOOL_CHOICES[chat.tool_mode] if chat.tools else None,
        **_options(chat.model_options, chat.model_configuration),
    )
    return Decoded(request, dict(dropped))


def decode_message(message: wire.Message) -> Message:
    """One message alone, as the editor sends it to be counted."""
    return _message(message, "message", Counter(), takes_files=True)


def _message(message: wire.Message, place: str, dropped: Counter[str], takes_files: bool) -> Message:
    role = ROLES.get(message.role)
    if role is None:
        raise RequestError(f"{place}.role is {message.role}, which VS Code does not define.")
    parts = (_part(part, dropped, takes_files) for part in message.content)
    return Message(role, tuple(part for part in parts if part is not None), message.name or None)


def _part(part: wire.Part, dropped: Counter[str], takes_files: bool) -> Part | None:
    match part:
        case wire.Thinking(value, id, metadata):
            text = value if isinstance(value, str) else "".join(value)
            # An empty part may still carry the signature that the next turn needs.
            return ThinkingPart(text, id, metadata) if text or metadata else None
        case wire.ToolCall(call_id, name, given):
            return ToolCallPart(call_id, name, {} if given is None else given)
        case wire.ToolResult(call_id, content, is_error):
            found = (_content(item, dropped, takes_files) for item in content)
            return ToolResultPart(call_id, tuple(item for item in found if item is not None), is_error)
        case _:
            return _content(part, dropped, takes_files)


def _content(
    part: wire.Text | wire.Data | wire.PromptTsx | wire.Unknown, dropped: Counter[str], takes_files: bool
) -> TextPart | DataPart | None:
    match part:
        case wire.Text(value):
            return TextPart(value) if value else None
        case wire.PromptTsx(value):
            return TextPart(read_text(value))
        case wire.Data(mime_type, data):
            return _data(data, mime_type, dropped, takes_files)
        case wire.Unknown(name):
            dropped[name or "unknown"] += 1
            return None


def _data(data: bytes, label: str, dropped: Counter[str], takes_files: bool) -> TextPart | DataPart | None:
    """The host scales a picture, makes a PNG of it and leaves its label as it was: the bytes decide."""
    if label == wire.MARKER_MIME and (carried := decode_marker(data)) is not None:
        return DataPart(carried, PACK_MIME)
    mime = detect_mime(data, label)
    if is_text(mime):
        return TextPart(data.decode("utf-8", "replace"))
    if mime.startswith("image/") or (mime in FILES and takes_files):
        return DataPart(data, mime)
    dropped[mime] += 1  # the host's own markers, and files this model cannot take
    return None


def _with_one_system_message(messages: Sequence[Message]) -> list[Message]:
    """Several system messages are one, at the front, where every gateway looks for it."""
    system = [message for message in messages if message.role is Role.SYSTEM]
    if len(system) <= 1 and (not system or messages[0] is system[0]):
        return list(messages)
    texts = ("\n".join(part.text for part in m.parts if isinstance(part, TextPart)) for m in system)
    joined = Message(Role.SYSTEM, (TextPart("\n\n".join(text for text in texts if text)),))
    return [joined, *(message for message in messages if message.role is not Role.SYSTEM)]


def _options(options: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """What was set, in the request's own words; names that begin with `_` are the host talking to itself."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in {**configuration, **options}.items():
        if name.startswith("_") or value is None:
            continue
        if name in RESERVED:
            raise RequestError(f"modelOptions.{name} cannot be set: Tollbridge fills it in.")
        if name not in OPTIONS:
            extra[name] = value
            continue
        field, kind = OPTIONS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise RequestError(f"modelOptions.{name} is {value!r}, which has the wrong type.")
        known[field] = value
    return {**known, "extra": extra} if extra else known
