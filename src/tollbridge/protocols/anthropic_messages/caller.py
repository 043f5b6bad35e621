"""Decode the requests of callers of the Messages API.

Fields, tools and content blocks of unknown types never make a request fail: for a gateway that speaks this
protocol they are kept; for others, what they cannot represent is left out and listed.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tollbridge.policy.thinking import effort_for
from tollbridge.protocols.anthropic_messages.answer import MessageEncoder, encode_error, find_status
from tollbridge.protocols.anthropic_messages.requests import NATIVE_MIME, PDF, TOOL_CHOICES
from tollbridge.protocols.anthropic_messages.wire import REDACTED, SIGNATURE, unpack_proof
from tollbridge.protocols.caller import CallerCodec
from tollbridge.protocols.caller_request import CallerRequest, Json, RequestDecoder, name_type
from tollbridge.protocols.encoding import omit_none
from tollbridge.types.errors import BridgeError, RequestError
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
)
from tollbridge.types.models import Model
from tollbridge.types.text import Fields, write_json

_NEUTRAL_TOOL_FIELDS = frozenset({"type", "name", "description", "input_schema"})


class MessageDecoder(RequestDecoder):
    """Decodes the body of `POST /messages` or of `POST /messages/count_tokens`."""

    unlisted_fields = frozenset(
        {
            *("betas", "cache_control", "context_management", "diagnostics", "metadata", "service_tier"),
            *("tools", "thinking", "output_config"),
        }
    )

    def __init__(self, body: object, headers: Mapping[str, str], native: Origin | None) -> None:
        super().__init__(body, headers, native)
        # The fields that are not decoded yet.
        self._rest = {
            name: value
            for name, value in self._body.raw.items()
            if name not in ("model", "messages", "stream")
        }

    def decode(self) -> CallerRequest:
        model, entries = self._body.get("model"), self._body.get("messages")
        if not isinstance(model, str):
            raise RequestError("model: Field required. Send the name of a model.", param="model")
        if entries is None:
            raise RequestError("messages: Field required. Send a list of messages.", param="messages")
        if not isinstance(entries, list):
            message = f"messages: Input should be a list of messages, not {name_type(entries)}."
            raise RequestError(message, param="messages")
        limit = self._take("max_tokens", int)
        self._body.limit("max_tokens")  # raises if it is less than 1
        messages = [self._decode_message(entry, f"messages.{at}") for at, entry in enumerate(entries)]
        system = self._decode_blocks(self._rest.pop("system", None))
        if system:
            messages.insert(0, Message(Role.SYSTEM, system))
        native_tools = self._decode_tools(self._rest.pop("tools", None))
        choice, parallel = self._decode_choice(native_tools)
        effort, output_format = self._decode_config()
        request = ChatRequest(
            model=model,
            messages=tuple(message for message in messages if message.parts),
            tools=tuple(self._tools.values()),
            tool_choice=choice,
            parallel_tool_calls=parallel,
            reasoning_effort=effort,
            max_output_tokens=limit,
            temperature=self._take("temperature", (int, float)),
            top_p=self._take("top_p", (int, float)),
            output_format=output_format,
            cache_points=self._cache_points or None,
        )
        betas = [name.strip() for name in self._headers.get("anthropic-beta", "").split(",") if name.strip()]
        extra = {**self._rest, **omit_none(tools=native_tools or None, betas=betas or None)}
        return self._finish(request, extra)

    def _take(self, name: str, types: type | tuple[type, ...]) -> Any:
        value = self._rest.pop(name, None)
        if value is None or (isinstance(value, types) and not isinstance(value, bool)):
            return value
        raise RequestError(f"{name}: Input should be a valid number, not {name_type(value)}.", param=name)

    # Messages

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
            self._add_cache_point(fields.raw.get("cache_control"), part)
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
                try:
                    data = b64decode(source.text("data") or "")
                except ValueError:
                    self._omit(f"a {kind}: its data is not valid base64")
                    return None
                label = source.text("media_type") or ("image/png" if kind == "image" else PDF)
                return DataPart(data, detect_mime(data, label), name)
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
        self._omissions.add(
            f"Replaced content of the type {kind} by a description: the gateway does not accept it."
        )
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

    # Tools and options

    def _decode_tools(self, entries: object) -> list[Json]:
        """Add the tools that the caller runs; return what only this protocol has: other tools and fields."""
        native: list[Json] = []
        for entry in entries if isinstance(entries, list) else ():
            tool = Fields(entry)
            name, kind = tool.text("name"), tool.text("type") or "custom"
            if kind != "custom" or name is None:
                native.append(dict(tool.raw))
                if self._native is None:
                    self._omit(f"the tool {(name or kind)[:80]}: only the provider can run it")
                continue
            schema = tool.inner("input_schema").raw or None
            self._tools[name] = Tool(name, tool.text("description") or "", schema)
            rest = {field: value for field, value in tool.raw.items() if field not in _NEUTRAL_TOOL_FIELDS}
            if rest:
                native.append({"name": name, **rest})
        return native

    def _decode_choice(self, native: Sequence[Json]) -> tuple[ToolChoice | None, bool | None]:
        fields = Fields(self._rest.pop("tool_choice", None))
        disabled = fields.raw.get("disable_parallel_tool_use")
        parallel = not disabled if isinstance(disabled, bool) else None
        kind, name = fields.text("type") or "", fields.text("name")
        if kind != "tool" or name is None:
            return TOOL_CHOICES.get(kind), parallel
        known = set(self._tools)
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


class MessagesCodec(CallerCodec):
    """Anthropic's Messages API: `/v1/messages`."""

    name = "anthropic-messages"
    path = "/messages"
    count_path = "/messages/count_tokens"
    ends_with_done = False
    decoder = MessageDecoder
    encoder = MessageEncoder

    def error_status(self, error: BridgeError) -> int:
        return find_status(error)[0]

    def encode_error(self, error: BridgeError, status: int) -> Json:  # noqa: ARG002
        return encode_error(error)

    def encode_models(self, models: Sequence[Model]) -> Json:
        entries = [self.encode_model(model) for model in models]
        ends = (entries[0]["id"], entries[-1]["id"]) if entries else (None, None)
        return {"data": entries, "has_more": False, "first_id": ends[0], "last_id": ends[1]}

    def encode_model(self, model: Model) -> Json:
        return {
            "type": "model",
            "id": model.id,
            "display_name": model.name or model.id,
            "created_at": datetime.fromtimestamp(model.created or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


CODEC = MessagesCodec()
