"""The protocols of the callers: how the server decodes their requests and encodes the answers.

The codecs are in `protocols/`; this module gives them one interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from tollbridge.protocols import Backend
from tollbridge.protocols.anthropic_messages import server as messages
from tollbridge.protocols.chat_completions import server as completions
from tollbridge.protocols.openresponses import server as responses
from tollbridge.types.errors import BridgeError, Kind
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Origin
from tollbridge.types.models import Model
from tollbridge.types.text import write_valid_json

Json = dict[str, Any]

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


class CallerRequest(msgspec.Struct, frozen=True):
    """A decoded request of a caller.

    Attributes:
        request: The request in the form that every protocol can encode.
        stream: Whether the caller wants a stream.
        omissions: One sentence for each thing that has no equivalent and was left out.
        encoder: Encodes the answer.
    """

    request: ChatRequest
    stream: bool
    omissions: tuple[str, ...]
    encoder: AnswerEncoder


class CallerProtocol(Protocol):
    """A protocol that callers speak.

    Attributes:
        backend: The setting of an account whose gateway speaks the same protocol.
        path: The path of a request, after the base URL.
        count_path: The path of a request for the number of tokens, if the protocol has one.
    """

    backend: Backend
    path: str
    count_path: str | None

    def decode(
        self, body: Mapping[str, Any], headers: Mapping[str, str], native: Origin | None = None
    ) -> CallerRequest:
        """Decode a request.

        Args:
            body: The body.
            headers: The headers.
            native: The model and gateway that will get the request, if that gateway speaks this protocol
                too: then also fields that only this protocol has are kept.
        """
        ...

    def encode_error(self, error: BridgeError, status: int) -> bytes: ...

    def encode_count(self, tokens: int) -> bytes: ...

    def encode_models(self, models: Sequence[Model]) -> bytes: ...

    def encode_model(self, model: Model) -> bytes: ...

    def error_status(self, error: BridgeError) -> int:
        """Return the HTTP status of an error: the gateway's own, if it sent one."""
        ...


# Where agents say which conversation a request belongs to: Codex, Claude Code, OpenCode and others.
_SESSION_HEADERS = (
    *("session_id", "session-id", "conversation_id", "x-claude-code-session-id"),
    *("x-session-affinity", "x-session-id"),
)
_SESSION_MARK = "_session_"  # in the user id of older versions of Claude Code
_ID_LIMIT = 200  # characters


def find_conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return the id of the conversation that a request belongs to; `None` if the caller does not say.

    Args:
        body: The body, or only its fields `prompt_cache_key` and `metadata`.
        headers: The headers.
    """
    candidates = (
        body.get("prompt_cache_key"),
        *(headers.get(name) for name in _SESSION_HEADERS),
        _find_session(body.get("metadata")),
    )
    return next((name[:_ID_LIMIT] for name in candidates if isinstance(name, str) and name), None)


def _find_session(metadata: object) -> str | None:
    """Return the session in the user id of Claude Code, which is JSON or ends with the session's id."""
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            session = msgspec.json.decode(user, type=dict[str, Any]).get("session_id")
        except (msgspec.MsgspecError, RecursionError):
            return None
        return session if isinstance(session, str) else None
    return user.rpartition(_SESSION_MARK)[2] if _SESSION_MARK in user else None


def encode_json(value: object) -> bytes:
    return write_valid_json(value).encode()


