"""The local server: its routes, and its life from start to shutdown."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web

from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.frontends.http.access import ServerOptions, check_access, check_token
from tollbridge.frontends.http.answers import AnswerService, error_response
from tollbridge.frontends.http.callers import find_codec, list_codecs
from tollbridge.frontends.http.limits import LIMITS
from tollbridge.frontends.http.websocket import serve_socket
from tollbridge.frontends.usage_page import MAX_DAYS, encode_report, read_page
from tollbridge.types.errors import BridgeError, NotFound, RequestError

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def run_server(
    engine: Engine, options: ServerOptions, find_account: Callable[[], Awaitable[Account]] | None = None
) -> AsyncIterator[str]:
    """Run the server, and yield its URL. By default, the settings select the gateway.

    Raises:
        RequestError: The port is in use, or the address is not loopback and there is no token.
    """
    check_token(options)
    # An answer is cancelled when its caller disconnects.
    runner = web.AppRunner(
        create_app(engine, options, find_account or engine.account),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=LIMITS.shutdown_seconds,
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
        codec = find_codec(request.path, request.headers)
        denied = check_access(request, options)
        if denied is not None:
            log.warning("Refused %s %s: %s", request.method, request.path, denied.message)
            return error_response(codec, denied)
        try:
            return await handler(request)
        except BridgeError as error:
            return error_response(codec, error)
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}."
            # Protocols name the type of an error in its body.
            kind = NotFound if error.status == 404 else RequestError
            return error_response(codec, kind(message, status=error.status), error.status)

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
        codec = find_codec(request.path, request.headers)
        return await service.models(codec, request.match_info.get("name"))

    app = web.Application(middlewares=[middleware], client_max_size=LIMITS.body_bytes)
    app.router.add_get("/health", health)
    app.router.add_get("/", _show_usage_page)  # aiohttp also answers HEAD, which Claude Code sends first
    app.router.add_get("/usage.json", usage)
    if options.usage_only:
        return app
    for prefix in ("/v1", ""):  # some callers append /v1 to the URL, others do not
        app.router.add_get(f"{prefix}/models", models)
        app.router.add_get(f"{prefix}/models/{{name:.+}}", models)
        for codec in list_codecs():
            app.router.add_post(prefix + codec.path, partial(service.answer, codec=codec))
            if codec.count_path is not None:
                app.router.add_post(prefix + codec.count_path, partial(service.count, codec=codec))
            if codec.compact_path is not None:
                app.router.add_post(prefix + codec.compact_path, partial(service.compact, codec=codec))
            if codec.has_socket:
                app.router.add_get(prefix + codec.path, partial(serve_socket, codec=codec, service=service))
    return app


async def _show_usage_page(_: web.Request) -> web.StreamResponse:
    # The page has a policy of its own; these are the parts that a page cannot set for itself.
    headers = {
        "Content-Security-Policy": "frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=read_page(), content_type="text/html", headers=headers)
