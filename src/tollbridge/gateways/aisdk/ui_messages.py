"""Editor messages to UIMessages, as a chat endpoint that answers with a UI message stream takes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from tollbridge.core.media import true_mime
from tollbridge.core.messages import (
    DataPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.gateways.aisdk.outputs import encode_output

Json = dict[str, Any]


def encode_chat(messages: Iterable[Message], chat_id: str) -> Json:
    """The body that the SDK's own chat client posts."""
    return {"id": chat_id, "messages": encode_ui_messages(messages), "trigger": "submit-message"}


def encode_ui_messages(messages: Iterable[Message]) -> list[Json]:
    """A tool's call and its result are one part here, so results are looked up where their calls stand."""
    given = list(messages)
    parts = [part for message in given for part in message.parts]
    results = {part.call_id: part for part in parts if isinstance(part, ToolResultPart)}
    called = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    found: list[Json] = []
    for message in given:
        content = [
            encoded
            for part in message.parts
            if not (isinstance(part, ToolResultPart) and part.call_id in called)
            for encoded in _part(part, results)
        ]
        if content:
            found.append({"id": f"msg-{len(found)}", "role": message.role.value, "parts": content})
    return found


def _part(part: Part, results: Mapping[str, ToolResultPart]) -> list[Json]:
    match part:
        case TextPart(text):
            return [{"type": "text", "text": text}] if text else []
        case ThinkingPart(text, _, metadata):
            said = {name: value for name, value in (metadata or {}).items() if isinstance(value, Mapping)}
            proof = {"providerMetadata": said} if said else {}
            return [{"type": "reasoning", "text": text, **proof}] if text or said else []
        case DataPart(data, label, name):
            mime = true_mime(data, label)
            named = {"filename": name} if name else {}
            url = f"data:{mime};base64,{b64encode(data).decode()}"
            return [{"type": "file", "mediaType": mime, "url": url, **named}]
        case ToolCallPart():
            return [_tool(part, results.get(part.call_id))]
        case ToolResultPart(_, inner):  # of a call that is gone: what it says is kept
            return [encoded for one in inner for encoded in _part(one, results)]


def _tool(call: ToolCallPart, result: ToolResultPart | None) -> Json:
    given = {} if call.input is None or call.input == "" else call.input
    tool = {"type": "dynamic-tool", "toolName": call.name, "toolCallId": call.call_id, "input": given}
    if result is None:
        return {**tool, "state": "output-error", "errorText": "The tool gave no result."}
    output = encode_output(result, 7)
    if output["type"] == "error-text":
        return {**tool, "state": "output-error", "errorText": output["value"] or "The tool failed."}
    return {**tool, "state": "output-available", "output": output["value"]}
