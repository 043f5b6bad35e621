"""The routes of the gateway over HTTP and WebSocket, and how responses are sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import brotli  # type: ignore[import-untyped]
import msgspec
from aiohttp import WSMsgType, web

from tollbridge.protocols import find_by_headers
from tollbridge.testing import catalog, validation
from tollbridge.testing.catalog import describe_endpoints, find_model, list_page
from tollbridge.testing.faults import Chunk, make_chunks
from tollbridge.testing.limits import LIMITS
from tollbridge.testing.refusals import CannedReply, RequestRejected, reject
from tollbridge.testing.requests import ResponseStore
from tollbridge.testing.responses import Disconnect, Event, Pause, Step
from tollbridge.testing.scenarios import Scenario, find_scenario
from tollbridge.testing.service import ReceivedRequest, Service
from tollbridge.types.text import Fields

SERVICE = web.AppKey("service", Service)
RECEIVED = web.RequestKey("received", ReceivedRequest)
SCENARIO = web.RequestKey("scenario", Scenario)
BODY = web.RequestKey("body", bytes)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


Compressor = tuple[Callable[[bytes], bytes], Callable[[], bytes]]  # compress, finish
_FLUSH_SECONDS = 1.0


async def send_chunks(
    request: web.Request,
    chunks: Iterable[Chunk],
    content_type: str = "text/event-stream",
) -> web.StreamResponse:
    """Send a body with the encoding of the scenario, one write per chunk."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    encoding = request[SCENARIO].encoding
    if content_type == "text/event-stream":
        response.headers["Cache-Control"] = "no-cache"
    if encoding is not None:
        response.headers["Content-Encoding"] = encoding
    compress, finish = _COMPRESSORS[encoding]()
    await response.prepare(request)
    for chunk in chunks:
        match chunk:
            case bytes():
                await response.write(compress(chunk))
            case Pause():
                await asyncio.sleep(chunk.seconds)
            case Disconnect():
                await close_connection(request, chunk.reset)
                return response
    if rest := finish():
        await response.write(rest)
    await response.write_eof()
    return response


async def close_connection(request: web.Request, reset: bool = False) -> None:
    """Close the connection without ending the response, after the buffered bytes are sent."""
    request[RECEIVED].dropped = True
    transport = request.transport
    if transport is None:
        return
    if isinstance(transport, asyncio.WriteTransport):
        waited = 0.0
        while transport.get_write_buffer_size() and waited < _FLUSH_SECONDS:
            await asyncio.sleep(0.01)
            waited += 0.01
    if reset:
        await asyncio.sleep(0.05)  # a reset discards what the client has not read yet
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


def _gzip() -> Compressor:
    compressor = zlib.compressobj(wbits=31)
    # Flush after every chunk, so that no event waits for the next one.
    return lambda data: compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH), compressor.flush


def _brotli() -> Compressor:
    compressor = brotli.Compressor(quality=4)
    return lambda data: compressor.process(data) + compressor.flush(), compressor.finish


_COMPRESSORS: dict[str | None, Callable[[], Compressor]] = {
    None: lambda: (bytes, bytes),
    "gzip": _gzip,
    "br": _brotli,
}


_STORED_RESPONSES = 100  # per connection
_QUEUED_MESSAGES = 16  # read while a response is sent


