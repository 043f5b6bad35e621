"""The embedded gateway as a program and as a context manager: a real server on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from tollbridge.testing.ai_sdk import AI_ROUTES, name_errors
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.refusals import CannedReply, RequestRejected, check_server_rules
from tollbridge.testing.routes import (
    ARRIVAL,
    BODY,
    ROUTES,
    SCENARIO,
    SERVICE,
    Handler,
    create_response,
    hang_up,
)
from tollbridge.testing.scenarios import SCENARIOS, Scenario, find_scenario
from tollbridge.testing.service import Model, ReceivedRequest, Service
from tollbridge.types.errors import RequestError

# SECTION What every request passes: it is noted, its key and scenario are looked at, and refusals get their form.

# Where the `redirect` scenario sends its caller: the same routes, under another path.
MOVED = "/moved"
# Behind these are a key and a scenario; before them, anyone may knock.
_GUARDED = ("/v1", "/v3", "/v4")
# What aiohttp refuses by itself.
_CODES = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}
_log = logging.getLogger("tollbridge.testing")


class Middleware:
    """`reply` is sent for every response asked for, where it is given; `listen` opens another port."""

    def __init__(
        self, service: Service, reply: CannedReply | None, listen: Callable[[], Awaitable[int]]
    ) -> None:
        self._service = service
        self._reply = reply
        self._listen = listen
        self._elsewhere: int | None = None

    async def let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival = request[ARRIVAL] = _note(request)
        self._service.arrivals.add(arrival)
        try:
            response = await self._answer(request, handler)
        except asyncio.CancelledError:
            self._service.arrivals.note_hang_up(arrival)
            raise
        except ConnectionError:  # gone while we were writing: nothing that anyone need be told
            self._service.arrivals.note_hang_up(arrival)
            return web.Response()
        else:
            arrival.status = response.status
            return response
        finally:
            _report(arrival)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await self._admit(request, handler)
        except RequestRejected as refused:
            return _refusal(refused)
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}."
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            code = _CODES.get(error.status, "invalid_request")
            return _refusal(RequestRejected(error.status, code, message, headers=allow))

    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival, service = request[ARRIVAL], self._service
        request[BODY] = await request.read()
        if not request.path.removeprefix(MOVED).startswith(_GUARDED):
            return await handler(request)
        service.check_key(arrival.bearer)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            arrival.body = msgspec.json.decode(request[BODY]) if request[BODY] else None
        arrival.scenario = service.choose_scenario(request.headers, arrival.body)
        scenario = request[SCENARIO] = find_scenario(arrival.scenario)
        if self._reply is not None and request.match_info.route.handler is create_response:
            return _send_reply(self._reply)
        if request.path.endswith(scenario.missing):
            raise web.HTTPNotFound
        check_server_rules(scenario.refuses, arrival.body)
        instead = await self._instead(request, scenario)
        return instead if instead is not None else await handler(request)

    async def _instead(self, request: web.Request, scenario: Scenario) -> web.StreamResponse | None:
        """What the scenario does without asking the model, if it does."""
        body = request[ARRIVAL].body
        if not (scenario.reply or scenario.silent or scenario.closes or scenario.redirect):
            return None
        if not scenario.when(body if isinstance(body, dict) else {}):
            return None
        if scenario.once and not self._service.is_first(request.method, request.path, request[BODY]):
            return None
        if scenario.redirect is not None:
            return await self._redirect(request, scenario.redirect)
        if scenario.reply is not None:
            return _send_reply(scenario.reply())
        if scenario.silent:
            await asyncio.sleep(self._service.settings.stall_seconds)
        await hang_up(request)
        return web.Response()

    async def _redirect(self, request: web.Request, where: str) -> web.Response | None:
        """Once only: what is reached by the redirect answers as usual."""
        if request.path.startswith(MOVED) or request[ARRIVAL].port == self._elsewhere:
            return None
        if where == "same":
            return web.Response(status=307, headers={"Location": MOVED + request.path})
        if self._elsewhere is None:
            self._elsewhere = await self._listen()
        location = f"http://localhost:{self._elsewhere}{request.path}"
        return web.Response(status=307, headers={"Location": location})


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["x-request-id"] = request[ARRIVAL].id
    response.headers["Server"] = "tollbridge"


def _note(request: web.Request) -> ReceivedRequest:
    address = request.transport.get_extra_info("sockname") if request.transport else None
    path = request.rel_url.raw_path  # as it came: decoded, it could break a line of the log
    return ReceivedRequest(request.method, path, request.headers, address[1] if address else None)


def _refusal(refused: RequestRejected) -> web.Response:
    body = msgspec.json.encode(refused.body)
    return _send_reply(CannedReply(status=refused.status, body=body, headers=refused.headers))


def _send_reply(reply: CannedReply) -> web.Response:
    return web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, headers=reply.headers
    )


def _report(arrival: ReceivedRequest) -> None:
    """One line a request, and nothing in it that a caller wrote but the path."""
    took = (time.monotonic() - arrival.arrived_at) * 1000
    ended = "hung up" if arrival.hung_up_at else "dropped" if arrival.dropped else arrival.status
    _log.info(
        "%s %s %s %s %.0f ms %s", arrival.id, arrival.method, arrival.path, arrival.scenario, took, ended
    )


# SECTION The embedded gateway as a program and as a context manager: a real server on a loopback port.

MAX_BODY = 64 * 1024 * 1024


class Gateway:
    """A gateway for tests, ours and yours.

        async with Gateway(scenario="rate-limit") as gateway:
            ...  # talk to gateway.url

    `url` ends in `/v1`. It listens on a free loopback port unless told otherwise. `model` says what to answer
    where the scripted model will not do (`None` leaves it to that one); `reply` sends the same bytes, such as
    a recording, for every response that is asked for. `strict` refuses what the specification does not allow,
    and what any provider would.
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
        strict: bool = False,
    ) -> None:
        if scenario not in SCENARIOS:
            raise RequestError(f"There is no scenario {scenario!r}. Known: {', '.join(SCENARIOS)}.")
        self._host, self._port = host, port
        self._service = Service(scenario, api_key, settings or FaultSettings(), model, strict=strict)
        self._reply = reply
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    @property
    def requests(self) -> Sequence[ReceivedRequest]:
        """What arrived, oldest first."""
        return self._service.arrivals.requests

    async def arrived(self, timeout: float = 5.0) -> ReceivedRequest:  # noqa: ASYNC109 (a bound is the point)
        """The next request nobody has been told of, as soon as its head is here; raises `TimeoutError`."""
        return await self._service.arrivals.arrived(timeout)

    async def hung_up(self, timeout: float = 5.0) -> float:  # noqa: ASYNC109 (a bound is the point)
        """When the next client left before its answer ended, by `time.monotonic()`; raises `TimeoutError`."""
        return await self._service.arrivals.hung_up(timeout)

    async def start(self) -> None:
        door = Middleware(self._service, self._reply, self._listen)

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await door.let_in(request, handler)

        app = web.Application(client_max_size=MAX_BODY, middlewares=[name_errors, guard])
        app[SERVICE] = self._service
        app.on_response_prepare.append(name_request)
        for prefix in ("", MOVED):
            for method, path, handler in (*ROUTES, *AI_ROUTES):
                app.router.add_route(method, prefix + path, handler)
        # Cancelled when the client goes, so that the moment can be told.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            self._port = await self._listen(self._port)
        except OSError as error:
            await self.stop()
            raise RequestError(
                f"Cannot listen on {self._host} port {self._port}: {error.strerror or error}."
            ) from error

    async def _listen(self, port: int = 0) -> int:
        if self._runner is None:
            raise RequestError("The gateway has not been started.")
        known = set(map(tuple, self._runner.addresses))
        await web.TCPSite(self._runner, self._host, port).start()
        found = next(address for address in self._runner.addresses if tuple(address) not in known)
        return int(found[1])

    async def stop(self) -> None:
        if self._runner is not None:
            self._service.arrivals.closed = True  # who is sent away now did not leave
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def run(
    host: str = "127.0.0.1",
    port: int = 0,
    scenario: str = "demo",
    api_key: str | None = None,
    on_ready: Callable[[str], None] | None = None,
    *,
    strict: bool = False,
) -> None:
    """Serve until interrupted or terminated. `on_ready` is told the URL once it listens."""
    gateway = Gateway(host=host, port=port, scenario=scenario, api_key=api_key, strict=strict)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(gateway, on_ready))


async def _serve(gateway: Gateway, on_ready: Callable[[str], None] | None) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: KeyboardInterrupt it is
            loop.add_signal_handler(name, ended.set)
    async with gateway:
        if on_ready is not None:
            on_ready(gateway.url)
        await ended.wait()
