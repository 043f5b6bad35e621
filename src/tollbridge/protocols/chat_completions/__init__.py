"""The Chat Completions protocol of OpenAI, with the extensions of the servers that imitate it.

wire      typed text chunks, the names of reasoning fields, finish reasons, usage
requests  messages to request bodies
stream    response bytes to events
caller    a caller's request body to a `ChatRequest`
answer    events to chunks or to one JSON body
"""

from __future__ import annotations

from tollbridge.protocols.protocol import Lazy, ModelList, Protocol
from tollbridge.types.urls import VERCEL_URL

CHAT_COMPLETIONS = Protocol(
    name="chat-completions",
    title="Chat Completions",
    base_url=VERCEL_URL,
    path="/chat/completions",
    encode=Lazy("tollbridge.protocols.chat_completions.requests:encode_body"),
    decoders={"chat-completions": Lazy("tollbridge.protocols.chat_completions.stream:StreamDecoder")},
    response_form="chat-completions",
    models=ModelList("/models", Lazy("tollbridge.protocols.model_list:read_only_page")),
    endpoints_path="/models/{}/endpoints",
    feature_headers=("openai-beta",),
    chunk_field="choices",
    advice={
        "protocol": "Check that --base-url supports Chat Completions (POST /chat/completions), or remove "
        "--backend.",
    },
    caller_codec=Lazy("tollbridge.protocols.chat_completions.caller:CODEC"),
)
