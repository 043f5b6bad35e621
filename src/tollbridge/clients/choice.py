"""The client for the protocol that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollbridge.clients.aisdk import PATHS, AiSdkClient
from tollbridge.clients.gateway import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.core.addresses import Backend

if TYPE_CHECKING:
    from tollbridge.io.http import Timeouts


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
