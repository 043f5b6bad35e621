"""The base class of clients whose protocol can also return an answer as one JSON body."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from tollbridge.clients.base import EncodedRequest, GatewayClient
from tollbridge.history.answer import apply_corrections, join_parts, parts_from_events
from tollbridge.protocols.detect import Decoder, decoder_for
from tollbridge.protocols.model_list import Endpoints, read_endpoints, read_models
from tollbridge.types.errors import NotFound
from tollbridge.types.events import Event, Finished, ReasoningDelta, TextDelta, ToolCall, Usage, split_failure
from tollbridge.types.messages import ChatRequest, Message, Part, Role
from tollbridge.types.models import Model


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
