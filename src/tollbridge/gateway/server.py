"""The embedded gateway as a program and as a context manager: a real server on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from tollbridge.core.errors import RequestError
from tollbridge.gateway.aisdk import AI_ROUTES, name_errors
from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.replies import Reply
from tollbridge.gateway.routes import BODY, ROUTES, SCENARIO, SERVICE, Handler, create_response
from tollbridge.gateway.scenarios import SCENARIOS, Scenario, find_scenario
from tollbridge.gateway.sending import ARRIVAL, hang_up
from tollbridge.gateway.service import Model, Service
from tollbridge.gateway.tampering import Settings

MAX_BODY = 64 * 1024 * 1024
# Where the `redirect` scenario sends its caller: the same routes, under another path.
MOVED = "/moved"
_log = logging.getLogger("tollbridge.gateway")


class Gateway:
    """A gateway for tests, ours and yours.

        async with Gateway(scenario="rate-limit") as gateway:
            ...  # talk to gateway.url

    `url` ends in `/v1`. It listens on a free loopback port unless told otherwise. `model` says what to answer
    where the scripted model will not do (`None` leaves it to that one); `reply` sends the same bytes, such as
    a recording, for every response that is asked for.
    """

    def __init__(
        self,
        *,
        scenario: str = "demo",
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Settings | None = None,
        model: Model | None = None,
        reply: Reply | None = None,
    ) -> None:
        if scenario not in SCENARIOS:
            raise RequestError(f"There is no scenario {scenario!r}. Known: {', '.join(SCENARIOS)}.")
        self._host, self._port = host, port
        self._service = Service(scenario, api_key, settings or Settings(), model)
        self._reply = reply
        self._runner: web.AppRunner | None = None
        self._elsewhere: int | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    @property
    def requests(self) -> Sequence[Arrival]:
        """What arrived, oldest first."""
        return self._service.arrivals.requests

    async def arrived(self, timeout: float = 5.0) -> Arrival:  # noqa: ASYNC109 (a bound is the point)
        """The next request nobody has been told of, as soon as its head is here; raises `TimeoutError`."""
        return await self._service.arrivals.arrived(timeout)

    async def hung_up(self, timeout: float = 5.0) -> float:  # noqa: ASYNC109 (a bound is the point)
        """When the next client left before its answer ended, by `time.monotonic()`; raises `TimeoutError`."""
        return await self._service.arrivals.hung_up(timeout)

    async def start(self) -> None:
        app = web.Application(client_max_size=MAX_BODY, middlewares=[name_errors, self._guard])
        app[SERVICE] = self._service
        app.on_response_prepare.append(_name_request)
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

    async def _listen(self, port: int) -> int:
        if self._runner is None:
            raise RequestError("The gateway has not been started.")
        known = set(map(tuple, self._runner.addresses))
        await web.TCPSite(self._runner, self._host, port).start()
        found = next(address for address in self._runner.addresses if tuple(address) not in known)
        return int(found[1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- every request passes here -----------------------------------------------------------------------

    @property
    def _guard(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            arrival = _note(request)
            self._service.arrivals.add(arrival)
            request[ARRIVAL] = arrival
            try:
                response = await self._answer(request, handler)
                arrival.status = response.status
            except (asyncio.CancelledError, ConnectionError):
                if self._runner is not None:
                    self._service.arrivals.note_hang_up(arrival)
                raise
            finally:
                _report(arrival)
            return response

        return guard

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await self._try(request, handler)
        except Refused as refused:
            return _refusal(refused)
        except web.HTTPException as error:
            code = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}
            message = f"{request.method} {request.path}: {error.reason}."
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            name = code.get(error.status, "invalid_request")
            return _refusal(Refused(error.status, name, message, headers=allow))

    async def _try(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival, service = request[ARRIVAL], self._service
        request[BODY] = await request.read()
        if not request.path.removeprefix(MOVED).startswith(("/v1", "/v3", "/v4")):
            return await handler(request)
        service.check_key(arrival.bearer)
        with contextlib.suppress(msgspec.DecodeError):
            arrival.body = msgspec.json.decode(request[BODY]) if request[BODY] else None
        arrival.scenario = service.choose_scenario(request.headers, arrival.body)
        scenario = request[SCENARIO] = find_scenario(arrival.scenario)
        if self._reply is not None and request.match_info.route.handler is create_response:
            return _send_reply(self._reply)
        instead = await self._instead(request, scenario)
        return instead if instead is not None else await handler(request)

    async def _instead(self, request: web.Request, scenario: Scenario) -> web.StreamResponse | None:
        """What the scenario answers without asking the model, if it does."""
        body = request[ARRIVAL].body
        if not scenario.when(body if isinstance(body, dict) else {}):
            return None
        if not (scenario.reply or scenario.silent or scenario.closes or scenario.redirect):
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
            self._elsewhere = await self._listen(0)
        location = f"http://localhost:{self._elsewhere}{request.path}"
        return web.Response(status=307, headers={"Location": location})


async def _name_request(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["x-request-id"] = request[ARRIVAL].id
    response.headers["Server"] = "tollbridge"


def _note(request: web.Request) -> Arrival:
    address = request.transport.get_extra_info("sockname") if request.transport else None
    path = request.rel_url.raw_path  # as it came: decoded, it could break a line of the log
    return Arrival(request.method, path, request.headers, address[1] if address else None)


def _refusal(refused: Refused) -> web.Response:
    return web.Response(
        status=refused.status,
        body=msgspec.json.encode(refused.body),
        content_type="application/json",
        headers=refused.headers,
    )


def _send_reply(reply: Reply) -> web.Response:
    return web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, headers=reply.headers
    )


def _report(arrival: Arrival) -> None:
    """One line a request, and nothing in it that a caller wrote but the path."""
    took = (time.monotonic() - arrival.arrived_at) * 1000
    ended = "hung up" if arrival.hung_up_at else "dropped" if arrival.dropped else arrival.status
    _log.info(
        "%s %s %s %s %.0f ms %s", arrival.id, arrival.method, arrival.path, arrival.scenario, took, ended
    )


def run(
    host: str = "127.0.0.1",
    port: int = 0,
    scenario: str = "demo",
    api_key: str | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until interrupted or terminated. `on_ready` is told the URL once it listens."""
    gateway = Gateway(host=host, port=port, scenario=scenario, api_key=api_key)
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
