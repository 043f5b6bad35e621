"""The server direction of the Messages API: decode the requests of callers, encode the answers to them.

An answer is encoded as a stream or as one body. The protocol cannot replace text that was sent, so text that
a gateway replaces later stays in a stream.
"""

from __future__ import annotations

import binascii
import math
import secrets
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, assert_never

import msgspec

from tollbridge.policy.thinking import effort_for
from tollbridge.protocols.anthropic_messages.requests import (
    NATIVE_MIME,
    PDF,
    TOOL_CHOICES,
    omit_none,
)
from tollbridge.protocols.anthropic_messages.wire import (
    FINISH_REASONS,
    REDACTED,
    SIGNATURE,
    Json,
    encode_usage,
    pack_proof,
    unpack_proof,
)
from tollbridge.protocols.request_fields import check_output_limit, name_type
from tollbridge.types.errors import BridgeError, ContextTooLong, Kind, RequestError, ServerFailed
from tollbridge.types.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    METADATA_KEY,
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
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    add_origin,
    part_digest,
)
from tollbridge.types.text import Fields, write_json

# --- Requests ---


class CallerRequest(msgspec.Struct, frozen=True):
    """The request of a caller.

    Attributes:
        request: The request in the form that every protocol can send.
        stream: Whether the caller expects a stream.
        extra: The fields of the body that only this protocol has, as they came, and the `betas` of the
            header. `request.extra` has them as well if the gateway speaks this protocol.
        omissions: One sentence for each thing that was left out of `request`.
    """

    request: ChatRequest
    stream: bool = False
    extra: Mapping[str, Any] = {}
    omissions: tuple[str, ...] = ()


# Fields whose omission is not listed: they do not change the answer.
_UNLISTED = frozenset(
    {"betas", "cache_control", "context_management", "diagnostics", "metadata", "service_tier"}
)
_NEUTRAL_TOOL_FIELDS = frozenset({"type", "name", "description", "input_schema"})


def decode_request(
    body: object, *, native: Origin | None = None, headers: Mapping[str, str] | None = None
) -> CallerRequest:
    """Decode the body of `POST /v1/messages` or of `POST /v1/messages/count_tokens`.

    Fields, tools and content blocks of unknown types never make a request fail.

    Args:
        body: The parsed JSON.
        native: The model and gateway that will get the request, if that gateway speaks this protocol too:
            everything is kept for it. For other gateways, what they cannot represent is left out and listed.
        headers: The headers of the request, with lower-case names.

    Raises:
        RequestError: The body has no model or no messages, or a message has no role.
    """
    fields = Fields(body)
    model, messages = fields.text("model"), fields.raw.get("messages")
    if model is None:
        raise RequestError("model: Field required. Send the name of a model.", param="model")
    if messages is None:
        raise RequestError("messages: Field required. Send a list of messages.", param="messages")
    if not isinstance(messages, list):
        message = f"messages: Input should be a list of messages, not {name_type(messages)}."
        raise RequestError(message, param="messages")
    check_output_limit(fields.raw, "max_tokens")
    return _RequestDecoder(fields, native).decode(model, messages, headers or {})


