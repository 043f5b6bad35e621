"""The local server: its routes and limits, and its life from start to shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hmac
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.frontends.http.answers import EVENT_STREAM, AnswerService, error_response
from tollbridge.frontends.http.callers import PROTOCOLS, RESPONSES, CallerProtocol, encode_json
from tollbridge.frontends.usage_page import MAX_DAYS, encode_report, read_page
from tollbridge.protocols import find_by_headers, read_key
from tollbridge.protocols.sse import SseDecoder
from tollbridge.types.errors import (
    BridgeError,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    RequestError,
    ServerFailed,
)
from tollbridge.types.text import read_json
from tollbridge.types.urls import explain_refusal, is_loopback

log = logging.getLogger(__name__)

# The largest request body: a conversation with pictures and files.
BODY_LIMIT = 128 * 1024 * 1024
# Seconds that running answers have to finish after the server was asked to stop.
SHUTDOWN_TIMEOUT = 2.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the server listens, and for whom.

    Attributes:
        host: The address to listen on.
        port: The port; 0 is any free port.
        token: The token that callers must send; required if `host` is not an address of this computer only.
        usage_only: Whether only the usage page is served, and no request is answered.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    usage_only: bool = False


def check_token(options: ServerOptions) -> None:
    """Check that a server has a token if other computers can reach it.

    Raises:
        RequestError: The address is not loopback and there is no token.
    """
    if options.token is None and not is_loopback(options.host):
        raise RequestError(
            f"Listening on {options.host} needs a token, because other computers can reach it. "
            "Set one with --token or TOLLBRIDGE_SERVE_TOKEN."
        )


@asynccontextmanager
async def run_server(
    engine: Engine, options: ServerOptions, find_account: Callable[[], Awaitable[Account]] | None = None
) -> AsyncIterator[str]:
    """Run the server, and yield its URL.

    Args:
        engine: Answers the requests.
        options: How the server listens, and for whom.
        find_account: Returns the gateway to use; by default the one that the settings select.

    Raises:
        RequestError: The port is in use, or the address is not loopback and there is no token.
    """
    check_token(options)
    # An answer is cancelled when its caller disconnects.
    runner = web.AppRunner(
        create_app(engine, options, find_account or engine.account),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=SHUTDOWN_TIMEOUT,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, options.host, options.port)
        try:
            await site.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise RequestError(f"Port {options.port} is already in use. Choose another one.") from None
            raise RequestError(f"Cannot listen on {options.host}: {error.strerror}.") from None
        host, port = runner.addresses[0][:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


def create_app(
    engine: Engine, options: ServerOptions, find_account: Callable[[], Awaitable[Account]]
) -> web.Application:
    """Return the application with all routes."""
    service = AnswerService(engine, find_account)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        protocol = _protocol_of(request)
        denied = check_access(request, options)
        if denied is not None:
            log.warning("Refused %s %s: %s", request.method, request.path, denied.message)
            return error_response(protocol, denied)
        try:
            return await handler(request)
        except BridgeError as error:
            return error_response(protocol, error)
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}."
            return error_response(protocol, _make_error(error.status, message), error.status)

    async def health(_: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def usage(request: web.Request) -> web.StreamResponse:
        days = request.query.get("days", "30")
        if not days.isdecimal() or len(days) > 4 or not 1 <= int(days) <= MAX_DAYS:
            raise RequestError(f"days must be a number from 1 to {MAX_DAYS:,}.", status=400, param="days")
        report = await engine.usage_report(int(days))
        body = encode_report(report, request.query.get("revision"))
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})

    async def models(request: web.Request) -> web.StreamResponse:
        return await service.models(_protocol_of(request))

    async def model(request: web.Request) -> web.StreamResponse:
        return await service.model(request.match_info["name"], _protocol_of(request))

    async def compact(request: web.Request) -> web.StreamResponse:
        return await service.compact(request)

    async def socket(request: web.Request) -> web.StreamResponse:
        return await serve_socket(request, service)

    app = web.Application(middlewares=[middleware], client_max_size=BODY_LIMIT)
    app.router.add_get("/health", health)
    app.router.add_get("/", _show_usage_page)  # aiohttp also answers HEAD, which Claude Code sends first
    app.router.add_get("/usage.json", usage)
    if options.usage_only:
        return app
    for prefix in ("/v1", ""):  # some callers append /v1 to the URL, others do not
        app.router.add_get(f"{prefix}/models", models)
        app.router.add_get(f"{prefix}/models/{{name:.+}}", model)
        app.router.add_post(f"{prefix}{RESPONSES.path}/compact", compact)
        app.router.add_get(f"{prefix}{RESPONSES.path}", socket)
        for protocol in PROTOCOLS:
            app.router.add_post(prefix + protocol.path, _answer_handler(service, protocol))
            if protocol.count_path is not None:
                app.router.add_post(prefix + protocol.count_path, _count_handler(service, protocol))
    return app


# Errors of this server itself, by status. Protocols name the type of an error in its body.
_ERRORS: dict[int, type[BridgeError]] = {401: NotAuthenticated, 403: NotPermitted, 404: NotFound}


def _make_error(status: int, message: str) -> BridgeError:
    return _ERRORS.get(status, RequestError)(message, status=status)


def check_access(request: web.Request, options: ServerOptions) -> BridgeError | None:
    """Return why a request is refused: a web page must not be able to spend the user's money."""
    headers: Mapping[str, str] = request.headers
    if options.token is not None and not is_loopback(options.host):
        # Other computers know this one by names that it does not know. A web page does not know the token.
        headers = CIMultiDict(headers)
        headers["Host"] = "localhost"
        if headers.get("Origin") == f"http://{request.headers.get('Host', '')}":
            headers["Origin"] = "http://localhost"
    problem = explain_refusal(headers)
    if problem is not None:
        return NotPermitted(problem)
    if request.path in ("/", "/health"):
        return None
    if options.token is not None:
        sent = read_token(request.headers) or ""
        if hmac.compare_digest(sent.encode("utf-8", "replace"), options.token.encode()):
            return None
        return NotAuthenticated("The token is missing or wrong. Send it as the API key.")
    if not is_loopback(request.remote or ""):
        return NotAuthenticated("Without a token, this server answers programs of this computer only.")
    return None


