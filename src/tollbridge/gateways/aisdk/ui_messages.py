"""Editor messages to UIMessages, as a chat endpoint that answers with a UI message stream takes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from tollbridge.core.answers import Place, match_results
from tollbridge.core.json import write_json
from tollbridge.core.media import true_mime
from tollbridge.core.messages import (
    DataPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.reasoning import is_marker, unbind
from tollbridge.gateways.aisdk.outputs import encode_output

Json = dict[str, Any]


def encode_chat(messages: Iterable[Message], chat_id: str) -> Json:
    """The body that the SDK's own chat client posts."""
    return {"id": chat_id, "messages": encode_ui_messages(messages), "trigger": "submit-message"}


def encode_ui_messages(messages: Iterable[Message]) -> list[Json]:
    """A tool's call and its result are one part here, so results are looked up where their calls stand."""
    given = list(messages)
    answers = match_results(given)
    matched = set(answers.values())
    found: list[Json] = []
    for at, message in enumerate(given):
        content: list[Json] = []
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                content.append(_tool(part, _result_at(given, answers.get((at, number)))))
            elif (at, number) not in matched:
                content += _part(part)
        if content:
            found.append({"id": f"msg-{len(found)}", "role": message.role.value, "parts": content})
    return found


def _result_at(messages: list[Message], place: Place | None) -> ToolResultPart | None:
    part = messages[place[0]].parts[place[1]] if place is not None else None
    return part if isinstance(part, ToolResultPart) else None


def _part(part: TextPart | ThinkingPart | DataPart | ToolResultPart) -> list[Json]:
    match part:
        case TextPart(text):
            return [{"type": "text", "text": text}] if text else []
        case ThinkingPart(text, _, metadata):
            _, given = unbind(metadata)
            said = {name: value for name, value in given.items() if isinstance(value, Mapping)}
            proof = {"providerMetadata": said} if said else {}
            return [{"type": "reasoning", "text": text, **proof}] if text or said else []
        case DataPart() if is_marker(part):
            return []
        case DataPart(data, label, name):
            mime = true_mime(data, label)
            named = {"filename": name} if name else {}
            url = f"data:{mime};base64,{b64encode(data).decode()}"
            return [{"type": "file", "mediaType": mime, "url": url, **named}]
        case ToolResultPart(_, inner):  # of a call that is gone: what it says is kept
            return [encoded for one in inner for encoded in _part(one)]


def _tool(call: ToolCallPart, result: ToolResultPart | None) -> Json:
    given = {} if call.input is None or call.input == "" else call.input
    tool = {"type": "dynamic-tool", "toolName": call.name, "toolCallId": call.call_id, "input": given}
    if result is None:
        return {**tool, "state": "output-error", "errorText": "The tool gave no result."}
    output = encode_output(result, 7)
    if output["type"] in ("error-text", "error-json"):
        said = output["value"] if output["type"] == "error-text" else write_json(output["value"])
        return {**tool, "state": "output-error", "errorText": said or "The tool failed."}
    return {**tool, "state": "output-available", "output": output["value"]}
