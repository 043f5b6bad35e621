"""The local server: its routes and limits, and its life from start to shutdown."""

from __future__ import annotations

import errno
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from tollbridge.config.accounts import Account
from tollbridge.engine import Engine
from tollbridge.frontends.http.answers import AnswerService, error_response
from tollbridge.frontends.http.callers import MESSAGES, PROTOCOLS, RESPONSES, CallerProtocol
from tollbridge.frontends.http.websocket import serve_socket
from tollbridge.types.errors import BridgeError, NotAuthenticated, NotFound, NotPermitted, RequestError
from tollbridge.types.urls import find_foreign_request, is_loopback

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
        aliases: Model names of callers, with the names that the gateway has for them.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    aliases: Mapping[str, str] = {}


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
    if options.token is None and not is_loopback(options.host):
        raise RequestError(
            f"Listening on {options.host} needs a token, because other computers can reach it. "
            "Set one with --token or TOLLBRIDGE_SERVE_TOKEN."
        )
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
    service = AnswerService(engine, find_account, options.aliases)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        protocol = _protocol_of(request)
        denied = _check_access(request, options)
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
    app.router.add_get("/", health)  # aiohttp also answers HEAD, which Claude Code sends first
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


def _check_access(request: web.Request, options: ServerOptions) -> BridgeError | None:
    """Return why a request is refused: a web page must not be able to spend the user's money."""
    problem = find_foreign_request(request.headers, (options.host.lower(),))
    if problem is not None:
        return NotPermitted(problem)
    if options.token is not None:
        sent = read_token(request.headers) or ""
        if hmac.compare_digest(sent.encode("utf-8", "replace"), options.token.encode()):
            return None
        return NotAuthenticated("The token is missing or wrong. Send it as the API key.")
    if not is_loopback(request.remote or ""):
        return NotAuthenticated("Without a token, this server answers programs of this computer only.")
    return None


def read_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key of a request, as the three protocols send it."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or headers.get("api-key")


def _protocol_of(request: web.Request) -> CallerProtocol:
    """Return the protocol of a request, for errors and model lists."""
    path = request.path.removeprefix("/v1")
    for protocol in PROTOCOLS:
        if path.startswith(protocol.path):
            return protocol
    return MESSAGES if "anthropic-version" in request.headers else RESPONSES


def _answer_handler(service: AnswerService, protocol: CallerProtocol) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await service.answer(request, protocol)

    return handle


def _count_handler(service: AnswerService, protocol: CallerProtocol) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await service.count(request, protocol)

    return handle