class _RequestDecoder:
    def __init__(self, fields: Fields, native: Origin | None) -> None:
        self._fields = fields
        self._native = native
        self._omissions: dict[str, None] = {}
        self._points: dict[str, Mapping[str, Any]] = {}
        self._rest = dict(fields.raw)
        for name in ("model", "messages", "stream"):
            self._rest.pop(name, None)

    def decode(self, model: str, entries: list[Any], headers: Mapping[str, str]) -> CallerRequest:
        messages = [self._decode_message(entry, f"messages.{at}") for at, entry in enumerate(entries)]
        system = self._decode_blocks(self._rest.pop("system", None))
        if system:
            messages.insert(0, Message(Role.SYSTEM, system))
        tools, native_tools = self._decode_tools(self._rest.pop("tools", None))
        choice, parallel = self._decode_choice(tools, native_tools)
        effort, output_format = self._decode_config()
        request = ChatRequest(
            model=model,
            messages=tuple(message for message in messages if message.parts),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=parallel,
            reasoning_effort=effort,
            max_output_tokens=self._take("max_tokens", int),
            temperature=self._take("temperature", (int, float)),
            top_p=self._take("top_p", (int, float)),
            output_format=output_format,
            cache_points=self._points or None,
        )
        betas = [beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip()]
        extra = {**self._rest, **omit_none(tools=native_tools or None, betas=betas or None)}
        if self._native is not None:
            request = msgspec.structs.replace(request, extra=extra or None)
        else:
            for name in extra.keys() - _UNLISTED - {"tools", "thinking", "output_config"}:
                self._omit(f"Left out the field {name[:80]}: the gateway's protocol does not have it.")
        return CallerRequest(
            request, self._fields.raw.get("stream") is True, extra, tuple(sorted(self._omissions))
        )

    def _omit(self, sentence: str) -> None:
        self._omissions.setdefault(sentence)

    def _take(self, name: str, types: type | tuple[type, ...]) -> Any:
        value = self._rest.pop(name, None)
        if value is None or (isinstance(value, types) and not isinstance(value, bool)):
            return value
        raise RequestError(f"{name}: Input should be a valid number, not {name_type(value)}.", param=name)

    # --- Messages ---

    def _decode_message(self, entry: Any, path: str) -> Message:
        fields = Fields(entry)
        role = fields.text("role")
        if role not in tuple(Role):
            raise RequestError(f"{path}.role: Input should be 'user' or 'assistant'.", param=path)
        return Message(role, self._decode_blocks(fields.raw.get("content")))

    def _decode_blocks(self, content: object) -> tuple[Part, ...]:
        if isinstance(content, str):
            return (TextPart(content),) if content else ()
        parts: list[Part] = []
        for block in content if isinstance(content, list) else ():
            fields = Fields(block)
            part = self._decode_block(fields) if fields else None
            if part is None:
                continue
            parts.append(part)
            if mark := fields.inner("cache_control"):
                self._points[part_digest(part)] = mark.raw
        return tuple(parts)

    def _decode_block(self, block: Fields) -> Part | None:
        match block.text("type"):
            case "thinking":
                return self._decode_thinking(
                    block.text("thinking") or "", SIGNATURE, block.text("signature") or ""
                )
            case "redacted_thinking":
                return self._decode_thinking("", REDACTED, block.text("data") or "")
            case "tool_use":
                arguments = block.raw.get("input")
                arguments = {} if arguments is None else arguments
                return ToolCallPart(block.text("id") or "", block.text("name") or "", arguments)
            case "tool_result":
                parts = self._decode_blocks(block.raw.get("content"))
                content = [part for part in parts if isinstance(part, TextPart | DataPart)]
                is_error = block.raw.get("is_error") is True
                return ToolResultPart(block.text("tool_use_id") or "", content, is_error)
            case _:
                return self._decode_content(block)

    def _decode_content(self, block: Fields) -> TextPart | DataPart | None:
        source, name = block.inner("source"), block.text("title")
        match block.text("type"), source.text("type"):
            case "text", _:
                return TextPart(block.text("text") or "") if block.text("text") else None
            case ("image" | "document") as kind, "base64":
                data = _decode_base64(source.text("data") or "")
                if data is not None:
                    label = source.text("media_type") or ("image/png" if kind == "image" else PDF)
                    return DataPart(data, detect_mime(data, label), name)
                self._omit(f"Left out a {kind}: its data is not valid base64.")
                return None
            case "document", "text":
                return DataPart((source.text("data") or "").encode("utf-8", "replace"), "text/plain", name)
            case _:
                return self._decode_native(block)

    def _decode_native(self, block: Fields) -> TextPart | DataPart:
        """Keep a block for a gateway that knows it; describe it for others."""
        if self._native is not None:
            raw = {name: value for name, value in block.raw.items() if name != "cache_control"}
            return DataPart(write_json(raw).encode(), NATIVE_MIME)
        kind = (block.text("type") or "unknown")[:80]
        self._omit(f"Replaced content of the type {kind} by a description: the gateway does not accept it.")
        source = block.raw.get("source")
        address = source if isinstance(source, str) else Fields(source).text("url")
        texts = [
            item.text("text") or "" for item in block.list("content") + block.inner("source").list("content")
        ]
        return TextPart(
            "\n".join([f"[{' '.join(filter(None, (kind, block.text('title'), address)))}]", *texts])
        )

    def _decode_thinking(self, text: str, kind: str, value: str) -> ThinkingPart | None:
        packed = unpack_proof(value)
        # A proof without its origin was not packed here, but by a gateway of the same kind behind this one.
        if packed is not None and (self._native is None or METADATA_KEY in packed[0]):
            metadata, block_id = packed
            return ThinkingPart(text, block_id, metadata)
        if not text and not value:
            return None
        proof = {kind: value} if value else None
        return ThinkingPart(text, None, add_origin(self._native, proof) if self._native else proof)

    # --- Tools and options ---

    def _decode_tools(self, entries: object) -> tuple[tuple[Tool, ...], list[Json]]:
        """Return the tools that the caller runs, and what only this protocol has: other tools and fields."""
        tools: list[Tool] = []
        native: list[Json] = []
        for entry in entries if isinstance(entries, list) else ():
            tool = Fields(entry)
            name, kind = tool.text("name"), tool.text("type") or "custom"
            if kind != "custom" or name is None:
                native.append(dict(tool.raw))
                if self._native is None:
                    self._omit(f"Left out the tool {(name or kind)[:80]}: only the provider can run it.")
                continue
            tools.append(Tool(name, tool.text("description") or "", tool.inner("input_schema").raw or None))
            rest = {field: value for field, value in tool.raw.items() if field not in _NEUTRAL_TOOL_FIELDS}
            if rest:
                native.append({"name": name, **rest})
        return tuple(tools), native

    def _decode_choice(
        self, tools: Sequence[Tool], native: Sequence[Json]
    ) -> tuple[ToolChoice | None, bool | None]:
        fields = Fields(self._rest.pop("tool_choice", None))
        disabled = fields.raw.get("disable_parallel_tool_use")
        parallel = not disabled if isinstance(disabled, bool) else None
        kind, name = fields.text("type") or "", fields.text("name")
        if kind != "tool" or name is None:
            return TOOL_CHOICES.get(kind), parallel
        known = {tool.name for tool in tools}
        if self._native is not None:
            known |= {str(tool.get("name")) for tool in native}
        return NamedTool(name) if name in known else None, parallel

    def _decode_config(self) -> tuple[str | None, OutputFormat | None]:
        """Return the effort and the output format; leave `thinking` and the other options in the rest."""
        thinking = Fields(self._rest.get("thinking"))
        config = dict(Fields(self._rest.pop("output_config", None)).raw)
        beta_format = self._rest.pop("output_format", None)  # its name while it was a beta
        output_format = Fields(config.pop("format", None) or beta_format)
        if config:
            self._rest["output_config"] = config
        effort = Fields(config).text("effort")
        if effort is None:
            match thinking.text("type"):
                case "enabled":
                    effort = effort_for(thinking.number("budget_tokens") or 0)
                case "adaptive":
                    effort = "high"  # the API's default
        elif thinking.text("type") == "disabled":
            effort = None
        schema = output_format.inner("schema")
        return effort, OutputFormat("answer", schema.raw) if schema else None


