"""Encode messages as Chat Completions requests. Options that the caller did not set are not sent.

A message of this protocol is flat: the text, the reasoning and the tool calls of an answer are fields of one
message. Each tool result is a message of its own and can only contain text, so the images and files of
results follow in a user message, after all results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, assert_never

from tollbridge.policy.caching import default_cache_points, extra_with_caching, needs_cache_control
from tollbridge.policy.limits import chat_limit_field
from tollbridge.protocols.chat_completions.wire import REASONING_LISTS, REASONING_PROOFS, REASONING_TEXTS
from tollbridge.protocols.encoding import (
    ERROR_PREFIX,
    Json,
    check_tool_choice,
    data_url,
    describe_format,
    describe_tool,
    encode_file,
    extract_system_text,
    extract_text,
    omit_none,
    write_arguments,
)
from tollbridge.protocols.openresponses.wire import CALL_SIGNATURES
from tollbridge.protocols.protocol import EncodedRequest
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    PartIndex,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    part_digest,
    split_metadata,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import MAX_TEXT

DEFAULT = Quirks()
# The names of the fields in `Quirks.without` in this protocol.
NAMES = {"reasoning": "reasoning_effort"}
# Precedes the images and files of tool results.
FROM_TOOL = "[From a tool result:]"


def encode_body(request: ChatRequest | Mapping[str, Any], *, stream: bool) -> EncodedRequest:
    """Encode a request, or its body. Without streaming, `stream_options` is left out."""
    body = encode_request(request) if isinstance(request, ChatRequest) else dict(request)
    if not stream:
        body.pop("stream_options", None)
    return EncodedRequest({**body, "stream": stream})


def encode_request(request: ChatRequest) -> Json:
    """Return the body of `POST /chat/completions` for a streamed response.

    `tools` in `request.extra` are added to the tools of the request.

    Raises:
        RequestError: The request contains something that the protocol cannot represent.
    """
    quirks = request.quirks or DEFAULT
    body: Json = {
        "model": request.model,
        "messages": encode_messages(request.messages, quirks, _cache_points(request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    options: Json = {
        chat_limit_field(request.model): request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "reasoning_effort": request.reasoning_effort,
        "response_format": {"type": "json_schema", "json_schema": describe_format(request.output_format)}
        if request.output_format is not None
        else None,
        "metadata": dict(request.metadata) if request.metadata else None,
        # Vercel AI Gateway documents this field for its Responses endpoint only.
        "prompt_cache_key": request.cache_key
        if request.asks_for("prompt_cache_key") and not request.asks_for("caching")
        else None,
    }
    if request.tools:
        options["tools"] = [{"type": "function", "function": describe_tool(tool)} for tool in request.tools]
        choice = check_tool_choice(request)
        if isinstance(choice, NamedTool):
            options["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        else:
            options["tool_choice"] = choice
        options["parallel_tool_calls"] = request.parallel_tool_calls
    body |= omit_none(**options)
    extra = extra_with_caching(request)
    if isinstance(extra.get("tools"), list):  # tools of other types
        extra["tools"] = [*body.get("tools", ()), *extra["tools"]]
    body |= extra
    without = {NAMES.get(name, name) for name in quirks.without}
    if "max_output_tokens" in without:
        without |= {"max_tokens", "max_completion_tokens"}
    return {name: value for name, value in body.items() if name not in without}


def encode_messages(
    messages: Iterable[Message],
    quirks: Quirks = DEFAULT,
    cache_points: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Json]:
    """Return the messages of a conversation. All system messages are joined to one message at the start.

    Its role is always `system`: OpenAI converts it for models that expect `developer`, and most other servers
    do not know that role. `cache_points` are the options of `cache_control`, by the digest of the part that
    ends a cached prefix.

    Raises:
        RequestError: A message contains something that the protocol cannot represent.
    """
    conversation = list(messages)
    all_marks = _find_marks(conversation, cache_points or {})
    system: list[list[Json]] = []
    encoded: list[Json] = []
    for index, message in enumerate(conversation):
        marks = [all_marks.get((index, part_index)) for part_index in range(len(message.parts))]
        if message.role is Role.SYSTEM:
            texts = zip(map(extract_system_text, message.parts), marks, strict=True)
            system.append([_mark({"type": "text", "text": text}, mark) for text, mark in texts if text])
        else:
            encoded += _encode_message(message, quirks, marks)
    prompt = [part for parts in system for part in parts]
    if not any("cache_control" in part for part in prompt):
        joined = ["\n".join(part["text"] for part in parts) for parts in system if parts]
        prompt = [{"type": "text", "text": "\n\n".join(joined)}] if joined else []
    if prompt:
        encoded.insert(0, {"role": "system", "content": _join_content(prompt, quirks)})
    return encoded


def _cache_points(request: ChatRequest) -> Mapping[str, Mapping[str, Any]] | None:
    if not needs_cache_control(request.model):
        return None
    if request.cache_points or not request.asks_for("cache_control") or request.asks_for("caching"):
        return request.cache_points
    return default_cache_points(request.messages)


def _find_marks(messages: list[Message], points: Mapping[str, Mapping[str, Any]]) -> dict[PartIndex, Json]:
    """Return the options of `cache_control` by the index of a part: the last one of equal parts."""
    places: dict[str, PartIndex] = {}
    for message_index, message in enumerate(messages if points else ()):
        for part_index, part in enumerate(message.parts):
            places[part_digest(part)] = message_index, part_index
    return {places[digest]: dict(options) for digest, options in points.items() if digest in places}


def _mark(encoded: Json, mark: Json | None) -> Json:
    return encoded if mark is None else {**encoded, "cache_control": mark}


def _encode_message(message: Message, quirks: Quirks, marks: list[Json | None]) -> list[Json]:
    """Return the messages for one message: that of the assistant, then the tool results, then the user's."""
    name = {"name": message.name} if message.name else {}
    is_answer = message.role is Role.ASSISTANT
    content: list[Json] = []
    thinking: list[ThinkingPart] = []
    calls: list[ToolCallPart] = []
    results: list[ToolResultPart] = []
    tool_messages: list[Json] = []
    for part, mark in zip(message.parts, marks, strict=True):
        match part:
            case TextPart() | DataPart():
                encoded_part = _encode_content(part)
                if is_answer and _is_file(part):  # the protocol does not allow files in answers
                    encoded_part = {"type": "text", "text": f"[{part.mime}: {len(part.data)} bytes]"}
                if encoded_part.get("text") != "":
                    content.append(_mark(encoded_part, mark))
            case ThinkingPart():
                thinking.append(part)
            case ToolCallPart():
                calls.append(part)
            case ToolResultPart():
                results.append(part)
                tool_messages.append(_encode_result(part, quirks, mark))
            case _:
                assert_never(part)
    encoded: list[Json] = []
    if is_answer or calls:
        encoded += _encode_assistant(content if is_answer else [], thinking, calls, name, quirks)
    encoded += tool_messages
    files = [_encode_content(part) for result in results for part in result.parts if _is_file(part)]
    if files:
        files.insert(0, {"type": "text", "text": FROM_TOOL})
    if not is_answer:
        files += content
    if files:
        encoded.append({"role": "user", "content": _join_content(files, quirks), **name})
    return encoded


