"""Decode the requests of callers of Chat Completions.

Fields and tools that only this protocol has are kept for a gateway that speaks it, and left out and listed
for others. Tool results become user messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tollbridge.protocols.caller import CallerCodec
from tollbridge.protocols.caller_request import (
    CUSTOM_ARGUMENT,
    ROLES,
    CallerRequest,
    Json,
    RequestDecoder,
    RequestObject,
    invalid_field,
    read_arguments,
    read_content,
    read_data_url,
    read_output_format,
)
from tollbridge.protocols.chat_completions.answer import CompletionEncoder, encode_error
from tollbridge.protocols.chat_completions.wire import (
    METADATA_FORMAT,
    REASONING_LISTS,
    REASONING_PROOFS,
    REASONING_TEXTS,
)
from tollbridge.protocols.openresponses.wire import CALL_SIGNATURES
from tollbridge.types.errors import BridgeError
from tollbridge.types.media import UNKNOWN
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Origin,
    OutputFormat,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    add_origin,
    decode_metadata,
)

Object = Mapping[str, Any]

# The fields of a body that are decoded or describe only the form of the response.
_DECODED_FIELDS = frozenset(
    {
        *("model", "messages", "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"),
        *("reasoning_effort", "reasoning", "max_completion_tokens", "max_tokens", "temperature", "top_p"),
        *("response_format", "metadata", "stream", "stream_options", "n", "store", "modalities", "audio"),
    }
)
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "required": "required", "any": "required", "none": "none"}


class CompletionDecoder(RequestDecoder):
    """Decodes the body of `POST /chat/completions`."""

    unlisted_fields = frozenset(
        {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "tools", "user"}
    )

    def __init__(self, body: object, headers: Mapping[str, str], native: Origin | None) -> None:
        super().__init__(body, headers, native)
        self._other_tools: list[Json] = []
        self._function_ids: dict[str, str] = {}  # the ids given to calls of `functions`, by name

    def decode(self) -> CallerRequest:
        body = self._body
        limit = body.limit("max_completion_tokens")
        self._add_tools()
        if body.get("n") not in (None, 1):
            self._omit("n: there is always one choice")
        for name in ("audio", "store"):
            if body.get(name):
                self._omit(name)
        body.inner("stream_options")  # the encoder reads it
        reasoning = body.inner("reasoning")  # OpenRouter's form
        for name in reasoning.raw.keys() - {"effort"}:
            self._omit(f"reasoning.{name[:64]}")
        extra = {
            name: value
            for name, value in body.raw.items()
            if name not in _DECODED_FIELDS and value is not None
        }
        messages = tuple(self._decode_messages())
        choice = self._decode_choice(body.raw.get("tool_choice", body.get("function_call")))
        output_format = self._decode_format(extra)
        if self._other_tools:
            extra["tools"] = self._other_tools
        metadata = {str(name): str(value) for name, value in body.inner("metadata").raw.items()}
        request = ChatRequest(
            model=body.text("model"),
            messages=messages,
            tools=tuple(self._tools.values()),
            tool_choice=choice if self._tools else None,
            parallel_tool_calls=body.optional("parallel_tool_calls", bool) if self._tools else None,
            reasoning_effort=body.optional("reasoning_effort", str) or reasoning.optional("effort", str),
            max_output_tokens=body.limit("max_tokens") if limit is None else limit,
            temperature=body.optional("temperature", float),
            top_p=body.optional("top_p", float),
            output_format=output_format,
            metadata=metadata or None,
            cache_points=self._cache_points or None,
        )
        return self._finish(request, extra)

    # Tools

    def _add_tools(self) -> None:
        for tool in self._body.objects("tools"):
            kind = tool.get("type")
            if kind not in ("function", "custom"):
                self._other_tools.append(dict(tool.raw))
                if self._native is None:
                    self._omit(f"tool of type {str(kind)[:64]!r}")
                continue
            if tool.get("cache_control"):
                self._omit("cache_control of a tool")
            self._add_function(tool.inner(kind), custom=kind == "custom")
        for function in self._body.objects("functions"):
            self._add_function(function)

    def _add_function(self, function: RequestObject, *, custom: bool = False) -> None:
        if function.get("strict"):
            self._omit('"strict" of a tool')
        grammar = _get(function.get("format"), "grammar")
        self._add_tool(function, custom=custom, grammar=grammar)

    def _decode_choice(self, choice: Any) -> ToolChoice | None:
        if choice is None:
            return None
        if isinstance(choice, str) and choice in _CHOICES:
            return _CHOICES[choice]
        if isinstance(choice, Mapping):
            if choice.get("type") == "allowed_tools":
                return self._limit_tools(choice.get("allowed_tools"))
            name = _tool_name(choice)
            if name in self._tools:
                return NamedTool(name)
        self._omit("tool_choice, which names no known tool")
        return None

    def _limit_tools(self, value: Any) -> ToolChoice | None:
        """Keep only the allowed tools: other protocols have no list of them."""
        allowed = RequestObject(value, "tool_choice.allowed_tools")
        names = {_tool_name(tool) for tool in allowed.list("tools") if isinstance(tool, Mapping)}
        self._tools = {name: tool for name, tool in self._tools.items() if name in names}
        return _CHOICES.get(str(allowed.get("mode")))

    def _decode_format(self, extra: Json) -> OutputFormat | None:
        value = self._body.inner("response_format")
        if value.get("type") == "json_schema":
            return read_output_format(value.inner("json_schema"))
        if value.raw and value.get("type") != "text":
            extra["response_format"] = dict(value.raw)
        return None

    # Messages

    def _decode_messages(self) -> Iterator[Message]:
        if not self._body.list("messages"):
            raise invalid_field("messages", "an array of at least one message")
        results: list[Part] = []  # adjacent tool results are one message
        for message in self._body.objects("messages"):
            role = message.get("role")
            if role in ("tool", "function"):
                results.append(self._decode_result(message))
                continue
            if results:
                yield Message(Role.USER, tuple(results))
                results = []
            if not isinstance(role, str) or role not in ROLES:
                names = ", ".join((*ROLES, "tool", "function"))
                raise invalid_field(message.path_of("role"), f"one of {names}")
            name = message.get("name")
            parts = self._decode_parts(message, ROLES[role])
            for last in parts[-1:]:
                self._add_cache_point(message.get("cache_control"), last)  # LiteLLM's form
            yield Message(ROLES[role], tuple(parts), name if isinstance(name, str) else None)
        if results:
            yield Message(Role.USER, tuple(results))

    def _decode_parts(self, message: RequestObject, role: Role) -> list[Part]:
        content = self._decode_content(message)
        if role is not Role.ASSISTANT:
            return [*content]
        refusal = message.get("refusal")
        texts = [TextPart(refusal)] if isinstance(refusal, str) and refusal else []
        calls = [_decode_call(call) for call in message.objects("tool_calls")]
        if message.get("function_call"):
            call = RequestObject(message.get("function_call"), message.path_of("function_call"))
            name = call.text("name")
            call_id = self._function_ids[name] = f"call_{len(self._function_ids) + 1}"
            calls.append(ToolCallPart(call_id, name, read_arguments(call.get("arguments"))))
        return [*_decode_reasoning(message.raw, self._native), *content, *texts, *calls]

    def _decode_result(self, message: RequestObject) -> ToolResultPart:
        parts = self._decode_content(message)
        if message.get("role") == "function":
            name = str(message.get("name"))
            call_id = self._function_ids.get(name, name)
        else:
            call_id = message.text("tool_call_id")
        result = ToolResultPart(call_id, parts)
        content = message.get("content")
        for source in (message.raw, *(content if isinstance(content, list) else ())):
            self._add_cache_point(source.get("cache_control"), result)
        return result

    def _decode_content(self, message: RequestObject) -> list[TextPart | DataPart]:
        content = message.get("content")
        if content is None or content == "":
            return []
        parts: list[TextPart | DataPart] = []
        for source in read_content(content, message.path_of("content")):
            part = self._decode_part(source)
            if part is not None:
                self._add_cache_point(source.get("cache_control"), part)
                parts.append(part)
        return parts

    def _decode_part(self, part: RequestObject) -> TextPart | DataPart | None:
        match part.get("type"):
            case "text" | "input_text" | "output_text":
                return TextPart(part.text("text"))
            case "refusal":
                return TextPart(part.text("refusal"))
            case "thinking":
                return None  # decoded with the other reasoning of the message
            case "image_url":
                image = part.get("image_url")
                return self._decode_data(image.get("url") if isinstance(image, Mapping) else image, "image")
            case "file":
                file = part.inner("file")
                data = file.get("file_data")
                if isinstance(data, str) and ":" not in data:  # only base64
                    data = f"data:{UNKNOWN};base64,{data}"
                return self._decode_data(data, "file", file.get("filename"))
            case other:
                self._omit(f"content of type {str(other)[:64]!r}")
                return None

    def _decode_data(self, url: Any, kind: str, name: Any = None) -> TextPart | DataPart | None:
        file = read_data_url(url, name)
        if file is not None:
            return file
        self._omit(f"{kind} that is not a base64 data URL")
        is_link = isinstance(url, str) and url.startswith(("http://", "https://"))
        return TextPart(f"[{kind}: {url}]") if is_link else None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _decode_call(call: RequestObject) -> ToolCallPart:
    kind = "custom" if isinstance(call.get("custom"), Mapping) else "function"
    function = call.inner(kind)
    if kind == "custom":
        arguments: Any = {CUSTOM_ARGUMENT: str(function.get("input") or "")}
    else:
        arguments = read_arguments(function.get("arguments"))
    metadata = decode_metadata(_get(call.get("extra_content"), "tollbridge"))
    if metadata is None:
        metadata = {name: call.get(name) for name in CALL_SIGNATURES if call.get(name)} or None
    return ToolCallPart(call.text("id"), function.text("name"), arguments, metadata)


def _tool_name(choice: Object) -> str:
    """Return the name in a tool choice: `{"type": "function", "function": {"name": …}}`, or flat."""
    inner = choice.get(str(choice.get("type", "function")))
    return str((inner if isinstance(inner, Mapping) else choice).get("name"))


def _decode_reasoning(message: Object, native: Origin | None) -> list[ThinkingPart]:
    """Return the reasoning of an answer. A block with our metadata contains the text as well."""
    proofs = {
        name: message[name]
        for name in REASONING_PROOFS
        if message.get(name) and isinstance(message[name], list if name in REASONING_LISTS else str)
    }
    details = [detail for detail in proofs.get("reasoning_details", ()) if isinstance(detail, Mapping)]
    thinking_parts = [block for detail in details if (block := _decode_block(detail)) is not None]
    if thinking_parts:
        return thinking_parts
    texts = {field: message.get(field) for field in REASONING_TEXTS}
    content = message.get("content")
    if isinstance(content, list):  # Mistral's form
        blocks = [part.get("thinking") for part in content if isinstance(part, Mapping)]
        texts["content"] = "".join(map(_text_of_thinking, blocks))
    field, text = next(
        ((field, text) for field, text in texts.items() if isinstance(text, str) and text), (None, "")
    )
    if not text and not proofs:
        return []
    return [ThinkingPart(text, field, add_origin(native, proofs) if native else proofs or None)]


def _text_of_thinking(block: Any) -> str:
    if isinstance(block, str):
        return block
    parts = block if isinstance(block, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def _decode_block(detail: Object) -> ThinkingPart | None:
    block = decode_metadata(detail.get("data")) if detail.get("format") == METADATA_FORMAT else None
    if block is None:
        return None
    metadata, id_ = block.get("metadata"), block.get("id")
    return ThinkingPart(
        str(block.get("text") or ""),
        id_ if isinstance(id_, str) else None,
        metadata if isinstance(metadata, dict) else None,
    )


class ChatCompletionsCodec(CallerCodec):
    """Chat Completions: `/v1/chat/completions`."""

    name = "chat-completions"
    path = "/chat/completions"
    names_events = False
    decoder = CompletionDecoder
    encoder = CompletionEncoder

    def encode_error(self, error: BridgeError, status: int) -> Json:
        return encode_error(error, status)


CODEC = ChatCompletionsCodec()
