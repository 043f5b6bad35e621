"""Editor messages to UIMessages, as a chat endpoint that answers with a UI message stream takes them."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tollbridge.types.errors import RequestError
from tollbridge.types.media import detect_mime, is_text
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Part,
    PartIndex,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    match_results,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.reasoning import is_marker, unbind
from tollbridge.types.text import read_json, write_json

# SECTION What a tool answered, in the form that each version of the AI SDK takes.

Json = dict[str, Any]
SdkVersion = Literal[5, 6, 7]

# `content` has no type of its own for a failure.
ERROR_MARK = "Error:"


def encode_output(result: ToolResultPart, target: SdkVersion) -> Json:
    """`{type, value}`: one text or one JSON value stays what it is, anything more is `content`."""
    if len(result.parts) == 1:
        [part] = result.parts
        if isinstance(part, TextPart):
            return {"type": "error-text" if result.is_error else "text", "value": part.text}
        if _mime(part) == "application/json":
            try:
                return {"type": "error-json" if result.is_error else "json", "value": _json(part.data)}
            except ValueError:
                return {"type": "error-text" if result.is_error else "text", "value": _text(part.data)}
    if not result.parts:
        return {"type": "error-text" if result.is_error else "text", "value": ""}
    content = [item for part in result.parts for item in _items(part, target)]
    if not result.is_error:
        return {"type": "content", "value": content}
    if all(item["type"] == "text" for item in content):
        return {"type": "error-text", "value": "\n".join(item["text"] for item in content)}
    return {"type": "content", "value": [{"type": "text", "text": ERROR_MARK}, *content]}


def texts_of(part: DataPart) -> list[str]:
    """What a file says, after its name; nothing where it is no text."""
    if not is_text(_mime(part)):
        return []
    return [*([f"[{part.name}]"] if part.name else []), _text(part.data)]


def _items(part: TextPart | DataPart, target: SdkVersion) -> list[Json]:
    """A file's name stands in a text before it where its own form has no place for one."""
    texts = [part.text] if isinstance(part, TextPart) else texts_of(part)
    if isinstance(part, TextPart) or texts:
        return [{"type": "text", "text": text} for text in texts]
    mime, name = _mime(part), [{"type": "text", "text": f"[{part.name}]"}] if part.name else []
    data = b64encode(part.data).decode()
    named = {"filename": part.name} if part.name else {}
    if target == 7:
        return [{"type": "file", "data": {"type": "data", "data": data}, "mediaType": mime, **named}]
    if target == 6 and not mime.startswith("image/"):
        return [{"type": "file-data", "data": data, "mediaType": mime, **named}]
    kind = "media" if target == 5 else "image-data"
    return [*name, {"type": kind, "data": data, "mediaType": mime}]


def _mime(part: DataPart) -> str:
    return detect_mime(part.data, part.mime)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    """The value, or `ValueError` for what is no JSON. Python would read NaN and infinity as well."""
    value = read_json(data)
    json.dumps(value, allow_nan=False)
    return value


# SECTION Editor messages to ModelMessages, as the schema of `ai` 5, 6 or 7 takes them.
#
# Two passes: the first learns which call has which name and which result belongs to it, the second writes. The
# SDK wants every result in a `tool` message right after the call; an editor puts results where the user speaks.

ImageInNonUser = Literal["placeholder", "skip", "error"]

# What a history may lack, and what stands for it: a name for a result's tool, a result for a call.
UNKNOWN_TOOL = "unknown_tool"
NO_RESULT = "The tool gave no result."


class ModelMessages(list[Json]):
    """The messages. `instructions` is the system prompt where the target wants it beside them; `notes` say
    what could not be taken over as it was."""

    def __init__(self, messages: Iterable[Json] = ()) -> None:
        super().__init__(messages)
        self.instructions: str | None = None
        self.notes: list[str] = []


def convert_messages(
    messages: Iterable[Message],
    *,
    target: SdkVersion = 6,
    image_in_non_user: ImageInNonUser = "placeholder",
    on_note: Callable[[str], None] | None = None,
) -> ModelMessages:
    """ModelMessages for `ai` of the major version `target`.

    A call without a result gets one that says so: `ai` 6 and 7 refuse the conversation otherwise, and so do
    the providers behind 5. A result without a call keeps its place under the name `unknown_tool`. Both are
    noted.
    """
    if target not in (5, 6, 7):
        raise RequestError(f"There are no ModelMessages of version {target!r}. Known are: 5, 6, 7.")
    if image_in_non_user not in ("placeholder", "skip", "error"):
        raise RequestError(
            f"image_in_non_user is {image_in_non_user!r}: placeholder, skip or error is known."
        )
    return _Conversion(list(messages), target, image_in_non_user, on_note).convert()


