"""The embedded gateway: a real server on a loopback port, as a context manager and as a program."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec
from aiohttp import web

from tollbridge.testing import translations
from tollbridge.testing.ai_sdk import AI_ROUTES
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.limits import LIMITS
from tollbridge.testing.prompt_cache import CacheSettings, PromptCache
from tollbridge.testing.refusals import CannedReply, RequestRejected, check_server_rules
from tollbridge.testing.requests import PromptSettings
from tollbridge.testing.routes import (
    BODY,
    RECEIVED,
    ROUTES,
    SCENARIO,
    SERVICE,
    Handler,
    close_connection,
    create_response,
)
from tollbridge.testing.scenarios import SCENARIOS, Scenario, find_scenario, unknown_scenario_message
from tollbridge.testing.service import CountedAnswer, Model, ReceivedRequest, Service
from tollbridge.types.errors import RequestError
from tollbridge.types.urls import explain_refusal, is_loopback

# Prefix of the routes that the `redirect` scenario redirects to.
MOVED = "/moved"
# Paths that require an API key and have scenarios.
_API_PREFIXES = ("/v1", "/v3", "/v4")
# Error codes for the errors of aiohttp, by status.
_ERROR_CODES = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}
_logger = logging.getLogger("tollbridge.testing")


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["x-request-id"] = request[RECEIVED].id
    response.headers["Server"] = "tollbridge"


def _send_error(error: RequestRejected) -> web.Response:
    body = msgspec.json.encode(error.body)
    return _send_reply(CannedReply(status=error.status, body=body, headers=error.headers))


def _send_reply(reply: CannedReply) -> web.Response:
    return web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, headers=reply.headers
    )


def _log_request(received: ReceivedRequest) -> None:
    """Log one line per request. The path is the only part of it that the client controls."""
    milliseconds = (time.monotonic() - received.received_at) * 1000
    ended = "disconnected" if received.disconnected_at else "dropped" if received.dropped else received.status
    names = (received.id, received.method, received.path, received.scenario)
    _logger.info("%s %s %s %s %.0f ms %s", *names, milliseconds, ended)


class Gateway:
    """A gateway for tests.

        async with Gateway(scenario="rate-limit") as gateway:
            ...  # send requests to gateway.url

    Args:
        scenario: The scenario of requests that do not choose one.
        api_key: The API key that requests must send. By default any key, or none, is accepted.
        host: The address to listen on.
        port: The port to listen on; 0 chooses a free port.
        settings: Durations and sizes of faults.
        model: Returns the answer to a request, or None for the answer of the scripted model.
        reply: Sent for every `POST /v1/responses`, for example a recording.
        reject: Returns the error for the decoded body of a request, or None to answer it.
        strict: Reject requests that the specification, or some provider, does not accept.
        cache: How the simulated prompt cache behaves. By default, whole items are cached for ever.
        prompts: How prompts are counted and limited.
    """

    def __init__(
        self,
        *,
        scenario: str = "demo",
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: FaultSettings | None = None,
        model: Model | None = None,
        reply: CannedReply | None = None,
        reject: Callable[[Any], RequestRejected | None] | None = None,
        strict: bool = False,
        cache: CacheSettings | None = None,
        prompts: PromptSettings | None = None,
    ) -> None:
        if scenario not in SCENARIOS:
            raise RequestError(unknown_scenario_message(scenario))
        self._host, self.port = host, port
        self._service = Service(
            scenario, api_key, settings, model, strict=strict, cache=cache, prompts=prompts
        )
        # The newest requests, in the order in which they were received.
        self.requests: Sequence[ReceivedRequest] = self._service.log.requests
        # The answers that the gateway began, with the usage that it reported for each.
        self.counted: Sequence[CountedAnswer] = self._service.counted
        # The simulated prompt cache: its clock can be moved, and its provider switched.
        self.cache: PromptCache = self._service.cache
        self._reply = reply
        self._reject = reject
        self._other_port: int | None = None  # the target of `redirect-elsewhere`
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The base URL. It ends in `/v1`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/v1"

    async def wait_for_request(self, timeout: float = 5.0) -> ReceivedRequest:  # noqa: ASYNC109
        """Wait for the headers of the next request that this method has not returned yet."""
        async with asyncio.timeout(timeout):
            return await self._service.log.new_requests.get()

    async def wait_for_disconnect(self, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Wait until a client disconnects before the end of its response, and return the monotonic time."""
        async with asyncio.timeout(timeout):
            return await self._service.log.disconnect_times.get()

    async def start(self) -> None:
        """Start to listen.

        Raises:
            RequestError: The port cannot be opened.
        """
        app = web.Application(
            client_max_size=LIMITS.body_size,
            middlewares=[translations.convert_errors, self._handle],
        )
        app[SERVICE] = self._service
        app.on_response_prepare.append(add_headers)
        for prefix in ("", MOVED):
            for method, path, handler in (*ROUTES, *AI_ROUTES, *translations.ROUTES):
                app.router.add_route(method, prefix + path, handler)
        # Handlers are cancelled when the client disconnects, so that the time of it is known.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            self.port = await self._listen(self.port)
        except OSError as error:
            await self.stop()
            problem = f"Cannot listen on {self._host} port {self.port}: {error.strerror or error}."
            if error.errno == errno.EADDRINUSE:
                problem = f"Port {self.port} is already in use."
            raise RequestError(problem) from error

    async def _listen(self, port: int = 0) -> int:
        if self._runner is None:
            raise RequestError("The gateway is not started.")
        addresses = set(map(tuple, self._runner.addresses))
        await web.TCPSite(self._runner, self._host, port).start()
        new_address = next(address for address in self._runner.addresses if tuple(address) not in addresses)
        return int(new_address[1])

    async def stop(self) -> None:
        if self._runner is not None:
            self._service.log.closed = True
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @web.middleware
    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request before its route: log it, check the key, choose the scenario, format errors."""
        address = request.transport.get_extra_info("sockname") if request.transport else None
        path = request.rel_url.raw_path  # not decoded: a decoded line end would break the log line
        received = ReceivedRequest(request.method, path, request.headers, address[1] if address else None)
        request[RECEIVED] = received
        self._service.log.add(received)
        try:
            response = await self._handle_errors(request, handler)
        except asyncio.CancelledError:
            self._service.log.add_disconnect(received)
            raise
        except ConnectionError:  # the client disconnected while the response was written
            self._service.log.add_disconnect(received)
            return web.Response()
        else:
            received.status = response.status
            return response
        finally:
            _log_request(received)

    async def _handle_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await self._handle_scenario(request, handler)
        except RequestRejected as error:
            return _send_error(error)
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}."
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            code = _ERROR_CODES.get(error.status, "invalid_request")
            return _send_error(RequestRejected(error.status, code, message, headers=allow))

    async def _handle_scenario(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        received, service = request[RECEIVED], self._service
        # Reject the requests of web pages, as servers on loopback should.
        problem = explain_refusal(request.headers) if is_loopback(self._host) else None
        if problem is not None:
            raise RequestRejected(403, "foreign_request", problem)
        request[BODY] = received.raw = await request.read()
        if not request.path.removeprefix(MOVED).startswith(_API_PREFIXES):
            return await handler(request)
        service.check_key(received.bearer)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            received.body = msgspec.json.decode(request[BODY]) if request[BODY] else None
        received.scenario = service.choose_scenario(request.headers, received.body)
        scenario = request[SCENARIO] = find_scenario(received.scenario)
        if scenario.switches_provider and request.method == "POST":
            service.cache.switch_provider()
        if self._reply is not None and request.match_info.route.handler is create_response:
            return _send_reply(self._reply)
        if request.path.endswith(scenario.missing_paths):
            raise web.HTTPNotFound
        check_server_rules(scenario.lacks, received.body)
        if self._reject is not None and (rejection := self._reject(received.body)) is not None:
            raise rejection
        response = await self._replace_response(request, scenario)
        return response if response is not None else await handler(request)

    async def _replace_response(self, request: web.Request, scenario: Scenario) -> web.StreamResponse | None:
        """Return what the scenario sends in place of a response of the model, or None."""
        body = request[RECEIVED].body
        if scenario.reply is None and scenario.fault is None:
            return None
        if not self._service.is_replaced(scenario, f"{request.method} {request.path}", body):
            return None
        if scenario.reply is not None:
            return _send_reply(scenario.reply())
        if scenario.fault in ("redirect", "redirect elsewhere"):
            return await self._redirect(request, scenario.fault)
        if scenario.fault == "silence":
            await asyncio.sleep(self._service.settings.stall_seconds)
        await close_connection(request)
        return web.Response()

    async def _redirect(self, request: web.Request, target: str) -> web.Response | None:
        """Redirect a request, unless it comes from a redirect."""
        if request.path.startswith(MOVED) or request[RECEIVED].port == self._other_port:
            return None
        if target == "redirect":
            return web.Response(status=307, headers={"Location": MOVED + request.path})
        if self._other_port is None:
            self._other_port = await self._listen()
        location = f"http://localhost:{self._other_port}{request.path}"
        return web.Response(status=307, headers={"Location": location})


def run(
    host: str = "127.0.0.1",
    port: int = 0,
    scenario: str = "demo",
    api_key: str | None = None,
    on_ready: Callable[[str], None] | None = None,
    *,
    strict: bool = False,
) -> None:
    """Run a gateway until SIGINT or SIGTERM. `on_ready` is called with the URL when it listens."""
    gateway = Gateway(host=host, port=port, scenario=scenario, api_key=api_key, strict=strict)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(gateway, on_ready))


async def _serve(gateway: Gateway, on_ready: Callable[[str], None] | None) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows, which raises KeyboardInterrupt
            loop.add_signal_handler(name, stopped.set)
    async with gateway:
        if on_ready is not None:
            on_ready(gateway.url)
        await stopped.wait()
