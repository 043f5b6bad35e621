"""The client for Chat Completions servers: nearly every gateway and server of language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollbridge.clients.base import AnswerClient, encode_body
from tollbridge.protocols.chat_completions.requests import encode_request
from tollbridge.types.messages import ChatRequest
from tollbridge.types.urls import VERCEL_URL


class ChatCompletionsClient(AnswerClient):
    """A client for a Chat Completions server at one base URL (`…/v1`).

    The arguments are those of `GatewayClient`.
    """

    protocol = "chat-completions"
    home = VERCEL_URL
    answer_path = "/chat/completions"

    def _encode_body(self, request: ChatRequest | Mapping[str, Any], *, stream: bool) -> bytes:
        return completion_body(request, stream=stream)


def completion_body(request: ChatRequest | Mapping[str, Any], *, stream: bool = True) -> bytes:
    """Return the body of `POST /chat/completions`. Without streaming, `stream_options` is left out."""
    body = encode_request(request) if isinstance(request, ChatRequest) else dict(request)
    if not stream:
        body.pop("stream_options", None)
    return encode_body({**body, "stream": stream})
