"""The AI SDK's language-model protocol, with the same scripted model: `POST /v4/ai/language-model`.

A request is converted to an OpenResponses request (`read_call`), and the events of the answer are converted
to the stream parts of specification 2, 3 or 4 (`PartEncoder`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec
from aiohttp import web

from tollbridge.protocols.answer import AnswerEncoder
from tollbridge.protocols.caller_request import CallerRequest
from tollbridge.testing.catalog import MODELS
from tollbridge.testing.refusals import RequestRejected, reject
from tollbridge.testing.routes import BODY, SERVICE, Handler, send_json
from tollbridge.testing.translations import send_answer
from tollbridge.testing.validation import read_json
from tollbridge.types.errors import BridgeError
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
from tollbridge.types.messages import ChatRequest
from tollbridge.types.text import write_json

Json = dict[str, Any]
Options = Mapping[str, Any]

# The key of the provider metadata that must be sent back with reasoning. Not `tollbridge`, because
# Tollbridge's own clients use that key for metadata of their own.
PROVIDER = "scripted"

_OPTIONS = {
    "frequencyPenalty": "frequency_penalty",
    "maxOutputTokens": "max_output_tokens",
    "presencePenalty": "presence_penalty",
    "temperature": "temperature",
    "topP": "top_p",
}
# Options that the scripted model does not support. The answer begins with a warning for each.
UNSUPPORTED = ("seed", "stopSequences", "topK")


def read_call(body: Options, model: str) -> Json:
    """Convert call options to the body of an equivalent `POST /responses`."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list):
        reject("invalid_prompt", "prompt must be a list of messages.", "prompt")
    items = [
        item for index, message in enumerate(prompt) for item in _convert_message(message, f"prompt[{index}]")
    ]
    include = ["reasoning.encrypted_content"]
    request: Json = {"model": model, "input": items, "store": False, "stream": True, "include": include}
    request |= {name: body[option] for option, name in _OPTIONS.items() if body.get(option) is not None}
    if body.get("tools"):
        request["tools"] = [_convert_tool(tool) for tool in body["tools"]]
    if choice := body.get("toolChoice"):
        tool = {"type": "function", "name": choice.get("toolName")}
        request["tool_choice"] = tool if choice.get("type") == "tool" else choice.get("type")
    if body.get("reasoning") not in (None, "provider-default"):
        request["reasoning"] = {"effort": body["reasoning"]}
    response_format = body.get("responseFormat") or {}
    if response_format.get("type") == "json":
        output_format: Json = {"type": "json_object"}
        if schema := response_format.get("schema"):
            name = response_format.get("name") or "answer"
            output_format = {"type": "json_schema", "name": name, "schema": schema}
        request["text"] = {"format": output_format}
    return request


def _convert_message(message: Any, path: str) -> list[Json]:
    if not isinstance(message, Mapping):
        reject("invalid_prompt", f"{path} is not a message.", path)
    role, content = message.get("role"), message.get("content")
    if role == "system" and isinstance(content, str):
        return [{"type": "message", "role": "developer", "content": content}]
    if role not in ("user", "assistant", "tool") or not isinstance(content, list):
        reject("invalid_prompt", f"{path} has an invalid role, or its content is not a list.", path)
    if role == "user":
        parts = [_convert_user_part(part, f"{path}.content[{index}]") for index, part in enumerate(content)]
        return [{"type": "message", "role": "user", "content": parts}]
    return [
        item
        for index, part in enumerate(content)
        for item in _convert_assistant_part(part, f"{path}.content[{index}]")
    ]


def _convert_assistant_part(part: Options, path: str) -> list[Json]:
    match part.get("type"):
        case "text":
            return [{"type": "message", "role": "assistant", "content": part.get("text", "")}]
        case "reasoning":
            metadata = (part.get("providerOptions") or {}).get(PROVIDER) or {}
            summary = [{"type": "summary_text", "text": part["text"]}] if part.get("text") else []
            return [{"type": "reasoning", "summary": summary, **metadata}] if metadata else []
        case "tool-call":
            arguments = write_json(part.get("input"))
            names = {"call_id": part.get("toolCallId"), "name": part.get("toolName")}
            return [{"type": "function_call", **names, "arguments": arguments}]
        case "tool-result":
            output = _convert_output(part.get("output") or {}, path)
            return [{"type": "function_call_output", "call_id": part.get("toolCallId"), "output": output}]
        case "file":
            return [{"type": "message", "role": "assistant", "content": f"[{part.get('mediaType')}]"}]
        case _:
            raise RequestRejected(400, "invalid_prompt", f"{path}.type is unknown.", param=f"{path}.type")


