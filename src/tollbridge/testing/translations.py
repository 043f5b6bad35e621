"""Chat Completions and Anthropic's Messages API, with the same scripted model.

A request is converted to an OpenResponses request, and the events of the answer are encoded by the server
direction of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.protocols import find_by_headers
from tollbridge.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from tollbridge.protocols.anthropic_messages.server import CallerRequest as MessageRequest
from tollbridge.protocols.anthropic_messages.server import (
    MessageEncoder,
    encode_token_count,
    join_message,
    make_error,
)
from tollbridge.protocols.anthropic_messages.server import decode_request as decode_message
from tollbridge.protocols.chat_completions.server import SHARED_FIELDS, CompletionEncoder, join_chunks
from tollbridge.protocols.chat_completions.server import CallerRequest as CompletionRequest
from tollbridge.protocols.chat_completions.server import decode_request as decode_completion
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.testing.faults import make_chunks
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.responses import Step
from tollbridge.testing.routes import (
    BODY,
    RECEIVED,
    SCENARIO,
    SERVICE,
    Handler,
    send_chunks,
    send_joined,
    send_json,
)
from tollbridge.testing.validation import read_json
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Failed, Finished, split_failure
from tollbridge.types.messages import ChatRequest

Json = dict[str, Any]


def _convert_steps(steps: Iterable[Step], encoder: CompletionEncoder | MessageEncoder) -> Iterator[Step]:
    """Decode the OpenResponses events as a client does, and encode them for the other protocol.

    Other steps are passed through. What the scenario omits stays omitted.
    """
    decoder = StreamDecoder()
    start = encoder.start()
    for step in steps:
        if not isinstance(step, dict):
            yield step
            continue
        yield from start
        start = []
        decoded = decoder.feed_parsed(step)
        events, error = split_failure(decoded)
        yield from encoder.encode(events)
        if any(isinstance(event, Finished | Failed) for event in decoded):
            yield from encoder.finish(error)


def _encode(request: ChatRequest) -> Json:
    """Return the body of `POST /responses`, whose output limit has a minimum, unlike other protocols."""
    body = encode_request(request)
    if (limit := body.get("max_output_tokens")) is not None:
        body["max_output_tokens"] = max(limit, 16)
    return body


# --- Chat Completions ---


async def create_completion(request: web.Request) -> web.StreamResponse:
    service, scenario = request.app[SERVICE], request[SCENARIO]
    try:
        caller = decode_completion(read_json(request[BODY]))
        body = _convert_completion(caller)
    except RequestError as error:
        raise RequestRejected(400, "invalid_request", error.message, param=error.param or "") from None
    steps = _convert_steps(service.make_steps(service.accept(body), scenario), CompletionEncoder(caller))
    if caller.stream or scenario.always_streams:
        framing = msgspec.structs.replace(scenario.framing, event_lines=False)
        chunks = scenario.chunks(make_chunks(steps, framing))
        return await send_chunks(request, chunks, "text/event-stream", scenario.encoding)
    return await send_joined(request, steps, _join_completion, b'{"id": "chatcmpl-')


def _convert_completion(caller: CompletionRequest) -> Json:
    """Return the body of an equivalent `POST /responses`, without options that the model does not have."""
    extra = {name: value for name, value in caller.extra.items() if name in SHARED_FIELDS}
    if caller.extra.get("response_format") == {"type": "json_object"}:
        extra["text"] = {"format": {"type": "json_object"}}
    return _encode(msgspec.structs.replace(caller.request, extra=extra, reasons=True))


def _join_completion(chunks: list[Json]) -> Mapping[str, Any] | None:
    body = join_chunks(chunks)
    if "error" in body:
        raise RequestRejected(500, "server_error", body["error"]["message"])
    is_finished = any(choice["finish_reason"] for choice in body["choices"])
    return body if is_finished else None


# --- Messages ---

# The protocol's status and error type, by the status of the other protocols.
_ERRORS = {
    400: (400, "invalid_request_error"),
    401: (401, "authentication_error"),
    403: (403, "permission_error"),
    404: (404, "not_found_error"),
    413: (413, "request_too_large"),
    429: (429, "rate_limit_error"),
    503: (529, "overloaded_error"),
}


async def create_message(request: web.Request) -> web.StreamResponse:
    service, scenario = request.app[SERVICE], request[SCENARIO]
    caller = _read_request(request, needs_limit=True)
    accepted = service.accept(_convert_message(caller))
    encoder = MessageEncoder(caller, input_tokens=accepted.input_tokens)
    steps = _convert_steps(service.make_steps(accepted, scenario), encoder)
    if caller.stream or scenario.always_streams:
        framing = msgspec.structs.replace(scenario.framing, done=False)
        chunks = scenario.chunks(make_chunks(steps, framing))
        return await send_chunks(request, chunks, "text/event-stream", scenario.encoding)
    return await send_joined(request, steps, _join_events, b'{"id": "msg_')


async def count_tokens(request: web.Request) -> web.StreamResponse:
    tokens = request.app[SERVICE].count(_convert_message(_read_request(request)))
    return await send_json(request, encode_token_count(tokens))


def _read_request(request: web.Request, *, needs_limit: bool = False) -> MessageRequest:
    headers = {name.lower(): value for name, value in request.headers.items()}
    body = read_json(request[BODY])
    if needs_limit and "max_tokens" not in body:
        raise RequestRejected(400, "invalid_request_error", "max_tokens: Field required", param="max_tokens")
    try:
        return decode_message(body, headers=headers)
    except RequestError as error:
        raise RequestRejected(400, "invalid_request_error", error.message, param=error.param or "") from None


def _convert_message(caller: MessageRequest) -> Json:
    """Return the body of an equivalent `POST /responses`."""
    return _encode(msgspec.structs.replace(caller.request, reasons=True))


def _join_events(events: list[Json]) -> Json | None:
    for event in events:
        if event["type"] == "error":
            raise RequestRejected(500, "api_error", event["error"]["message"])
    return join_message(events)


@web.middleware
async def convert_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Replace errors by those of this protocol."""
    response = await handler(request)
    if not _is_messages(request) or response.status < 400 or not isinstance(response, web.Response):
        return response
    status, type_ = _ERRORS.get(response.status, (response.status, "api_error"))
    try:
        body = msgspec.json.decode(response.body if isinstance(response.body, bytes) else b"")
        message = body["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return response  # an error body of a scenario
    error = make_error(status, type_, message, request[RECEIVED].id)
    headers = {"Retry-After": response.headers["Retry-After"]} if "Retry-After" in response.headers else {}
    return web.Response(
        status=error.status,
        body=msgspec.json.encode(error.body),
        content_type="application/json",
        headers={**error.headers, **headers},
    )


def _is_messages(request: web.Request) -> bool:
    return "/v1/messages" in request.path or find_by_headers(request.headers) is ANTHROPIC_MESSAGES


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/chat/completions", create_completion),
    ("POST", "/v1/messages", create_message),
    ("POST", "/v1/messages/count_tokens", count_tokens),
)