def _decode_base64(text: str) -> bytes | None:
    try:
        return b64decode(text)
    except (ValueError, binascii.Error):
        return None


# --- Streams ---

_EMPTY_THINKING: Json = {"type": "thinking", "thinking": "", "signature": ""}


class MessageEncoder:
    """Encodes the events of one answer as wire events.

        encoder = MessageEncoder(caller)
        wire_events = encoder.start()
        wire_events += encoder.encode(batch)      # for each batch of an answer
        wire_events += encoder.finish(error)      # `error` is `None` if the answer is complete
        body = join_message(wire_events)          # for a caller that does not stream

    Mark the events with a `ReasoningPacker` first, so that reasoning returns only to the model it came from.

    Args:
        caller: The request of the caller.
        input_tokens: An estimate of the input tokens, for `message_start`. The end of the stream has the
            exact usage.

    Attributes:
        dropped: The number of events that the protocol cannot represent, by type.
    """

    def __init__(self, caller: CallerRequest, *, input_tokens: int = 0) -> None:
        self.dropped: Counter[str] = Counter()
        self._model = caller.request.model
        self._input_tokens = input_tokens
        self._index = -1  # of the open block, or of the last one
        self._open: Literal["text", "thinking"] | None = None
        self._reasoning_id: str | None = None
        self._has_calls = False
        self._finished: Finished | None = None

    def start(self) -> list[Json]:
        """Return the first wire event."""
        message: Json = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": encode_usage(Usage(self._input_tokens, 0)),
        }
        return [{"type": "message_start", "message": message}]

    def encode(self, batch: Iterable[Event]) -> list[Json]:
        """Return the wire events for a batch of the answer."""
        return [wire_event for event in batch for wire_event in self._encode(event)]

    def finish(self, error: BridgeError | None = None) -> list[Json]:
        """Return the last wire events: the end of the answer, or the error after which the stream ends."""
        finished = self._finished
        if finished is None or error is not None:
            error = error or ServerFailed("The gateway's answer has no end.")
            return [encode_error(error).body]
        default = "tool_use" if self._has_calls else "end_turn"
        delta = {"stop_reason": FINISH_REASONS.get(finished.reason, default), "stop_sequence": None}
        usage = encode_usage(finished.usage or Usage(self._input_tokens))
        return [
            *self._close_block(),
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]

    def _encode(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text):
                if not text:
                    return []
                opening = self._open_block("text", {"type": "text", "text": ""})
                return [*opening, self._delta({"type": "text_delta", "text": text})]
            case ReasoningDelta():
                return self._encode_reasoning(event)
            case ReasoningEnded():
                return self._encode_proof(event)
            case ToolCall():
                return self._encode_call(event)
            case Source():
                return self._encode_source(event)
            case Finished():
                self._finished = event  # a repaired call can still follow
                return []
            case Failed():
                return []  # `finish` gets the error
            case File() | Data() | Corrected():
                self.dropped[type(event).__name__] += 1
                return []
            case _:
                assert_never(event)

    def _encode_reasoning(self, event: ReasoningDelta) -> list[Json]:
        if not event.text:
            return []
        block, _, part = (event.id or "").partition(":")
        closing: list[Json] = []
        text = event.text
        if self._open == "thinking" and event.id != self._reasoning_id:
            if part and block == (self._reasoning_id or "").partition(":")[0]:
                text = "\n\n" + text  # the next part of a summary
            else:
                closing = self._close_block()
        self._reasoning_id = event.id
        opening = self._open_block("thinking", _EMPTY_THINKING)
        return [*closing, *opening, self._delta({"type": "thinking_delta", "thinking": text})]

    def _encode_proof(self, event: ReasoningEnded) -> list[Json]:
        """End a reasoning block. Its proof is the signature, or the data of a block without text."""
        metadata = event.metadata or {}
        # The protocol's own proofs are passed on as they are.
        own = next(iter(metadata)) if len(metadata) == 1 and event.id is None else None
        if not metadata:
            return self._close_block() if self._open == "thinking" else []
        if own == SIGNATURE or (self._open == "thinking" and own != REDACTED):
            proof = metadata[SIGNATURE] if own == SIGNATURE else pack_proof(metadata, event.id)
            opening = self._open_block("thinking", _EMPTY_THINKING)  # open, unless its text was withheld
            return [
                *opening,
                self._delta({"type": "signature_delta", "signature": proof}),
                *self._close_block(),
            ]
        data = metadata[REDACTED] if own == REDACTED else pack_proof(metadata, event.id)
        return self._whole_block({"type": "redacted_thinking", "data": data})

    def _encode_call(self, call: ToolCall) -> list[Json]:
        if not call.offered:
            self.dropped["ToolCall"] += 1
            return []
        self._has_calls = True
        arguments = call.input if isinstance(call.input, Mapping) else {"input": call.input}
        block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        return self._whole_block(block, {"type": "input_json_delta", "partial_json": write_json(arguments)})

    def _encode_source(self, source: Source) -> list[Json]:
        if source.url is None or self._open != "text":
            self.dropped["Source"] += 1
            return []
        citation = {
            "type": "web_search_result_location",
            "url": source.url,
            "title": source.title,
            "cited_text": "",
            "encrypted_index": "",
        }
        return [self._delta({"type": "citations_delta", "citation": citation})]

    def _open_block(self, kind: Literal["text", "thinking"], block: Json) -> list[Json]:
        if self._open == kind:
            return []
        closing = self._close_block()
        self._open, self._index = kind, self._index + 1
        return [*closing, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _close_block(self) -> list[Json]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._index}]

    def _whole_block(self, block: Json, *deltas: Json) -> list[Json]:
        closing = self._close_block()
        self._index += 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        stop = {"type": "content_block_stop", "index": self._index}
        return [*closing, start, *map(self._delta, deltas), stop]

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def write_frames(wire_events: Iterable[Json]) -> bytes:
    """Return wire events as server-sent events."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), write_json(event).encode())
        for event in wire_events
    )


# --- Bodies ---

_Delta = TypeVar("_Delta", TextDelta, ReasoningDelta)


def join_message(wire_events: Iterable[Json]) -> Json | None:
    """Return the message that a complete stream of wire events describes; `None` if it is not complete."""
    message: Json = {}
    blocks: list[Json] = []
    texts: list[list[str]] = []
    for event in wire_events:
        match event["type"]:
            case "message_start":
                message = dict(event["message"])
            case "content_block_start":
                blocks.append(dict(event["content_block"]))
                texts.append([])
            case "content_block_delta":
                _add_delta(blocks[-1], texts[-1], event["delta"])
            case "content_block_stop":
                _complete_block(blocks[-1], "".join(texts[-1]))
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"], "content": blocks}
    return message if message.get("stop_reason") else None


def _add_delta(block: Json, texts: list[str], delta: Json) -> None:
    match delta["type"]:
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block.setdefault("citations", []).append(delta["citation"])
        case "text_delta":
            texts.append(delta["text"])
        case "thinking_delta":
            texts.append(delta["thinking"])
        case "input_json_delta":
            texts.append(delta["partial_json"])


def _complete_block(block: Json, text: str) -> None:
    if block["type"] == "tool_use":
        block["input"] = msgspec.json.decode(text)
    elif text:
        block[block["type"]] = text  # `text` and `thinking` hold their text in a field of the same name


def encode_message(events: Iterable[Event], caller: CallerRequest) -> Json | None:
    """Return the body for an answer that is not streamed; `None` if the answer has no end."""
    encoder = MessageEncoder(caller)
    start = encoder.start()
    return join_message([*start, *encoder.encode(_apply_corrections(events)), *encoder.finish()])


def _apply_corrections(events: Iterable[Event]) -> list[Event]:
    """Return the events without the text and the reasoning that later events replace."""
    final: list[Event | None] = []
    texts: list[tuple[int, TextDelta]] = []  # the position and the value of each delta
    thoughts: list[tuple[int, ReasoningDelta]] = []
    for event in events:
        match event:
            case TextDelta(text, replaces) | Corrected(text, replaces, "text"):
                _discard(final, texts, replaces)
                texts.append((len(final), TextDelta(text)))
                final.append(texts[-1][1])
            case ReasoningDelta(text, block, replaces) | Corrected(text, replaces, "reasoning", block):
                _discard(final, thoughts, replaces)
                thoughts.append((len(final), ReasoningDelta(text, block)))
                final.append(thoughts[-1][1])
            case _:
                final.append(event)
    return [event for event in final if event is not None]


def _discard(final: list[Event | None], deltas: list[tuple[int, _Delta]], length: int) -> None:
    """Remove the last `length` characters of the deltas."""
    while length > 0 and deltas:
        position, delta = deltas.pop()
        text = delta.text[: max(0, len(delta.text) - length)]
        length -= len(delta.text)
        final[position] = None
        if text:
            shorter = msgspec.structs.replace(delta, text=text)
            deltas.append((position, shorter))
            final[position] = shorter


def encode_token_count(tokens: int) -> Json:
    """Return the body of the response to `POST /v1/messages/count_tokens`."""
    return {"input_tokens": tokens}


# --- Errors ---


class ErrorReply(msgspec.Struct, frozen=True):
    """An error response. The body is also the event that ends a stream."""

    status: int
    body: Json
    headers: Mapping[str, str] = {}


# The status and the error type of each kind of error.
ERRORS: dict[Kind, tuple[int, str]] = {
    "authentication": (401, "authentication_error"),
    "permission": (403, "permission_error"),
    "not_found": (404, "not_found_error"),
    "rate_limited": (429, "rate_limit_error"),
    "budget_exceeded": (402, "billing_error"),
    "context_too_long": (400, "invalid_request_error"),
    "content_filtered": (400, "invalid_request_error"),
    "invalid_request": (400, "invalid_request_error"),
    "overloaded": (529, "overloaded_error"),
    "server": (500, "api_error"),
    "network": (502, "api_error"),
    "timeout": (504, "timeout_error"),
    "disconnected": (502, "api_error"),
    "protocol": (502, "api_error"),
}
# Statuses that a gateway can report and that are more specific than the kind of the error.
_SPECIFIC = {402: "billing_error", 413: "request_too_large"}


def encode_error(error: BridgeError, request_id: str | None = None) -> ErrorReply:
    """Return the response for an error, in the protocol's own form.

    A prompt that is too long is reported in Anthropic's words: callers recognise it by them, and shorten the
    conversation.
    """
    status, type_ = ERRORS[error.kind]
    if error.status in _SPECIFIC:
        status, type_ = error.status, _SPECIFIC[error.status]
    message = error.message
    if isinstance(error, ContextTooLong):
        sizes = f": {error.tokens} tokens > {error.limit} maximum" if error.tokens and error.limit else ""
        message = f"prompt is too long{sizes}. {message}"
    return make_error(status, type_, message, request_id or error.request_id, error.retry_after)


def make_error(
    status: int, type_: str, message: str, request_id: str | None = None, retry_after: float | None = None
) -> ErrorReply:
    headers = {}
    if retry_after is not None:
        headers["retry-after"] = str(math.ceil(retry_after))
    if request_id is not None:
        headers["request-id"] = request_id
    body = {"type": "error", "error": {"type": type_, "message": message}, "request_id": request_id}
    return ErrorReply(status, body, headers)