def _encode_content(part: TextPart | DataPart) -> Json:
    text = extract_text(part)
    if text is not None or isinstance(part, TextPart):
        return {"type": "text", "text": text}
    mime = detect_mime(part.data, part.mime)
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_url(part, mime)}}
    return {"type": "file", "file": encode_file(part, mime)}


def _is_file(part: TextPart | DataPart) -> TypeGuard[DataPart]:
    return extract_text(part) is None


def _join_content(content: list[Json], quirks: Quirks, separator: str = "\n") -> str | list[Json]:
    """Return only texts as one string, which every server accepts; else the parts."""
    plain = all(part["type"] == "text" and "cache_control" not in part for part in content)
    if quirks.text_as == "array" or not plain:
        return content
    text = separator.join(part["text"] for part in content)
    return text if len(text) <= MAX_TEXT else content


def _encode_assistant(
    content: list[Json], thinking: list[ThinkingPart], calls: list[ToolCallPart], name: Json, quirks: Quirks
) -> list[Json]:
    reasoning = _encode_reasoning(thinking)
    if "content" in reasoning:  # Mistral's form
        block = {"type": "thinking", "thinking": [{"type": "text", "text": reasoning.pop("content")}]}
        content = [block, *content]
    if not content and not calls and not reasoning:
        return []
    joined = _join_content(content, quirks, separator="") if content else None
    message: Json = {"role": "assistant", "content": joined, **name, **reasoning}
    if calls:
        message["tool_calls"] = [_encode_call(call) for call in calls]
    return [message]


def _encode_reasoning(parts: list[ThinkingPart]) -> Json:
    """Return reasoning in the fields in which the server sent it: the text's field is the id of the block.

    Reasoning without a proof is sent only if it came from such a field, or from a server that does not sign
    reasoning.
    """
    texts: dict[str, list[str]] = {}
    fields: Json = {}
    for part in parts:
        binding, metadata = split_metadata(part.metadata)
        for name in REASONING_PROOFS:
            value = metadata.get(name)
            if name in REASONING_LISTS and isinstance(value, list):
                fields[name] = [*fields.get(name, ()), *value]
            elif isinstance(value, str):
                fields[name] = value
        if part.id in (*REASONING_TEXTS, "content"):
            texts.setdefault(str(part.id), []).append(part.text)
        elif binding is not None and binding.plain:
            texts.setdefault(REASONING_TEXTS[0], []).append(part.text)
    joined = {name: "\n\n".join(filter(None, blocks)) for name, blocks in texts.items()}
    return {**{name: text for name, text in joined.items() if text}, **fields}


def _encode_call(part: ToolCallPart) -> Json:
    metadata = part.metadata or {}
    signatures = {name: metadata[name] for name in CALL_SIGNATURES if name in metadata}
    function = {"name": part.name, "arguments": write_arguments(part.input)}
    return {"id": part.call_id, "type": "function", "function": function, **signatures}


def _encode_result(part: ToolResultPart, quirks: Quirks, mark: Json | None) -> Json:
    texts = [
        f"[{item.mime}, {len(item.data):,} bytes: below]" if _is_file(item) else _encode_content(item)["text"]
        for item in part.parts
    ]
    text = "\n".join(texts)
    text = (ERROR_PREFIX + text).rstrip() if part.is_error else text
    content = _mark({"type": "text", "text": text}, mark)
    return {"role": "tool", "tool_call_id": part.call_id, "content": _join_content([content], quirks)}
