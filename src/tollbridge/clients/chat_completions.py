"""The client for Chat Completions servers: nearly every gateway and server of language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tollbridge.clients.base import EncodedRequest, GatewayClient, encode_body
from tollbridge.clients.openresponses import Answer
from tollbridge.protocols.chat_completions.requests import encode_request
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.model_list import Endpoints, read_endpoints, read_models
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Model
from tollbridge.types.urls import VERCEL_URL


class ChatCompletionsClient(GatewayClient):
    """A client for a Chat Completions server at one base URL (`…/v1`).

    The arguments are those of `GatewayClient`.
    """

    protocol = "chat-completions"
    home = VERCEL_URL

    async def create(self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None) -> Answer:
        """Send a request and return the complete answer, without streaming.

        Args:
            request: The request, or its body in the format of the protocol.
            api_key: The key for this call; the empty string is no key.

        Raises:
            BridgeError: The request failed.
        """
        body = completion_body(request, stream=False)
        return await self._call(
            "POST",
            "/chat/completions",
            body,
            api_key,
            lambda data: Answer.decode(data, decoder_for("chat-completions")),
        )

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """Return the gateway's models of every type."""
        return await self._call("GET", "/models", None, api_key, read_models)

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None:
        path = f"/models/{quote(model, safe='/', errors='replace')}/endpoints"
        return await self._call("GET", path, None, api_key, read_endpoints)

    def _encode(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        return EncodedRequest(f"{self.base_url}/chat/completions", completion_body(request))


def completion_body(request: ChatRequest | Mapping[str, Any], *, stream: bool = True) -> bytes:
    """Return the body of `POST /chat/completions`. Options of a stream are sent only with a stream."""
    body = encode_request(request) if isinstance(request, ChatRequest) else dict(request)
    if not stream:
        body.pop("stream_options", None)
    return encode_body({**body, "stream": stream})
