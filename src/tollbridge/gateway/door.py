"""What every request passes: it is noted, its key and scenario are looked at, and refusals get their form."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.pickiness import check_rules
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.replies import Reply
from tollbridge.gateway.routes import BODY, SCENARIO, Handler, create_response
from tollbridge.gateway.scenarios import Scenario, find_scenario
from tollbridge.gateway.sending import ARRIVAL, hang_up
from tollbridge.gateway.service import Service

# Where the `redirect` scenario sends its caller: the same routes, under another path.
MOVED = "/moved"
# Behind these are a key and a scenario; before them, anyone may knock.
_GUARDED = ("/v1", "/v3", "/v4")
# What aiohttp refuses by itself.
_CODES = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}
_log = logging.getLogger("tollbridge.gateway")


class Door:
    """`reply` is sent for every response asked for, where it is given; `listen` opens another port."""

    def __init__(self, service: Service, reply: Reply | None, listen: Callable[[], Awaitable[int]]) -> None:
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
        except Refused as refused:
            return _refusal(refused)
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}."
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            code = _CODES.get(error.status, "invalid_request")
            return _refusal(Refused(error.status, code, message, headers=allow))

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
        check_rules(scenario.refuses, arrival.body)
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


def _note(request: web.Request) -> Arrival:
    address = request.transport.get_extra_info("sockname") if request.transport else None
    path = request.rel_url.raw_path  # as it came: decoded, it could break a line of the log
    return Arrival(request.method, path, request.headers, address[1] if address else None)


def _refusal(refused: Refused) -> web.Response:
    body = msgspec.json.encode(refused.body)
    return _send_reply(Reply(status=refused.status, body=body, headers=refused.headers))


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
