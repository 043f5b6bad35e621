"""The server direction of OpenResponses: decode a caller's request, and encode the events of the answer.

Reasoning passes through the caller in `encrypted_content`, which callers return unchanged: the metadata of a
reasoning block, with the model and the gateway it is valid for, is stored there (`encode_metadata`).
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tollbridge.protocols.request_fields import (
    add_grammar,
    check_output_limit,
    custom_tool_parameters,
    invalid_field,
    read_list,
    read_number,
    read_object,
    read_optional,
    read_text,
)
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.events import (
    Corrected,
    Event,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.media import split_data_url
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    OutputFormat,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    decode_metadata,
    encode_metadata,
)
from tollbridge.types.text import read_json, write_json

Json = dict[str, Any]

# The roles of the protocol. Gateways differ in whether they accept "system" or "developer".
_ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}
# The fields that are decoded, or that describe only the form of the response. `text` is not among them: it
# has options in addition to the format.
_DECODED_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning"),
        *("max_output_tokens", "temperature", "top_p", "stream", "previous_response_id", "include"),
    }
)
# Between the namespace and the name of a tool, where a protocol has no namespaces.
_NAMESPACE_SEPARATOR = "__"
# The argument that holds the text of a custom tool, where a protocol has only functions.
_CUSTOM_ARGUMENT = "input"


class CallerTool(msgspec.Struct, frozen=True):
    """How the caller declared a tool that is sent to the gateway as a function of another name or kind.

    Attributes:
        name: The name in the caller's declaration.
        namespace: The namespace that contains it, if any.
        custom: Whether its input is text and not an object.
    """

    name: str
    namespace: str | None = None
    custom: bool = False


class CallerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a caller, decoded.

    Attributes:
        request: The request in the form that every protocol can encode.
        stream: Whether the caller wants events, not one JSON object.
        tools: The tools that were renamed or converted, by the name in `request`.
        omissions: One sentence for each thing in the body that has no equivalent and was left out.
    """

    request: ChatRequest
    stream: bool = False
    tools: Mapping[str, CallerTool] = {}
    omissions: tuple[str, ...] = ()


# --- Requests ---


def decode_request(body: Mapping[str, Any], *, native: bool = False) -> CallerRequest:
    """Decode the body of `POST /responses`.

    Fields and tools without an equivalent in `ChatRequest` are listed in `omissions`; they never cause an
    error, because callers send tools of many types by default.

    Args:
        body: The body.
        native: Whether a gateway of this protocol will get the request: then fields without an equivalent are
            kept in `request.extra`.

    Raises:
        RequestError: A required field is missing or has the wrong type. The message names the field.
    """
    check_output_limit(body, "max_output_tokens")
    if not isinstance(items := body.get("input"), str | list | None):
        raise invalid_field("input", "a string or an array", items)
    caller = _RequestDecoder(body).decode()
    if not native:
        return caller
    extra = {name: value for name, value in body.items() if name not in _DECODED_FIELDS}
    tools = read_list(body, "tools")
    if tools and all(tool.get("type") == "function" for tool in tools):
        extra["tools"] = tools  # unchanged, with fields such as `strict`
    request = msgspec.structs.replace(caller.request, extra=extra or None)
    return msgspec.structs.replace(caller, request=request)


