"""Responses over a WebSocket.

Each message `response.create` is answered like a `POST /responses`. Only the connection of the caller is a
WebSocket: the request to the gateway is an ordinary one, so every gateway can answer it. A request may
continue an earlier response of the same connection: the conversation is kept in memory, and the gateway
receives all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from aiohttp.abc import AbstractStreamWriter

from tollbridge.frontends.http.answers import EVENT_STREAM, AnswerService, error_response
from tollbridge.frontends.http.limits import LIMITS
from tollbridge.protocols.caller import CallerCodec, encode_json
from tollbridge.protocols.sse import SseDecoder
from tollbridge.types.errors import BridgeError, RequestError, ServerFailed
from tollbridge.types.text import read_json

log = logging.getLogger(__name__)

# Fields of the message that the body of an HTTP request does not have, or that are set here.
_OWN_FIELDS = frozenset({"type", "stream", "stream_options", "background"})

Item = Mapping[str, Any]


async def serve_socket(
    request: web.Request, codec: CallerCodec, service: AnswerService
) -> web.StreamResponse:
    """Answer all requests of one WebSocket, one after the other."""
    socket = web.WebSocketResponse(
        max_msg_size=LIMITS.body_bytes, heartbeat=LIMITS.socket_heartbeat, compress=False
    )
    if not socket.can_prepare(request).ok:
        message = f"{request.method} {request.path} needs a WebSocket. Send POST, or open a WebSocket."
        raise RequestError(message, status=400)
    await socket.prepare(request)
    await _Connection(request, socket, codec, service).run()
    return socket


class _Connection:
    def __init__(
        self, request: web.Request, socket: web.WebSocketResponse, codec: CallerCodec, service: AnswerService
    ) -> None:
        self._request = request
        self._socket = socket
        self._codec = codec
        self._service = service
        self._messages: asyncio.Queue[str | None] = asyncio.Queue(LIMITS.socket_messages)
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
            new_response = functools.partial(_SocketResponse, self._socket, self._codec, previous_id)
            response = await self._service.answer(self._request, self._codec, encode_json(body), new_response)
        except BridgeError as error:
            await self._fail(error_response(self._codec, error), previous_id)
            return
        if isinstance(response, _SocketResponse):
            if (failure := response.error_response()) is not None:
                await self._fail(failure, previous_id)
            elif response.final is not None:
                self._remember(response.final, items)
        elif isinstance(response, web.Response):
            await self._fail(response, previous_id)

    def _continue(self, body: dict[str, Any]) -> list[Item]:
        """Put the conversation that the request continues into its body, and return all items.

        A response that is not known here may be known to the gateway: it is asked.
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
            while len(self._conversations) > LIMITS.socket_conversations:
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

    `previous_id` is the response that this one continues, which the gateway does not know; `final` is the
    complete response, once it was sent.
    """

    def __init__(
        self, socket: web.WebSocketResponse, codec: CallerCodec, previous_id: str | None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.final: Mapping[str, Any] | None = None
        self._socket = socket
        self._codec = codec
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
            return error_response(self._codec, ServerFailed("The gateway did not send a stream."))
        body = b"".join(self._rest)
        with contextlib.suppress(ValueError):
            if isinstance(read_json(body), dict):
                return web.Response(status=self.status, body=body)
        error = ServerFailed("The gateway sent an error without a description.", status=self.status)
        return error_response(self._codec, error)

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
