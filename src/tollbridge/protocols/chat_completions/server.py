"""The server direction of Chat Completions: decode the requests of callers, encode the answers to them.

Nothing that a caller sends by default causes an error. Fields and tools that only this protocol has are kept
for a gateway that speaks it, and left out and listed for others. Tool results become user messages.

Reasoning is sent to the caller as `reasoning_content`, the field that most callers display. Its metadata (a
signature, encrypted content) follows as an entry of `reasoning_details`, and the metadata of a tool call in
its `extra_content`: callers that know these fields return them unchanged.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, assert_never

import msgspec

from tollbridge.protocols.chat_completions.wire import (
    FINISH_NAMES,
    METADATA_FORMAT,
    REASONING_LISTS,
    REASONING_PROOFS,
    REASONING_TEXTS,
    Json,
    encode_usage,
)
from tollbridge.protocols.openresponses.wire import CALL_SIGNATURES
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
from tollbridge.types.errors import BridgeError, Kind, ServerFailed
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
)
from tollbridge.types.media import UNKNOWN, detect_mime, split_data_url
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
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    add_origin,
    decode_metadata,
    encode_metadata,
    part_digest,
)
from tollbridge.types.text import read_json, write_json

# --- Requests ---

Object = Mapping[str, Any]

# The roles of the protocol, except those of tool results.
_ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}
# The fields of a body that are decoded or describe only the form of the response.
_DECODED_FIELDS = frozenset(
    {
        *("model", "messages", "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"),
        *("reasoning_effort", "reasoning", "max_completion_tokens", "max_tokens", "temperature", "top_p"),
        *("response_format", "metadata", "stream", "stream_options", "n", "store", "modalities", "audio"),
    }
)
# The fields of `CallerRequest.extra` that the Responses API has, too, with the same meaning.
SHARED_FIELDS = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "prompt_cache_key", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "top_logprobs", "user"),
    }
)
# Fields whose omission is not listed: they do not change the answer.
_UNLISTED = frozenset(
    {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user"}
)
# The argument that holds the text of a custom tool, because other protocols have only functions.
CUSTOM_ARGUMENT = "input"
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "required": "required", "any": "required", "none": "none"}


class CallerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a caller, decoded.

    Attributes:
        request: The request in the form that every protocol can encode.
        stream: Whether the caller wants chunks, not one JSON object.
        include_usage: Whether the caller wants the usage at the end of the stream.
        functions: Whether the caller declared `functions`, the predecessor of `tools`.
        custom_tools: The names of the tools whose input is text.
        extra: The fields and tools of the body that only this protocol has, as they came. `request.extra` has
            them as well if the gateway speaks this protocol.
        omissions: One sentence for each thing in the body that has no equivalent and was left out.
    """

    request: ChatRequest
    stream: bool = False
    include_usage: bool = False
    functions: bool = False
    custom_tools: frozenset[str] = frozenset()
    extra: Mapping[str, Any] = {}
    omissions: tuple[str, ...] = ()


def decode_request(body: Object, *, native: Origin | None = None) -> CallerRequest:
    """Decode the body of `POST /chat/completions`.

    Args:
        body: The parsed JSON.
        native: The model and gateway that will get the request, if that gateway speaks this protocol too:
            unknown fields and tools are kept for it, and so is reasoning. For other gateways, they are left
            out and listed.

    Raises:
        RequestError: A required field is missing or has the wrong type. The message names the field.
    """
    check_output_limit(body, "max_tokens", "max_completion_tokens")
    return _RequestDecoder(body, native).decode()


