"""The caller's side of a protocol: what `serve` needs to answer programs that speak it.

A program sends a request in its protocol: `CallerCodec.decode` converts it to a `ChatRequest`. The events of
the answer are encoded by `CallerCodec.encoder`. In the folder of a protocol, `caller` has its subclass of
`CallerCodec`, the instance `CODEC` and the decoder of requests; `answer` has the encoder of answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from tollbridge.protocols.answer import AnswerEncoder
from tollbridge.protocols.caller_request import CallerRequest, Json, RequestDecoder
from tollbridge.types.errors import BridgeError, Kind
from tollbridge.types.messages import Origin
from tollbridge.types.models import Model
from tollbridge.types.text import write_valid_json

DONE = b"data: [DONE]\n\n"
# The HTTP status of errors that are not responses of the gateway.
_STATUSES: dict[Kind, int] = {
    "authentication": 401,
    "permission": 403,
    "not_found": 404,
    "budget_exceeded": 402,
    "rate_limited": 429,
    "context_too_long": 400,
    "content_filtered": 400,
    "invalid_request": 400,
    "overloaded": 503,
    "timeout": 504,
}


def encode_json(value: object) -> bytes:
    return write_valid_json(value).encode()


class CallerCodec(ABC):
    """A protocol that callers speak. By default, errors and model lists have the form of OpenAI's APIs.

    Attributes:
        name: The protocol, as the setting of an account whose gateway speaks it names it.
        path: The path of a request, after the base URL.
        count_path: The path of a request for the number of tokens, if the protocol has one.
        compact_path: The path of a request to compact a conversation, if the protocol has one.
        has_socket: Whether callers can open a WebSocket at `path`.
        names_events: Whether the events of a stream have `event:` lines.
        ends_with_done: Whether a stream ends with `[DONE]`.
        decoder: Decodes a request.
        encoder: Encodes an answer.
    """

    name: ClassVar[str]
    path: ClassVar[str]
    count_path: ClassVar[str | None] = None
    compact_path: ClassVar[str | None] = None
    has_socket: ClassVar[bool] = False
    names_events: ClassVar[bool] = True
    ends_with_done: ClassVar[bool] = True
    decoder: ClassVar[type[RequestDecoder]]
    encoder: ClassVar[type[AnswerEncoder]]

    def decode(
        self, body: object, headers: Mapping[str, str] | None = None, native: Origin | None = None
    ) -> CallerRequest:
        """Decode a request.

        Nothing that a caller sends by default causes an error: what has no equivalent is left out, and listed
        in `omissions`.

        Args:
            body: The parsed JSON.
            headers: The headers, with names in lower case or of any case.
            native: The model and gateway that will get the request, if that gateway speaks this protocol too:
                fields, tools and contents that only this protocol has are kept for it.

        Raises:
            RequestError: A required field is missing or has the wrong type. The message names the field.
        """
        return self.decoder(body, headers or {}, native).decode()

    def write(self, events: Iterable[Json]) -> bytes:
        """Return events of a stream as server-sent events."""
        if not self.names_events:
            return b"".join(b"data: %b\n\n" % encode_json(event) for event in events)
        return b"".join(
            b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode_json(event)) for event in events
        )

    def write_end(self, events: Iterable[Json]) -> bytes:
        """Return the last events of a stream as server-sent events, and what ends the stream."""
        return self.write(events) + (DONE if self.ends_with_done else b"")

    def error_status(self, error: BridgeError) -> int:
        """Return the HTTP status of an error: the gateway's own, if it sent one."""
        if error.status is not None and error.status >= 400:
            return error.status
        return _STATUSES.get(error.kind, 502)

    @abstractmethod
    def encode_error(self, error: BridgeError, status: int) -> Json:
        """Return the body of an error response."""

    def encode_count(self, tokens: int) -> Json:
        """Return the body of the response to a request for the number of tokens."""
        return {"input_tokens": tokens}

    def encode_models(self, models: Sequence[Model]) -> Json:
        """Return the body of a model list."""
        return {"object": "list", "data": [self.encode_model(model) for model in models]}

    def encode_model(self, model: Model) -> Json:
        """Return the entry of a model."""
        return {
            "id": model.id,
            "object": "model",
            "created": model.created or 0,
            "owned_by": model.owner or model.identity.creator or "unknown",
        }


def encode_openai_error(error: BridgeError, status: int, code: str) -> Json:
    """Return the body of an error response in the form of OpenAI's APIs."""
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}
