"""What the gateway answers on each path."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

import brotli  # type: ignore[import-untyped]
import msgspec
from aiohttp import WSMsgType, web

from tollbridge.testing import validation
from tollbridge.testing.catalog import MODELS, describe_endpoints, find_model
from tollbridge.testing.faults import Chunk, as_they_are, make_chunks
from tollbridge.testing.refusals import CannedReply, RequestRejected
from tollbridge.testing.requests import ResponseStore
from tollbridge.testing.responses import Event, HangUp, Pause, Step
from tollbridge.testing.scenarios import Scenario, find_scenario
from tollbridge.testing.service import ReceivedRequest, Service

# SECTION How answers leave: whole or in chunks, plain or compressed, to their end or dropped half-way.

ARRIVAL = web.RequestKey("arrival", ReceivedRequest)
Encoding = Literal["gzip", "br"] | None
_FLUSH_SECONDS = 1.0


async def send_chunks(
    request: web.Request,
    chunks: Iterable[Chunk],
    content_type: str,
    encoding: Encoding = None,
    status: int = 200,
) -> web.StreamResponse:
    """Each chunk in a write of its own, as it comes."""
    response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
    if content_type == "text/event-stream":
        response.headers["Cache-Control"] = "no-cache"
    if encoding is not None:
        response.headers["Content-Encoding"] = encoding
    press, finish = _COMPRESSORS[encoding]()
    await response.prepare(request)
    for chunk in chunks:
        match chunk:
            case bytes():
                await response.write(press(chunk))
            case Pause():
                await asyncio.sleep(chunk.seconds)
            case HangUp():
                await hang_up(request, chunk.reset)
                return response
    if rest := finish():
        await response.write(rest)
    await response.write_eof()
    return response


async def hang_up(request: web.Request, reset: bool = False) -> None:
    """Close the connection without ending the answer, once what was said is on its way."""
    request[ARRIVAL].dropped = True
    transport = request.transport
    if transport is None:
        return
    if isinstance(transport, asyncio.WriteTransport):
        waited = 0.0
        while transport.get_write_buffer_size() and waited < _FLUSH_SECONDS:
            await asyncio.sleep(0.01)
            waited += 0.01
    if reset:
        await asyncio.sleep(0.05)  # a reset also takes away what the other side has not read yet
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


Compressor = tuple[Callable[[bytes], bytes], Callable[[], bytes]]


def _plain() -> Compressor:
    return bytes, bytes


def _gzip() -> Compressor:
    press = zlib.compressobj(wbits=31)
    # Flushed for every chunk, or an event would wait for those after it.
    return lambda data: press.compress(data) + press.flush(zlib.Z_SYNC_FLUSH), press.flush


def _brotli() -> Compressor:
    press = brotli.Compressor(quality=4)
    return lambda data: press.process(data) + press.flush(), press.finish


_COMPRESSORS: dict[Encoding, Callable[[], Compressor]] = {None: _plain, "gzip": _gzip, "br": _brotli}


# SECTION The WebSocket transport: one response after another on one connection, and what it remembers of them.

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
        self._memory = ResponseStore(_KEPT)
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
                RequestRejected(
                    400, "websocket_connection_limit_reached", "This connection is too old: open one."
                )
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
                raise RequestRejected(400, "invalid_json", "Send JSON as text, not as bytes.")
            body = validation.read_json(text)
            self._note(body)
            _check_create(body)
            scenario = find_scenario(self._service.choose_scenario(self._request.headers, body))
            self._refuse_if_asked(scenario, text, body)
            await self._send(scenario, body)
        except RequestRejected as refused:
            # A continuation that failed leaves nothing to continue from.
            previous = body.get("previous_response_id")
            if isinstance(previous, str):
                self._memory.forget(previous)
                self._service.memory.forget(previous)
            await self._refuse(refused)

    def _note(self, body: Mapping[str, Any]) -> None:
        opened = self._request[ARRIVAL]
        arrival = ReceivedRequest("WEBSOCKET", opened.path, self._request.headers, opened.port)
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

    async def _refuse(self, refused: RequestRejected) -> None:
        answer = {"type": "error", "status": refused.status, **refused.body}
        await self._socket.send_str(msgspec.json.encode(answer).decode())


def _check_create(body: Mapping[str, Any]) -> None:
    if body.get("type") != "response.create":
        raise RequestRejected(400, "invalid_value", "type must be response.create.", param="type")
    for field in _NOT_HERE:
        if field in body:
            raise RequestRejected(
                400, "unsupported_parameter", f"{field} is not sent over a WebSocket.", param=field
            )


def _as_refusal(reply: CannedReply) -> RequestRejected:
    """What an HTTP error says, where it can be said here."""
    try:
        error = msgspec.json.decode(reply.body, type=_Body).error
    except msgspec.DecodeError:
        return RequestRejected(reply.status, "server_error", f"The scenario answers {reply.status}.")
    return RequestRejected(reply.status, error.code, error.message)


class _Error(msgspec.Struct):
    message: str
    code: str = "server_error"


class _Body(msgspec.Struct):
    error: _Error


# SECTION What the gateway answers on each path.

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
        raise RequestRejected(
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
                raise RequestRejected(500, "server_error", event.get("error", event)["message"])
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
        raise RequestRejected(
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
