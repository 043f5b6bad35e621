"""One class of clients per protocol, for programs that use one. The engine uses `GatewayClient` for all."""

from __future__ import annotations

import uuid
from functools import partial
from typing import ClassVar, Unpack

import msgspec

from tollbridge.clients.base import ClientOptions, GatewayClient
from tollbridge.protocols import find_protocol
from tollbridge.protocols.ai_sdk import DEFAULT_SPEC, UI_STREAM, VERSIONS, Spec
from tollbridge.types.errors import RequestError


class _ProtocolClient(GatewayClient):
    _name: ClassVar[str]

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        auth: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Create a client.

        Args:
            base_url: The URL of the server; the default of the protocol if omitted.
            api_key: The key for all calls.
            auth: How the key is sent, if the protocol leaves a choice.
            **options: See `GatewayClient`.
        """
        protocol = find_protocol(self._name)
        url = base_url and protocol.complete_url(base_url)
        super().__init__(protocol, url, api_key, auth=auth, **options)


class OpenResponsesClient(_ProtocolClient):
    """A client for an OpenResponses server at one base URL (`…/v1`): Vercel AI Gateway, OpenAI, llama.cpp…

    Without a URL, it is a client for Vercel AI Gateway.
    """

    _name = "openresponses"


class ChatCompletionsClient(_ProtocolClient):
    """A client for a Chat Completions server at one base URL (`…/v1`): nearly every gateway and server.

    Without a URL, it is a client for Vercel AI Gateway.
    """

    _name = "chat-completions"


class AnthropicMessagesClient(_ProtocolClient):
    """A client for a server of the Messages API at one base URL (`…/v1`, which is added to a bare host).

    Without a URL, it is a client for Anthropic's API. `auth` is the header for the key: `x-api-key`, as in
    that API, or `bearer` for `Authorization`. The protocol requires an output limit; a request without one
    gets the default of its model (`policy/limits.py`).
    """

    _name = "anthropic-messages"


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

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        spec: Spec = DEFAULT_SPEC,
        **options: Unpack[ClientOptions],
    ) -> None:
        if spec not in VERSIONS:
            raise RequestError(f"Unsupported protocol version {spec!r}. Supported: 2, 3, 4.")
        super().__init__(VERSIONS[spec], base_url, api_key, **options)


class UiStreamClient(GatewayClient):
    """A client for a chat endpoint of the AI SDK, which responds with a UI message stream.

    The endpoint chooses the model and the tools; only the messages and `extra` of a request are sent. The
    chat id depends on the first user message, so that a conversation keeps its id; `extra` can override it.

    Args:
        base_url: The URL of the endpoint. It can have a query, which is not shown or stored.
        api_key: The key for all calls.
        **options: See `GatewayClient`.
    """

    def __init__(self, base_url: str, api_key: str | None = None, **options: Unpack[ClientOptions]) -> None:
        encode = partial(UI_STREAM.encode, namespace=uuid.uuid4())
        super().__init__(msgspec.structs.replace(UI_STREAM, encode=encode), base_url, api_key, **options)
