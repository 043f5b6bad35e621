"""The protocols of Vercel's AI SDK, versions 4 to 7.

    wire      typed deltas, and functions that read the fields of a chunk
    requests  messages to ModelMessages, UIMessages and language-model calls
    stream    response bytes to events, for the four forms of streams; parses the bytes to chunks
    detect    which of the forms a stream has
    chunks    one handler per chunk type, which applies a chunk to the state; used by `stream`
    state     the state of one stream: deltas, tool calls, usage, errors; used by `chunks`

There are two protocols: that of the SDK's gateway provider, in three versions, and that of chat endpoints.
The decoders look at the fields of a chunk, never at a version number, because patch releases changed the
format.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Literal

import msgspec

from tollbridge.protocols.protocol import Lazy, ModelList, Protocol
from tollbridge.types.urls import VERCEL_HOST

# The version of the language-model specification.
Spec = Literal[2, 3, 4]
# The path of each version of the gateway's protocol, and the version that is used if none is named.
PATHS: dict[Spec, str] = {2: "/v1/ai", 3: "/v3/ai", 4: "/v4/ai"}
DEFAULT_SPEC: Spec = 4

# The four forms of a stream: of `fullStream`, of a UI message stream, of a data stream (the older form of
# chat endpoints), and of a language model.
FULL, UI, DATA, MODEL = "ai-sdk-full", "ai-sdk-ui", "ai-sdk-data", "ai-sdk-model"
# A line of a data stream: a code and JSON.
CODE_LINE = re.compile(rb'[0-9a-z]:[\["{\dtfn-]')


def _complete_url(base_url: str) -> str:
    """Return the URL next to `/v1`, under which a gateway serves the other protocols."""
    base_url = base_url.rstrip("/").removesuffix("/v1")
    return base_url if base_url.endswith("/ai") else base_url + PATHS[DEFAULT_SPEC]


def _describe_gateway(spec: Spec) -> Protocol:
    return Protocol(
        name="ai-sdk",
        title="AI SDK",
        base_url=f"https://{VERCEL_HOST}{PATHS[spec]}",
        complete_url=_complete_url,
        is_versioned=False,
        path="/language-model",
        encode=partial(Lazy("tollbridge.protocols.ai_sdk.requests:encode_body"), spec=spec),
        decoders={
            FULL: Lazy("tollbridge.protocols.ai_sdk.stream:FullDecoder"),
            UI: Lazy("tollbridge.protocols.ai_sdk.stream:UiDecoder"),
            DATA: Lazy("tollbridge.protocols.ai_sdk.stream:DataDecoder"),
            MODEL: Lazy("tollbridge.protocols.ai_sdk.stream:ModelDecoder"),
        },
        response_form=MODEL,
        describe_key=Lazy("tollbridge.protocols.ai_sdk.requests:describe_key"),
        models=ModelList("/config", Lazy("tollbridge.protocols.model_list:read_only_page")),
        accounting_path="/../../v1",  # next to the path of the protocol; the dots are resolved before sending
        streams_only=True,
        response_headers={"x-vercel-ai-data-stream": DATA, "x-vercel-ai-ui-message-stream": UI},
        first_lines={CODE_LINE: DATA},
        recognize=Lazy("tollbridge.protocols.ai_sdk.detect:recognize"),
        advice={
            "protocol": "Check that --base-url supports the AI SDK gateway protocol, or remove --backend."
        },
    )


VERSIONS: dict[Spec, Protocol] = {spec: _describe_gateway(spec) for spec in PATHS}
AI_SDK = msgspec.structs.replace(
    VERSIONS[DEFAULT_SPEC], versions={PATHS[spec]: version for spec, version in VERSIONS.items()}
)

UI_STREAM = Protocol(
    name="ui-stream",
    title="AI SDK UI message stream",
    base_url="",
    keeps_query=True,
    is_versioned=False,
    path="",
    encode=Lazy("tollbridge.protocols.ai_sdk.requests:encode_chat_body"),
    decoders={},
    response_form="auto",  # older endpoints respond with a data stream
    streams_only=True,
    reports_model=False,
    random_fields=("id",),
    advice={
        "authentication": "Set TOLLBRIDGE_API_KEY to a key that this endpoint accepts; other keys are not "
        "sent to it.",
        "permission": "Request access from the endpoint's operator.",
        "not_found": "Check the --ui-stream URL.",
        "rate_limited": "Try again later.",
        "context_too_long": "Shorten the prompt or start a new conversation.",
        "content_filtered": "Rephrase the prompt.",
        "invalid_request": "Check the URL and the options; this endpoint may not support images.",
        "overloaded": "Try again later.",
        "server": "Try again. If it keeps failing, contact the endpoint's operator.",
        "network": "Check --ui-stream, the network connection and the proxy settings.",
        "timeout": "Try again. If it keeps failing, the endpoint may be slow or unreachable.",
        "protocol": "Check that --ui-stream is an endpoint that returns an AI SDK UI message stream.",
    },
)
