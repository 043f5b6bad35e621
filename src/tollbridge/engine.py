"""A client for every gateway the editor has an account at, and what is learned of each. No keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollbridge.clients.ai_sdk import PATHS, AiSdkClient
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.types.urls import Backend

if TYPE_CHECKING:
    from tollbridge.transport.http import Timeouts


# SECTION The client for the protocol that was chosen.


def open_client(
    backend: Backend,
    base_url: str,
    api_key: str | None = None,
    *,
    timeouts: Timeouts | None = None,
    proxy: str | None = None,
    allow_http: bool = False,
) -> GatewayClient:
    """A client for a gateway in the protocol that was chosen, so that both can be compared at one address.

    Gateways that serve both have OpenResponses under `/v1` and the AI SDK's protocol beside it.
    """
    kind: type[OpenResponsesClient | AiSdkClient] = OpenResponsesClient
    if backend == "ai-sdk":
        kind = AiSdkClient
        base_url = base_url.rstrip("/").removesuffix("/v1")
        base_url = base_url if base_url.endswith("/ai") else base_url + PATHS[4]
    return kind(base_url, api_key, timeouts=timeouts, proxy=proxy, allow_http=allow_http)
