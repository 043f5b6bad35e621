"""Messages to OpenResponses requests. What the caller did not set is not sent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from tollbridge.protocols.openresponses.wire import CALL_PROOFS, PROOFS
from tollbridge.types.errors import RequestError
from tollbridge.types.media import detect_mime, is_text
from tollbridge.types.messages import (
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
from tollbridge.types.quirks import Quirks
from tollbridge.types.reasoning import unbind
from tollbridge.types.text import MAX_TEXT, read_json, write_valid_json

# The system prompt travels as `developer`: `instructions` reaches the models of one provider only.
ROLES = {Role.SYSTEM: "developer", Role.USER: "user", Role.ASSISTANT: "assistant"}

# Text that a tool result needs when it has no other: the wire takes no error flag.
ERROR_MARK = "Error: "

Json = dict[str, Any]
DEFAULT = Quirks()


def encode_request(request: ChatRequest) -> Json:
    """The body of `POST /responses`, for an answer that is streamed."""
    quirks = request.quirks or DEFAULT
    body: Json = {
        "model": request.model,
        "input": translate_messages(request.messages, quirks),
        "stream": True,
        # The whole history is sent every time; nothing depends on the server's memory.
        "store": False,
    }
    reasoning = _set(effort=request.reasoning_effort, summary=request.reasoning_summary)
    body |= _set(
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        reasoning=reasoning or None,
        include=["reasoning.encrypted_content"] if reasoning or request.reasons else None,
        metadata=dict(request.metadata) if request.metadata else None,
        text=_format(request),
        instructions=_instructions(request),
    )
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body |= _set(tool_choice=_choice(request), parallel_tool_calls=request.parallel_tool_calls)
        if quirks.tools_as == "nested":
            body |= _nested(body)
    body |= request.extra or {}
    return {name: value for name, value in body.items() if name not in quirks.without}


def translate_messages(messages: Iterable[Message], quirks: Quirks = DEFAULT) -> list[Json]:
    """The input items of a conversation, in order. Several system messages are joined into the first."""
    found = list(messages)
    items = _system(found, quirks) if quirks.system != "instructions" else []
    for message in found:
        if message.role is not Role.SYSTEM:
            items += _items(message, quirks)
    return items


def _instructions(request: ChatRequest) -> str | None:
    if (request.quirks or DEFAULT).system != "instructions":
        return None
    return "\n".join(item["content"] for item in _system(request.messages, DEFAULT)) or None


def _items(message: Message, quirks: Quirks) -> list[Json]:
    """A message is cut where a call, a result or reasoning stands in it: those are items of their own."""
    role = ROLES[message.role]
    items: list[Json] = []
    content: list[Json] = []

    def flush() -> None:
        if content:
            items.append(_message(role, list(content), quirks))
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
                items += _reasoning(part, quirks)
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


def _message(role: str, content: list[Json], quirks: Quirks) -> Json:
    """Text alone travels as a string: nearly every server takes that, and some take nothing else."""
    glue = "" if role == "assistant" else "\n"  # an answer's parts are pieces of one text
    text = _joined(content, glue) if quirks.text_as == "string" else None
    if text is None and role == "assistant":
        content = [{"type": "output_text", "text": part["text"]} for part in content]
    return {"type": "message", "role": role, "content": content if text is None else text}


def _joined(content: list[Json], glue: str) -> str | None:
    """The texts as one, unless there is more than text or more than one text may hold."""
    if any(part["type"] != "input_text" for part in content):
        return None
    text = glue.join(part["text"] for part in content)
    return text if len(text) <= MAX_TEXT else None


def _text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _data(part: DataPart) -> Json:
    """Bytes are called what they are: editors label PNG as JPEG."""
    mime = detect_mime(part.data, part.mime)
    if is_text(mime):
        return _text(part.data.decode("utf-8", "replace"))
    url = f"data:{mime};base64,{b64encode(part.data).decode()}"
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": part.name or _filename(mime), "file_data": url}


def _filename(mime: str) -> str:
    return f"file.{mime.rpartition('/')[2].partition('+')[0] or 'bin'}"


def _reasoning(part: ThinkingPart, quirks: Quirks) -> list[Json]:
    """Reasoning goes back with what proves it; text alone only where the server gave no more than that."""
    bound, own = unbind(part.metadata)
    proof = {name: own[name] for name in PROOFS if isinstance(own.get(name), str)}
    if not proof and (bound is None or not bound.plain):
        return []
    item: Json = {"type": "reasoning", "summary": [], **proof}
    if part.text and quirks.reasoning_as == "summary":
        item["summary"] = [{"type": "summary_text", "text": part.text}]
    elif part.text:
        item["content"] = [{"type": "reasoning_text", "text": part.text}]
    named = quirks.reasoning_ids and isinstance(own.get("id"), str)
    return [{"id": own["id"], **item} if named else item]


def _call(part: ToolCallPart) -> Json:
    call = {"type": "function_call", "call_id": part.call_id, "name": part.name}
    given = part.metadata or {}
    proof = {name: given[name] for name in CALL_PROOFS if name in given}
    return {**call, "arguments": _arguments(part.input), **proof}


def _arguments(given: Any) -> str:
    """An object in JSON, which is what servers parse; anything else is wrapped, as it was for the editor."""
    if isinstance(given, str):
        try:
            found = read_json(given)
            if isinstance(found, dict):  # as it is, unless it may spell out half a character
                return write_valid_json(found) if "\\ud" in given.lower() else given
        except ValueError:
            pass
    if given is None or given == "":
        given = {}
    try:
        return write_valid_json(given if isinstance(given, Mapping) else {"input": given})
    except ValueError as error:
        raise RequestError(f"The arguments of a tool call cannot be sent: {error}.") from None


def _result(part: ToolResultPart) -> Json:
    content = [_text(each.text) if isinstance(each, TextPart) else _data(each) for each in part.parts]
    if part.is_error:
        opening = content.pop(0)["text"] if content and content[0]["type"] == "input_text" else ""
        content.insert(0, _text((ERROR_MARK + opening).rstrip()))
    text = _joined(content, "\n")
    output = content if text is None else text
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


def _system(messages: Iterable[Message], quirks: Quirks) -> list[Json]:
    system = [message for message in messages if message.role is Role.SYSTEM]
    texts = [[text for text in map(_only_text, message.parts) if text] for message in system]
    whole = "\n\n".join("\n".join(lines) for lines in texts if lines)
    content = [whole] if len(whole) <= MAX_TEXT else [line for lines in texts for line in lines]
    # Sanitised for a server that knows the user alone, there is no system message left.
    role = "system" if quirks.system == "system" else ROLES[Role.SYSTEM]
    return [_message(role, [_text(text) for text in content], quirks)] if whole else []


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


def _nested(body: Json) -> Json:
    """Tools as chat completions name them: everything but the type under `function`."""
    fit: Json = {"tools": [_under_function(tool) for tool in body["tools"]]}
    if isinstance(body.get("tool_choice"), dict):
        fit["tool_choice"] = _under_function(body["tool_choice"])
    return fit


def _under_function(tool: Json) -> Json:
    return {"type": "function", "function": {name: tool[name] for name in tool if name != "type"}}


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
