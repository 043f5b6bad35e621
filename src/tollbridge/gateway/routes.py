"""What the gateway answers on each path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.gateway import validation
from tollbridge.gateway.catalog import MODELS, describe_endpoints, find_model
from tollbridge.gateway.events import Event, HangUp, Pause, Step
from tollbridge.gateway.framing import Chunk, as_they_are, make_chunks
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.scenarios import Scenario
from tollbridge.gateway.sending import hang_up, send_chunks
from tollbridge.gateway.service import Service
from tollbridge.gateway.websocket import converse

SERVICE = web.AppKey("service", Service)
SCENARIO = web.RequestKey("scenario", Scenario)
BODY = web.RequestKey("body", bytes)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def health(_request: web.Request) -> web.Response:
    return web.Response(text="Tollbridge gateway: POST /v1/responses, GET /v1/models\n")


async def list_models(request: web.Request) -> web.StreamResponse:
    return await send_json(request, {"object": "list", "data": MODELS})


async def show_model(request: web.Request) -> web.StreamResponse:
    return await send_json(request, find_model(request.match_info["id"]))


async def list_endpoints(request: web.Request) -> web.StreamResponse:
    return await send_json(request, {"data": describe_endpoints(request.match_info["id"])})


async def count_input(request: web.Request) -> web.StreamResponse:
    tokens = request.app[SERVICE].count(_json(request))
    return await send_json(request, {"object": "response.input_tokens", "input_tokens": tokens})


async def compact(request: web.Request) -> web.StreamResponse:
    return await send_json(request, request.app[SERVICE].compact(_json(request)))


async def create_response(request: web.Request) -> web.StreamResponse:
    service, scenario = request.app[SERVICE], request[SCENARIO]
    turn = service.accept(scenario.body(_json(request)))
    steps = service.steps(turn, scenario)
    if turn.body.stream or scenario.streams_anyway:
        chunks = scenario.chunks(make_chunks(steps, scenario.framing))
        return await send_chunks(request, chunks, "text/event-stream", scenario.encoding)
    return await send_whole(request, steps, _joined, b'{"id": "resp_')


async def open_socket(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise Refused(
            426,
            "upgrade_required",
            "GET /v1/responses opens a WebSocket: ask for an upgrade, or POST.",
            headers={"Upgrade": "websocket"},
        )
    return await converse(request, request.app[SERVICE])


async def send_whole(
    request: web.Request,
    steps: Iterable[Step],
    join: Callable[[list[Event]], Mapping[str, Any] | None],
    unfinished: bytes,
) -> web.StreamResponse:
    """What the steps come to, in one body, for a client that does not stream.

    `join` makes the answer of the events. Where the scenario has no end to give there is none, and what is
    left of it (its own bytes, or the `unfinished` ones) is not JSON.
    """
    events: list[Event] = []
    raw = b""
    for step in steps:
        match step:
            case Pause():
                await asyncio.sleep(step.seconds)
            case HangUp():
                await hang_up(request, step.reset)
                return web.Response()
            case bytes():
                raw += step
            case _:
                events.append(step)
    answer = join(events)
    return await send_body(request, raw or unfinished) if answer is None else await send_json(request, answer)


def _joined(events: list[Event]) -> Mapping[str, Any] | None:
    response: Mapping[str, Any] | None = None
    for event in events:
        match event:
            case {"type": "error"}:
                raise Refused(500, "server_error", event.get("error", event)["message"])
            case {"response": found} if event["type"] not in ("response.created", "response.in_progress"):
                response = found
    return response


async def send_json(request: web.Request, value: Any) -> web.StreamResponse:
    return await send_body(request, msgspec.json.encode(value))


async def send_body(request: web.Request, body: bytes) -> web.StreamResponse:
    scenario = request[SCENARIO]
    if scenario.encoding is None and scenario.chunks is as_they_are:
        return web.Response(body=body, content_type="application/json")
    chunks: Iterable[Chunk] = scenario.chunks([body])
    return await send_chunks(request, chunks, "application/json", scenario.encoding)


def _json(request: web.Request) -> dict[str, Any]:
    if not request.content_type.endswith("json"):
        raise Refused(
            415,
            "unsupported_media_type",
            f"The body is {request.content_type}: send application/json.",
            param="Content-Type",
        )
    return validation.read_json(request[BODY])


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", health),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{id:.+}/endpoints", list_endpoints),
    ("GET", "/v1/models/{id:.+}", show_model),
    ("GET", "/v1/responses", open_socket),
    ("POST", "/v1/responses", create_response),
    ("POST", "/v1/responses/input_tokens", count_input),
    ("POST", "/v1/responses/compact", compact),
)