class _RequestDecoder:
    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._tools: dict[str, Tool] = {}
        self._caller_tools: dict[str, CallerTool] = {}
        self._omissions: dict[str, None] = {}

    def decode(self) -> CallerRequest:
        body = self._body
        if body.get("previous_response_id") is not None:
            raise RequestError(
                "previous_response_id is not supported here, because responses are not stored. "
                "Send the whole conversation in input.",
                status=400,
                code="previous_response_not_found",
                param="previous_response_id",
            )
        self._add_tools(read_list(body, "tools"), "tools")
        messages = _join_messages(self._decode_messages())
        reasoning = read_object(body, "reasoning")
        text = read_object(body, "text")
        request = ChatRequest(
            model=read_text(body, "model"),
            messages=messages,
            tools=tuple(self._tools.values()),
            tool_choice=self._decode_tool_choice(body.get("tool_choice")),
            parallel_tool_calls=read_optional(body, "parallel_tool_calls", bool),
            reasoning_effort=read_optional(reasoning, "effort", str, "reasoning."),
            reasoning_summary=read_optional(reasoning, "summary", str, "reasoning."),
            max_output_tokens=read_optional(body, "max_output_tokens", int),
            temperature=read_number(body, "temperature"),
            top_p=read_number(body, "top_p"),
            output_format=_decode_format(read_object(text, "format", "text.")),
        )
        return CallerRequest(
            request=request,
            stream=bool(body.get("stream")),
            tools=self._caller_tools,
            omissions=tuple(self._omissions),
        )

    def _omit(self, what: str) -> None:
        self._omissions[f"Left out {what}: the gateway's protocol has no equivalent."] = None

    # Tools

    def _add_tools(self, tools: Iterable[Any], field: str, namespace: str | None = None) -> None:
        for index, tool in enumerate(tools):
            if not isinstance(tool, Mapping):
                raise invalid_field(f"{field}[{index}]", "an object")
            match tool.get("type"):
                case "function":
                    self._add_tool(tool, f"{field}[{index}]", namespace)
                case "custom":
                    self._add_tool(tool, f"{field}[{index}]", namespace, custom=True)
                case "namespace":
                    name = read_text(tool, "name", f"{field}[{index}].")
                    self._add_tools(read_list(tool, "tools"), f"{field}[{index}].tools", name)
                case other:
                    self._omit(f"tool of type {str(other)[:64]!r}")

    def _add_tool(
        self, tool: Mapping[str, Any], field: str, namespace: str | None, *, custom: bool = False
    ) -> None:
        name = read_text(tool, "name", f"{field}.")
        sent_name = _tool_name(name, namespace)
        parameters = tool.get("parameters")
        description = str(tool.get("description") or "")
        if custom:
            parameters = custom_tool_parameters(_CUSTOM_ARGUMENT)
            description = add_grammar(description, tool.get("format"))
        if custom or namespace:
            self._caller_tools[sent_name] = CallerTool(name, namespace, custom)
        self._tools[sent_name] = Tool(
            sent_name, description, parameters if isinstance(parameters, Mapping) else None
        )

    def _decode_tool_choice(self, choice: Any) -> ToolChoice | None:
        if choice in ("auto", "required", "none"):
            return choice  # type: ignore[no-any-return]
        if isinstance(choice, Mapping) and choice.get("type") in ("function", "custom"):
            name = _tool_name(read_text(choice, "name", "tool_choice."), choice.get("namespace"))
            return NamedTool(name) if name in self._tools else None
        if choice is not None:
            self._omit("tool_choice")
        return None

    # Input

    def _decode_messages(self) -> Iterator[Message]:
        body = self._body
        instructions = read_optional(body, "instructions", str)
        if instructions:
            yield Message(Role.SYSTEM, instructions)
        items = body.get("input")
        if isinstance(items, str):
            yield Message(Role.USER, items)
            return
        for index, item in enumerate(read_list(body, "input")):
            if not isinstance(item, Mapping):
                raise invalid_field(f"input[{index}]", "an object")
            message = self._decode_item(item, f"input[{index}]")
            if message is not None:
                yield message

    def _decode_item(self, item: Mapping[str, Any], field: str) -> Message | None:
        match item.get("type", "message"):
            case "message":
                role = _ROLES.get(str(item.get("role")))
                if role is None:
                    raise invalid_field(f"{field}.role", f"one of {', '.join(_ROLES)}")
                return Message(role, self._decode_content(item.get("content"), f"{field}.content"))
            case "function_call":
                name = _tool_name(read_text(item, "name", f"{field}."), item.get("namespace"))
                arguments = _parse_arguments(item.get("arguments"))
                return Message(
                    Role.ASSISTANT, (ToolCallPart(read_text(item, "call_id", f"{field}."), name, arguments),)
                )
            case "custom_tool_call":
                name = _tool_name(read_text(item, "name", f"{field}."), item.get("namespace"))
                arguments = {_CUSTOM_ARGUMENT: str(item.get("input") or "")}
                return Message(
                    Role.ASSISTANT, (ToolCallPart(read_text(item, "call_id", f"{field}."), name, arguments),)
                )
            case "function_call_output" | "custom_tool_call_output":
                parts = self._decode_content(item.get("output"), f"{field}.output")
                result = ToolResultPart(read_text(item, "call_id", f"{field}."), parts)
                return Message(Role.USER, (result,))
            case "reasoning":
                return Message(Role.ASSISTANT, (_decode_reasoning(item),))
            case "additional_tools":
                self._add_tools(read_list(item, "tools"), f"{field}.tools")
                return None
            case other:
                self._omit(f"input item of type {str(other)[:64]!r}")
                return None

    def _decode_content(self, content: Any, field: str) -> tuple[TextPart | DataPart, ...]:
        if isinstance(content, str):
            return (TextPart(content),)
        if not isinstance(content, list):
            raise invalid_field(field, "a string or an array")
        parts: list[TextPart | DataPart] = []
        for index, part in enumerate(content):
            if not isinstance(part, Mapping):
                raise invalid_field(f"{field}[{index}]", "an object")
            item = self._decode_part(part, f"{field}[{index}]")
            if item is not None:
                parts.append(item)
        return tuple(parts)

    def _decode_part(self, part: Mapping[str, Any], field: str) -> TextPart | DataPart | None:
        match part.get("type"):
            case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
                return TextPart(read_text(part, "text", f"{field}."))
            case "refusal":
                return TextPart(read_text(part, "refusal", f"{field}."))
            case "input_image":
                return self._decode_data(part.get("image_url"), None, field)
            case "input_file":
                name = part.get("filename")
                return self._decode_data(part.get("file_data"), name, field)
            case other:
                self._omit(f"content of type {str(other)[:64]!r}")
                return None

    def _decode_data(self, url: Any, name: Any, field: str) -> DataPart | None:
        try:
            mime, data = split_data_url(url if isinstance(url, str) else "")
        except ValueError:  # another URL, which is never fetched, or the id of a file
            self._omit(f"{field}, which is not a data URL")
            return None
        return DataPart(data, mime, name if isinstance(name, str) else None)