def _encode_named(events: Iterable[Json]) -> bytes:
    """Return events of a stream, each with its type as the name of the event."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode_json(event)) for event in events
    )


class _OpenAiProtocol:
    """What the two protocols of OpenAI have in common: model lists, and the status of errors."""

    def encode_models(self, models: Sequence[Model]) -> bytes:
        return encode_json({"object": "list", "data": [self._describe_model(model) for model in models]})

    def encode_model(self, model: Model) -> bytes:
        return encode_json(self._describe_model(model))

    def _describe_model(self, model: Model) -> Json:
        return {
            "id": model.id,
            "object": "model",
            "created": model.created or 0,
            "owned_by": model.owner or model.identity.creator or "unknown",
        }

    def error_status(self, error: BridgeError) -> int:
        if error.status is not None and error.status >= 400:
            return error.status
        return _STATUSES.get(error.kind, 502)


# --- OpenResponses ---


class Responses(_OpenAiProtocol):
    """OpenResponses: `/v1/responses`."""

    backend: Backend = "openresponses"
    path = "/responses"
    count_path: str | None = "/responses/input_tokens"

    def decode(
        self,
        body: Mapping[str, Any],
        headers: Mapping[str, str],  # noqa: ARG002
        native: Origin | None = None,
    ) -> CallerRequest:
        caller = responses.decode_request(body, native=native is not None)
        encoder = _ResponsesEncoder(responses.ResponseEncoder(body, caller))
        return CallerRequest(caller.request, caller.stream, caller.omissions, encoder)

    def encode_error(self, error: BridgeError, status: int) -> bytes:
        return encode_json(responses.encode_error(error, status))

    def encode_count(self, tokens: int) -> bytes:
        return encode_json({"object": "response.input_tokens", "input_tokens": tokens})


class _ResponsesEncoder:
    def __init__(self, encoder: responses.ResponseEncoder) -> None:
        self._encoder = encoder

    def start(self) -> bytes:
        return _encode_named(self._encoder.start())

    def encode(self, batch: Iterable[Event]) -> bytes:
        return _encode_named(self._encoder.encode(batch))

    def finish(self, error: BridgeError | None = None) -> bytes:
        return _encode_named(self._encoder.finish(error)) + completions.DONE

    def body(self) -> bytes:
        return encode_json(self._encoder.response)


# --- Chat Completions ---


class ChatCompletions(_OpenAiProtocol):
    """Chat Completions: `/v1/chat/completions`."""

    backend: Backend = "chat-completions"
    path = "/chat/completions"
    count_path: str | None = None

    def decode(
        self,
        body: Mapping[str, Any],
        headers: Mapping[str, str],  # noqa: ARG002
        native: Origin | None = None,
    ) -> CallerRequest:
        caller = completions.decode_request(body, native=native)
        encoder = _CompletionsEncoder(completions.CompletionEncoder(caller))
        return CallerRequest(caller.request, caller.stream, caller.omissions, encoder)

    def encode_error(self, error: BridgeError, status: int) -> bytes:
        return encode_json(completions.encode_error(error, status))

    def encode_count(self, tokens: int) -> bytes:
        return encode_json({"input_tokens": tokens})


class _CompletionsEncoder:
    def __init__(self, encoder: completions.CompletionEncoder) -> None:
        self._encoder = encoder
        self._chunks: list[Json] = []

    def _write(self, chunks: list[Json]) -> bytes:
        self._chunks += chunks
        return completions.write_frames(chunks)

    def start(self) -> bytes:
        return self._write(self._encoder.start())

    def encode(self, batch: Iterable[Event]) -> bytes:
        return self._write(self._encoder.encode(batch))

    def finish(self, error: BridgeError | None = None) -> bytes:
        return self._write(self._encoder.finish(error)) + completions.DONE

    def body(self) -> bytes:
        return encode_json(completions.join_chunks(self._chunks))


# --- Messages ---


class Messages:
    """Anthropic's Messages API: `/v1/messages`."""

    backend: Backend = "anthropic-messages"
    path = "/messages"
    count_path: str | None = "/messages/count_tokens"

    def decode(
        self, body: Mapping[str, Any], headers: Mapping[str, str], native: Origin | None = None
    ) -> CallerRequest:
        names = {name.lower(): value for name, value in headers.items()}
        caller = messages.decode_request(body, native=native, headers=names)
        encoder = _MessagesEncoder(messages.MessageEncoder(caller))
        return CallerRequest(caller.request, caller.stream, caller.omissions, encoder)

    def encode_error(self, error: BridgeError, status: int) -> bytes:  # noqa: ARG002
        return encode_json(messages.encode_error(error).body)

    def encode_count(self, tokens: int) -> bytes:
        return encode_json(messages.encode_token_count(tokens))

    def encode_models(self, models: Sequence[Model]) -> bytes:
        entries = [self._describe_model(model) for model in models]
        ends = (entries[0]["id"], entries[-1]["id"]) if entries else (None, None)
        return encode_json({"data": entries, "has_more": False, "first_id": ends[0], "last_id": ends[1]})

    def encode_model(self, model: Model) -> bytes:
        return encode_json(self._describe_model(model))

    def _describe_model(self, model: Model) -> Json:
        return {
            "type": "model",
            "id": model.id,
            "display_name": model.name or model.id,
            "created_at": datetime.fromtimestamp(model.created or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def error_status(self, error: BridgeError) -> int:
        return messages.encode_error(error).status


class _MessagesEncoder:
    def __init__(self, encoder: messages.MessageEncoder) -> None:
        self._encoder = encoder
        self._events: list[Json] = []

    def _write(self, events: list[Json]) -> bytes:
        self._events += events
        return messages.write_frames(events)

    def start(self) -> bytes:
        return self._write(self._encoder.start())

    def encode(self, batch: Iterable[Event]) -> bytes:
        return self._write(self._encoder.encode(batch))

    def finish(self, error: BridgeError | None = None) -> bytes:
        return self._write(self._encoder.finish(error))

    def body(self) -> bytes:
        return encode_json(messages.join_message(self._events))


RESPONSES, CHAT_COMPLETIONS, MESSAGES = Responses(), ChatCompletions(), Messages()
PROTOCOLS: tuple[CallerProtocol, ...] = (RESPONSES, CHAT_COMPLETIONS, MESSAGES)
