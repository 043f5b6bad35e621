"""Clients for the AI SDK protocols: that of Vercel AI Gateway, and that of chat endpoints."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from tollbridge.clients.base import ClientOptions, EncodedRequest, GatewayClient, encode_body
from tollbridge.protocols.ai_sdk.requests import (
    TARGETS,
    Spec,
    auth_method,
    encode_call,
    encode_chat,
    encode_headers,
)
from tollbridge.protocols.model_list import read_models
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest, Message, Role
from tollbridge.types.models import Model
from tollbridge.types.urls import VERCEL_HOST

# The path of each version of the protocol.
PATHS: dict[Spec, str] = {2: "/v1/ai", 3: "/v3/ai", 4: "/v4/ai"}
# The version that is used if the caller names none.
DEFAULT_SPEC: Spec = 4
DEFAULT_PATH = PATHS[DEFAULT_SPEC]


class AiSdkClient(GatewayClient):
    """A client for the protocol of the AI SDK's gateway provider, at one base URL (`…/v4/ai`).

    Args:
        base_url: The URL of the gateway; Vercel AI Gateway if omitted.
        api_key: The key for all calls.
        spec: The version of the language model specification: 2, 3 or 4.
        **options: See `GatewayClient`.

    Raises:
        RequestError: The base URL or the version is invalid.
    """

    protocol = "ai-sdk-model"
    home = f"https://{VERCEL_HOST}{DEFAULT_PATH}"
    _accounting_path = "/../../v1"  # next to the path of the protocol; the dots are resolved before sending

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        spec: Spec = DEFAULT_SPEC,
        **options: Unpack[ClientOptions],
    ) -> None:
        if spec not in TARGETS:
            raise RequestError(f"Unsupported protocol version {spec!r}. Supported: 2, 3, 4.")
        super().__init__(base_url or self.home.replace(DEFAULT_PATH, PATHS[spec]), api_key, **options)
        self._spec = spec

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """Return the gateway's models of every type."""
        return await self._call("GET", "/config", None, api_key, read_models)

    def _request_headers(self, key: str | None) -> dict[str, str]:
        method = {"ai-gateway-auth-method": auth_method(key)} if key else {}
        return {**method, **super()._request_headers(key)}

    def _encode(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        """Encode a `ChatRequest`. A mapping is used as the body; its `model` is sent as a header."""
        if isinstance(request, ChatRequest):
            model, body = request.model, encode_call(request, self._spec)
        else:
            body = dict(request)
            model = body.pop("model", None)
            if not isinstance(model, str):
                raise RequestError('The request has no model. Set its field "model".')
        headers = encode_headers(model, self._spec)
        return EncodedRequest(f"{self.base_url}/language-model", encode_body(body), headers)


class UiStreamClient(GatewayClient):
    """A client for a chat endpoint of the AI SDK, which responds with a UI message stream.

    The endpoint chooses the model and the tools; only the messages and `extra` of a request are sent. The
    chat id depends on the first user message, so that a conversation keeps its id; `extra` can override it.
    """

    protocol = "auto"  # older backends respond with the data stream protocol
    home = ""
    forbidden = "#"

    def _set_url(self, url: str) -> None:
        # The query can contain a key. It is sent, but is not part of `base_url`.
        self.base_url, self._separator, self._query = url.partition("?")
        self._chat_namespace = uuid.uuid4()

    async def models(self, *, api_key: str | None = None) -> list[Model]:  # noqa: ARG002
        """Return an empty list: the endpoint chooses the model."""
        return []

    def _encode(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        if isinstance(request, ChatRequest):
            chat = encode_chat(request.messages, self._chat_id(request.messages))
            request = {**chat, **(request.extra or {})}
        return EncodedRequest(self.base_url + self._separator + self._query, encode_body(request))

    def _chat_id(self, messages: Sequence[Message]) -> str:
        first = next((message for message in messages if message.role is Role.USER), None)
        return uuid.uuid5(self._chat_namespace, repr(first)).hex
