"""Encode requests for the Messages API. Options that the caller did not set are not sent, except a limit.

What only this protocol has comes from three places: top-level fields in `ChatRequest.extra`, cache
breakpoints in `ChatRequest.cache_points`, and content blocks as data parts of the type `NATIVE_MIME`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2s
from typing import Any, assert_never

from tollbridge.policy.caching import default_cache_points
from tollbridge.policy.limits import default_max_tokens
from tollbridge.policy.thinking import choose_thinking
from tollbridge.protocols.anthropic_messages.wire import REDACTED, SIGNATURE, Json
from tollbridge.protocols.encoding import describe_tool, extract_system_text, extract_text, omit_none
from tollbridge.protocols.protocol import EncodedRequest
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    part_digest,
    split_metadata,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import Fields, read_json

# A data part with the JSON of a content block that only this protocol has.
NATIVE_MIME = "application/vnd.anthropic.block+json"
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
PDF = "application/pdf"
_INVALID_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
TOOL_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_CHOICE_TYPES = {choice: type_ for type_, choice in TOOL_CHOICES.items()}


def encode_body(request: ChatRequest | Mapping[str, Any], *, stream: bool) -> EncodedRequest:
    """Encode a request, or its body. `betas` becomes a header, as in Anthropic's own clients."""
    fields: Mapping[str, Any] = (request.extra or {}) if isinstance(request, ChatRequest) else request
    body = encode_request(request) if isinstance(request, ChatRequest) else dict(request)
    body.pop("betas", None)
    betas = fields.get("betas")
    headers = (
        {"anthropic-beta": ",".join(map(str, betas))} if isinstance(betas, list | tuple) and betas else {}
    )
    return EncodedRequest({**body, "stream": stream}, headers)


def diagnose_cache(request: ChatRequest, previous: str | None) -> Json | None:
    """Ask the server to compare the prompt with the previous one.

    It is also asked before there is one, so that it stores what it compares.
    """
    asks = "diagnostics" in (request.extra or {})
    return None if asks else {"diagnostics": {"previous_message_id": previous}}


def encode_request(request: ChatRequest) -> Json:
    """Return the body of `POST /v1/messages` for a streamed response.

    `tools` in `request.extra` adds server tools, and fields to the tools of the same name. `betas` there is
    not part of the body: the client sends it as a header.
    """
    extra = {name: value for name, value in (request.extra or {}).items() if name != "betas"}
    points = request.cache_points
    if not points and request.asks_for("cache_control") and "cache_control" not in extra:
        points = default_cache_points(request.messages)
    marks = _CacheMarks(points)
    messages = _encode_messages(request.messages, marks)
    system = [
        marks.apply(part, {"type": "text", "text": text})
        for message in request.messages
        if message.role is Role.SYSTEM
        for part in message.parts
        if (text := extract_system_text(part))
    ]
    body: Json = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or default_max_tokens(request.model),
        "messages": messages,
        "stream": True,
    }
    marks.place()
    if system:
        body["system"] = _shorten(system, marks)
    for message in messages:
        for block in message["content"]:
            if block.get("type") == "tool_result" and "content" in block:
                block["content"] = _shorten(block["content"], marks)
        message["content"] = _shorten(message["content"], marks)
    tools = [describe_tool(tool, "input_schema") for tool in request.tools]
    for tool in tools:
        tool["input_schema"] = {"type": "object", **tool["input_schema"]}
    tools = _merge_tools(tools, extra.pop("tools", None))
    choice = _encode_choice(request.tool_choice, request.parallel_tool_calls) if tools else None
    user = (request.metadata or {}).get("user_id")
    body |= omit_none(
        temperature=request.temperature,
        top_p=request.top_p,
        tools=tools or None,
        tool_choice=choice,
        metadata={"user_id": user} if user else None,
    )
    body |= _encode_reasoning(request, body["max_tokens"], extra)
    body |= extra
    quirks = request.quirks or Quirks()
    return {name: value for name, value in body.items() if name not in quirks.without}


class _CacheMarks:
    """Puts `cache_control` on the encoded blocks of the parts that end a cached prefix.

    If a part occurs more than once, only its last occurrence is marked: the API accepts few breakpoints.
    """

    def __init__(self, points: Mapping[str, Mapping[str, Any]] | None) -> None:
        self.points = points or {}
        self._blocks: dict[str, Json] = {}

    def apply(self, part: Part, block: Json) -> Json:
        if self.points and (digest := part_digest(part)) in self.points:
            self._blocks[digest] = block
        return block

    def place(self) -> None:
        for digest, block in self._blocks.items():
            block["cache_control"] = dict(self.points[digest])


def _encode_messages(messages: Iterable[Message], marks: _CacheMarks) -> list[Json]:
    """Return alternating user and assistant messages, with the tool results first in each user message."""
    encoded: list[Json] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        blocks = [block for part in message.parts for block in _encode_part(part, message.role, marks)]
        if not blocks:
            continue
        if encoded and encoded[-1]["role"] == message.role:
            encoded[-1]["content"] += blocks
        else:
            encoded.append({"role": str(message.role), "content": blocks})
    for entry in encoded:
        entry["content"].sort(key=lambda block: block.get("type") != "tool_result")  # stable
    return encoded


