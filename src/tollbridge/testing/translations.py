"""Other protocols than OpenResponses, with the same scripted model.

A request is converted to an OpenResponses request. The events of the answer are decoded as a client does, and
encoded by the encoder of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.protocols import find_by_headers
from tollbridge.protocols.answer import AnswerEncoder
from tollbridge.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from tollbridge.protocols.anthropic_messages.answer import ERRORS, make_error
from tollbridge.protocols.anthropic_messages.caller import CODEC as MESSAGES
from tollbridge.protocols.caller import CallerCodec
from tollbridge.protocols.caller_request import CallerRequest
from tollbridge.protocols.chat_completions.caller import CODEC as CHAT_COMPLETIONS
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.testing.faults import make_chunks
from tollbridge.testing.refusals import RequestRejected, reject
from tollbridge.testing.requests import AcceptedRequest
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
from tollbridge.types.errors import RequestError, ServerFailed
from tollbridge.types.events import Failed, Finished, split_failure

Json = dict[str, Any]

# Fields of other protocols that the Responses API has, too, with the same meaning.
_SHARED_FIELDS = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "prompt_cache_key", "prompt_cache_retention"),
        *("safety_identifier", "top_logprobs", "user"),
    }
)
# The error types of the AI SDK's protocol, by status. Its client recognizes errors by them.
_AI_SDK_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "forbidden",
    404: "model_not_found",
    424: "failed_dependency",
    429: "rate_limit_exceeded",
}


async def send_answer(
    request: web.Request,
    accepted: AcceptedRequest,
    encoder: AnswerEncoder,
    *,
    stream: bool,
    event_lines: bool = False,
    done: bool = False,
) -> web.StreamResponse:
    """Send the answer of the scripted model in another protocol.

    `event_lines` and `done` are whether streams of the protocol have `event:` lines, and end with `[DONE]`.
    """
    scenario = request[SCENARIO]
    steps = request.app[SERVICE].make_steps(accepted, scenario, bearer=request[RECEIVED].bearer)
    if stream or scenario.always_streams:
        framing = msgspec.structs.replace(
            scenario.framing,
            event_lines=scenario.framing.event_lines and event_lines,
            done=scenario.framing.done and done,
        )
        chunks = scenario.chunks(make_chunks(_convert_steps(steps, encoder), framing))
        return await send_chunks(request, chunks)

    def make_body(_: object) -> Json | None:
        try:
            return encoder.body()
        except ServerFailed:
            return None  # the scenario ends the answer early

    return await send_joined(request, _convert_steps(steps, encoder, fails=True), make_body)


def _convert_steps(steps: Iterable[Step], encoder: AnswerEncoder, *, fails: bool = False) -> Iterator[Step]:
    """Decode the OpenResponses events as a client does, and encode them for the other protocol.

    Other steps are passed through. What the scenario omits stays omitted. With `fails`, a failure of the
    answer is raised as a `RequestRejected`.
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
        if fails and error is not None:
            raise RequestRejected(500, "server_error", error.message)
        yield from encoder.encode(events)
        if any(isinstance(event, Finished | Failed) for event in decoded):
            yield from encoder.finish(error)


async def _answer(request: web.Request, codec: CallerCodec) -> web.StreamResponse:
    decoded = _read_request(request, codec)
    # The API requires a limit, unlike the decoder, which also reads requests for the number of tokens.
    if codec is MESSAGES and decoded.request.max_output_tokens is None:
        reject("invalid_request_error", "max_tokens: Field required", "max_tokens")
    accepted = request.app[SERVICE].accept(_convert_request(decoded))
    return await send_answer(
        request,
        accepted,
        codec.encoder(decoded, input_tokens=accepted.input_tokens),
        stream=decoded.stream,
        event_lines=codec.names_events,
        done=codec.ends_with_done,
    )


async def _count(request: web.Request, codec: CallerCodec) -> web.StreamResponse:
    tokens = request.app[SERVICE].count(_convert_request(_read_request(request, codec)))
    return await send_json(request, codec.encode_count(tokens))


def _read_request(request: web.Request, codec: CallerCodec) -> CallerRequest:
    try:
        return codec.decode(read_json(request[BODY]), request.headers)
    except RequestError as error:
        reject("invalid_request", error.message, error.param or "")


def _convert_request(decoded: CallerRequest) -> Json:
    """Return the body of an equivalent `POST /responses`, without options that the model does not have."""
    extra = {name: value for name, value in decoded.extra.items() if name in _SHARED_FIELDS}
    if decoded.extra.get("response_format") == {"type": "json_object"}:
        extra["text"] = {"format": {"type": "json_object"}}
    body = encode_request(msgspec.structs.replace(decoded.request, extra=extra, reasons=True))
    if (limit := body.get("max_output_tokens")) is not None:
        body["max_output_tokens"] = max(limit, 16)  # other protocols have no minimum
    return body


def _read_error(response: web.Response) -> Json | None:
    """Return the error of a response in the form of OpenResponses; `None` if it has none."""
    try:
        error = msgspec.json.decode(response.body if isinstance(response.body, bytes) else b"")["error"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None  # an error body of a scenario
    return error if isinstance(error, dict) and "message" in error else None


@web.middleware
async def convert_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Replace the errors of requests of the AI SDK's protocol and of the Messages API by those of the API."""
    response = await handler(request)
    if response.status < 400 or not isinstance(response, web.Response):
        return response
    error = _read_error(response)
    if error is None:
        return response
    if "/ai/" in request.path:
        error["type"] = _AI_SDK_ERRORS.get(response.status, "internal_server_error")
        response.body = msgspec.json.encode({"error": error})
        return response
    is_messages = f"/v1{MESSAGES.path}" in request.path
    if not is_messages and find_by_headers(request.headers) is not ANTHROPIC_MESSAGES:
        return response
    status = 529 if response.status == 503 else response.status
    types = {413: "request_too_large", **dict(ERRORS.values())}
    request_id = request[RECEIVED].id
    body = make_error(types.get(status, "api_error"), error["message"], request_id)
    headers = {name: response.headers[name] for name in ("Retry-After",) if name in response.headers}
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/json",
        headers={"request-id": request_id, **headers},
    )


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    *(("POST", f"/v1{each.path}", partial(_answer, codec=each)) for each in (CHAT_COMPLETIONS, MESSAGES)),
    ("POST", f"/v1{MESSAGES.count_path}", partial(_count, codec=MESSAGES)),
)
