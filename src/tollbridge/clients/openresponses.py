"""A client for servers that speak OpenResponses: Vercel AI Gateway, OpenAI, llama.cpp, vLLM, litellm…"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from tollbridge.clients.base import EncodedRequest, GatewayClient, encode_body
from tollbridge.protocols.model_list import Endpoints, read_endpoints, read_models
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.types.errors import NotFound, StreamError
from tollbridge.types.events import Event, Finished, ReasoningDelta, TextDelta, ToolCall, split_failure
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Model
from tollbridge.types.text import read_json
from tollbridge.types.urls import VERCEL_URL
from tollbridge.types.usage import Usage

# The fields of a request that its count depends on.
COUNTED = frozenset({"model", "input", "tools", "tool_choice", "reasoning", "text", "instructions"})


class Answer(msgspec.Struct, frozen=True):
    """A whole answer. `events` has everything, in order; the rest is what is mostly wanted of it."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    finish_reason: str
    response_id: str | None
    events: tuple[Event, ...]


class OpenResponsesClient(GatewayClient):
    """Talks to one base URL (`…/v1`) of a server that speaks OpenResponses."""

    protocol = "openresponses"
    home = VERCEL_URL

    async def create(self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None) -> Answer:
        """The whole answer at once, without streaming."""
        return await self._call("POST", "/responses", response_body(request, stream=False), api_key, _answer)

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """The models the gateway offers, of every type."""
        return await self._call("GET", "/models", None, api_key, read_models)

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None:
        path = f"/models/{quote(model, safe='/', errors='replace')}/endpoints"
        return await self._call("GET", path, None, api_key, read_endpoints)

    async def input_tokens(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> int:
        """How many tokens the request would come to, counted by the gateway. Not every gateway can."""
        if isinstance(request, ChatRequest) and request.quirks and not request.quirks.input_tokens:
            raise NotFound("This gateway does not count tokens, as its profile says.")
        return await self._call("POST", "/responses/input_tokens", count_body(request), api_key, _count)

    def _question(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        return EncodedRequest(f"{self.base_url}/responses", response_body(request))


def response_body(request: ChatRequest | Mapping[str, Any], *, stream: bool = True) -> bytes:
    """Of `POST /responses`. Whether it streams is always said: some servers do unless told not to."""
    return encode_body({**_parsed(request), "stream": stream})


def count_body(request: ChatRequest | Mapping[str, Any]) -> bytes:
    """Of `POST /responses/input_tokens`: what is counted, and nothing of how it is answered."""
    return encode_body({name: value for name, value in _parsed(request).items() if name in COUNTED})


def _parsed(request: ChatRequest | Mapping[str, Any]) -> Mapping[str, Any]:
    return encode_request(request) if isinstance(request, ChatRequest) else request


def _count(data: bytes) -> int:
    try:
        tokens = Fields(read_json(data)).number("input_tokens")
    except ValueError:
        raise StreamError("The gateway answered with something that is not JSON.") from None
    if tokens is None:
        raise StreamError("The gateway did not say how many tokens the request would come to.")
    return tokens


def _answer(data: bytes) -> Answer:
    decoder = StreamDecoder()
    said, failure = split_failure(decoder.feed(data) + decoder.close())
    if failure is not None:
        raise failure
    finished = next((event for event in said if isinstance(event, Finished)), None)
    return Answer(
        text="".join(event.text for event in said if isinstance(event, TextDelta)),
        reasoning="".join(event.text for event in said if isinstance(event, ReasoningDelta)),
        tool_calls=tuple(event for event in said if isinstance(event, ToolCall)),
        usage=finished.usage if finished else None,
        finish_reason=(finished.reason if finished else None) or "unknown",
        response_id=finished.response_id if finished else None,
        events=tuple(said),
    )
