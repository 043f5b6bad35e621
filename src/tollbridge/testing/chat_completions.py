"""Chat Completions, with the same scripted model: `POST /v1/chat/completions`.

A request is converted to an OpenResponses request, and the events of the answer to chunks, both with the
codecs of Tollbridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.protocols.chat_completions.server_requests import SHARED_FIELDS, CallerRequest, decode_request
from tollbridge.protocols.chat_completions.server_stream import CompletionEncoder, join_chunks
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.testing.faults import make_chunks
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.responses import Step
from tollbridge.testing.routes import BODY, SCENARIO, SERVICE, Handler, send_chunks, send_joined
from tollbridge.testing.validation import read_json
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Failed, Finished, split_failure

Json = dict[str, Any]


async def create_completion(request: web.Request) -> web.StreamResponse:
    service, scenario = request.app[SERVICE], request[SCENARIO]
    try:
        caller = decode_request(read_json(request[BODY]))
        body = _convert_request(caller)
    except RequestError as error:
        raise RequestRejected(400, "invalid_request", error.message, param=error.param or "") from None
    steps = _convert_steps(service.make_steps(service.accept(body), scenario), caller)
    if caller.stream or scenario.always_streams:
        framing = msgspec.structs.replace(scenario.framing, event_lines=False)
        chunks = scenario.chunks(make_chunks(steps, framing))
        return await send_chunks(request, chunks, "text/event-stream", scenario.encoding)
    return await send_joined(request, steps, _join, b'{"id": "chatcmpl-')


def _convert_request(caller: CallerRequest) -> Json:
    """Return the body of an equivalent `POST /responses`, without options that the model does not have."""
    extra = {name: value for name, value in caller.extra.items() if name in SHARED_FIELDS}
    if caller.extra.get("response_format") == {"type": "json_object"}:
        extra["text"] = {"format": {"type": "json_object"}}
    return encode_request(msgspec.structs.replace(caller.request, extra=extra, reasons=True))


def _convert_steps(steps: Iterator[Step], caller: CallerRequest) -> Iterator[Step]:
    """Decode the OpenResponses events as a client does, and encode them as chunks.

    Other steps are passed through. What the scenario omits stays omitted.
    """
    decoder, encoder = StreamDecoder(), CompletionEncoder(caller)
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


def _join(chunks: list[Json]) -> Mapping[str, Any] | None:
    body = join_chunks(chunks)
    if "error" in body:
        raise RequestRejected(500, "server_error", body["error"]["message"])
    is_finished = any(choice["finish_reason"] for choice in body["choices"])
    return body if is_finished else None


CHAT_ROUTES: tuple[tuple[str, str, Handler], ...] = (("POST", "/v1/chat/completions", create_completion),)
