"""The AI SDK's language-model protocol, served by the same scripted model: `POST /v4/ai/language-model`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec
from aiohttp import web

from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.testing.catalog import MODELS
from tollbridge.testing.faults import make_chunks
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.responses import Step
from tollbridge.testing.routes import BODY, SCENARIO, SERVICE, Handler, send_chunks, send_json, send_whole
from tollbridge.testing.validation import read_json
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
from tollbridge.types.text import write_json
from tollbridge.types.usage import Usage

# SECTION The AI SDK's call options as the OpenResponses request they mean.

Json = dict[str, Any]
Given = Mapping[str, Any]

# The provider under whose name reasoning carries what must come back with it. Not `tollbridge`: that name is
# taken, in metadata, by what a client of ours adds for itself.
PROVIDER = "scripted"

_OPTIONS = {
    "frequencyPenalty": "frequency_penalty",
    "maxOutputTokens": "max_output_tokens",
    "presencePenalty": "presence_penalty",
    "temperature": "temperature",
    "topP": "top_p",
}
# Known to the protocol, and nothing to the scripted model; the answer begins with a warning for each.
UNSUPPORTED = ("seed", "stopSequences", "topK")


def read_call(body: Given, model: str) -> Json:
    """The body of `POST /responses` that asks for the same."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list):
        raise RequestRejected(400, "invalid_prompt", "prompt must be a list of messages.", param="prompt")
    asked: Json = {"model": model, "store": False, "stream": True, "include": ["reasoning.encrypted_content"]}
    asked["input"] = [
        item for place, message in enumerate(prompt) for item in _items(message, f"prompt[{place}]")
    ]
    asked |= {name: body[option] for option, name in _OPTIONS.items() if body.get(option) is not None}
    if body.get("tools"):
        asked["tools"] = [_tool(tool) for tool in body["tools"]]
    if body.get("toolChoice"):
        asked["tool_choice"] = _choice(body["toolChoice"])
    if body.get("reasoning") not in (None, "provider-default"):
        asked["reasoning"] = {"effort": body["reasoning"]}
    wanted = body.get("responseFormat") or {}
    if wanted.get("type") == "json":
        named = {"name": wanted.get("name") or "answer", "schema": wanted.get("schema")}
        kind = {"type": "json_schema", **named} if named["schema"] else {"type": "json_object"}
        asked["text"] = {"format": kind}
    return asked


def _items(message: Any, place: str) -> list[Json]:
    if not isinstance(message, Mapping):
        raise RequestRejected(400, "invalid_prompt", f"{place} is not a message.", param=place)
    role, content = message.get("role"), message.get("content")
    if role == "system" and isinstance(content, str):
        return [{"type": "message", "role": "developer", "content": content}]
    if role not in ("user", "assistant", "tool") or not isinstance(content, list):
        raise RequestRejected(
            400, "invalid_prompt", f"{place} has a wrong role or no list of content.", param=place
        )
    if role == "user":
        parts = [_said(part, f"{place}.content[{at}]") for at, part in enumerate(content)]
        return [{"type": "message", "role": "user", "content": parts}]
    return [item for at, part in enumerate(content) for item in _item(part, f"{place}.content[{at}]")]


def _item(part: Given, place: str) -> list[Json]:
    match part.get("type"):
        case "text":
            return [{"type": "message", "role": "assistant", "content": part.get("text", "")}]
        case "reasoning":
            proof = (part.get("providerOptions") or {}).get(PROVIDER) or {}
            summary = [{"type": "summary_text", "text": part["text"]}] if part.get("text") else []
            return [{"type": "reasoning", "summary": summary, **proof}] if proof else []
        case "tool-call":
            arguments = write_json(part.get("input"))
            called = {"call_id": part.get("toolCallId"), "name": part.get("toolName")}
            return [{"type": "function_call", **called, "arguments": arguments}]
        case "tool-result":
            output = _output(part.get("output") or {}, place)
            return [{"type": "function_call_output", "call_id": part.get("toolCallId"), "output": output}]
        case "file":
            return [{"type": "message", "role": "assistant", "content": f"[{part.get('mediaType')}]"}]
        case _:
            raise RequestRejected(400, "invalid_prompt", f"{place}.type is unknown.", param=f"{place}.type")


def _said(part: Given, place: str) -> Json:
    if part.get("type") == "text":
        return {"type": "input_text", "text": part.get("text", "")}
    if part.get("type") != "file":
        raise RequestRejected(400, "invalid_prompt", f"{place}.type is unknown.", param=f"{place}.type")
    mime, url = str(part.get("mediaType")), _url(part)
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    named = {"filename": part.get("filename") or "file"}
    return {"type": "input_file", **named, "file_data" if url.startswith("data:") else "file_url": url}


