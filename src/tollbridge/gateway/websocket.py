"""The WebSocket transport: one response after another on one connection, and what it remembers of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from tollbridge.gateway import validation
from tollbridge.gateway.events import HangUp, Pause
from tollbridge.gateway.memory import Memory
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.scenarios import Scenario, find_scenario
from tollbridge.gateway.sending import hang_up
from tollbridge.gateway.service import Service

MAX_MESSAGE = 64 * 1024 * 1024
LIFETIME_SECONDS = 60 * 60
_KEPT = 100  # responses a connection can go back to
# What HTTP needs and a socket does not.
_NOT_HERE = ("stream", "stream_options", "background")


async def converse(request: web.Request, service: Service) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE)
    await socket.prepare(request)
    local = Memory(_KEPT)
    try:
        async with asyncio.timeout(LIFETIME_SECONDS):
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await _respond(request, socket, service, local, message.data)
                else:
                    await _say_no(socket, Refused(400, "invalid_json", "Send JSON as text, not as bytes."))
                if socket.closed:
                    break
    except TimeoutError:
        late = Refused(
            400, "websocket_connection_limit_reached", "This connection is 60 minutes old: open another."
        )
        await _say_no(socket, late)
    await socket.close()
    return socket


async def _respond(
    request: web.Request, socket: web.WebSocketResponse, service: Service, local: Memory, text: str
) -> None:
    body: dict[str, Any] = {}
    try:
        body = validation.read_json(text)
        _check_create(body)
        scenario = find_scenario(service.choose_scenario(request.headers, body))
        _refuse_if_asked(service, scenario, text)
        turn = service.accept(body, local)
        await _send(request, socket, service, scenario, local, turn)
    except Refused as refused:
        # A continuation that failed leaves nothing to continue from.
        previous = body.get("previous_response_id")
        if isinstance(previous, str):
            local.forget(previous)
            service.memory.forget(previous)
        await _say_no(socket, refused)


async def _send(
    request: web.Request,
    socket: web.WebSocketResponse,
    service: Service,
    scenario: Scenario,
    local: Memory,
    turn: Any,
) -> None:
    for step in service.steps(turn, scenario, local):
        match step:
            case dict():
                await socket.send_str(msgspec.json.encode(step).decode())
            case Pause():
                await asyncio.sleep(step.seconds)
            case HangUp():
                await hang_up(request, step.reset)
                return


def _check_create(body: Mapping[str, Any]) -> None:
    if body.get("type") != "response.create":
        raise Refused(400, "invalid_value", "type must be response.create.", param="type")
    for field in _NOT_HERE:
        if field in body:
            raise Refused(400, "unsupported_parameter", f"{field} is not sent over a WebSocket.", param=field)


def _refuse_if_asked(service: Service, scenario: Scenario, text: str) -> None:
    if scenario.reply is None or not scenario.when(validation.read_json(text)):
        return
    if scenario.once and not service.is_first("websocket", text):
        return
    reply = scenario.reply()
    raise Refused(reply.status, "server_error", f"The scenario answers {reply.status}.")


async def _say_no(socket: web.WebSocketResponse, refused: Refused) -> None:
    answer = {"type": "error", "status": refused.status, **refused.body}
    await socket.send_str(msgspec.json.encode(answer).decode())
