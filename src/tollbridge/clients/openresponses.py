"""The client for OpenResponses servers: Vercel AI Gateway, OpenAI, llama.cpp, vLLM, LiteLLM…"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from tollbridge.clients.base import EncodedRequest, GatewayClient, encode_body
from tollbridge.history.answer import apply_corrections, join_parts, parts_from_events
from tollbridge.history.normalize import MIN_OUTPUT_TOKENS
from tollbridge.protocols.detect import Decoder, decoder_for
from tollbridge.protocols.model_list import Endpoints, read_endpoints, read_models
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.types.errors import NotFound, StreamError
from tollbridge.types.events import Event, Finished, ReasoningDelta, TextDelta, ToolCall, Usage, split_failure
from tollbridge.types.messages import ChatRequest, Message, Part, Role
from tollbridge.types.models import Model
from tollbridge.types.text import read_json
from tollbridge.types.urls import VERCEL_URL

# The request fields that determine the number of input tokens.
COUNTED_FIELDS = frozenset({"model", "input", "tools", "tool_choice", "reasoning", "text", "instructions"})


class Answer(msgspec.Struct, frozen=True):
    """A complete answer.

    To run a tool loop, append `message` and a user message with the results of `tool_calls` to the request.

    Attributes:
        text: The text of the answer.
        reasoning: The text of the reasoning.
        tool_calls: The tool calls. Run those that are `offered`.
        usage: The tokens used, if the gateway reported them.
        finish_reason: Why the answer ended; `"unknown"` if the gateway did not report it.
        response_id: The gateway's id of the response.
        events: All events of the answer in their order.
    """

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    finish_reason: str
    response_id: str | None
    events: tuple[Event, ...]

    @classmethod
    def decode(cls, data: bytes, decoder: Decoder) -> Answer:
        """Decode a response body that is not streamed, with the decoder of its protocol.

        Raises:
            BridgeError: The body is an error or cannot be decoded.
        """
        events, failure = split_failure(decoder.feed(data) + decoder.close())
        if failure is not None:
            raise failure
        finished = next((event for event in events if isinstance(event, Finished)), None)
        corrected = apply_corrections(events)
        return cls(
            text="".join(event.text for event in corrected if isinstance(event, TextDelta)),
            reasoning="".join(event.text for event in corrected if isinstance(event, ReasoningDelta)),
            tool_calls=tuple(event for event in events if isinstance(event, ToolCall)),
            usage=finished.usage if finished else None,
            finish_reason=(finished.reason if finished else None) or "unknown",
            response_id=finished.response_id if finished else None,
            events=tuple(events),
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The text, reasoning and offered tool calls as message parts, without generated files."""
        return join_parts(parts_from_events(apply_corrections(self.events)))

    @property
    def message(self) -> Message:
        """The answer as an assistant message, to append to the messages of the next request."""
        return Message(Role.ASSISTANT, self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the events, ready for JSON."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "tool_calls": [
                {"call_id": call.call_id, "name": call.name, "input": call.input, "offered": call.offered}
                for call in self.tool_calls
            ],
            "parts": msgspec.to_builtins(list(self.parts)),
            "usage": None if self.usage is None else self.usage.to_dict(),
            "finish_reason": self.finish_reason,
            "response_id": self.response_id,
        }


class AnswerClient(GatewayClient):
    """The base class of clients whose protocol can also return an answer as one JSON body.

    A subclass sets the path of the endpoint and encodes its body.
    """

    answer_path: ClassVar[str]

    async def create(self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None) -> Answer:
        """Send a request and return the complete answer, without streaming.

        Args:
            request: The request, or its body in the format of the protocol.
            api_key: The key for this call; the empty string is no key.

        Raises:
            BridgeError: The request failed.
        """

        def decode(data: bytes) -> Answer:
            return Answer.decode(data, decoder_for(self.protocol))

        body, headers = self._encode_body(request, stream=False), self._body_headers(request)
        return await self._call("POST", self.answer_path, body, api_key, decode, headers)

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """Return the gateway's models of every type."""
        return await self._call("GET", "/models", None, api_key, read_models)

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None:
        path = f"/models/{quote(model, safe='/', errors='replace')}/endpoints"
        return await self._call("GET", path, None, api_key, read_endpoints)

    def _encode(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        body = self._encode_body(request, stream=True)
        return EncodedRequest(self.base_url + self.answer_path, body, self._body_headers(request))

    @abstractmethod
    def _encode_body(self, request: ChatRequest | Mapping[str, Any], *, stream: bool) -> bytes:
        """Return the body of a request."""

    def _body_headers(self, request: ChatRequest | Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        """Return headers that depend on the request."""
        return {}


def check_counting(request: ChatRequest | Mapping[str, Any]) -> None:
    """Raise `NotFound` if the profile of the server says that it does not count tokens."""
    if isinstance(request, ChatRequest) and request.quirks and not request.quirks.input_tokens:
        raise NotFound("This gateway does not count tokens (according to its profile).")


class OpenResponsesClient(AnswerClient):
    """A client for an OpenResponses server at one base URL (`…/v1`).

    The arguments are those of `GatewayClient`.
    """

    protocol = "openresponses"
    home = VERCEL_URL
    min_output_tokens = MIN_OUTPUT_TOKENS
    answer_path = "/responses"

    async def input_tokens(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> int:
        """Let the gateway count the input tokens of a request.

        Raises:
            NotFound: The gateway does not count tokens.
            BridgeError: The request failed.
        """
        check_counting(request)
        body = count_body(request)
        return await self._call("POST", "/responses/input_tokens", body, api_key, _decode_count)

    def _encode_body(self, request: ChatRequest | Mapping[str, Any], *, stream: bool) -> bytes:
        return response_body(request, stream=stream)


def response_body(request: ChatRequest | Mapping[str, Any], *, stream: bool = True) -> bytes:
    """Return the body of `POST /responses`. `stream` is always set: some servers stream by default."""
    return encode_body({**_to_body(request), "stream": stream})


def count_body(request: ChatRequest | Mapping[str, Any]) -> bytes:
    """Return the body of `POST /responses/input_tokens`: only the fields that determine the count."""
    return encode_body({name: value for name, value in _to_body(request).items() if name in COUNTED_FIELDS})


def _to_body(request: ChatRequest | Mapping[str, Any]) -> Mapping[str, Any]:
    return encode_request(request) if isinstance(request, ChatRequest) else request


def _decode_count(data: bytes) -> int:
    try:
        tokens = Fields(read_json(data)).number("input_tokens")
    except ValueError:
        raise StreamError("The gateway returned invalid JSON.") from None
    if tokens is None:
        raise StreamError("The gateway returned no token count.")
    return tokens