def _shorten(blocks: list[Json], marks: _CacheMarks) -> str | list[Json]:
    """Return a single text as a string, which every server accepts.

    With breakpoints it stays a list of blocks: a message must not change when the breakpoint moves on.
    """
    if not marks.points and len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks


def _encode_part(part: Part, role: Role, marks: _CacheMarks) -> list[Json]:
    match part:
        case TextPart() | DataPart():
            block = _encode_content(part)
            if role is Role.ASSISTANT and isinstance(part, DataPart) and part.mime != NATIVE_MIME:
                block = _encode_note(part)  # the API does not allow files in assistant messages
        case ThinkingPart():
            block = _encode_thinking(part) if role is Role.ASSISTANT else None
        case ToolCallPart(call_id, name):
            block = {"type": "tool_use", "id": _valid_id(call_id), "name": name}
            block["input"] = _encode_input(part.input)
        case ToolResultPart():
            block = _encode_result(part, marks)
        case _:
            assert_never(part)
    return [] if block is None else [marks.apply(part, block)]


def _encode_content(part: TextPart | DataPart) -> Json | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text} if part.text else None
    if part.mime == NATIVE_MIME:
        return dict(Fields(read_json(part.data)).raw)
    mime = detect_mime(part.data, part.mime)
    title = omit_none(title=part.name)
    if (text := extract_text(part)) is not None:
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, **title}
    source = {"type": "base64", "media_type": mime, "data": b64encode(part.data).decode()}
    if mime in _IMAGES:
        return {"type": "image", "source": source}
    if mime == PDF:
        return {"type": "document", "source": source, **title}
    return _encode_note(part)


def _encode_note(part: DataPart) -> Json:
    return {"type": "text", "text": f"[{part.name or 'file'}, {part.mime}, {len(part.data)} bytes, not sent]"}


def _encode_thinking(part: ThinkingPart) -> Json | None:
    """Return a thinking block, or `None`: the API accepts only thinking that it has signed.

    Servers that sign nothing get their unsigned thinking back.
    """
    binding, proof = split_metadata(part.metadata)
    if isinstance(data := proof.get(REDACTED), str):
        return {"type": "redacted_thinking", "data": data}
    signature = proof.get(SIGNATURE, "" if binding is not None and binding.plain else None)
    if not isinstance(signature, str):
        return None
    return {"type": "thinking", "thinking": part.text, "signature": signature}


def _encode_input(arguments: Any) -> Json:
    """Return the arguments as an object, which the API requires."""
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError:
            return {"input": arguments}
    if arguments is None or arguments == "":
        return {}
    return dict(arguments) if isinstance(arguments, Mapping) else {"input": arguments}


def _encode_result(part: ToolResultPart, marks: _CacheMarks) -> Json:
    content = [marks.apply(item, block) for item in part.parts if (block := _encode_content(item))]
    result: Json = {"type": "tool_result", "tool_use_id": _valid_id(part.call_id)}
    if content:
        result["content"] = content
    return {**result, "is_error": True} if part.is_error else result


def _valid_id(call_id: str) -> str:
    """Return an id that the API accepts. Ids of other providers can contain other characters."""
    valid = _INVALID_IN_ID.sub("_", call_id)
    if valid == call_id and valid:
        return valid
    return f"{valid}_{blake2s(call_id.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


def _merge_tools(tools: list[Json], additions: object) -> list[Json]:
    by_name = {tool["name"]: tool for tool in tools}
    for addition in additions if isinstance(additions, Sequence) else ():
        name = Fields(addition).text("name")
        if name in by_name:
            by_name[name].update(addition)
        else:
            tools.append(addition)
    return tools


def _encode_choice(choice: ToolChoice | None, parallel: bool | None) -> Json | None:
    if choice is None and parallel is None:
        return None
    if isinstance(choice, NamedTool):
        encoded: Json = {"type": "tool", "name": choice.name}
    else:
        encoded = {"type": _CHOICE_TYPES[choice or "auto"]}
    if parallel is not None and encoded["type"] != "none":
        encoded["disable_parallel_tool_use"] = not parallel
    return encoded


def _encode_reasoning(request: ChatRequest, max_tokens: int, extra: Json) -> Json:
    """Return `thinking` and `output_config`. Those of a caller (in `extra`, which loses the second) win."""
    config: Json = {}
    fields: Json = {}
    effort = request.reasoning_effort
    if effort is not None and not extra.keys() & {"thinking", "output_config"}:
        thinking, chosen_effort = choose_thinking(request.model, effort, max_tokens)
        fields = omit_none(thinking=thinking)
        config = omit_none(effort=chosen_effort)
    if request.output_format is not None:
        config["format"] = {"type": "json_schema", "schema": dict(request.output_format.schema)}
    if isinstance(options := extra.pop("output_config", None), Mapping):
        config |= options
    return {**fields, "output_config": config} if config else fields