class _RequestDecoder:
    def __init__(self, body: Object, native: Origin | None) -> None:
        self._body = body
        self._native = native
        self._other_tools: list[Any] = []
        self._tools: dict[str, Tool] = {}
        self._custom_tools: set[str] = set()
        self._cache_points: dict[str, Json] = {}
        self._function_ids: dict[str, str] = {}  # the ids given to calls of `functions`, by name
        self._omissions: dict[str, None] = {}

    def decode(self) -> CallerRequest:
        body = self._body
        functions = read_list(body, "functions")
        tools = read_list(body, "tools")
        self._add_tools([*tools, *({"type": "function", "function": each} for each in functions)])
        if body.get("n") not in (None, 1):
            self._omit("n: there is always one choice")
        for name in ("audio", "store"):
            if body.get(name):
                self._omit(name)
        stream_options, metadata = read_object(body, "stream_options"), read_object(body, "metadata")
        limit = read_optional(body, "max_completion_tokens", int)
        reasoning = read_object(body, "reasoning")  # OpenRouter's form
        for name in reasoning:
            if name != "effort":
                self._omit(f"reasoning.{name[:64]}")
        extra = {
            name: value for name, value in body.items() if name not in _DECODED_FIELDS and value is not None
        }
        messages = tuple(self._decode_messages())
        choice = self._decode_choice(body.get("tool_choice", body.get("function_call")))
        output_format = self._decode_format(extra)
        if self._native is None:
            for name in extra.keys() - _UNLISTED:
                self._omit(f"the field {name[:64]}: the gateway's protocol does not have it")
        if self._other_tools:
            extra["tools"] = self._other_tools
        request = ChatRequest(
            model=read_text(body, "model"),
            messages=messages,
            tools=tuple(self._tools.values()),
            tool_choice=choice if self._tools else None,
            parallel_tool_calls=read_optional(body, "parallel_tool_calls", bool) if self._tools else None,
            reasoning_effort=read_optional(body, "reasoning_effort", str)
            or read_optional(reasoning, "effort", str),
            max_output_tokens=read_optional(body, "max_tokens", int) if limit is None else limit,
            temperature=read_number(body, "temperature"),
            top_p=read_number(body, "top_p"),
            output_format=output_format,
            metadata={str(name): str(value) for name, value in metadata.items()} or None,
            extra=extra or None if self._native is not None else None,
            cache_points=self._cache_points or None,
        )
        return CallerRequest(
            request=request,
            stream=bool(body.get("stream")),
            include_usage=bool(stream_options.get("include_usage")),
            functions=bool(functions),
            custom_tools=frozenset(self._custom_tools),
            extra=extra,
            omissions=tuple(sorted(self._omissions)),
        )

    def _omit(self, what: str) -> None:
        self._omissions[f"Left out {what}."] = None

    # Tools

    def _add_tools(self, tools: Iterable[Any]) -> None:
        for index, tool in enumerate(tools):
            if not isinstance(tool, Mapping):
                raise invalid_field(f"tools[{index}]", "an object")
            kind = tool.get("type")
            if kind not in ("function", "custom"):
                self._other_tools.append(dict(tool))
                if self._native is None:
                    self._omit(f"tool of type {str(kind)[:64]!r}")
                continue
            fields = read_object(tool, kind, f"tools[{index}].")
            name = read_text(fields, "name", f"tools[{index}].{kind}.")
            description, parameters = str(fields.get("description") or ""), fields.get("parameters")
            if tool.get("cache_control"):
                self._omit("cache_control of a tool")
            if fields.get("strict"):
                self._omit('"strict" of a tool')
            if kind == "custom":
                self._custom_tools.add(name)
                tool_format = fields.get("format")
                grammar = tool_format.get("grammar") if isinstance(tool_format, Mapping) else None
                description = add_grammar(description, grammar)
                parameters = custom_tool_parameters(CUSTOM_ARGUMENT)
            parameters = parameters if isinstance(parameters, Mapping) else None
            self._tools[name] = Tool(name, description, parameters)

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

    def _limit_tools(self, allowed: Any) -> ToolChoice | None:
        """Keep only the allowed tools: other protocols have no list of them."""
        if not isinstance(allowed, Mapping):
            raise invalid_field("tool_choice.allowed_tools", "an object")
        tools = read_list(allowed, "tools", "tool_choice.allowed_tools.")
        names = {_tool_name(tool) for tool in tools if isinstance(tool, Mapping)}
        self._tools = {name: tool for name, tool in self._tools.items() if name in names}
        return _CHOICES.get(str(allowed.get("mode")))

    def _decode_format(self, extra: Json) -> OutputFormat | None:
        value = read_object(self._body, "response_format")
        if value.get("type") == "json_schema":
            schema = read_object(value, "json_schema", "response_format.")
            prefix = "response_format.json_schema."
            return OutputFormat(
                name=read_optional(schema, "name", str, prefix) or "answer",
                schema=read_object(schema, "schema", prefix),
                description=read_optional(schema, "description", str, prefix),
                strict=read_optional(schema, "strict", bool, prefix),
            )
        if value and value.get("type") != "text":
            extra["response_format"] = dict(value)
        return None

    # Messages

    def _decode_messages(self) -> Iterator[Message]:
        messages = read_list(self._body, "messages")
        if not messages:
            raise invalid_field("messages", "an array of at least one message")
        results: list[Part] = []  # adjacent tool results are one message
        for index, message in enumerate(messages):
            field = f"messages[{index}]"
            if not isinstance(message, Mapping):
                raise invalid_field(field, "an object")
            role = message.get("role")
            if role in ("tool", "function"):
                results.append(self._decode_result(message, field))
                continue
            if results:
                yield Message(Role.USER, tuple(results))
                results = []
            if not isinstance(role, str) or role not in _ROLES:
                raise invalid_field(f"{field}.role", f"one of {', '.join((*_ROLES, 'tool', 'function'))}")
            name = message.get("name")
            parts = self._decode_parts(message, _ROLES[role], field)
            for last in parts[-1:]:
                self._add_cache_point(message, last)  # LiteLLM's form
            yield Message(_ROLES[role], tuple(parts), name if isinstance(name, str) else None)
        if results:
            yield Message(Role.USER, tuple(results))

    def _decode_parts(self, message: Object, role: Role, field: str) -> list[Part]:
        content = self._decode_content(message.get("content"), f"{field}.content")
        if role is not Role.ASSISTANT:
            return [*content]
        refusal = message.get("refusal")
        texts = [TextPart(refusal)] if isinstance(refusal, str) and refusal else []
        calls = [
            self._decode_call(call, f"{field}.tool_calls[{index}]")
            for index, call in enumerate(read_list(message, "tool_calls", f"{field}."))
        ]
        if message.get("function_call"):
            calls.append(self._decode_function_call(message["function_call"], field))
        return [*_decode_reasoning(message, self._native), *content, *texts, *calls]

    def _decode_result(self, message: Object, field: str) -> ToolResultPart:
        content = self._decode_content(message.get("content"), f"{field}.content")
        if message.get("role") == "function":
            call_id = self._function_ids.get(str(message.get("name")), str(message.get("name")))
        else:
            call_id = read_text(message, "tool_call_id", f"{field}.")
        result = ToolResultPart(call_id, content)
        sources = message["content"] if isinstance(message.get("content"), list) else []
        for source in (message, *sources):
            self._add_cache_point(source, result)
        return result

    def _decode_call(self, call: Any, field: str) -> ToolCallPart:
        if not isinstance(call, Mapping):
            raise invalid_field(field, "an object")
        kind = "custom" if isinstance(call.get("custom"), Mapping) else "function"
        fields = read_object(call, kind, f"{field}.")
        arguments = fields.get("arguments")
        if kind == "custom":
            arguments = {CUSTOM_ARGUMENT: str(fields.get("input") or "")}
        return ToolCallPart(
            read_text(call, "id", f"{field}."),
            read_text(fields, "name", f"{field}.{kind}."),
            _parse_arguments(arguments),
            _decode_call_metadata(call),
        )

    def _decode_function_call(self, call: Any, field: str) -> ToolCallPart:
        if not isinstance(call, Mapping):
            raise invalid_field(f"{field}.function_call", "an object")
        name = read_text(call, "name", f"{field}.function_call.")
        call_id = self._function_ids[name] = f"call_{len(self._function_ids) + 1}"
        return ToolCallPart(call_id, name, _parse_arguments(call.get("arguments")))

    # Content

    def _decode_content(self, content: Any, field: str) -> list[TextPart | DataPart]:
        if content is None or content == "":
            return []
        if isinstance(content, str):
            return [TextPart(content)]
        if not isinstance(content, list):
            raise invalid_field(field, "a string or an array")
        parts: list[TextPart | DataPart] = []
        for index, part in enumerate(content):
            if not isinstance(part, Mapping):
                raise invalid_field(f"{field}[{index}]", "an object")
            decoded = self._decode_part(part, f"{field}[{index}]")
            parts += decoded
            for last in decoded[-1:]:
                self._add_cache_point(part, last)
        return parts

    def _add_cache_point(self, source: Object, part: Part) -> None:
        options = source.get("cache_control")
        if isinstance(options, Mapping) and options:
            self._cache_points[part_digest(part)] = dict(options)

    def _decode_part(self, part: Object, field: str) -> list[TextPart | DataPart]:
        match part.get("type"):
            case "text" | "input_text" | "output_text":
                return [TextPart(read_text(part, "text", f"{field}."))]
            case "refusal":
                return [TextPart(read_text(part, "refusal", f"{field}."))]
            case "thinking":
                return []  # decoded with the other reasoning of the message
            case "image_url":
                image = part.get("image_url")
                url = image.get("url") if isinstance(image, Mapping) else image
                return self._decode_data(url, None, "image")
            case "file":
                file = read_object(part, "file", f"{field}.")
                data = file.get("file_data")
                if isinstance(data, str) and ":" not in data:  # only base64
                    data = f"data:{UNKNOWN};base64,{data}"
                return self._decode_data(data, file.get("filename"), "file")
            case other:
                self._omit(f"content of type {str(other)[:64]!r}")
                return []

    def _decode_data(self, url: Any, name: Any, kind: str) -> list[TextPart | DataPart]:
        try:
            mime, data = split_data_url(url if isinstance(url, str) else "")
        except ValueError:  # another URL, which is never fetched, or the id of a file
            self._omit(f"{kind} that is not a base64 data URL")
            is_link = isinstance(url, str) and url.startswith(("http://", "https://"))
            return [TextPart(f"[{kind}: {url}]")] if is_link else []
        mime = detect_mime(data, mime) if mime == UNKNOWN else mime
        return [DataPart(data, mime, name if isinstance(name, str) else None)]


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


