"""The embedded gateway as a program and as a context manager: a real server on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from aiohttp import web

from tollbridge.core.errors import RequestError
from tollbridge.gateway.aisdk import AI_ROUTES, name_errors
from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.door import MOVED, Door, name_request
from tollbridge.gateway.replies import Reply
from tollbridge.gateway.routes import ROUTES, SERVICE, Handler
from tollbridge.gateway.scenarios import SCENARIOS
from tollbridge.gateway.service import Model, Service
from tollbridge.gateway.tampering import Settings

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
        settings: Settings | None = None,
        model: Model | None = None,
        reply: Reply | None = None,
        strict: bool = False,
    ) -> None:
        if scenario not in SCENARIOS:
            raise RequestError(f"There is no scenario {scenario!r}. Known: {', '.join(SCENARIOS)}.")
        self._host, self._port = host, port
        self._service = Service(scenario, api_key, settings or Settings(), model, strict=strict)
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
        door = Door(self._service, self._reply, self._listen)

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