class _Conversion:
    def __init__(
        self,
        given: list[Message],
        target: SdkVersion,
        images: ImageInNonUser,
        on_note: Callable[[str], None] | None,
    ) -> None:
        self._prompt = [message for message in given if message.role is Role.SYSTEM]
        self._messages = messages = [message for message in given if message.role is not Role.SYSTEM]
        self._target = target
        self._images = images
        self._on_note = on_note
        self._found = ModelMessages()
        self._called, self._answers = _answered(messages)

    def convert(self) -> ModelMessages:
        system = "\n\n".join(text for text in map(self._system, self._prompt) if text)
        if system and self._target >= 7:
            self._found.instructions = system  # `ai` 7 refuses it among the messages
        elif system:
            self._found.append({"role": "system", "content": system})
        for message in self._messages:
            for role, parts in _by_role(message):
                self._write(role, parts)
        return self._found

    def _write(self, role: str, parts: list[Part]) -> None:
        if role == "tool":
            results = [part for part in parts if isinstance(part, ToolResultPart)]
            self._append("tool", [self._orphan(part) for part in results if part.call_id not in self._called])
            return
        self._append(role, [content for part in parts if (content := self._content(role, part)) is not None])
        answers = [
            answer for part in parts if isinstance(part, ToolCallPart) for answer in self._answers_of(part)
        ]
        self._append("tool", answers)

    def _append(self, role: str, content: list[Json]) -> None:
        if content:
            self._found.append({"role": role, "content": content})

    def _content(self, role: str, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                return {"type": "text", "text": text} if text else None
            case DataPart():
                return None if is_marker(part) else self._file(role, part)
            case ThinkingPart():
                return self._reasoning(part)
            case ToolCallPart(call_id, name, given):
                given = {} if given is None or given == "" else given
                call = {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}
                proof = _options(part.metadata)
                return {**call, "providerOptions": proof} if proof else call
            case ToolResultPart():
                return None  # in the tool message

    def _file(self, role: str, part: DataPart) -> Json | None:
        mime = detect_mime(part.data, part.mime)
        if role != "user" and mime.startswith("image/"):
            text = self._stand_in(role, part, mime)
            return {"type": "text", "text": text} if text else None
        named = {"filename": part.name} if part.name else {}
        return {"type": "file", "data": b64encode(part.data).decode(), "mediaType": mime, **named}

    def _stand_in(self, role: str, part: DataPart, mime: str) -> str:
        what = "An image" if mime.startswith("image/") else "A file"
        if self._images == "error":
            raise RequestError(
                f"{what} ({mime}) stands in a message of the role {role}; only a user's may hold it."
            )
        self._note(f"{what} ({mime}, {len(part.data)} bytes) in a message of the role {role} was left out.")
        return f"[{mime}: {len(part.data)} bytes]" if self._images == "placeholder" else ""

    def _reasoning(self, part: ThinkingPart) -> Json | None:
        """What proves it travels by provider; what another protocol kept with it means nothing here."""
        _, given = unbind(part.metadata)
        options = _options(given)
        if len(options) < len(given):
            foreign = ", ".join(sorted(set(given) - set(options)))
            self._note(f"Reasoning of another protocol was stripped of what it carried: {foreign}.")
        if not part.text and not options:
            return None
        proof = {"providerOptions": options} if options else {}
        return {"type": "reasoning", "text": part.text, **proof}

    def _answers_of(self, call: ToolCallPart) -> list[Json]:
        results = self._answers.popleft()  # calls are written in the order in which they were read
        if not results:
            self._note(f"The call {call.call_id} of the tool {call.name} had no result; one was supplied.")
            results = [ToolResultPart(call.call_id, (TextPart(NO_RESULT),), is_error=True)]
        if len(results) > 1:
            self._note(f"The call {call.call_id} of the tool {call.name} has more than one result.")
        return [self._result(result, call.name) for result in results]

    def _orphan(self, part: ToolResultPart) -> Json:
        self._note(f"The result {part.call_id} belongs to no call.")
        return self._result(part, UNKNOWN_TOOL)

    def _result(self, part: ToolResultPart, name: str) -> Json:
        output = encode_output(part, self._target)
        return {"type": "tool-result", "toolCallId": part.call_id, "toolName": name, "output": output}

    def _system(self, message: Message) -> str:
        found: list[str] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                found.append(part.text)
            elif isinstance(part, DataPart):
                found += texts_of(part) or [self._stand_in("system", part, detect_mime(part.data, part.mime))]
            else:
                self._note(f"A system message cannot hold a {type(part).__name__}; it was left out.")
        return "\n".join(text for text in found if text)

    def _note(self, note: str) -> None:
        self._found.notes.append(note)
        if self._on_note is not None:
            self._on_note(note)


def _options(metadata: Mapping[str, Any] | None) -> Json:
    """What each provider said goes back to it."""
    return {name: dict(said) for name, said in (metadata or {}).items() if isinstance(said, Mapping)}


def _answered(messages: list[Message]) -> tuple[set[str], deque[list[ToolResultPart]]]:
    """The ids that are called, and the results of each call, in the order of the calls.

    A result too many belongs to the call of its id that it follows, or to the first.
    """
    calls: dict[PartIndex, list[ToolResultPart]] = {}
    by_id: dict[str, list[PartIndex]] = {}
    results: dict[PartIndex, ToolResultPart] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                calls[at, number] = []
                by_id.setdefault(part.call_id, []).append((at, number))
            elif isinstance(part, ToolResultPart):
                results[at, number] = part
    for call, answer in match_results(messages).items():
        calls[call].append(results.pop(answer))
    for place, result in results.items():
        same = by_id.get(result.call_id)
        if same:
            calls[max((call for call in same if call < place), default=same[0])].append(result)
    return set(by_id), deque(calls.values())


def _by_role(message: Message) -> list[tuple[str, list[Part]]]:
    """The parts of a message under the roles that may hold them, results first: they answer what was."""
    speaker = "assistant" if message.role is Role.ASSISTANT else "user"
    results: list[Part] = [part for part in message.parts if isinstance(part, ToolResultPart)]
    found: list[tuple[str, list[Part]]] = [("tool", results)] if results else []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            continue
        role = "assistant" if isinstance(part, ToolCallPart | ThinkingPart) else speaker
        if found and found[-1][0] == role:
            found[-1][1].append(part)
        else:
            found.append((role, [part]))
    return found


# SECTION Requests in the gateway's own language-model protocol: `POST {base}/language-model`.
#
# The body is what the SDK would hand to a model: its call options, without the model's name, which is a header.

Spec = Literal[2, 3, 4]

# The messages of each version of the specification are those of this version of the SDK.
TARGETS: dict[Spec, SdkVersion] = {2: 5, 3: 6, 4: 7}

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


# SECTION Editor messages to UIMessages, as a chat endpoint that answers with a UI message stream takes them.


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
                content.append(_ui_tool(part, _result_at(given, answers.get((at, number)))))
            elif (at, number) not in matched:
                content += _part(part)
        if content:
            found.append({"id": f"msg-{len(found)}", "role": message.role.value, "parts": content})
    return found


def _result_at(messages: list[Message], place: PartIndex | None) -> ToolResultPart | None:
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
            mime = detect_mime(data, label)
            named = {"filename": name} if name else {}
            url = f"data:{mime};base64,{b64encode(data).decode()}"
            return [{"type": "file", "mediaType": mime, "url": url, **named}]
        case ToolResultPart(_, inner):  # of a call that is gone: what it says is kept
            return [encoded for one in inner for encoded in _part(one)]


def _ui_tool(call: ToolCallPart, result: ToolResultPart | None) -> Json:
    given = {} if call.input is None or call.input == "" else call.input
    tool = {"type": "dynamic-tool", "toolName": call.name, "toolCallId": call.call_id, "input": given}
    if result is None:
        return {**tool, "state": "output-error", "errorText": "The tool gave no result."}
    output = encode_output(result, 7)
    if output["type"] in ("error-text", "error-json"):
        said = output["value"] if output["type"] == "error-text" else write_json(output["value"])
        return {**tool, "state": "output-error", "errorText": said or "The tool failed."}
    return {**tool, "state": "output-available", "output": output["value"]}
