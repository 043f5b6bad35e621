"""Decode the requests of callers that use the Messages API: the inverse of `requests`."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols.anthropic_messages.requests import (
    BUDGETS,
    NATIVE_MIME,
    PDF,
    TOOL_CHOICES,
    omit_none,
)
from tollbridge.protocols.anthropic_messages.wire import REDACTED, SIGNATURE, Json, unpack_proof
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.protocols.request_fields import check_output_limit, name_type
from tollbridge.types.errors import RequestError
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
from tollbridge.types.text import write_json


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
                    budget = thinking.number("budget_tokens") or 0
                    effort = next((name for name in ("low", "medium") if budget <= BUDGETS[name]), "high")
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
