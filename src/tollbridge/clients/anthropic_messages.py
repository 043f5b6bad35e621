"""The client for servers of Anthropic's Messages API: Anthropic, Vercel AI Gateway, LiteLLM, llama.cpp…"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import quote, urlsplit

from tollbridge.clients.base import AnswerClient, ClientOptions, check_counting, encode_body
from tollbridge.protocols.anthropic_messages.requests import COUNTED_FIELDS, encode_request
from tollbridge.protocols.anthropic_messages.wire import VERSION, read_model_page, read_token_count
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Model
from tollbridge.types.urls import ANTHROPIC_URL, Auth

# Ends the loop if a server never stops paging.
_PAGE_LIMIT = 20
_PAGE_SIZE = 1000


class AnthropicMessagesClient(AnswerClient):
    """A client for a server of the Messages API at one base URL (`…/v1`, which is added to a bare host).

    The protocol requires an output limit; a request without one gets the default of its model
    (`default_max_tokens` in protocols/anthropic_messages/requests.py).

    Args:
        base_url: The URL of the server; Anthropic's if omitted.
        api_key: The key for all calls.
        auth: The header for the key: `x-api-key`, as in Anthropic's API, or `bearer` for `Authorization`.
        **options: See `GatewayClient`.

    Raises:
        RequestError: The base URL is invalid.
    """

    protocol = "anthropic-messages"
    home = ANTHROPIC_URL
    answer_path = "/messages"

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        auth: Auth = "x-api-key",
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(base_url, api_key, **options)
        self._auth = auth

    def _set_url(self, url: str) -> None:
        super()._set_url(url)
        if urlsplit(self.base_url).path == "" and "://" in self.base_url:
            self.base_url += "/v1"

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """Return the server's models, of all pages."""
        models: dict[str, Model] = {}
        path = f"/models?limit={_PAGE_SIZE}"
        for _ in range(_PAGE_LIMIT):
            page, last_id = await self._call("GET", path, None, api_key, read_model_page)
            known = len(models)
            models |= {model.id: model for model in page}
            if last_id is None or len(models) == known:
                break
            path = f"/models?limit={_PAGE_SIZE}&after_id={quote(last_id, safe='', errors='replace')}"
        return list(models.values())

    async def endpoints(self, model: str, *, api_key: str | None = None) -> None:  # noqa: ARG002
        """Return `None`: the protocol has no list of a model's providers."""
        return

    async def input_tokens(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> int:
        """Let the server count the input tokens of a request.

        Raises:
            NotFound: The server does not count tokens.
            BridgeError: The request failed.
        """
        check_counting(request)
        body = {name: value for name, value in _to_body(request).items() if name in COUNTED_FIELDS}
        path, headers = "/messages/count_tokens", _beta_headers(request)
        return await self._call("POST", path, encode_body(body), api_key, read_token_count, headers)

    def _encode_body(self, request: ChatRequest | Mapping[str, Any], *, stream: bool) -> bytes:
        return encode_body({**_to_body(request), "stream": stream})

    def _body_headers(self, request: ChatRequest | Mapping[str, Any]) -> Mapping[str, str]:
        return _beta_headers(request)

    def _request_headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION, **super()._request_headers(key)}

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key} if self._auth == "x-api-key" else super()._key_headers(key)


def _to_body(request: ChatRequest | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(request, ChatRequest):
        return encode_request(request)
    return {name: value for name, value in request.items() if name != "betas"}


def _beta_headers(request: ChatRequest | Mapping[str, Any]) -> dict[str, str]:
    """Return the header for `betas`, which Anthropic's own clients accept next to the fields of the body."""
    fields = request.extra if isinstance(request, ChatRequest) else request
    betas = (fields or {}).get("betas")
    return {"anthropic-beta": ",".join(map(str, betas))} if isinstance(betas, list | tuple) and betas else {}
