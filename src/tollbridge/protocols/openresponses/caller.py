"""Decode the requests of callers of OpenResponses.

Fields and tools without an equivalent in `ChatRequest` never cause an error, because callers send tools of
many types by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from tollbridge.protocols.caller import CallerCodec, encode_openai_error
from tollbridge.protocols.caller_request import (
    CUSTOM_ARGUMENT,
    ROLES,
    CallerRequest,
    Json,
    RequestDecoder,
    RequestObject,
    invalid_field,
    join_name,
    read_arguments,
    read_content,
    read_data_url,
    read_output_format,
)
from tollbridge.protocols.openresponses.answer import ResponsesEncoder
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    decode_metadata,
)

# The fields that are decoded, or that describe only the form of the response. `text` is not among them: it
# has options in addition to the format.
_DECODED_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning"),
        *("max_output_tokens", "temperature", "top_p", "stream", "previous_response_id", "include"),
    }
)


class ResponsesDecoder(RequestDecoder):
    """Decodes the body of `POST /responses`."""

    def decode(self) -> CallerRequest:
        body = self._body
        limit = body.limit("max_output_tokens")
        if body.get("previous_response_id") is not None:
            raise RequestError(
                "previous_response_id is not supported here, because responses are not stored. "
                "Send the whole conversation in input.",
                status=400,
                code="previous_response_not_found",
                param="previous_response_id",
            )
        self._add_tools(body)
        messages = _join_messages(self._decode_messages())
        reasoning, output_format = body.inner("reasoning"), body.inner("text").inner("format")
        is_schema = output_format.get("type") == "json_schema"
        request = ChatRequest(
            model=body.text("model"),
            messages=messages,
            tools=tuple(self._tools.values()),
            tool_choice=self._decode_choice(body.get("tool_choice")),
            parallel_tool_calls=body.optional("parallel_tool_calls", bool),
            reasoning_effort=reasoning.optional("effort", str),
            reasoning_summary=reasoning.optional("summary", str),
            max_output_tokens=limit,
            temperature=body.optional("temperature", float),
            top_p=body.optional("top_p", float),
            output_format=read_output_format(output_format) if is_schema else None,
        )
        return self._finish(request, self._read_extra() if self._native is not None else {})

    def _read_extra(self) -> Json:
        """Return the fields without an equivalent, for a gateway of this protocol."""
        extra = {name: value for name, value in self._body.raw.items() if name not in _DECODED_FIELDS}
        tools = self._body.list("tools")
        if tools and all(tool.get("type") == "function" for tool in tools):
            extra["tools"] = tools  # unchanged, with fields such as `strict`
        return extra

    def _omit(self, what: str) -> None:
        super()._omit(f"{what}: the gateway's protocol has no equivalent")

    # Tools

    def _add_tools(self, owner: RequestObject, namespace: str | None = None) -> None:
        for tool in owner.objects("tools"):
            match tool.get("type"):
                case "function":
                    self._add_tool(tool, namespace=namespace)
                case "custom":
                    self._add_tool(tool, namespace=namespace, custom=True, grammar=tool.get("format"))
                case "namespace":
                    self._add_tools(tool, tool.text("name"))
                case other:
                    self._omit(f"tool of type {str(other)[:64]!r}")

    def _decode_choice(self, choice: Any) -> ToolChoice | None:
        if choice in ("auto", "required", "none"):
            return choice  # type: ignore[no-any-return]
        if isinstance(choice, Mapping) and choice.get("type") in ("function", "custom"):
            name = _tool_name(RequestObject(choice, "tool_choice"))
            return NamedTool(name) if name in self._tools else None
        if choice is not None:
            self._omit("tool_choice")
        return None

    # Input

    def _decode_messages(self) -> Iterator[Message]:
        if instructions := self._body.optional("instructions", str):
            yield Message(Role.SYSTEM, instructions)
        items = self._body.get("input")
        if isinstance(items, str):
            yield Message(Role.USER, items)
            return
        if not isinstance(items, list | None):
            raise invalid_field("input", "a string or an array", items)
        for item in self._body.objects("input"):
            if item.get("type") == "additional_tools":
                self._add_tools(item)
            elif (message := self._decode_item(item)) is not None:
                yield message

    def _decode_item(self, item: RequestObject) -> Message | None:
        match item.raw.get("type", "message"):
            case "message":
                role = ROLES.get(str(item.get("role")))
                if role is None:
                    raise invalid_field(item.path_of("role"), f"one of {', '.join(ROLES)}")
                return Message(role, self._decode_content(item, "content"))
            case "function_call":
                return _decode_call(item, read_arguments(item.get("arguments")))
            case "custom_tool_call":
                return _decode_call(item, {CUSTOM_ARGUMENT: str(item.get("input") or "")})
            case "function_call_output" | "custom_tool_call_output":
                parts = self._decode_content(item, "output")
                return Message(Role.USER, (ToolResultPart(item.text("call_id"), parts),))
            case "reasoning":
                return Message(Role.ASSISTANT, (_decode_reasoning(item),))
            case other:
                self._omit(f"input item of type {str(other)[:64]!r}")
                return None

    def _decode_content(self, item: RequestObject, field: str) -> list[TextPart | DataPart]:
        parts = map(self._decode_part, read_content(item.get(field), item.path_of(field)))
        return [part for part in parts if part is not None]

    def _decode_part(self, part: RequestObject) -> TextPart | DataPart | None:
        match part.get("type"):
            case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
                return TextPart(part.text("text"))
            case "refusal":
                return TextPart(part.text("refusal"))
            case "input_image":
                file = read_data_url(part.get("image_url"))
            case "input_file":
                file = read_data_url(part.get("file_data"), part.get("filename"))
            case other:
                self._omit(f"content of type {str(other)[:64]!r}")
                return None
        if file is None:
            self._omit(f"{part.path}, which is not a data URL")
        return file


def _tool_name(item: RequestObject) -> str:
    return join_name(item.text("name"), item.get("namespace"))


def _decode_call(item: RequestObject, arguments: Any) -> Message:
    name = _tool_name(item)
    return Message(Role.ASSISTANT, (ToolCallPart(item.text("call_id"), name, arguments),))


def _decode_reasoning(item: RequestObject) -> ThinkingPart:
    lists = [value for field in ("summary", "content") if isinstance(value := item.get(field), list)]
    blocks = [part for parts in lists for part in parts]
    text = "\n\n".join(
        part["text"] for part in blocks if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    )
    id_ = item.get("id")
    metadata = decode_metadata(item.get("encrypted_content"))
    return ThinkingPart(text, id_ if isinstance(id_, str) else None, metadata)


def _join_messages(messages: Iterable[Message]) -> list[Message]:
    """Join adjacent messages of the assistant, and adjacent tool results: each item was one message."""

    def group(message: Message) -> object:
        if message.role is Role.ASSISTANT:
            return message.role
        has_result = any(isinstance(part, ToolResultPart) for part in message.parts)
        return ToolResultPart if has_result else id(message)

    runs = [list(run) for _, run in groupby(list(messages), group)]
    return [
        run[0] if len(run) == 1 else Message(run[0].role, [part for each in run for part in each.parts])
        for run in runs
    ]


class ResponsesCodec(CallerCodec):
    """OpenResponses: `/v1/responses`."""

    name = "openresponses"
    path = "/responses"
    count_path = "/responses/input_tokens"
    compact_path = "/responses/compact"
    has_socket = True
    decoder = ResponsesDecoder
    encoder = ResponsesEncoder

    def encode_error(self, error: BridgeError, status: int) -> Json:
        return encode_openai_error(error, status, error.code or error.kind)

    def encode_count(self, tokens: int) -> Json:
        return {"object": "response.input_tokens", "input_tokens": tokens}


CODEC = ResponsesCodec()