def _convert_user_part(part: Options, path: str) -> Json:
    if part.get("type") == "text":
        return {"type": "input_text", "text": part.get("text", "")}
    if part.get("type") != "file":
        reject("invalid_prompt", f"{path}.type is unknown.", f"{path}.type")
    mime, url = str(part.get("mediaType")), _read_url(part)
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    field = "file_data" if url.startswith("data:") else "file_url"
    return {"type": "input_file", "filename": part.get("filename") or "file", field: url}


def _read_url(part: Options) -> str:
    """Return the URL of a file. In specification 4, inline bytes and links are tagged objects."""
    data = part.get("data")
    if isinstance(data, Mapping):
        if data.get("type") == "url":
            return str(data.get("url"))
        data = data.get("data")
    text = str(data)
    if text.startswith(("data:", "http://", "https://")):
        return text
    return f"data:{part.get('mediaType')};base64,{text}"


def _convert_output(output: Options, path: str) -> str | list[Json]:
    kind, value = output.get("type"), output.get("value")
    if kind in ("text", "error-text"):
        return str(value)
    if kind in ("json", "error-json"):
        return write_json(value)
    if kind != "content" or not isinstance(value, Sequence):
        reject("invalid_prompt", f"{path}.output is unknown.", f"{path}.output")
    return [
        _convert_user_part({**item, "type": "text" if item.get("type") == "text" else "file"}, path)
        for item in value
    ]


def _convert_tool(tool: Options) -> Json:
    if tool.get("type") != "function":
        return dict(tool)  # the validation rejects it because of its type
    description = {"description": tool["description"]} if tool.get("description") else {}
    names = {"type": "function", "name": tool.get("name"), **description}
    return {**names, "parameters": tool.get("inputSchema"), "strict": False}


class PartEncoder(AnswerEncoder):
    """Encodes an answer as stream parts of specification 2, 3 or 4.

    It opens and closes blocks of text and reasoning as needed, and numbers them. Each option of the request
    that the model does not support causes a warning.
    """

    def __init__(self, spec: int, model: str, unsupported: Sequence[str] = ()) -> None:
        super().__init__(CallerRequest(request=ChatRequest(model=model, messages=())))
        self._spec = spec
        self._blocks = 0
        self._open_kind: str | None = None  # "text" or "reasoning" while a block is open
        self._content: list[Json] = []  # of a result that is not streamed
        kind, field = ("unsupported", "feature") if spec > 2 else ("unsupported-setting", "setting")
        self._warnings = [{"type": kind, field: option} for option in unsupported]

    def start(self) -> list[Json]:
        return [
            {"type": "stream-start", "warnings": self._warnings},
            {"type": "response-metadata", "modelId": self._request.request.model},
        ]

    def _complete(self, finished: Finished) -> list[Json]:
        return [*self._close_block(), {"type": "finish", **self._describe_end(finished)}]

    def _fail(self, error: BridgeError) -> list[Json]:
        fields = {"message": error.message, "type": error.code or error.kind, "statusCode": error.status}
        present = {name: value for name, value in fields.items() if value is not None}
        return [*self._close_block(), {"type": "error", "error": present}]

    def _make_body(self, finished: Finished) -> Json:
        return {"content": self._content, **self._describe_end(finished), "warnings": self._warnings}

    def _encode_event(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text):
                return self._add_text("text", text)
            case ReasoningDelta(text):
                return self._add_text("reasoning", text)
            case ReasoningEnded(_, metadata):
                opening = self._open_block("reasoning") if metadata else []
                return [*opening, *self._close_block({PROVIDER: dict(metadata)} if metadata else None)]
            case ToolCall():
                return self._add_parts(*_encode_call(event))
            case File():
                return self._add_parts(self._encode_file(event))
            case Source():
                return self._add_parts(_encode_source(event))
            case Finished():
                self._finished = event
                return []
            case Failed() | Data() | Corrected():
                return []  # `finish` gets the error; the scripted model does not create the others
            case _:
                assert_never(event)

    @property
    def _id(self) -> str:
        return str(self._blocks)

    def _open_block(self, kind: str) -> list[Json]:
        if self._open_kind == kind:
            return []
        closing = self._close_block()
        self._open_kind, self._blocks = kind, self._blocks + 1
        self._content.append({"type": kind, "text": ""})
        return [*closing, {"type": f"{kind}-start", "id": self._id}]

    def _add_text(self, kind: str, text: str) -> list[Json]:
        opening = self._open_block(kind)
        self._content[-1]["text"] += text
        return [*opening, {"type": f"{kind}-delta", "id": self._id, "delta": text}]

    def _close_block(self, metadata: Json | None = None) -> list[Json]:
        kind, self._open_kind = self._open_kind, None
        if kind is None:
            return []
        extra = {"providerMetadata": metadata} if metadata else {}
        self._content[-1] |= extra
        return [{"type": f"{kind}-end", "id": self._id, **extra}]

    def _add_parts(self, *parts: Json) -> list[Json]:
        """Return parts, of which the last is the one of a result that is not streamed."""
        closing = self._close_block()
        self._content.append(parts[-1])
        return [*closing, *parts]

    def _encode_file(self, file: File) -> Json:
        data: Any = file.url if file.data is None else b64encode(file.data).decode()
        if self._spec == 4:
            data = {"type": "url", "url": data} if file.data is None else {"type": "data", "data": data}
        return {"type": "file", "mediaType": file.mime, "data": data}

    def _describe_end(self, finished: Finished) -> Json:
        reason = finished.reason or "other"
        usage = finished.usage or Usage()
        if self._spec == 2:
            flat_usage = {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "totalTokens": usage.total_tokens,
                "cachedInputTokens": usage.cached_tokens,
                "reasoningTokens": usage.reasoning_tokens,
            }
            return {"finishReason": reason, "usage": flat_usage}
        written = {} if usage.cache_write_tokens is None else {"cacheWrite": usage.cache_write_tokens}
        nested_usage = {
            "inputTokens": {"total": usage.input_tokens, "cacheRead": usage.cached_tokens, **written},
            "outputTokens": {"total": usage.output_tokens, "reasoning": usage.reasoning_tokens},
        }
        unified = "other" if reason == "unknown" else reason
        return {"finishReason": {"unified": unified, "raw": reason}, "usage": nested_usage}


