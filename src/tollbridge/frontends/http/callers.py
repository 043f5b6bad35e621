"""The protocols of the callers: for each, how its requests are decoded and its answers are encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tollbridge.protocols.openresponses import server as openresponses
from tollbridge.protocols.openresponses.server import CallerRequest
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event
from tollbridge.types.models import Model
from tollbridge.types.text import write_valid_json
from tollbridge.types.urls import Backend

Json = dict[str, Any]


class AnswerEncoder(Protocol):
    """Encodes one answer, as a stream or as one body."""

    def start(self) -> bytes: ...

    def encode(self, batch: Iterable[Event]) -> bytes: ...

    def finish(self, error: BridgeError | None = None) -> bytes:
        """Return the end of the stream. An error is part of it, because the status was sent before."""
        ...

    def body(self) -> bytes:
        """Return the body of an answer that is not streamed, after `finish`."""
        ...


class CallerProtocol(Protocol):
    """A protocol that callers speak.

    Attributes:
        backend: The setting of an account whose gateway speaks the same protocol.
        path: The path of a request at such a gateway, after its base URL.
    """

    backend: Backend
    path: str

    def decode(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> CallerRequest: ...

    def encoder(self, body: Mapping[str, Any], caller: CallerRequest) -> AnswerEncoder: ...

    def encode_error(self, error: BridgeError, status: int) -> bytes: ...

    def encode_count(self, tokens: int) -> bytes: ...

    def encode_models(self, models: Sequence[Model]) -> bytes: ...


def encode_json(value: object) -> bytes:
    return write_valid_json(value).encode()


def encode_frame(event: Json) -> bytes:
    """Return an event of a stream, with its type as the name of the event."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode_json(event))


class Responses:
    """OpenResponses: `/v1/responses`."""

    backend: Backend = "openresponses"
    path = "/responses"

    def decode(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> CallerRequest:  # noqa: ARG002
        return openresponses.decode_request(body)

    def encoder(self, body: Mapping[str, Any], caller: CallerRequest) -> AnswerEncoder:
        return _ResponsesEncoder(openresponses.ResponseEncoder(body, caller))

    def encode_error(self, error: BridgeError, status: int) -> bytes:
        return encode_json(openresponses.encode_error(error, status))

    def encode_count(self, tokens: int) -> bytes:
        return encode_json({"object": "response.input_tokens", "input_tokens": tokens})

    def encode_models(self, models: Sequence[Model]) -> bytes:
        return encode_json(list_openai_models(models))


class _ResponsesEncoder:
    def __init__(self, encoder: openresponses.ResponseEncoder) -> None:
        self._encoder = encoder

    def start(self) -> bytes:
        return b"".join(map(encode_frame, self._encoder.start()))

    def encode(self, batch: Iterable[Event]) -> bytes:
        return b"".join(map(encode_frame, self._encoder.encode(batch)))

    def finish(self, error: BridgeError | None = None) -> bytes:
        return b"".join(map(encode_frame, self._encoder.finish(error)))

    def body(self) -> bytes:
        return encode_json(self._encoder.response)


def list_openai_models(models: Sequence[Model]) -> Json:
    """Return a model list in OpenAI's format, which Chat Completions and Responses share."""
    entries = [
        {
            "id": model.id,
            "object": "model",
            "created": model.created or 0,
            "owned_by": model.owner or model.identity.creator or "unknown",
        }
        for model in models
    ]
    return {"object": "list", "data": entries}


RESPONSES = Responses()