def read_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key of a request, as any protocol or Azure's clients send it."""
    return read_key(headers) or headers.get("api-key")


def _protocol_of(request: web.Request) -> CallerProtocol:
    """Return the protocol of a request, for errors and model lists."""
    path = request.path.removeprefix("/v1")
    for protocol in PROTOCOLS:
        if path.startswith(protocol.path):
            return protocol
    marked = find_by_headers(request.headers)
    return next((each for each in PROTOCOLS if marked and each.backend == marked.name), RESPONSES)


async def _show_usage_page(_: web.Request) -> web.StreamResponse:
    # The page has a policy of its own; these are the parts that a page cannot set for itself.
    headers = {
        "Content-Security-Policy": "frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=read_page(), content_type="text/html", headers=headers)


def _answer_handler(service: AnswerService, protocol: CallerProtocol) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await service.answer(request, protocol)

    return handle


def _count_handler(service: AnswerService, protocol: CallerProtocol) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await service.count(request, protocol)

    return handle


# --- Responses over a WebSocket ---
#
# Each message `response.create` is answered like a `POST /responses`. Only the connection of the caller is a
# WebSocket: the request to the gateway is an ordinary one, so every gateway can answer it. A request may
# continue an earlier response of the same connection: the conversation is kept in memory, and the gateway
# receives all of it.

log = logging.getLogger(__name__)

# The largest message: a conversation with pictures and files.
MESSAGE_LIMIT = 128 * 1024 * 1024
# Messages that are read while a response is sent. Only reading shows that the caller has disconnected.
_QUEUE_LIMIT = 16
# Conversations of one connection that can be continued; the oldest are dropped first.
_CONVERSATION_LIMIT = 16
# Seconds between two pings, which detect that the caller is gone.
_HEARTBEAT = 30.0
# Fields of the message that the body of an HTTP request does not have, or that are set here.
_OWN_FIELDS = frozenset({"type", "stream", "stream_options", "background"})

Item = Mapping[str, Any]


async def serve_socket(request: web.Request, service: AnswerService) -> web.StreamResponse:
    """Answer all requests of one WebSocket, one after the other."""
    socket = web.WebSocketResponse(max_msg_size=MESSAGE_LIMIT, heartbeat=_HEARTBEAT, compress=False)
    if not socket.can_prepare(request).ok:
        message = f"{request.method} {request.path} needs a WebSocket. Send POST, or open a WebSocket."
        raise RequestError(message, status=400)
    await socket.prepare(request)
    await _Connection(request, socket, service).run()
    return socket


class _Connection:
    def __init__(self, request: web.Request, socket: web.WebSocketResponse, service: AnswerService) -> None:
        self._request = request
        self._socket = socket
        self._service = service
        self._messages: asyncio.Queue[str | None] = asyncio.Queue(_QUEUE_LIMIT)
        self._conversations: OrderedDict[str, list[Item]] = OrderedDict()

    async def run(self) -> None:
        worker = asyncio.create_task(self._answer_messages())
        worker.add_done_callback(self._close_after_failure)
        try:
            async for message in self._socket:
                await self._messages.put(message.data if message.type is WSMsgType.TEXT else None)
        finally:
            worker.cancel()
            await asyncio.wait([worker])

    def _close_after_failure(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            log.error("A WebSocket was closed because of an internal error.", exc_info=error)
            if self._request.transport is not None:
                self._request.transport.close()

    async def _answer_messages(self) -> None:
        with contextlib.suppress(ConnectionError):  # `run` notices it too, and ends
            while True:
                await self._answer(await self._messages.get())

    async def _answer(self, text: str | None) -> None:
        previous_id: str | None = None
        try:
            body = _read_message(text)
            previous_id = body.get("previous_response_id")
            items = self._continue(body)
            response = await self._send_answer(body, previous_id)
        except BridgeError as error:
            await self._fail(error_response(RESPONSES, error), previous_id)
            return
        if isinstance(response, web.Response):
            await self._fail(response, previous_id)
        elif isinstance(response, _SocketResponse) and response.final is not None:
            self._remember(response.final, items)

    async def _send_answer(self, body: Mapping[str, Any], previous_id: str | None) -> web.StreamResponse:
        new_response = functools.partial(_SocketResponse, self._socket, previous_id)
        response = await self._service.answer(self._request, RESPONSES, encode_json(body), new_response)
        if isinstance(response, _SocketResponse) and (error := response.error_response()) is not None:
            return error
        return response

    def _continue(self, body: dict[str, Any]) -> list[Item]:
        """Put the conversation that the request continues into its body, and return all items.

        A response that is not known here may be known to the gateway: it is asked.

        Raises:
            RequestError: A tool result has no call.
        """
        items = body.get("input")
        if isinstance(items, str):
            items = [{"type": "message", "role": "user", "content": items}]
        if not isinstance(items, list):
            return []
        earlier = self._conversations.get(str(body.get("previous_response_id")))
        if earlier is None:
            return items
        items = [*earlier, *items]
        _check_results(items)
        del body["previous_response_id"]
        body["input"] = items
        return items

    def _remember(self, response: Mapping[str, Any], items: Sequence[Item]) -> None:
        response_id, output = response.get("id"), response.get("output")
        if isinstance(response_id, str) and isinstance(output, list):
            self._conversations[response_id] = [*items, *output]
            while len(self._conversations) > _CONVERSATION_LIMIT:
                self._conversations.popitem(last=False)

    async def _fail(self, response: web.Response, previous_id: str | None) -> None:
        # The specification requires it: after a failed continuation, the earlier response is forgotten.
        self._conversations.pop(str(previous_id), None)
        body = read_json(response.body if isinstance(response.body, bytes) else b"{}")
        event = {"type": "error", "status": response.status, "error": body.get("error")}
        await self._socket.send_str(encode_json(event).decode())


def _read_message(text: str | None) -> dict[str, Any]:
    """Return the body of an HTTP request that is equivalent to a message."""
    if text is None:
        raise RequestError("Send JSON as a text message, not as a binary message.", status=400)
    try:
        message = read_json(text)
    except ValueError as error:
        raise RequestError(f"The message is not JSON: {error}.", status=400) from None
    if not isinstance(message, dict) or message.get("type") != "response.create":
        raise RequestError('The type of a message must be "response.create".', status=400, param="type")
    return {name: value for name, value in message.items() if name not in _OWN_FIELDS} | {"stream": True}


def _check_results(items: Sequence[Any]) -> None:
    """Check that every tool result follows its call."""
    calls: set[str] = set()
    for item in items:
        if not isinstance(item, Mapping):
            continue
        kind, call_id = str(item.get("type")), str(item.get("call_id"))
        if kind.endswith("_call"):
            calls.add(call_id)
        elif kind.endswith("_call_output") and call_id not in calls:
            raise RequestError(
                f"No tool call found for the output with call_id {call_id[:80]!r}.",
                status=400,
                code="no_tool_call_found",
                param="input",
            )


class _Event(msgspec.Struct):
    type: str = ""


# Events that contain the response, and those of them that end it.
_FINAL_EVENTS = frozenset({"response.completed", "response.incomplete"})
_RESPONSE_EVENTS = _FINAL_EVENTS | {"response.created", "response.in_progress", "response.failed"}


class _SocketResponse(web.StreamResponse):
    """A streamed response whose events are sent as messages of a WebSocket.

    Args:
        socket: The WebSocket.
        previous_id: The response that this one continues. The gateway does not know it.
        options: The status and the headers.

    Attributes:
        final: The complete response, once it was sent.
    """

    def __init__(self, socket: web.WebSocketResponse, previous_id: str | None, **options: Any) -> None:
        super().__init__(**options)
        self.final: Mapping[str, Any] | None = None
        self._socket = socket
        self._previous_id = previous_id
        self._is_stream = self.status < 400 and self.headers.get("content-type", "").startswith(EVENT_STREAM)
        self._frames = SseDecoder()
        self._rest: list[bytes] = []  # of a response that is not a stream

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002
        return None

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_stream:
            self._rest.append(bytes(data))
            return
        for _, event in self._frames.feed(bytes(data)):
            await self._send(event)

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002
        for _, event in self._frames.close():
            await self._send(event)

    def error_response(self) -> web.Response | None:
        """Return the error that was received instead of a stream, if there is one."""
        if self._is_stream:
            return None
        if self.status < 400:
            return error_response(RESPONSES, ServerFailed("The gateway did not send a stream."))
        body = b"".join(self._rest)
        with contextlib.suppress(ValueError):
            if isinstance(read_json(body), dict):
                return web.Response(status=self.status, body=body)
        error = ServerFailed("The gateway sent an error without a description.", status=self.status)
        return error_response(RESPONSES, error)

    async def _send(self, event: bytes) -> None:
        try:
            kind = msgspec.json.decode(event, type=_Event).type
        except msgspec.MsgspecError:
            return  # [DONE]
        if kind in _RESPONSE_EVENTS:
            event = self._complete(kind, event)
        await self._socket.send_str(event.decode("utf-8", "replace"))

    def _complete(self, kind: str, event: bytes) -> bytes:
        value = read_json(event)
        response = value.get("response")
        if not isinstance(response, dict):
            return event
        if kind in _FINAL_EVENTS:
            self.final = response
        if self._previous_id is None:
            return event
        response["previous_response_id"] = self._previous_id
        return encode_json(value)
