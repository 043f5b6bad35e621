"""Encode messages for the AI SDK.

    convert_messages    ModelMessages, for `ai` 5, 6 or 7
    encode_call         the body of `POST {base}/language-model`, the gateway's language-model protocol
    encode_chat_body    UIMessages, for a chat endpoint that responds with a UI message stream

The body of a language-model call contains the call options that the SDK passes to a model. The name of the
model is sent as a header (`encode_headers`).
"""

from __future__ import annotations

import json
import re
import uuid
from base64 import b64encode, urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Literal

from tollbridge.policy.caching import extra_with_caching
from tollbridge.protocols.ai_sdk import DEFAULT_SPEC, Spec
from tollbridge.protocols.encoding import (
    Json,
    check_tool_choice,
    data_url,
    describe_tool,
    extract_text,
    omit_none,
)
from tollbridge.protocols.protocol import EncodedRequest
from tollbridge.types.errors import RequestError
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Part,
    PartIndex,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    is_marker,
    match_results,
    split_metadata,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import read_json, write_json

SdkVersion = Literal[5, 6, 7]

ImageInNonUser = Literal["placeholder", "skip", "error"]
# The SDK version whose messages each version of the specification uses.
TARGETS: dict[Spec, SdkVersion] = {2: 5, 3: 6, 4: 7}

# Marks a failed tool result of the type `content`, which has no error type.
ERROR_PREFIX = "Error:"
# The tool name of a result without a call, and the result of a call without one.
UNKNOWN_TOOL = "unknown_tool"
NO_RESULT = "The tool gave no result."

# The names of the fields in `Quirks.without` in this protocol.
NAMES = {"top_p": "topP", "max_output_tokens": "maxOutputTokens", "tool_choice": "toolChoice"}

# The namespace of chat ids that no client has made.
_NAMESPACE = uuid.uuid4()

_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


def encode_output(result: ToolResultPart, target: SdkVersion) -> Json:
    """Return the output of a tool as `{type, value}`.

    A single text or JSON value is sent as such, everything else as `content`.
    """
    prefix = "error-" if result.is_error else ""
    if len(result.parts) == 1:
        [part] = result.parts
        if isinstance(part, TextPart):
            return {"type": f"{prefix}text", "value": part.text}
        if _mime(part) == "application/json":
            try:
                value = read_json(part.data)
                json.dumps(value, allow_nan=False)  # `read_json` accepts NaN and infinity
                return {"type": f"{prefix}json", "value": value}
            except ValueError:
                return {"type": f"{prefix}text", "value": extract_text(part)}
    if not result.parts:
        return {"type": f"{prefix}text", "value": ""}
    content = [item for part in result.parts for item in _encode_content(part, target)]
    if not result.is_error:
        return {"type": "content", "value": content}
    if all(item["type"] == "text" for item in content):
        return {"type": "error-text", "value": "\n".join(item["text"] for item in content)}
    return {"type": "content", "value": [{"type": "text", "text": ERROR_PREFIX}, *content]}


def _read_texts(part: TextPart | DataPart) -> list[str]:
    """Return the text of a part, after the name of its file; nothing for a file that is not text."""
    text = extract_text(part)
    name = part.name if isinstance(part, DataPart) else None
    return [] if text is None else [f"[{name}]", text] if name else [text]


def _encode_content(part: TextPart | DataPart, target: SdkVersion) -> list[Json]:
    """Return content items. The name of a file is sent as a text before it if its type has no name field."""
    texts = _read_texts(part)
    if isinstance(part, TextPart) or texts:
        return [{"type": "text", "text": text} for text in texts]
    mime, name_text = _mime(part), [{"type": "text", "text": f"[{part.name}]"}] if part.name else []
    data = b64encode(part.data).decode()
    filename = omit_none(filename=part.name or None)
    if target == 7:
        return [{"type": "file", "data": {"type": "data", "data": data}, "mediaType": mime, **filename}]
    if target == 6 and not mime.startswith("image/"):
        return [{"type": "file-data", "data": data, "mediaType": mime, **filename}]
    kind = "media" if target == 5 else "image-data"
    return [*name_text, {"type": kind, "data": data, "mediaType": mime}]


