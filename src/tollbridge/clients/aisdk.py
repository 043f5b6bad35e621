"""Clients for backends that speak the AI SDK: the gateway's own protocol, and anyone's chat endpoint."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tollbridge.clients.gateway import GatewayClient, Question
from tollbridge.core.errors import RequestError
from tollbridge.core.json import write_json
from tollbridge.core.messages import ChatRequest
from tollbridge.core.models import Model
from tollbridge.gateways.aisdk.request import TARGETS, Spec, encode_call, encode_headers
from tollbridge.gateways.aisdk.ui_messages import encode_chat
from tollbridge.gateways.catalog import read_models
from tollbridge.io.retry import RetryPolicy

if TYPE_CHECKING:
    from tollbridge.io.http import Timeouts

# Where each version of the specification is served.
PATHS: dict[Spec, str] = {2: "/v1/ai", 3: "/v3/ai", 4: "/v4/ai"}


class AiSdkClient(GatewayClient):
    """Talks to one base URL (`…/v4/ai`) as the SDK's own gateway client does."""

    protocol = "ai-sdk-model"
    home = "https://ai-gateway.vercel.sh/v4/ai"

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        spec: Spec = 4,
        timeouts: Timeouts | None = None,
        retries: RetryPolicy | None = None,
        proxy: str | None = None,
        allow_http: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if spec not in TARGETS:
            raise RequestError(f"There is no specification {spec!r} of the protocol. Known are: 2, 3, 4.")
        super().__init__(
            base_url or self.home.replace(PATHS[4], PATHS[spec]),
            api_key,
            timeouts=timeouts,
            retries=retries,
            proxy=proxy,
            allow_http=allow_http,
            headers=headers,
        )
        self._spec = spec

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """The models the gateway offers, of every type."""
        return await self._call("GET", "/config", None, api_key, read_models)

    def _question(self, request: ChatRequest | Mapping[str, Any]) -> Question:
        """A request that is no `ChatRequest` is the body as it is, with the model's name under `model`."""
        if isinstance(request, ChatRequest):
            model, body = request.model, encode_call(request, self._spec)
        else:
            body = dict(request)
            model = body.pop("model", None)
            if not isinstance(model, str):
                raise RequestError("The request names no model.")
        headers = encode_headers(model, self._spec)
        return Question(f"{self.base_url}/language-model", write_json(body).encode(), headers)


class UiStreamClient(GatewayClient):
    """Posts a conversation to one URL, as the SDK's chat client does, and reads its UI message stream.

    The endpoint has a model and tools of its own; of a request only the messages are sent, and `extra`.
    """

    protocol = "auto"  # older backends answer with the data stream
    home = ""

    async def models(self, *, api_key: str | None = None) -> list[Model]:  # noqa: ARG002
        """None to choose from: the endpoint has its own."""
        return []

    def _question(self, request: ChatRequest | Mapping[str, Any]) -> Question:
        body = request
        if isinstance(request, ChatRequest):
            body = {**encode_chat(request.messages, uuid.uuid4().hex), **(request.extra or {})}
        return Question(self.base_url, write_json(body).encode())