def _url(part: Given) -> str:
    """Inline bytes are a data URL, or tagged; so are links (specification 4)."""
    data = part.get("data")
    if isinstance(data, Mapping):
        if data.get("type") == "url":
            return str(data.get("url"))
        data = data.get("data")
    text = str(data)
    if text.startswith(("data:", "http://", "https://")):
        return text
    return f"data:{part.get('mediaType')};base64,{text}"


def _output(output: Given, place: str) -> str | list[Json]:
    kind, value = output.get("type"), output.get("value")
    if kind in ("text", "error-text"):
        return str(value)
    if kind in ("json", "error-json"):
        return write_json(value)
    if kind != "content" or not isinstance(value, Sequence):
        raise RequestRejected(400, "invalid_prompt", f"{place}.output is unknown.", param=f"{place}.output")
    return [
        _said({**item, "type": "text" if item.get("type") == "text" else "file"}, place) for item in value
    ]


def _tool(tool: Given) -> Json:
    if tool.get("type") != "function":
        return dict(tool)  # refused, by its type
    described = {"description": tool["description"]} if tool.get("description") else {}
    named = {"type": "function", "name": tool.get("name"), **described}
    return {**named, "parameters": tool.get("inputSchema"), "strict": False}


def _choice(choice: Given) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "name": choice.get("toolName")}
    return choice.get("type")


# SECTION A turn's events as the parts that a model gives the AI SDK, in specification 2, 3 or 4.


class ModelParts:
    """Blocks are opened and closed as the events need it; their ids count up."""

    def __init__(self, spec: int, model: str) -> None:
        self._spec = spec
        self._model = model
        self._blocks = 0
        self._open: str | None = None  # the kind of the open block

    def start(self, unsupported: Sequence[str]) -> list[Json]:
        new = (
            {"type": "unsupported", "feature": ""}
            if self._spec > 2
            else {"type": "unsupported-setting", "setting": ""}
        )
        warnings = [{name: value or setting for name, value in new.items()} for setting in unsupported]
        return [
            {"type": "stream-start", "warnings": warnings},
            {"type": "response-metadata", "modelId": self._model},
        ]

    def take(self, events: Iterable[Event]) -> list[Json]:
        return [part for event in events for part in self._parts(event)]

    def _parts(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text):
                return [*self._opened("text"), {"type": "text-delta", "id": self._id, "delta": text}]
            case ReasoningDelta(text):
                return [
                    *self._opened("reasoning"),
                    {"type": "reasoning-delta", "id": self._id, "delta": text},
                ]
            case ReasoningEnded(_, metadata):
                opened = self._opened("reasoning") if metadata else []
                return [*opened, *self._closed({PROVIDER: dict(metadata)} if metadata else None)]
            case ToolCall():
                return [*self._closed(), *_call(event)]
            case File():
                return [*self._closed(), self._file(event)]
            case Source():
                return [*self._closed(), _source(event)]
            case Finished():
                return [*self._closed(), self._finish(event)]
            case Failed(error):
                said = {
                    "message": error.message,
                    "type": error.code or error.kind,
                    "statusCode": error.status,
                }
                known = {name: value for name, value in said.items() if value is not None}
                return [*self._closed(), {"type": "error", "error": known}]
            case Data() | Corrected():
                return []  # no model says such a thing
            case _:
                assert_never(event)

    @property
    def _id(self) -> str:
        return str(self._blocks)

    def _opened(self, kind: str) -> list[Json]:
        if self._open == kind:
            return []
        closed = self._closed()
        self._open, self._blocks = kind, self._blocks + 1
        return [*closed, {"type": f"{kind}-start", "id": self._id}]

    def _closed(self, metadata: Json | None = None) -> list[Json]:
        kind, self._open = self._open, None
        proof = {"providerMetadata": metadata} if metadata else {}
        return [{"type": f"{kind}-end", "id": self._id, **proof}] if kind else []

    def _file(self, file: File) -> Json:
        data: Any = file.url if file.data is None else b64encode(file.data).decode()
        if self._spec == 4:
            data = {"type": "url", "url": data} if file.data is None else {"type": "data", "data": data}
        return {"type": "file", "mediaType": file.mime, "data": data}

    def _finish(self, finished: Finished) -> Json:
        reason = finished.reason or "other"
        usage = finished.usage or Usage()
        if self._spec == 2:
            return {"type": "finish", "finishReason": reason, "usage": _flat(usage)}
        unified = "other" if reason == "unknown" else reason
        return {
            "type": "finish",
            "finishReason": {"unified": unified, "raw": reason},
            "usage": _nested(usage),
        }


def _call(call: ToolCall) -> list[Json]:
    text = call.input if isinstance(call.input, str) else write_json(call.input)
    named = {"toolCallId": call.call_id, "toolName": call.name}
    return [
        {"type": "tool-input-start", "id": call.call_id, "toolName": call.name},
        {"type": "tool-input-delta", "id": call.call_id, "delta": text},
        {"type": "tool-input-end", "id": call.call_id},
        {"type": "tool-call", **named, "input": text},
    ]


