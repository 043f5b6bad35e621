"""Encode messages as OpenResponses requests. Options that the caller did not set are not sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

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
from tollbridge.protocols.openresponses.wire import CALL_SIGNATURES, REASONING_SIGNATURES
from tollbridge.protocols.protocol import EncodedRequest
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
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

# The system prompt is sent as a `developer` message: `instructions` reaches the models of one provider only.
ROLES = {Role.SYSTEM: "developer", Role.USER: "user", Role.ASSISTANT: "assistant"}

# The models of OpenAI that accept `prompt_cache_options`.
_COMPARING_MODELS = re.compile(r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)")

DEFAULT = Quirks()


def encode_body(request: ChatRequest | Mapping[str, Any], *, stream: bool) -> EncodedRequest:
    """Encode a request, or its body. `stream` is always set: some servers stream by default."""
    body = encode_request(request) if isinstance(request, ChatRequest) else request
    return EncodedRequest({**body, "stream": stream})


def diagnose_cache(request: ChatRequest, previous: str | None) -> Json | None:
    """Ask the server to compare the prompt with that of the previous response, if its model can do that."""
    if previous is None or not _COMPARING_MODELS.search(request.model):
        return None
    options = (request.extra or {}).get("prompt_cache_options", {})
    return {"prompt_cache_options": {"comparison_response_id": previous, **options}}


def encode_request(request: ChatRequest) -> Json:
    """Return the body of `POST /responses` for a streamed response.

    Raises:
        RequestError: The request contains something that the protocol cannot represent.
    """
    quirks = request.quirks or DEFAULT
    body: Json = {
        "model": request.model,
        "input": translate_messages(request.messages, quirks),
        "stream": True,
        # Every request contains the full history, so the server does not need to store anything.
        "store": False,
    }
    reasoning = omit_none(effort=request.reasoning_effort, summary=request.reasoning_summary)
    body |= omit_none(
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        reasoning=reasoning or None,
        include=["reasoning.encrypted_content"] if reasoning or request.reasons else None,
        metadata=dict(request.metadata) if request.metadata else None,
        text={"format": {"type": "json_schema", **describe_format(request.output_format)}}
        if request.output_format is not None
        else None,
        instructions=_encode_instructions(request),
        prompt_cache_key=request.cache_key if request.asks_for("prompt_cache_key") else None,
        caching="auto" if request.asks_for("caching") else None,
    )
    if request.tools:
        # OpenAI's default for `strict` is true, and the schemas of editors do not follow its rules.
        body["tools"] = [
            _encode_function({**describe_tool(tool), "strict": False}, quirks) for tool in request.tools
        ]
        choice = check_tool_choice(request)
        encoded = _encode_function({"name": choice.name}, quirks) if isinstance(choice, NamedTool) else choice
        body |= omit_none(tool_choice=encoded, parallel_tool_calls=request.parallel_tool_calls)
    body |= request.extra or {}
    return {name: value for name, value in body.items() if name not in quirks.without}


def translate_messages(messages: Iterable[Message], quirks: Quirks = DEFAULT) -> list[Json]:
    """Return the input items of a conversation. All system messages are joined to one item at the start.

    Args:
        messages: The conversation.
        quirks: What the server accepts.

    Raises:
        RequestError: A message contains something that the protocol cannot represent.
    """
    conversation = list(messages)
    items = _encode_system(conversation, quirks) if quirks.system != "instructions" else []
    for message in conversation:
        if message.role is not Role.SYSTEM:
            items += _encode_message(message, quirks)
    return items


def _encode_instructions(request: ChatRequest) -> str | None:
    if (request.quirks or DEFAULT).system != "instructions":
        return None
    return "\n".join(item["content"] for item in _encode_system(request.messages, DEFAULT)) or None


def _encode_message(message: Message, quirks: Quirks) -> list[Json]:
    """Return the items of a message. Tool calls, tool results and reasoning are separate items."""
    role = ROLES[message.role]
    items: list[Json] = []
    content: list[Json] = []

    def flush() -> None:
        if content:
            items.append(_message_item(role, list(content), quirks))
            content.clear()

    for part in message.parts:
        match part:
            case TextPart(text):
                if text:
                    content.append(_encode_text(text))
            case DataPart():
                encoded = _encode_data(part)
                if message.role is Role.ASSISTANT and encoded["type"] != "input_text":
                    # The protocol does not allow files in assistant messages.
                    encoded = _encode_text(f"[{part.mime}: {len(part.data)} bytes]")
                content.append(encoded)
            case ThinkingPart():
                flush()
                items += _encode_reasoning(part, quirks)
            case ToolCallPart():
                flush()
                items.append(_encode_call(part))
            case ToolResultPart():
                flush()
                items.append(_encode_result(part))
            case _:
                assert_never(part)
    flush()
    return items


def _message_item(role: str, content: list[Json], quirks: Quirks) -> Json:
    """Return a message item. Text is sent as a string: nearly all servers accept that, some nothing else."""
    separator = "" if role == "assistant" else "\n"  # the parts of an answer are pieces of one text
    text = _join(content, separator) if quirks.text_as == "string" else None
    if text is None and role == "assistant":
        content = [{"type": "output_text", "text": part["text"]} for part in content]
    return {"type": "message", "role": role, "content": content if text is None else text}


def _join(content: list[Json], separator: str) -> str | None:
    """Join the texts; return `None` if there is other content or the result is longer than `MAX_TEXT`."""
    if any(part["type"] != "input_text" for part in content):
        return None
    text = separator.join(part["text"] for part in content)
    return text if len(text) <= MAX_TEXT else None


def _encode_text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _encode_data(part: DataPart) -> Json:
    text = extract_text(part)
    if text is not None:
        return _encode_text(text)
    mime = detect_mime(part.data, part.mime)
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": data_url(part, mime), "detail": "auto"}
    return {"type": "input_file", **encode_file(part, mime)}


def _encode_reasoning(part: ThinkingPart, quirks: Quirks) -> list[Json]:
    """Return a reasoning item with its signatures, or nothing.

    Reasoning without signatures is sent only if the server that produced it does not sign reasoning.
    """
    own, metadata = split_metadata(part.metadata)
    signatures = {
        name: metadata[name] for name in REASONING_SIGNATURES if isinstance(metadata.get(name), str)
    }
    if not signatures and (own is None or not own.plain):
        return []
    item: Json = {"type": "reasoning", "summary": [], **signatures}
    # A server that sends reasoning as content can ignore a summary.
    shape = "content" if own is not None and own.shape == "content" else quirks.reasoning_as
    if part.text and shape == "summary":
        item["summary"] = [{"type": "summary_text", "text": part.text}]
    elif part.text:
        item["content"] = [{"type": "reasoning_text", "text": part.text}]
    # Reasoning without signatures is kept without its id. Some servers require one: any will do.
    id_ = metadata.get("id") if signatures else f"rs_{part_digest(TextPart(part.text))}"
    return [{"id": id_, **item} if quirks.reasoning_ids and isinstance(id_, str) else item]


def _encode_call(part: ToolCallPart) -> Json:
    call = {"type": "function_call", "call_id": part.call_id, "name": part.name}
    metadata = part.metadata or {}
    signatures = {name: metadata[name] for name in CALL_SIGNATURES if name in metadata}
    return {**call, "arguments": write_arguments(part.input), **signatures}


def _encode_result(part: ToolResultPart) -> Json:
    content = [
        _encode_text(item.text) if isinstance(item, TextPart) else _encode_data(item) for item in part.parts
    ]
    if part.is_error:
        first_text = content.pop(0)["text"] if content and content[0]["type"] == "input_text" else ""
        content.insert(0, _encode_text((ERROR_PREFIX + first_text).rstrip()))
    text = _join(content, "\n")
    output = content if text is None else text
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


def _encode_system(messages: Iterable[Message], quirks: Quirks) -> list[Json]:
    system = [message for message in messages if message.role is Role.SYSTEM]
    texts = [[text for text in map(extract_system_text, message.parts) if text] for message in system]
    prompt = "\n\n".join("\n".join(lines) for lines in texts if lines)
    content = [prompt] if len(prompt) <= MAX_TEXT else [line for lines in texts for line in lines]
    # For servers that only accept user messages, the history contains no system message here.
    role = "system" if quirks.system == "system" else ROLES[Role.SYSTEM]
    return [_message_item(role, [_encode_text(text) for text in content], quirks)] if prompt else []


def _encode_function(function: Json, quirks: Quirks) -> Json:
    """Return a tool or a tool choice; for some servers in the form of Chat Completions."""
    return {"type": "function", **({"function": function} if quirks.tools_as == "nested" else function)}
