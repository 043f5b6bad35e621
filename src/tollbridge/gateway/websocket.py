"""The WebSocket transport: one response after another on one connection, and what it remembers of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from tollbridge.gateway import validation
from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.events import HangUp, Pause
from tollbridge.gateway.memory import Memory
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.replies import Reply
from tollbridge.gateway.scenarios import Scenario, find_scenario
from tollbridge.gateway.sending import ARRIVAL, hang_up
from tollbridge.gateway.service import Service

MAX_MESSAGE = 64 * 1024 * 1024
_KEPT = 100  # responses a connection can go back to
_WAITING = 16  # messages read ahead while a response is being sent
# What HTTP needs and a socket does not.
_NOT_HERE = ("stream", "stream_options", "background")


async def converse(request: web.Request, service: Service) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE)
    await socket.prepare(request)
    await _Connection(request, service, socket).run()
    return socket


class _Connection:
    def __init__(self, request: web.Request, service: Service, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._service = service
        self._socket = socket
        self._memory = Memory(_KEPT)
        self._inbox: asyncio.Queue[str | None] = asyncio.Queue(_WAITING)
        self._busy = False

    async def run(self) -> None:
        """Read on while answers are sent: only a reader sees that the other side has closed."""
        worker = asyncio.create_task(self._work())
        try:
            async with asyncio.timeout(self._service.settings.websocket_seconds):
                async for message in self._socket:
                    await self._inbox.put(message.data if message.type is WSMsgType.TEXT else None)
            await self._end(worker)
        except TimeoutError:
            await self._end(worker)
            await self._refuse(
                Refused(400, "websocket_connection_limit_reached", "This connection is too old: open one.")
            )
        finally:
            worker.cancel()
        await self._socket.close()

    async def _end(self, worker: asyncio.Task[None]) -> None:
        if self._busy:
            self._service.arrivals.note_hang_up(self._request[ARRIVAL])
        worker.cancel()
        await asyncio.wait([worker])

    async def _work(self) -> None:
        with contextlib.suppress(ConnectionError):  # the reader sees it too, and ends this
            while True:
                text = await self._inbox.get()
                self._busy = True
                await self._respond(text)
                self._busy = False

    async def _respond(self, text: str | None) -> None:
        body: dict[str, Any] = {}
        try:
            if text is None:
                raise Refused(400, "invalid_json", "Send JSON as text, not as bytes.")
            body = validation.read_json(text)
            self._note(body)
            _check_create(body)
            scenario = find_scenario(self._service.choose_scenario(self._request.headers, body))
            self._refuse_if_asked(scenario, text, body)
            await self._send(scenario, body)
        except Refused as refused:
            # A continuation that failed leaves nothing to continue from.
            previous = body.get("previous_response_id")
            if isinstance(previous, str):
                self._memory.forget(previous)
                self._service.memory.forget(previous)
            await self._refuse(refused)

    def _note(self, body: Mapping[str, Any]) -> None:
        opened = self._request[ARRIVAL]
        arrival = Arrival("WEBSOCKET", opened.path, self._request.headers, opened.port)
        arrival.body = body
        self._service.arrivals.add(arrival)

    async def _send(self, scenario: Scenario, body: Mapping[str, Any]) -> None:
        turn = self._service.accept(body, self._memory)
        for step in self._service.steps(turn, scenario, self._memory):
            match step:
                case dict():
                    await self._socket.send_str(msgspec.json.encode(step).decode())
                case Pause():
                    await asyncio.sleep(step.seconds)
                case HangUp():
                    await hang_up(self._request, step.reset)
                    return
                case bytes():
                    pass  # bytes between frames: there is no such thing here

    def _refuse_if_asked(self, scenario: Scenario, text: str, body: Mapping[str, Any]) -> None:
        if scenario.reply is None or not scenario.when(body):
            return
        if scenario.once and not self._service.is_first("websocket", text):
            return
        raise _as_refusal(scenario.reply())

    async def _refuse(self, refused: Refused) -> None:
        answer = {"type": "error", "status": refused.status, **refused.body}
        await self._socket.send_str(msgspec.json.encode(answer).decode())


def _check_create(body: Mapping[str, Any]) -> None:
    if body.get("type") != "response.create":
        raise Refused(400, "invalid_value", "type must be response.create.", param="type")
    for field in _NOT_HERE:
        if field in body:
            raise Refused(400, "unsupported_parameter", f"{field} is not sent over a WebSocket.", param=field)


def _as_refusal(reply: Reply) -> Refused:
    """What an HTTP error says, where it can be said here."""
    try:
        error = msgspec.json.decode(reply.body, type=_Body).error
    except msgspec.DecodeError:
        return Refused(reply.status, "server_error", f"The scenario answers {reply.status}.")
    return Refused(reply.status, error.code, error.message)


class _Error(msgspec.Struct):
    message: str
    code: str = "server_error"


class _Body(msgspec.Struct):
    error: _Error