def _mime(part: DataPart) -> str:
    return detect_mime(part.data, part.mime)


class ModelMessages(list[Json]):
    """Messages in the format of the AI SDK.

    Attributes:
        instructions: The system prompt, if the target version does not accept it as a message.
        notes: Changes that were necessary, as sentences.
    """

    def __init__(self, messages: Iterable[Json] = ()) -> None:
        super().__init__(messages)
        self.instructions: str | None = None
        self.notes: list[str] = []


def convert_messages(
    messages: Iterable[Message],
    *,
    target: SdkVersion = 6,
    image_in_non_user: ImageInNonUser = "placeholder",
    on_note: Callable[[str], None] | None = None,
) -> ModelMessages:
    """Convert messages to ModelMessages.

    A tool call without a result gets a placeholder result: otherwise `ai` 6 and 7, and the providers used
    with 5, reject the conversation. A result without a call is sent with the tool name `unknown_tool`. Both
    changes are noted.

    Args:
        messages: The conversation.
        target: The major version of the `ai` package.
        image_in_non_user: What to do with an image outside of user messages: send a text with its type and
            size instead, skip it, or raise an error.
        on_note: Called with each note when it is made.

    Raises:
        RequestError: An argument is invalid, or a message contains something that cannot be sent.
    """
    if target not in (5, 6, 7):
        raise RequestError(f"Unsupported ModelMessages version {target!r}. Supported: 5, 6, 7.")
    if image_in_non_user not in ("placeholder", "skip", "error"):
        raise RequestError(
            f"Invalid image_in_non_user {image_in_non_user!r}. Valid values: placeholder, skip, error."
        )
    return _Conversion(list(messages), target, image_in_non_user, on_note).convert()


