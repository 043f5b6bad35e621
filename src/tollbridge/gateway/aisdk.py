"""The AI SDK's language-model protocol, served by the same scripted model: `POST /v4/ai/language-model`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.gateway.aisdk_parts import ModelParts
from tollbridge.gateway.aisdk_prompt import UNSUPPORTED, read_call
from tollbridge.gateway.catalog import MODELS
from tollbridge.gateway.events import Step
from tollbridge.gateway.framing import make_chunks
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.routes import BODY, SCENARIO, SERVICE, Handler, send_json, send_whole
from tollbridge.gateway.sending import send_chunks
from tollbridge.gateway.validation import read_json
from tollbridge.gateways.openresponses.decode import StreamDecoder

Json = dict[str, Any]

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
        raise Refused(
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
            yield from parts.take(decoder.take(step))
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
            raise Refused(500, "internal_server_error", part["error"]["message"])
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
