"""Requests in the gateway's own language-model protocol: `POST {base}/language-model`.

The body is what the SDK would hand to a model: its call options, without the model's name, which is a header.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from typing import Any, Literal

from tollbridge.core.errors import RequestError
from tollbridge.core.json import read_json
from tollbridge.core.messages import ChatRequest, Message, NamedTool, Tool
from tollbridge.core.quirks import Quirks
from tollbridge.gateways.aisdk.encode import convert_messages
from tollbridge.gateways.aisdk.outputs import Target

Json = dict[str, Any]
Spec = Literal[2, 3, 4]

# The messages of each version of the specification are those of this version of the SDK.
TARGETS: dict[Spec, Target] = {2: 5, 3: 6, 4: 7}

# What the fields a server may not take are called here.
NAMES = {"top_p": "topP", "max_output_tokens": "maxOutputTokens", "tool_choice": "toolChoice"}

_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


def encode_headers(model: str, spec: Spec, *, stream: bool = True) -> dict[str, str]:
    return {
        "ai-gateway-protocol-version": "0.0.1",
        "ai-language-model-id": model,
        "ai-language-model-specification-version": str(spec),
        "ai-language-model-streaming": "true" if stream else "false",
    }


def auth_method(key: str) -> Literal["api-key", "oidc"]:
    """What the gateway is to take a key for: a token of Vercel's own login is a JWT, an API key never is."""
    if not _JWT.fullmatch(key):
        return "api-key"
    head = key.partition(".")[0]
    try:
        header = read_json(urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except ValueError:
        return "api-key"
    return "oidc" if isinstance(header, dict) else "api-key"


def encode_call(request: ChatRequest, spec: Spec = 4) -> Json:
    """The body. What the caller did not set is not sent; `extra` is sent as it is given."""
    if spec not in TARGETS:
        raise RequestError(f"There is no specification {spec!r} of the protocol. Known are: 2, 3, 4.")
    if request.reasoning_effort is not None and spec < 4:
        raise RequestError("Before specification 4 the protocol has no reasoning effort: leave it out.")
    body = {
        "prompt": encode_prompt(request.messages, spec),
        "maxOutputTokens": request.max_output_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "reasoning": request.reasoning_effort,
        "responseFormat": _format(request),
    }
    if request.tools:
        body |= {"tools": [_tool(tool) for tool in request.tools], "toolChoice": _choice(request)}
    without = {NAMES.get(field, field) for field in (request.quirks or Quirks()).without}
    sent = {**{name: value for name, value in body.items() if value is not None}, **(request.extra or {})}
    return {name: value for name, value in sent.items() if name not in without}


def encode_prompt(messages: Iterable[Message], spec: Spec) -> list[Json]:
    converted = convert_messages(messages, target=TARGETS[spec])
    prompt: list[Json] = list(converted)
    if converted.instructions is not None:
        prompt.insert(0, {"role": "system", "content": converted.instructions})
    for message in prompt:
        if spec == 4 and message["role"] in ("user", "assistant"):
            message["content"] = [_tagged(part) for part in message["content"]]
    return prompt


def _tagged(part: Json) -> Json:
    """Specification 4 says of a file's data what it is."""
    return {**part, "data": {"type": "data", "data": part["data"]}} if part["type"] == "file" else part


def _tool(tool: Tool) -> Json:
    described = {"description": tool.description} if tool.description else {}
    schema = dict(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return {"type": "function", "name": tool.name, **described, "inputSchema": schema}


def _choice(request: ChatRequest) -> Json | None:
    choice = request.tool_choice
    if isinstance(choice, NamedTool):
        if all(tool.name != choice.name for tool in request.tools):
            raise RequestError(
                f"The tool to be called, “{choice.name}”, is not among the tools of the request."
            )
        return {"type": "tool", "toolName": choice.name}
    return None if choice is None else {"type": choice}


def _format(request: ChatRequest) -> Json | None:
    wanted = request.output_format
    if wanted is None:
        return None
    described = {"description": wanted.description} if wanted.description else {}
    return {"type": "json", "name": wanted.name, **described, "schema": wanted.schema}