class _Conversion:
    """Converts one conversation in two passes.

    The first pass (`_match_results`) finds the results of each call; the second creates the messages. The SDK
    requires each result in a `tool` message directly after the call; editors put results in user messages.
    """

    def __init__(
        self,
        messages: list[Message],
        target: SdkVersion,
        images: ImageInNonUser,
        on_note: Callable[[str], None] | None,
    ) -> None:
        self._system_messages = [message for message in messages if message.role is Role.SYSTEM]
        self._messages = [message for message in messages if message.role is not Role.SYSTEM]
        self._target = target
        self._images = images
        self._on_note = on_note
        self._result = ModelMessages()
        self._call_ids, self._call_results = _match_results(self._messages)

    def convert(self) -> ModelMessages:
        system = "\n\n".join(text for text in map(self._encode_system, self._system_messages) if text)
        if system and self._target >= 7:
            self._result.instructions = system  # `ai` 7 rejects system messages
        elif system:
            self._result.append({"role": "system", "content": system})
        for message in self._messages:
            self._add_message(message)
        return self._result

    def _add_message(self, message: Message) -> None:
        """Add a message, split by the roles that can contain its parts.

        Results without a call come first, because they belong to the message before. The others are added
        after their call.
        """
        results = (part for part in message.parts if isinstance(part, ToolResultPart))
        orphans = [part for part in results if part.call_id not in self._call_ids]
        for part in orphans:
            self._note(f"Tool result {part.call_id} has no matching call.")
        self._append("tool", [self._encode_result(part, UNKNOWN_TOOL) for part in orphans])

        def find_role(part: Part) -> str:
            is_answer = message.role is Role.ASSISTANT or isinstance(part, ToolCallPart | ThinkingPart)
            return "assistant" if is_answer else "user"

        others = (part for part in message.parts if not isinstance(part, ToolResultPart))
        for role, group in groupby(others, find_role):
            parts = list(group)
            contents = (self._encode_part(role, part) for part in parts)
            self._append(role, [content for content in contents if content is not None])
            calls = (part for part in parts if isinstance(part, ToolCallPart))
            self._append("tool", [result for call in calls for result in self._encode_results(call)])

    def _append(self, role: str, content: list[Json]) -> None:
        if content:
            self._result.append({"role": role, "content": content})

    def _encode_part(self, role: str, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                return {"type": "text", "text": text} if text else None
            case DataPart():
                return None if is_marker(part) else self._encode_file(role, part)
            case ThinkingPart():
                return self._encode_reasoning(part)
            case ToolCallPart(call_id, name, input):
                call = {"type": "tool-call", "toolCallId": call_id, "toolName": name}
                options = omit_none(providerOptions=_provider_options(part.metadata) or None)
                return {**call, "input": {} if input in (None, "") else input, **options}
            case ToolResultPart():
                return None  # sent in the tool message

    def _encode_file(self, role: str, part: DataPart) -> Json | None:
        mime = _mime(part)
        if role != "user" and mime.startswith("image/"):
            text = self._replace_file(role, part)
            return {"type": "text", "text": text} if text else None
        filename = omit_none(filename=part.name or None)
        return {"type": "file", "data": b64encode(part.data).decode(), "mediaType": mime, **filename}

    def _replace_file(self, role: str, part: DataPart) -> str:
        """Return the text that replaces a file that is not allowed in a message of this role."""
        mime = _mime(part)
        kind = "An image" if mime.startswith("image/") else "A file"
        if self._images == "error":
            raise RequestError(
                f"{kind} ({mime}) is only allowed in user messages (found in a {role} message)."
            )
        self._note(f"{kind} ({mime}, {len(part.data)} bytes) in a {role} message was removed.")
        return f"[{mime}: {len(part.data)} bytes]" if self._images == "placeholder" else ""

    def _encode_reasoning(self, part: ThinkingPart) -> Json | None:
        """Return reasoning with the metadata of its provider. Metadata of other protocols is removed."""
        _, metadata = split_metadata(part.metadata)
        options = _provider_options(metadata)
        if len(options) < len(metadata):
            names = ", ".join(sorted(set(metadata) - set(options)))
            self._note(f"Removed provider metadata from reasoning of another protocol: {names}.")
        if not part.text and not options:
            return None
        return {"type": "reasoning", "text": part.text, **omit_none(providerOptions=options or None)}

    def _encode_results(self, call: ToolCallPart) -> list[Json]:
        results = self._call_results.popleft()  # calls are encoded in the order of the first pass
        if not results:
            self._note(f"Added a placeholder result for call {call.call_id} to the tool {call.name}.")
            results = [ToolResultPart(call.call_id, (TextPart(NO_RESULT),), is_error=True)]
        if len(results) > 1:
            self._note(f"Call {call.call_id} to the tool {call.name} has more than one result.")
        return [self._encode_result(result, call.name) for result in results]

    def _encode_result(self, part: ToolResultPart, name: str) -> Json:
        output = encode_output(part, self._target)
        return {"type": "tool-result", "toolCallId": part.call_id, "toolName": name, "output": output}

    def _encode_system(self, message: Message) -> str:
        texts: list[str] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                texts.append(part.text)
            elif isinstance(part, DataPart):
                texts += _read_texts(part) or [self._replace_file("system", part)]
            else:
                self._note(f"A system message cannot contain a {type(part).__name__}; it was removed.")
        return "\n".join(text for text in texts if text)

    def _note(self, note: str) -> None:
        self._result.notes.append(note)
        if self._on_note is not None:
            self._on_note(note)


def _provider_options(metadata: Mapping[str, Any] | None) -> Json:
    """Return the metadata by provider, to send it back. Other metadata is not included."""
    return {name: dict(value) for name, value in (metadata or {}).items() if isinstance(value, Mapping)}


def _match_results(messages: list[Message]) -> tuple[set[str], deque[list[ToolResultPart]]]:
    """Return the ids of all calls, and the results of each call, in the order of the calls.

    An additional result belongs to the last call with its id before the result, or else to the first one.
    """
    calls: dict[PartIndex, list[ToolResultPart]] = {}
    by_id: dict[str, list[PartIndex]] = {}
    results: dict[PartIndex, ToolResultPart] = {}
    for message_index, message in enumerate(messages):
        for part_index, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                calls[message_index, part_index] = []
                by_id.setdefault(part.call_id, []).append((message_index, part_index))
            elif isinstance(part, ToolResultPart):
                results[message_index, part_index] = part
    for call_index, result_index in match_results(messages).items():
        calls[call_index].append(results.pop(result_index))
    for index, result in results.items():
        same_id = by_id.get(result.call_id)
        if same_id:
            calls[max((call for call in same_id if call < index), default=same_id[0])].append(result)
    return set(by_id), deque(calls.values())


def encode_body(request: ChatRequest | Mapping[str, Any], *, stream: bool, spec: Spec) -> EncodedRequest:
    """Encode a request, or the call options in a mapping, whose `model` is sent as a header."""
    if isinstance(request, ChatRequest):
        return EncodedRequest(encode_call(request, spec), encode_headers(request.model, spec, stream=stream))
    body = dict(request)
    model = body.pop("model", None)
    if not isinstance(model, str):
        raise RequestError('The request has no model. Set its field "model".')
    return EncodedRequest(body, encode_headers(model, spec, stream=stream))


def encode_headers(model: str, spec: Spec, *, stream: bool = True) -> dict[str, str]:
    """Return the headers that identify the model and the protocol."""
    return {
        "ai-gateway-protocol-version": "0.0.1",
        "ai-language-model-id": model,
        "ai-language-model-specification-version": str(spec),
        "ai-language-model-streaming": "true" if stream else "false",
    }


def describe_key(key: str) -> dict[str, str]:
    """Return the header with the kind of a key: a token of Vercel's login is a JWT, an API key is not."""
    head = key.partition(".")[0]
    try:
        header = read_json(urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except ValueError:
        header = None
    is_token = _JWT.fullmatch(key) and isinstance(header, dict)
    return {"ai-gateway-auth-method": "oidc" if is_token else "api-key"}


def encode_call(request: ChatRequest, spec: Spec = DEFAULT_SPEC) -> Json:
    """Return the body of a language-model call.

    Options that the caller did not set are not sent; `extra` is sent unchanged.

    Raises:
        RequestError: The specification is unknown, or it does not support an option of the request.
    """
    if spec not in TARGETS:
        raise RequestError(f"Unsupported protocol version {spec!r}. Supported: 2, 3, 4.")
    if request.reasoning_effort is not None and spec < 4:
        raise RequestError(f"Protocol version {spec} does not support a reasoning effort. Remove it.")
    body: Json = {
        "prompt": encode_prompt(request.messages, spec),
        "maxOutputTokens": request.max_output_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "reasoning": request.reasoning_effort,
    }
    if request.output_format is not None:
        description = omit_none(description=request.output_format.description or None)
        schema = {"name": request.output_format.name, **description, "schema": request.output_format.schema}
        body["responseFormat"] = {"type": "json", **schema}
    if request.tools:
        body["tools"] = [{"type": "function", **describe_tool(tool, "inputSchema")} for tool in request.tools]
        choice = check_tool_choice(request)
        if isinstance(choice, NamedTool):
            body["toolChoice"] = {"type": "tool", "toolName": choice.name}
        elif choice is not None:
            body["toolChoice"] = {"type": choice}
    without = {NAMES.get(field, field) for field in (request.quirks or Quirks()).without}
    fields = {**omit_none(**body), **extra_with_caching(request)}
    return {name: value for name, value in fields.items() if name not in without}


def encode_prompt(messages: Iterable[Message], spec: Spec) -> list[Json]:
    """Return the `prompt` of a language-model call."""
    converted = convert_messages(messages, target=TARGETS[spec])
    prompt: list[Json] = list(converted)
    if converted.instructions is not None:
        prompt.insert(0, {"role": "system", "content": converted.instructions})
    for message in prompt:
        if spec == 4 and message["role"] in ("user", "assistant"):
            for part in message["content"]:
                if part["type"] == "file":
                    part["data"] = {"type": "data", "data": part["data"]}
    return prompt


def encode_chat_body(
    request: ChatRequest | Mapping[str, Any],
    *,
    stream: bool,  # noqa: ARG001 - always
    namespace: uuid.UUID = _NAMESPACE,
) -> EncodedRequest:
    """Encode the messages and `extra` of a request; the endpoint chooses the rest.

    The chat id depends on the first user message, so that a conversation keeps its id, and on `namespace`, so
    that two clients never use the same; `extra` can override it.
    """
    if not isinstance(request, ChatRequest):
        return EncodedRequest(request)
    first = next((message for message in request.messages if message.role is Role.USER), None)
    chat_id = uuid.uuid5(namespace, repr(first)).hex
    messages = encode_ui_messages(request.messages)
    body = {"id": chat_id, "messages": messages, "trigger": "submit-message"}  # as the SDK's chat client
    return EncodedRequest({**body, **(request.extra or {})})


def encode_ui_messages(messages: Iterable[Message]) -> list[Json]:
    """Return UIMessages. In this format, a tool call and its result are one part."""
    conversation = list(messages)
    matches = match_results(conversation)
    results = {index: conversation[index[0]].parts[index[1]] for index in matches.values()}
    encoded: list[Json] = []
    for message_index, message in enumerate(conversation):
        content: list[Json] = []
        for part_index, part in enumerate(message.parts):
            index = (message_index, part_index)
            if isinstance(part, ToolCallPart):
                result = results[matches[index]] if index in matches else None
                content.append(_encode_ui_tool(part, result))
            elif index not in results:
                content += _encode_ui_part(part)
        if content:
            encoded.append({"id": f"msg-{len(encoded)}", "role": message.role.value, "parts": content})
    return encoded


def _encode_ui_part(part: TextPart | ThinkingPart | DataPart | ToolResultPart) -> list[Json]:
    match part:
        case TextPart(text):
            return [{"type": "text", "text": text}] if text else []
        case ThinkingPart(text, _, metadata):
            options = _provider_options(split_metadata(metadata)[1])
            reasoning = {"type": "reasoning", "text": text}
            return [reasoning | omit_none(providerMetadata=options or None)] if text or options else []
        case DataPart() if is_marker(part):
            return []
        case DataPart():
            mime = _mime(part)
            filename = omit_none(filename=part.name or None)
            return [{"type": "file", "mediaType": mime, "url": data_url(part, mime), **filename}]
        case ToolResultPart(_, contents):  # without its call; its content is kept
            return [encoded for content in contents for encoded in _encode_ui_part(content)]


def _encode_ui_tool(call: ToolCallPart, result: Part | None) -> Json:
    input = {} if call.input in (None, "") else call.input
    tool = {"type": "dynamic-tool", "toolName": call.name, "toolCallId": call.call_id, "input": input}
    if not isinstance(result, ToolResultPart):
        return {**tool, "state": "output-error", "errorText": NO_RESULT}
    output = encode_output(result, 7)
    if output["type"] in ("error-text", "error-json"):
        text = output["value"] if output["type"] == "error-text" else write_json(output["value"])
        return {**tool, "state": "output-error", "errorText": text or "The tool failed."}
    return {**tool, "state": "output-available", "output": output["value"]}
