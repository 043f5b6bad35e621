"""Messages to OpenResponses requests. What the caller did not set is not sent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from tollbridge.core.errors import RequestError
from tollbridge.core.json import read_json, write_json
from tollbridge.core.media import true_mime
from tollbridge.core.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.profile import STANDARD, Profile
from tollbridge.gateways.openresponses.fitting import fitted

# The system prompt travels as `developer`: `instructions` reaches the models of one provider only.
ROLES = {Role.SYSTEM: "developer", Role.USER: "user", Role.ASSISTANT: "assistant"}

# What is text under another name. No gateway sees an SVG; every model reads one.
_TEXTS = {"application/json", "image/svg+xml"}

# Text that a tool result needs when it has no other: the wire takes no error flag.
ERROR_MARK = "Error: "

Json = dict[str, Any]


def encode_request(request: ChatRequest, *, stream: bool = True, profile: Profile | None = None) -> Json:
    """The body of `POST /responses`. `stream` is always said: some servers stream unless told not to.

    A `profile` puts it as one server takes it; what `extra` holds is sent as given all the same.
    """
    body: Json = {
        "model": request.model,
        "input": translate_messages(request.messages),
        "stream": stream,
        # The whole history is sent every time; nothing depends on the server's memory.
        "store": False,
    }
    reasoning = _set(effort=request.reasoning_effort, summary=request.reasoning_summary)
    body |= _set(
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        reasoning=reasoning or None,
        include=["reasoning.encrypted_content"] if reasoning else None,
        metadata=dict(request.metadata) if request.metadata else None,
        text=_format(request),
    )
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body |= _set(tool_choice=_choice(request), parallel_tool_calls=request.parallel_tool_calls)
    return {**fitted(body, (profile or STANDARD).of(request.model)), **(request.extra or {})}


def translate_messages(messages: Iterable[Message]) -> list[Json]:
    """The input items of a conversation, in order. Several system messages are joined into the first."""
    found = list(messages)
    system = "\n\n".join(text for text in map(_system_text, found) if text)
    items: list[Json] = [_message("developer", [_text(system)])] if system else []
    for message in found:
        if message.role is not Role.SYSTEM:
            items += _items(message)
    return items


def _items(message: Message) -> list[Json]:
    """A message is cut where a call, a result or reasoning stands in it: those are items of their own."""
    role = ROLES[message.role]
    items: list[Json] = []
    content: list[Json] = []

    def flush() -> None:
        if content:
            items.append(_message(role, list(content)))
            content.clear()

    for part in message.parts:
        match part:
            case TextPart(text):
                if text:
                    content.append(_text(text))
            case DataPart():
                sent = _data(part)
                if message.role is Role.ASSISTANT and sent["type"] != "input_text":
                    # The wire has no place for a model's own files in its history.
                    sent = _text(f"[{part.mime}: {len(part.data)} bytes]")
                content.append(sent)
            case ThinkingPart():
                flush()
                items += _reasoning(part)
            case ToolCallPart():
                flush()
                items.append(_call(part))
            case ToolResultPart():
                flush()
                items.append(_result(part))
            case _:
                assert_never(part)
    flush()
    return items


def _message(role: str, content: list[Json]) -> Json:
    """Text alone travels as a string: every server takes that, and some take nothing else."""
    if all(part["type"] == "input_text" for part in content):
        glue = "" if role == "assistant" else "\n"  # an answer's parts are pieces of one text
        return {"type": "message", "role": role, "content": glue.join(part["text"] for part in content)}
    return {"type": "message", "role": role, "content": content}


def _text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _data(part: DataPart) -> Json:
    """Bytes are called what they are: editors label PNG as JPEG."""
    mime = true_mime(part.data, part.mime)
    if mime.startswith("text/") or mime in _TEXTS:
        return _text(part.data.decode("utf-8", "replace"))
    url = f"data:{mime};base64,{b64encode(part.data).decode()}"
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": part.name or _filename(mime), "file_data": url}


def _filename(mime: str) -> str:
    return f"file.{mime.rpartition('/')[2].partition('+')[0] or 'bin'}"


def _reasoning(part: ThinkingPart) -> list[Json]:
    """Reasoning goes back only with what proves it; the text alone would be refused or believed to be new."""
    encrypted = (part.metadata or {}).get("encrypted_content")
    if not isinstance(encrypted, str):
        return []
    item: Json = {"type": "reasoning", "summary": [], "encrypted_content": encrypted}
    if part.text:
        item["summary"] = [{"type": "summary_text", "text": part.text}]
    given = (part.metadata or {}).get("id")
    return [{"id": given, **item} if isinstance(given, str) else item]


def _call(part: ToolCallPart) -> Json:
    arguments = _arguments(part.input)
    return {"type": "function_call", "call_id": part.call_id, "name": part.name, "arguments": arguments}


def _arguments(given: Any) -> str:
    """An object in JSON, which is what servers parse; anything else is wrapped, as it was for the editor."""
    if isinstance(given, str):
        try:
            if isinstance(read_json(given), dict):
                return given
        except ValueError:
            pass
    if given is None or given == "":
        given = {}
    try:
        return write_json(given if isinstance(given, Mapping) else {"input": given})
    except ValueError as error:
        raise RequestError(f"The arguments of a tool call cannot be sent: {error}.") from None


def _result(part: ToolResultPart) -> Json:
    content = [_text(each.text) if isinstance(each, TextPart) else _data(each) for each in part.parts]
    if part.is_error:
        opening = content.pop(0)["text"] if content and content[0]["type"] == "input_text" else ""
        content.insert(0, _text((ERROR_MARK + opening).rstrip()))
    output: str | list[Json] = content
    if all(each["type"] == "input_text" for each in content):
        output = "\n".join(each["text"] for each in content)
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


def _system_text(message: Message) -> str:
    if message.role is not Role.SYSTEM:
        return ""
    return "\n".join(filter(None, map(_only_text, message.parts)))


def _only_text(part: Part) -> str:
    sent = (
        _text(part.text) if isinstance(part, TextPart) else _data(part) if isinstance(part, DataPart) else {}
    )
    if sent.get("type") != "input_text":
        what = part.mime if isinstance(part, DataPart) else type(part).__name__
        raise RequestError(f"A system message holds text only; {what} cannot be sent in it.")
    return str(sent["text"])


def _tool(tool: Tool) -> Json:
    # Left out, `strict` is true on OpenAI's servers, and editors' schemas do not follow its rules.
    described = _set(description=tool.description or None)
    parameters = dict(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return {"type": "function", "name": tool.name, **described, "parameters": parameters, "strict": False}


def _choice(request: ChatRequest) -> str | Json | None:
    choice = request.tool_choice
    if not isinstance(choice, NamedTool):
        return choice
    if all(tool.name != choice.name for tool in request.tools):
        raise RequestError(f"The tool to be called, “{choice.name}”, is not among the tools of the request.")
    return {"type": "function", "name": choice.name}


def _format(request: ChatRequest) -> Json | None:
    wanted = request.output_format
    if wanted is None:
        return None
    described = _set(description=wanted.description, strict=wanted.strict)
    schema: Mapping[str, Any] = wanted.schema
    return {"format": {"type": "json_schema", "name": wanted.name, **described, "schema": schema}}


def _set(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