def _decode_call_metadata(call: Object) -> Json | None:
    extra = call.get("extra_content")
    metadata = decode_metadata(extra.get("tollbridge")) if isinstance(extra, Mapping) else None
    if metadata is not None:
        return metadata
    return {name: call[name] for name in CALL_SIGNATURES if call.get(name)} or None


def _parse_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        value = read_json(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


# --- Answers ---

# OpenAI's code for each kind of error. Agents shorten the conversation when they read the first one.
_CODES: dict[Kind, str] = {
    "context_too_long": "context_length_exceeded",
    "authentication": "invalid_api_key",
    "content_filtered": "content_filter",
    "not_found": "model_not_found",
    "rate_limited": "rate_limit_exceeded",
}


def encode_error(error: BridgeError, status: int) -> Json:
    """Return the body of an error response. An error within a stream has the same form."""
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    code = _CODES.get(error.kind, error.kind)
    if error.code is not None and error.kind != "context_too_long":
        code = error.code
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


DONE = b"data: [DONE]\n\n"
# The field of a delta with the number of characters that it replaces; only for answers that are not streamed.
_REPLACES = "replaces"


def write_frames(chunks: Iterable[Json]) -> bytes:
    """Return chunks as server-sent events. A stream without an error ends with `DONE`."""
    return b"".join(b"data: " + write_json(chunk).encode() + b"\n\n" for chunk in chunks)


class CompletionEncoder:
    """Encode the events of an answer as chunks.

        encoder = CompletionEncoder(caller)
        chunks = encoder.start()
        chunks += encoder.encode(batch)      # for each batch of an answer
        chunks += encoder.finish(error)      # `error` is `None` if the answer is complete
        body = join_chunks(chunks)           # for a caller that does not stream

    Text that was sent in a stream cannot be corrected in this protocol, and the calls that the gateway ran
    itself have no place in it: both are left out.

    Args:
        caller: The request of the caller.
        new_id: Creates the id of the completion.
        now: The time of the completion, in seconds since 1970.
    """

    def __init__(
        self,
        caller: CallerRequest,
        *,
        new_id: Callable[[], str] = lambda: f"chatcmpl-{secrets.token_hex(16)}",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._caller = caller
        self._head: Json = {
            "id": new_id(),
            "object": "chat.completion.chunk",
            "created": int(now()),
            "model": caller.request.model,
        }
        self._calls = 0
        self._blocks = 0
        self._reasoning: list[str] = []  # the text of the open block
        self._finished: Finished | None = None

    def start(self) -> list[Json]:
        """Return the first chunk."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def encode(self, batch: Iterable[Event]) -> list[Json]:
        """Return the chunks for a batch of the answer."""
        return [self._chunk(delta) for event in batch for delta in self._encode_event(event)]

    def finish(self, error: BridgeError | None = None) -> list[Json]:
        """Return the last chunks: the finish reason and, if the caller wants it, the usage; or the error."""
        finished = self._finished
        if error is None and finished is None:
            error = ServerFailed("The answer ended without a terminal event.")
        if error is not None or finished is None:
            return [encode_error(error, error.status or 500)] if error is not None else []
        name = FINISH_NAMES.get(finished.reason, "stop")
        if name == "tool_calls" and self._caller.functions:
            name = "function_call"
        chunks = [self._chunk({}, name)]
        if finished.usage is not None and (self._caller.include_usage or not self._caller.stream):
            chunks.append({**self._head, "choices": [], "usage": encode_usage(finished.usage)})
        return chunks

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def _encode_event(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text, replaces):
                return self._replace_text(text, replaces) or ([{"content": text}] if text else [])
            case Corrected(text, replaces, of="text"):
                return self._replace_text(text, replaces)
            case ReasoningDelta(text, _, replaces) | Corrected(text, replaces):
                _replace_end(self._reasoning, replaces, text)
                return [{"reasoning_content": text}] if text and isinstance(event, ReasoningDelta) else []
            case ReasoningEnded(id_, metadata):
                return self._encode_metadata(id_, metadata)
            case ToolCall():
                return [self._encode_call(event)] if event.offered else []
            case File():
                return _encode_file(event)
            case Source():
                return _encode_source(event)
            case Finished():
                self._finished = event
                return []
            case Data() | Failed():
                return []  # an error is passed to `finish`
            case _:
                assert_never(event)

    def _replace_text(self, text: str, replaces: int) -> list[Json]:
        """Return a delta that `join_chunks` applies. A caller that streams would not understand it."""
        return [{"content": text, _REPLACES: replaces}] if replaces and not self._caller.stream else []

    def _encode_metadata(self, id_: str | None, metadata: Mapping[str, Any] | None) -> list[Json]:
        text, self._reasoning = "".join(self._reasoning), []
        if not metadata:
            return []
        data = encode_metadata({"id": id_, "text": text, "metadata": metadata})
        detail = {
            "type": "reasoning.encrypted",
            "format": METADATA_FORMAT,
            "index": self._blocks,
            "data": data,
        }
        self._blocks += 1
        return [{"reasoning_details": [detail]}]

    def _encode_call(self, call: ToolCall) -> Json:
        arguments = call.input if isinstance(call.input, str) else write_json(call.input or {})
        if self._caller.functions:
            return {"function_call": {"name": call.name, "arguments": arguments}}
        encoded: Json = {"index": self._calls, "id": call.call_id}
        self._calls += 1
        if call.name in self._caller.custom_tools:
            text = call.input.get(CUSTOM_ARGUMENT, "") if isinstance(call.input, Mapping) else call.input
            encoded |= {"type": "custom", "custom": {"name": call.name, "input": str(text)}}
        else:
            encoded |= {"type": "function", "function": {"name": call.name, "arguments": arguments}}
        if call.metadata:
            encoded["extra_content"] = {"tollbridge": encode_metadata(call.metadata)}
        return {"tool_calls": [encoded]}


def _replace_end(pieces: list[str], length: int, text: str) -> None:
    """Replace the last `length` characters of joined pieces."""
    if length:
        previous = "".join(pieces)
        pieces[:] = [previous[: max(0, len(previous) - length)]]
    pieces.append(text)


def _encode_file(file: File) -> list[Json]:
    """Return a generated image in OpenRouter's form. The protocol has no other files."""
    if not file.mime.startswith("image/"):
        return []
    url = file.url
    if file.data is not None:
        url = f"data:{file.mime};base64,{b64encode(file.data).decode()}"
    return [{"images": [{"type": "image_url", "image_url": {"url": url}}]}]


def _encode_source(source: Source) -> list[Json]:
    if source.url is None:
        return []
    citation = {"url": source.url, "title": source.title or source.url, "start_index": 0, "end_index": 0}
    return [{"annotations": [{"type": "url_citation", "url_citation": citation}]}]


def join_chunks(chunks: Iterable[Json]) -> Json:
    """Join all chunks of an answer to the body for a caller that does not stream.

    An error chunk is returned as it is.
    """
    body: Json = {}
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    finish_reason = None
    for chunk in chunks:
        if "error" in chunk:
            return chunk
        body |= {name: value for name, value in chunk.items() if name != "choices"}
        for choice in chunk["choices"]:
            finish_reason = choice["finish_reason"] or finish_reason
            for name, value in choice["delta"].items():
                if name in texts:
                    _replace_end(texts[name], choice["delta"].get(_REPLACES, 0), value)
                elif name == _REPLACES:
                    continue
                elif isinstance(value, list):
                    message.setdefault(name, []).extend(value)
                else:
                    message[name] = value
    message |= {name: text for name, pieces in texts.items() if (text := "".join(pieces))}
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    return {**body, "object": "chat.completion", "choices": [choice]}