def _encode_call(call: ToolCall) -> list[Json]:
    text = call.input if isinstance(call.input, str) else write_json(call.input)
    return [
        {"type": "tool-input-start", "id": call.call_id, "toolName": call.name},
        {"type": "tool-input-delta", "id": call.call_id, "delta": text},
        {"type": "tool-input-end", "id": call.call_id},
        {"type": "tool-call", "toolCallId": call.call_id, "toolName": call.name, "input": text},
    ]


def _encode_source(source: Source) -> Json:
    names = {"kind": "sourceType", "mime": "mediaType"}
    fields = msgspec.structs.asdict(source) | {"id": source.id or source.url or "source"}
    present = {names.get(name, name): value for name, value in fields.items() if value is not None}
    return {"type": "source", **present}


async def call_model(request: web.Request) -> web.StreamResponse:
    spec, model = _read_spec(request), request.headers.get("ai-language-model-id", "")
    body = read_json(request[BODY])
    accepted_request = request.app[SERVICE].accept(read_call(body, model))
    encoder = PartEncoder(spec, model, [name for name in UNSUPPORTED if body.get(name) is not None])
    stream = request.headers.get("ai-language-model-streaming") == "true"
    return await send_answer(request, accepted_request, encoder, stream=stream)


async def list_models(request: web.Request) -> web.StreamResponse:
    spec = _read_spec(request, default=4)
    models = [
        {
            "id": model["id"],
            "name": model["name"],
            "description": model["description"],
            # The SDK's client rejects the whole list if one price is missing.
            "pricing": model["pricing"] if "output" in model["pricing"] else None,
            "specification": {
                "specificationVersion": f"v{spec}",
                "provider": "tollbridge",
                "modelId": model["id"],
            },
            "modelType": model["type"],
        }
        for model in MODELS
    ]
    return await send_json(request, {"models": models})


def _read_spec(request: web.Request, default: int | None = None) -> int:
    header = "ai-language-model-specification-version"
    version = request.headers.get(header)
    if version is None and default is not None:
        return {"1": 2, "3": 3, "4": 4}.get(request.match_info["version"], default)
    if version not in ("2", "3", "4"):
        problem = f"Unsupported specification version {version!r}. Supported versions: 2, 3 and 4."
        reject("unsupported_specification", problem, header)
    return int(version)


AI_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/v{version:[134]}/ai/config", list_models),
    ("POST", "/v{version:[134]}/ai/language-model", call_model),
)
