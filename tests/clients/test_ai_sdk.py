"""The client for the language-model protocol of Vercel AI Gateway: its headers."""

from __future__ import annotations

from base64 import b64encode

import pytest
from tests.canned_server import answering, http

from tollbridge.clients.protocols import AiSdkClient
from tollbridge.types.messages import ChatRequest, Message

HELLO = ChatRequest(model="m", messages=(Message("user", "Hello"),))
STREAM = b'data: {"type":"finish","finishReason":{"unified":"stop"},"usage":{}}\n\n'
TOKEN = ".".join(b64encode(part).decode() for part in (b'{"alg": "none"}', b'{"sub":"me"}', b"nobody"))


@pytest.mark.parametrize(
    ("own", "call_key", "method"),
    [
        ("a-key", None, "api-key"),
        (TOKEN, None, "oidc"),
        ("a-key", TOKEN, "oidc"),
        (TOKEN, "a-key", "api-key"),
        (None, None, None),
    ],
)
async def test_the_auth_method_header_matches_the_key(
    own: str | None, call_key: str | None, method: str | None
) -> None:
    async with answering(http(200, STREAM)) as server, AiSdkClient(server.url, own) as client:
        async for _ in client.stream(HELLO, api_key=call_key):
            pass
    headers = [line for line in server.heads[0].lower().split("\r\n") if line.startswith("ai-gateway-auth-m")]
    assert headers == ([] if method is None else [f"ai-gateway-auth-method: {method}"])