def _tool_name(name: str, namespace: Any) -> str:
    if isinstance(namespace, str) and namespace:
        return f"{namespace.rstrip('_')}{_NAMESPACE_SEPARATOR}{name}"
    return name


def _decode_reasoning(item: Mapping[str, Any]) -> ThinkingPart:
    lists = [value for field in ("summary", "content") if isinstance(value := item.get(field), list)]
    blocks = [part for parts in lists for part in parts]
    text = "\n\n".join(
        part["text"] for part in blocks if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    )
    id_, content = item.get("id"), item.get("encrypted_content")
    metadata = decode_metadata(content)
    return ThinkingPart(text, id_ if isinstance(id_, str) else None, metadata)


def _parse_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return read_json(arguments)
    except ValueError:
        return arguments


def _decode_format(value: Mapping[str, Any]) -> OutputFormat | None:
    if value.get("type") != "json_schema":
        return None
    return OutputFormat(
        name=read_optional(value, "name", str, "text.format.") or "answer",
        schema=read_object(value, "schema", "text.format."),
        description=read_optional(value, "description", str, "text.format."),
        strict=read_optional(value, "strict", bool, "text.format."),
    )


def _join_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Join adjacent messages of the assistant, and adjacent tool results: each item was one message."""
    runs: list[list[Message]] = []
    for message in messages:
        last = runs[-1][-1] if runs else None
        if last is not None and last.role is message.role and _can_join(last, message):
            runs[-1].append(message)
        else:
            runs.append([message])
    return tuple(
        run[0] if len(run) == 1 else Message(run[0].role, [part for each in run for part in each.parts])
        for run in runs
    )


def _can_join(last: Message, message: Message) -> bool:
    if message.role is Role.ASSISTANT:
        return True
    return _is_result(last) and _is_result(message)


def _is_result(message: Message) -> bool:
    return any(isinstance(part, ToolResultPart) for part in message.parts)


# --- Responses ---


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def make_response(body: Mapping[str, Any], response_id: str, created_at: int) -> Json:
    """Return the response object at the start: in progress, without output and usage.

    Args:
        body: The request. The specification requires that its options are repeated.
        response_id: The id of the response.
        created_at: The time of the response, in seconds since 1970.
    """

    def option(name: str, default: Any = None) -> Any:
        value = body.get(name)
        return default if value is None else value

    reasoning = body.get("reasoning")
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": body.get("model"),
        "previous_response_id": body.get("previous_response_id"),
        "instructions": body.get("instructions"),
        "output": [],
        "error": None,
        "tools": [_describe_tool(tool) for tool in option("tools", [])],
        "tool_choice": _describe_choice(option("tool_choice", "auto")),
        "truncation": option("truncation", "disabled"),
        "parallel_tool_calls": option("parallel_tool_calls", True),
        "text": _describe_text(option("text", {})),
        "top_p": option("top_p", 1.0),
        "presence_penalty": option("presence_penalty", 0.0),
        "frequency_penalty": option("frequency_penalty", 0.0),
        "top_logprobs": option("top_logprobs", 0),
        "temperature": option("temperature", 1.0),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")}
        if isinstance(reasoning, Mapping)
        else None,
        "usage": None,
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "store": option("store", True),
        "background": option("background", False),
        "service_tier": option("service_tier", "default"),
        "metadata": option("metadata", {}),
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
    }


def _describe_tool(tool: Any) -> Any:
    """Return a declared tool with all fields that the specification requires of a function."""
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


def _describe_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return {"mode": "auto", **choice}
    return choice


def _describe_text(text: Any) -> Json:
    output_format = (text.get("format") if isinstance(text, Mapping) else None) or {"type": "text"}
    description: Json = {"type": output_format.get("type", "text")}
    if description["type"] == "json_schema":
        # In responses, the specification allows only null as the schema.
        description |= {
            "name": output_format.get("name"),
            "description": output_format.get("description"),
            "schema": None,
            "strict": bool(output_format.get("strict")),
        }
    verbosity = text.get("verbosity") if isinstance(text, Mapping) else None
    return {"format": description, **({"verbosity": verbosity} if verbosity else {})}


def encode_usage(usage: Usage) -> Json:
    """Return the usage of a response. The protocol has no unknown counts, so they are 0."""
    details = {"cached_tokens": usage.cached_tokens or 0}
    if usage.cache_write_tokens is not None:
        details["cache_write_tokens"] = usage.cache_write_tokens
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": details,
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": input_tokens + output_tokens if usage.total_tokens is None else usage.total_tokens,
    }


def encode_error(error: BridgeError, status: int) -> Json:
    """Return the body of an error response."""
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    code = error.code or error.kind
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


# --- Streams ---


class ResponseEncoder:
    """Encode the events of an answer as the events of a streamed response.

        encoder = ResponseEncoder(body, caller)
        events = encoder.start()
        events += encoder.encode(batch)      # for each batch of an answer
        events += encoder.finish(error)      # `error` is `None` if the answer is complete

    `encoder.response` is the response object, which is also the body of a response that is not streamed.

    Args:
        body: The caller's request body.
        caller: The same request, decoded.
        new_id: Creates ids, by prefix.
        now: The time of the response, in seconds since 1970.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        caller: CallerRequest,
        *,
        new_id: Callable[[str], str] = new_id,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tools = caller.tools
        self._new_id = new_id
        self._now = now
        self._sequence_number = 0
        self._output: list[Json] = []
        self._item: Json | None = None  # the open message or reasoning item
        self._reasoning_id: str | None = None  # the gateway's id of the open reasoning item
        self._text: list[str] = []  # of the open item
        self._annotations: list[Json] = []
        self._finished: Finished | None = None
        self.response = make_response(body, new_id("resp"), int(now()))

    def start(self) -> list[Json]:
        """Return the first events of the stream."""
        response = dict(self.response)
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def encode(self, batch: Iterable[Event]) -> list[Json]:
        """Return the events for a batch of the answer."""
        events: list[Json] = []
        for event in batch:
            match event:
                case TextDelta(text):
                    events += self._add_text(text)
                case ReasoningDelta(text, id_):
                    events += self._add_reasoning(text, id_)
                case ReasoningEnded(id_, metadata):
                    events += self._end_reasoning(id_, metadata)
                case ToolCall():
                    if event.offered:
                        events += self._close_item()
                        events += self._add_call(event)
                case File():
                    if event.data is not None and event.mime.startswith("image/"):
                        events += self._close_item()
                        events += self._add_image(event)
                case Source(kind="url", url=str() as url):
                    events += self._add_citation(url, event.title)
                case Corrected(text, replaces, of="text"):
                    self._correct_text(text, replaces)
                case Finished():
                    self._finished = event
        return events

    def finish(self, error: BridgeError | None = None) -> list[Json]:
        """Return the last events of the stream."""
        finished = self._finished
        incomplete = finished is not None and finished.ended == "incomplete"
        failed = error is not None or finished is None
        events = self._close_item("incomplete" if incomplete or failed else "completed")
        self.response["output"] = self._output
        usage = finished.usage if finished is not None else None
        if usage is not None:
            self.response["usage"] = encode_usage(usage)
        if failed:
            code, message = "server_error", "The answer ended without a terminal event."
            if error is not None:
                code, message = error.code or error.kind, error.message
            self.response |= {"status": "failed", "error": {"code": code, "message": message}}
        elif incomplete:
            reason = "content_filter" if finished and finished.reason == "content-filter" else None
            reason = reason or "max_output_tokens"
            self.response |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        else:
            self.response |= {"status": "completed", "completed_at": int(self._now())}
        return [*events, self._event(f"response.{self.response['status']}", response=self.response)]

    def _event(self, kind: str, **fields: Any) -> Json:
        event = {"type": kind, "sequence_number": self._sequence_number, **fields}
        self._sequence_number += 1
        return event

    @property
    def _index(self) -> int:
        return len(self._output)

    # Messages

    def _add_text(self, text: str) -> list[Json]:
        events: list[Json] = []
        if not text:
            return events
        if self._item is None or self._item["type"] != "message":
            events += self._close_item()
            self._item = {
                "type": "message",
                "id": self._new_id("msg"),
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            events.append(self._item_event("response.output_item.added", self._item))
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            events.append(self._part_event("response.content_part.added", part=part))
        self._text.append(text)
        events.append(self._part_event("response.output_text.delta", delta=text, logprobs=[]))
        return events

    def _correct_text(self, text: str, replaces: int) -> None:
        if self._item is not None and self._item["type"] == "message":
            full_text = "".join(self._text)
            self._text = [full_text[: len(full_text) - replaces] + text]

    def _add_citation(self, url: str, title: str | None) -> list[Json]:
        if self._item is None or self._item["type"] != "message":
            return []
        length = sum(map(len, self._text))
        annotation = {
            "type": "url_citation",
            "url": url,
            "title": title or url,
            "start_index": length,
            "end_index": length,
        }
        self._annotations.append(annotation)
        return [
            self._part_event(
                "response.output_text.annotation.added",
                annotation_index=len(self._annotations) - 1,
                annotation=annotation,
            )
        ]

    # Reasoning

    def _add_reasoning(self, text: str, id_: str | None) -> list[Json]:
        events = self._open_reasoning(id_)
        if text:
            if not self._text:
                part = {"type": "summary_text", "text": ""}
                events.append(self._summary_event("response.reasoning_summary_part.added", part=part))
            self._text.append(text)
            events.append(self._summary_event("response.reasoning_summary_text.delta", delta=text))
        return events

    def _open_reasoning(self, id_: str | None) -> list[Json]:
        """Open a reasoning item, unless the open one is the same block."""
        block = (id_ or "").partition(":")[0]
        if self._item is not None and self._item["type"] == "reasoning" and self._reasoning_id == block:
            return []
        events = self._close_item()
        self._reasoning_id = block
        self._item = {"type": "reasoning", "id": self._new_id("rs"), "summary": []}
        return [*events, self._item_event("response.output_item.added", self._item)]

    def _end_reasoning(self, id_: str | None, metadata: Mapping[str, Any] | None) -> list[Json]:
        events: list[Json] = []
        block = (id_ or "").partition(":")[0]
        is_open = self._item is not None and self._item["type"] == "reasoning"
        if metadata and not (is_open and self._reasoning_id == block):
            events += self._open_reasoning(id_)
        if self._item is not None and self._item["type"] == "reasoning":
            if metadata:
                self._item["encrypted_content"] = encode_metadata(metadata)
            events += self._close_item()
        return events

    # Tool calls and images

    def _add_call(self, call: ToolCall) -> list[Json]:
        tool = self._tools.get(call.name, CallerTool(call.name))
        namespace = {"namespace": tool.namespace} if tool.namespace else {}
        common = {"call_id": call.call_id, "name": tool.name, **namespace}
        if tool.custom:
            text = call.input.get(_CUSTOM_ARGUMENT, "") if isinstance(call.input, Mapping) else call.input
            field, value, kind, prefix = "input", str(text), "custom_tool_call", "ctc"
            delta, done = "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"
        else:
            field, value, kind, prefix = "arguments", _encode_arguments(call.input), "function_call", "fc"
            delta = "response.function_call_arguments.delta"
            done = "response.function_call_arguments.done"
        item: Json = {"type": kind, "id": self._new_id(prefix), **common, field: "", "status": "in_progress"}
        events = [self._item_event("response.output_item.added", item)]
        place = {"item_id": item["id"], "output_index": self._index}
        if value:
            events.append(self._event(delta, **place, delta=value))
        events.append(self._event(done, **place, **{field: value}, name=tool.name))
        return [*events, self._end_item({**item, field: value, "status": "completed"})]

    def _add_image(self, file: File) -> list[Json]:
        item: Json = {
            "type": "image_generation_call",
            "id": self._new_id("ig"),
            "status": "in_progress",
            "result": None,
        }
        events = [self._item_event("response.output_item.added", item)]
        result = base64.b64encode(file.data or b"").decode()
        return [*events, self._end_item({**item, "status": "completed", "result": result})]

    # Items

    def _item_event(self, kind: str, item: Json) -> Json:
        return self._event(kind, output_index=self._index, item=dict(item))

    def _part_event(self, kind: str, **fields: Any) -> Json:
        item_id = self._item["id"] if self._item is not None else ""
        return self._event(kind, item_id=item_id, output_index=self._index, content_index=0, **fields)

    def _summary_event(self, kind: str, **fields: Any) -> Json:
        item_id = self._item["id"] if self._item is not None else ""
        return self._event(kind, item_id=item_id, output_index=self._index, summary_index=0, **fields)

    def _end_item(self, item: Json) -> Json:
        event = self._item_event("response.output_item.done", item)
        self._output.append(item)
        return event

    def _close_item(self, status: str = "completed") -> list[Json]:
        """End the open message or reasoning item, if there is one."""
        item = self._item
        if item is None:
            return []
        text, events = "".join(self._text), []
        if item["type"] == "message":
            part = {"type": "output_text", "text": text, "annotations": self._annotations, "logprobs": []}
            events += [
                self._part_event("response.output_text.done", text=text, logprobs=[]),
                self._part_event("response.content_part.done", part=part),
            ]
            item |= {"content": [part], "status": status}
        elif text:
            part = {"type": "summary_text", "text": text}
            events += [
                self._summary_event("response.reasoning_summary_text.done", text=text),
                self._summary_event("response.reasoning_summary_part.done", part=part),
            ]
            item["summary"] = [part]
        events.append(self._end_item(item))
        self._item, self._text, self._annotations = None, [], []
        return events


def _encode_arguments(value: Any) -> str:
    return value if isinstance(value, str) else write_json(value if value is not None else {})