class _Connection:
    """A WebSocket connection. It sends one response after the other and stores them for later requests."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._service = request.app[SERVICE]
        self._socket = socket
        self._store = ResponseStore(_STORED_RESPONSES)
        self._messages: asyncio.Queue[str | None] = asyncio.Queue(_QUEUED_MESSAGES)
        self._busy = False

    async def run(self) -> None:
        """Read messages while responses are sent: only reading shows that the client has disconnected."""
        worker = asyncio.create_task(self._send_responses())
        try:
            async with asyncio.timeout(self._service.settings.websocket_seconds):
                async for message in self._socket:
                    await self._messages.put(message.data if message.type is WSMsgType.TEXT else None)
            await self._stop(worker)
        except TimeoutError:
            await self._stop(worker)
            problem = "The connection has reached its maximum duration. Open a new one."
            await self._send_error(RequestRejected(400, "websocket_connection_limit_reached", problem))
        finally:
            worker.cancel()
        await self._socket.close()

    async def _stop(self, worker: asyncio.Task[None]) -> None:
        if self._busy:
            self._service.log.add_disconnect(self._request[RECEIVED])
        worker.cancel()
        await asyncio.wait([worker])

    async def _send_responses(self) -> None:
        with contextlib.suppress(ConnectionError):  # `run` notices it too, and stops this task
            while True:
                text = await self._messages.get()
                self._busy = True
                await self._respond(text)
                self._busy = False

    async def _respond(self, text: str | None) -> None:
        body: dict[str, Any] = {}
        try:
            if text is None:
                reject("invalid_json", "Send JSON as a text message, not as a binary message.")
            body = validation.read_json(text)
            opening = self._request[RECEIVED]
            received = ReceivedRequest("WEBSOCKET", opening.path, self._request.headers, opening.port)
            received.body = body
            self._service.log.add(received)
            _check_create(body)
            scenario = find_scenario(self._service.choose_scenario(self._request.headers, body))
            if scenario.reply is not None and self._service.is_replaced(scenario, "websocket", body):
                raise _convert_reply(scenario.reply())
            await self._send(scenario, body)
        except RequestRejected as error:
            # The specification requires it: after a failed continuation, the previous response is removed.
            previous = body.get("previous_response_id")
            if isinstance(previous, str):
                self._store.remove(previous)
                self._service.store.remove(previous)
            await self._send_error(error)

    async def _send(self, scenario: Scenario, body: Mapping[str, Any]) -> None:
        request = self._service.accept(body, self._store)
        bearer = self._request[RECEIVED].bearer
        for step in self._service.make_steps(request, scenario, self._store, bearer=bearer):
            match step:
                case dict():
                    await self._socket.send_str(msgspec.json.encode(step).decode())
                case Pause():
                    await asyncio.sleep(step.seconds)
                case Disconnect():
                    await close_connection(self._request, step.reset)
                    return
                case bytes():
                    pass  # a WebSocket has no bytes between messages

    async def _send_error(self, error: RequestRejected) -> None:
        event = {"type": "error", "status": error.status, **error.body}
        await self._socket.send_str(msgspec.json.encode(event).decode())


def _check_create(body: Mapping[str, Any]) -> None:
    if body.get("type") != "response.create":
        reject("invalid_value", "type must be response.create.", "type")
    for field in ("stream", "stream_options", "background"):  # these exist only over HTTP
        if field in body:
            reject("unsupported_parameter", f"{field} is not available over a WebSocket. Remove it.", field)


def _convert_reply(reply: CannedReply) -> RequestRejected:
    """Convert an HTTP error to an error that a WebSocket can send."""
    error = Fields(None)
    with contextlib.suppress(msgspec.DecodeError):
        error = Fields(msgspec.json.decode(reply.body)).inner("error")
    message = error.text("message") or f"The scenario returns the status {reply.status}."
    return RequestRejected(reply.status, error.text("code") or "server_error", message)


async def health(_request: web.Request) -> web.Response:
    return web.Response(text="Tollbridge gateway: POST /v1/responses, GET /v1/models\n")


async def list_models(request: web.Request) -> web.StreamResponse:
    window = request.app[SERVICE].prompts.window
    protocol = find_by_headers(request.headers)
    if protocol is not None and protocol.models is not None and protocol.models.next_page:
        page = list_page(request.query.get("after_id"), request.query.get("limit"), window)
        return await send_json(request, page)
    return await send_json(request, {"object": "list", "data": catalog.list_models(window)})


async def show_model(request: web.Request) -> web.StreamResponse:
    return await send_json(request, find_model(request.match_info["id"]))


async def list_endpoints(request: web.Request) -> web.StreamResponse:
    return await send_json(request, {"data": describe_endpoints(request.match_info["id"])})


async def count_input(request: web.Request) -> web.StreamResponse:
    tokens = request.app[SERVICE].count(_read_body(request))
    return await send_json(request, {"object": "response.input_tokens", "input_tokens": tokens})


async def compact(request: web.Request) -> web.StreamResponse:
    return await send_json(request, request.app[SERVICE].compact(_read_body(request)))


async def create_response(request: web.Request) -> web.StreamResponse:
    service, scenario = request.app[SERVICE], request[SCENARIO]
    accepted_request = service.accept(scenario.body(_read_body(request)))
    steps = service.make_steps(accepted_request, scenario, bearer=request[RECEIVED].bearer)
    if accepted_request.body.stream or scenario.always_streams:
        chunks = scenario.chunks(make_chunks(steps, scenario.framing))
        return await send_chunks(request, chunks)
    return await send_joined(request, steps, _join_events)


async def open_socket(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        message = "GET /v1/responses opens a WebSocket. Send an Upgrade header, or use POST."
        raise RequestRejected(426, "upgrade_required", message, headers={"Upgrade": "websocket"})
    connection = web.WebSocketResponse(max_msg_size=LIMITS.body_size)
    await connection.prepare(request)
    await _Connection(request, connection).run()
    return connection


async def send_joined(
    request: web.Request,
    steps: Iterable[Step],
    join: Callable[[list[Event]], Mapping[str, Any] | None],
) -> web.StreamResponse:
    """Send the whole answer in one body, for a client that does not stream.

    `join` converts the events to the answer. It returns None if the scenario ends the answer early: then what
    is sent is no JSON.
    """
    events: list[Event] = []
    raw = b""
    for step in steps:
        match step:
            case Pause():
                await asyncio.sleep(step.seconds)
            case Disconnect():
                await close_connection(request, step.reset)
                return web.Response()
            case bytes():
                raw += step
            case _:
                events.append(step)
    answer = join(events)
    if answer is None:
        return await send_body(request, raw or b'{"id": "')
    return await send_json(request, answer)


def _join_events(events: list[Event]) -> Mapping[str, Any] | None:
    response: Mapping[str, Any] | None = None
    for event in events:
        match event:
            case {"type": "error"}:
                raise RequestRejected(500, "server_error", event.get("error", event)["message"])
            case {"response": latest} if event["type"] not in ("response.created", "response.in_progress"):
                response = latest
    return response


async def send_json(request: web.Request, value: Any) -> web.StreamResponse:
    return await send_body(request, msgspec.json.encode(value))


async def send_body(request: web.Request, body: bytes) -> web.StreamResponse:
    scenario = request[SCENARIO]
    if scenario.encoding is None and scenario.chunks is iter:
        return web.Response(body=body, content_type="application/json")
    return await send_chunks(request, scenario.chunks([body]), "application/json")


def _read_body(request: web.Request) -> dict[str, Any]:
    if not request.content_type.endswith("json"):
        message = f"The content type {request.content_type} is not accepted. Send application/json."
        raise RequestRejected(415, "unsupported_media_type", message, param="Content-Type")
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
