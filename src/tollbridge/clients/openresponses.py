"""The client for OpenResponses servers: Vercel AI Gateway, OpenAI, llama.cpp, vLLM, LiteLLM…"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollbridge.clients.base import AnswerClient, check_counting, encode_body
from tollbridge.history.normalize import MIN_OUTPUT_TOKENS
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.types.errors import StreamError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.text import Fields, read_json
from tollbridge.types.urls import VERCEL_URL

# The request fields that determine the number of input tokens.
COUNTED_FIELDS = frozenset({"model", "input", "tools", "tool_choice", "reasoning", "text", "instructions"})


class OpenResponsesClient(AnswerClient):
    """A client for an OpenResponses server at one base URL (`…/v1`).

    The arguments are those of `GatewayClient`.
    """

    protocol = "openresponses"
    home = VERCEL_URL
    min_output_tokens = MIN_OUTPUT_TOKENS
    answer_path = "/responses"

    async def input_tokens(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> int:
        """Let the gateway count the input tokens of a request.

        Raises:
            NotFound: The gateway does not count tokens.
            BridgeError: The request failed.
        """
        check_counting(request)
        body = count_body(request)
        return await self._call("POST", "/responses/input_tokens", body, api_key, _decode_count)

    def _encode_body(self, request: ChatRequest | Mapping[str, Any], *, stream: bool) -> bytes:
        return response_body(request, stream=stream)


def response_body(request: ChatRequest | Mapping[str, Any], *, stream: bool = True) -> bytes:
    """Return the body of `POST /responses`. `stream` is always set: some servers stream by default."""
    return encode_body({**_to_body(request), "stream": stream})


def count_body(request: ChatRequest | Mapping[str, Any]) -> bytes:
    """Return the body of `POST /responses/input_tokens`: only the fields that determine the count."""
    return encode_body({name: value for name, value in _to_body(request).items() if name in COUNTED_FIELDS})


def _to_body(request: ChatRequest | Mapping[str, Any]) -> Mapping[str, Any]:
    return encode_request(request) if isinstance(request, ChatRequest) else request


def _decode_count(data: bytes) -> int:
    try:
        tokens = Fields(read_json(data)).number("input_tokens")
    except ValueError:
        raise StreamError("The gateway returned invalid JSON.") from None
    if tokens is None:
        raise StreamError("The gateway returned no token count.")
    return tokens