def _source(source: Source) -> Json:
    names = {"kind": "sourceType", "mime": "mediaType"}
    fields = msgspec.structs.asdict(source) | {"id": source.id or source.url or "source"}
    known = {names.get(name, name): value for name, value in fields.items() if value is not None}
    return {"type": "source", **known}


def _flat(usage: Usage) -> Json:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }


def _nested(usage: Usage) -> Json:
    return {
        "inputTokens": {"total": usage.input_tokens, "cacheRead": usage.cached_tokens},
        "outputTokens": {"total": usage.output_tokens, "reasoning": usage.reasoning_tokens},
    }


# SECTION The AI SDK's language-model protocol, served by the same scripted model: `POST /v4/ai/language-model`.

# The protocol's own names for what our refusals are.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "forbidden",
    404: "model_not_found",
    424: "failed_dependency",
    429: "rate_limit_exceeded",
}


async def ask_model(request: web.Request) -> web.StreamResponse:
    service, scenario = request.app[SERVICE], request[SCENARIO]
    spec, model = _spec(request), request.headers.get("ai-language-model-id", "")
    body = read_json(request[BODY])
    turn = service.accept(read_call(body, model))
    parts = ModelParts(spec, model)
    unsupported = [name for name in UNSUPPORTED if body.get(name) is not None]
    steps = _translated(service.steps(turn, scenario), parts, parts.start(unsupported))
    if request.headers.get("ai-language-model-streaming") == "true" or scenario.streams_anyway:
        # Whatever the scenario: this protocol names no event and has no mark of its end.
        framing = msgspec.structs.replace(scenario.framing, event_lines=False, done=False)
        chunks = scenario.chunks(make_chunks(steps, framing))
        return await send_chunks(request, chunks, "text/event-stream", scenario.encoding)
    return await send_whole(request, steps, _joined, b'{"content": [')


async def list_models(request: web.Request) -> web.StreamResponse:
    spec = _spec(request, default=4)
    models = [
        {
            "id": model["id"],
            "name": model["name"],
            "description": model.get("description"),
            "pricing": _pricing(model),
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


def _pricing(model: Mapping[str, Any]) -> Any:
    """The SDK's client refuses the whole list for one price that is missing."""
    pricing = model.get("pricing") or {}
    return pricing if "input" in pricing and "output" in pricing else None


def _spec(request: web.Request, default: int | None = None) -> int:
    given = request.headers.get("ai-language-model-specification-version")
    if given is None and default is not None:
        return {"1": 2, "3": 3, "4": 4}.get(request.match_info["version"], default)
    if given not in ("2", "3", "4"):
        raise RequestRejected(
            400,
            "unsupported_specification",
            f"The specification version is {given!r}; served here are 2, 3 and 4.",
            param="ai-language-model-specification-version",
        )
    return int(given)


def _translated(steps: Iterable[Step], parts: ModelParts, start: list[Json]) -> Iterator[Step]:
    """The events, read as any client reads them and told again in the other protocol.

    Everything else that a scenario puts among them stays in place, and what it left out is not supplied."""
    decoder = StreamDecoder()
    for step in steps:
        if isinstance(step, dict):
            yield from start
            start = []
            yield from parts.take(decoder.feed_parsed(step))
        else:
            yield step


def _joined(parts: list[Json]) -> Json | None:
    content: list[Json] = []
    texts: dict[str, Json] = {}
    finish: Json = {}
    warnings: list[Json] = []
    for part in parts:
        kind = part["type"]
        if kind in ("text-start", "reasoning-start"):
            texts[part["id"]] = {"type": kind.removesuffix("-start"), "text": ""}
            content.append(texts[part["id"]])
        elif kind in ("text-delta", "reasoning-delta"):
            texts[part["id"]]["text"] += part["delta"]
        elif kind == "reasoning-end" and "providerMetadata" in part:
            texts[part["id"]]["providerMetadata"] = part["providerMetadata"]
        elif kind in ("tool-call", "file", "source"):
            content.append(part)
        elif kind == "stream-start":
            warnings = part["warnings"]
        elif kind == "finish":
            finish = {name: part[name] for name in ("finishReason", "usage")}
        elif kind == "error":
            raise RequestRejected(500, "internal_server_error", part["error"]["message"])
    return {"content": content, **finish, "warnings": warnings} if finish else None


@web.middleware
async def name_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The SDK's client knows an error by its type, and the protocol has types of its own."""
    response = await handler(request)
    if "/ai/" not in request.path or response.status < 400 or not isinstance(response, web.Response):
        return response
    try:
        body = msgspec.json.decode(response.body if isinstance(response.body, bytes) else b"")
        body["error"]["type"] = _TYPES.get(response.status, "internal_server_error")
    except (msgspec.DecodeError, KeyError, TypeError):
        return response  # a scenario's own
    response.body = msgspec.json.encode(body)
    return response


AI_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/v{version:[134]}/ai/config", list_models),
    ("POST", "/v{version:[134]}/ai/language-model", ask_model),
)
