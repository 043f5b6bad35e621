"""Clients for backends that speak the AI SDK: the gateway's own protocol, and anyone's chat endpoint."""

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

# Where each version of the specification is served.
PATHS: dict[Spec, str] = {2: "/v1/ai", 3: "/v3/ai", 4: "/v4/ai"}


class AiSdkClient(GatewayClient):
    """Talks to one base URL (`…/v4/ai`) as the SDK's own gateway client does."""

    protocol = "ai-sdk-model"
    home = f"https://{VERCEL_HOST}{PATHS[4]}"

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        spec: Spec = 4,
        **options: Unpack[ClientOptions],
    ) -> None:
        if spec not in TARGETS:
            raise RequestError(f"There is no specification {spec!r} of the protocol. Known are: 2, 3, 4.")
        super().__init__(base_url or self.home.replace(PATHS[4], PATHS[spec]), api_key, **options)
        self._spec = spec

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """The models the gateway offers, of every type."""
        return await self._call("GET", "/config", None, api_key, read_models)

    def _request_headers(self, key: str | None) -> dict[str, str]:
        method = {"ai-gateway-auth-method": auth_method(key)} if key else {}
        return {**method, **super()._request_headers(key)}

    def _question(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        """A request that is no `ChatRequest` is the body as it is, with the model's name under `model`."""
        if isinstance(request, ChatRequest):
            model, body = request.model, encode_call(request, self._spec)
        else:
            body = dict(request)
            model = body.pop("model", None)
            if not isinstance(model, str):
                raise RequestError("The request names no model.")
        headers = encode_headers(model, self._spec)
        return EncodedRequest(f"{self.base_url}/language-model", encode_body(body), headers)


class UiStreamClient(GatewayClient):
    """Posts a conversation to one URL, as the SDK's chat client does, and reads its UI message stream.

    The endpoint has a model and tools of its own; of a request only the messages are sent, and `extra`. A
    conversation keeps its id for as long as it begins with the same words; `extra` may have another.
    """

    protocol = "auto"  # older backends answer with the data stream
    home = ""
    forbidden = "#"

    def _take_address(self, url: str) -> None:
        # What stands after the path may be a key; it is sent, and no part of what others see and keep.
        self.base_url, self._mark, self._query = url.partition("?")
        self._chats = uuid.uuid4()

    async def models(self, *, api_key: str | None = None) -> list[Model]:  # noqa: ARG002
        """None to choose from: the endpoint has its own."""
        return []

    def _question(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        if isinstance(request, ChatRequest):
            chat = encode_chat(request.messages, self._chat(request.messages))
            request = {**chat, **(request.extra or {})}
        return EncodedRequest(self.base_url + self._mark + self._query, encode_body(request))

    def _chat(self, messages: Sequence[Message]) -> str:
        first = next((message for message in messages if message.role is Role.USER), None)
        return uuid.uuid5(self._chats, repr(first)).hex
