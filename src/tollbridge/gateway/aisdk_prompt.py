"""The AI SDK's call options as the OpenResponses request they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tollbridge.core.json import write_json
from tollbridge.gateway.refusals import Refused

Json = dict[str, Any]
Given = Mapping[str, Any]

# The provider under whose name reasoning carries what must come back with it. Not `tollbridge`: that name is
# taken, in metadata, by what a client of ours adds for itself.
PROVIDER = "scripted"

_OPTIONS = {
    "frequencyPenalty": "frequency_penalty",
    "maxOutputTokens": "max_output_tokens",
    "presencePenalty": "presence_penalty",
    "temperature": "temperature",
    "topP": "top_p",
}
# Known to the protocol, and nothing to the scripted model; the answer begins with a warning for each.
UNSUPPORTED = ("seed", "stopSequences", "topK")


def read_call(body: Given, model: str) -> Json:
    """The body of `POST /responses` that asks for the same."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list):
        raise Refused(400, "invalid_prompt", "prompt must be a list of messages.", param="prompt")
    asked: Json = {"model": model, "store": False, "stream": True, "include": ["reasoning.encrypted_content"]}
    asked["input"] = [
        item for place, message in enumerate(prompt) for item in _items(message, f"prompt[{place}]")
    ]
    asked |= {name: body[option] for option, name in _OPTIONS.items() if body.get(option) is not None}
    if body.get("tools"):
        asked["tools"] = [_tool(tool) for tool in body["tools"]]
    if body.get("toolChoice"):
        asked["tool_choice"] = _choice(body["toolChoice"])
    if body.get("reasoning") not in (None, "provider-default"):
        asked["reasoning"] = {"effort": body["reasoning"]}
    wanted = body.get("responseFormat") or {}
    if wanted.get("type") == "json":
        named = {"name": wanted.get("name") or "answer", "schema": wanted.get("schema")}
        kind = {"type": "json_schema", **named} if named["schema"] else {"type": "json_object"}
        asked["text"] = {"format": kind}
    return asked


def _items(message: Any, place: str) -> list[Json]:
    if not isinstance(message, Mapping):
        raise Refused(400, "invalid_prompt", f"{place} is not a message.", param=place)
    role, content = message.get("role"), message.get("content")
    if role == "system" and isinstance(content, str):
        return [{"type": "message", "role": "developer", "content": content}]
    if role not in ("user", "assistant", "tool") or not isinstance(content, list):
        raise Refused(400, "invalid_prompt", f"{place} has a wrong role or no list of content.", param=place)
    if role == "user":
        parts = [_said(part, f"{place}.content[{at}]") for at, part in enumerate(content)]
        return [{"type": "message", "role": "user", "content": parts}]
    return [item for at, part in enumerate(content) for item in _item(part, f"{place}.content[{at}]")]


def _item(part: Given, place: str) -> list[Json]:
    match part.get("type"):
        case "text":
            return [{"type": "message", "role": "assistant", "content": part.get("text", "")}]
        case "reasoning":
            proof = (part.get("providerOptions") or {}).get(PROVIDER) or {}
            summary = [{"type": "summary_text", "text": part["text"]}] if part.get("text") else []
            return [{"type": "reasoning", "summary": summary, **proof}] if proof else []
        case "tool-call":
            arguments = write_json(part.get("input"))
            called = {"call_id": part.get("toolCallId"), "name": part.get("toolName")}
            return [{"type": "function_call", **called, "arguments": arguments}]
        case "tool-result":
            output = _output(part.get("output") or {}, place)
            return [{"type": "function_call_output", "call_id": part.get("toolCallId"), "output": output}]
        case "file":
            return [{"type": "message", "role": "assistant", "content": f"[{part.get('mediaType')}]"}]
        case _:
            raise Refused(400, "invalid_prompt", f"{place}.type is unknown.", param=f"{place}.type")


def _said(part: Given, place: str) -> Json:
    if part.get("type") == "text":
        return {"type": "input_text", "text": part.get("text", "")}
    if part.get("type") != "file":
        raise Refused(400, "invalid_prompt", f"{place}.type is unknown.", param=f"{place}.type")
    mime, url = str(part.get("mediaType")), _url(part)
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    named = {"filename": part.get("filename") or "file"}
    return {"type": "input_file", **named, "file_data" if url.startswith("data:") else "file_url": url}


def _url(part: Given) -> str:
    """Inline bytes are a data URL, or tagged; so are links (specification 4)."""
    data = part.get("data")
    if isinstance(data, Mapping):
        if data.get("type") == "url":
            return str(data.get("url"))
        data = data.get("data")
    text = str(data)
    if text.startswith(("data:", "http://", "https://")):
        return text
    return f"data:{part.get('mediaType')};base64,{text}"


def _output(output: Given, place: str) -> str | list[Json]:
    kind, value = output.get("type"), output.get("value")
    if kind in ("text", "error-text"):
        return str(value)
    if kind in ("json", "error-json"):
        return write_json(value)
    if kind != "content" or not isinstance(value, Sequence):
        raise Refused(400, "invalid_prompt", f"{place}.output is unknown.", param=f"{place}.output")
    return [
        _said({**item, "type": "text" if item.get("type") == "text" else "file"}, place) for item in value
    ]


def _tool(tool: Given) -> Json:
    if tool.get("type") != "function":
        return dict(tool)  # refused, by its type
    described = {"description": tool["description"]} if tool.get("description") else {}
    named = {"type": "function", "name": tool.get("name"), **described}
    return {**named, "parameters": tool.get("inputSchema"), "strict": False}


def _choice(choice: Given) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "name": choice.get("toolName")}
    return choice.get("type")
