"""Any request made one that a gateway takes: every law of the wire kept, nothing lost that could be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.core.arguments import legal_input
from tollbridge.core.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Part,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.history.changes import Changes
from tollbridge.history.contents import legal_content
from tollbridge.history.names import Names
from tollbridge.history.pairing import paired
from tollbridge.history.plainer import spoken_calls, system_as_user, text_results
from tollbridge.history.reasoning import own_reasoning
from tollbridge.history.shape import shaped
from tollbridge.history.target import Target

# As the protocol limits them.
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
MIN_OUTPUT_TOKENS = 16


class Sanitised(msgspec.Struct, frozen=True):
    """A request that can be sent, what was changed to make it so, and the way back for tools' names."""

    request: ChatRequest
    changes: tuple[str, ...]
    counts: Mapping[str, int]
    names: Names


def sanitise(request: ChatRequest, target: Target | None = None) -> Sanitised:
    """Pure: the same request for the same target is always made the same."""
    target = target or Target()
    changes = Changes()
    names = _names(request, changes)
    messages = own_reasoning(request.messages, target, changes)
    messages = [_legal_parts(message, names, target, changes) for message in messages]
    messages = paired(messages, changes)
    if not target.rich_results:
        messages = text_results(messages, changes)
    if not target.calls:
        messages = spoken_calls(messages, changes)
    elif target.spoken:
        messages = spoken_calls(messages, changes, target.spoken)
    if not target.system:
        messages = system_as_user(messages)
    made = msgspec.structs.replace(
        request,
        messages=tuple(shaped(messages, changes)),
        tools=_tools(request.tools, names, changes),
        tool_choice=_choice(request, names),
        metadata=_metadata(request.metadata, changes),
        max_output_tokens=_output_tokens(request.max_output_tokens, changes),
    )
    return Sanitised(made, changes.sentences, dict(changes.counts), names)


def _names(request: ChatRequest, changes: Changes) -> Names:
    calls = (part for message in request.messages for part in message.parts if isinstance(part, ToolCallPart))
    chosen = [request.tool_choice.name] if isinstance(request.tool_choice, NamedTool) else []
    names = Names([*(tool.name for tool in request.tools), *chosen, *(call.name for call in calls)])
    for name, sent in names.changed.items():
        changes.say("name", f"The tool “{name[:80]}” is called {sent} on the way.")
    return names


def _legal_parts(message: Message, names: Names, target: Target, changes: Changes) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case TextPart() | DataPart():
                parts += legal_content(part, target, changes)
            case ToolResultPart(call_id, given, is_error):
                content = [each for one in given for each in legal_content(one, target, changes)]
                parts.append(ToolResultPart(call_id, content, is_error))
            case ToolCallPart():
                parts.append(_legal_call(part, names, changes))
            case _:
                parts.append(part)
    return Message(message.role, tuple(parts), message.name)


def _legal_call(call: ToolCallPart, names: Names, changes: Changes) -> ToolCallPart:
    given, changed = legal_input(call.input)
    if changed:
        changes.say(
            "arguments", f"Arguments of a call of {call.name[:80]} were not a JSON object; they are now."
        )
    return ToolCallPart(call.call_id, names.out(call.name), given, call.metadata)


def _tools(tools: Sequence[Tool], names: Names, changes: Changes) -> tuple[Tool, ...]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in found:
            changes.say("tool", f"The tool “{tool.name[:80]}” was offered twice; the first is meant.")
        else:
            found[tool.name] = Tool(names.out(tool.name), tool.description, _schema(tool.parameters))
    return tuple(found.values())


def _schema(parameters: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Arguments are an object; servers refuse a schema that does not say so."""
    return parameters if not parameters or "type" in parameters else {"type": "object", **parameters}


def _choice(request: ChatRequest, names: Names) -> Any:
    choice = request.tool_choice
    return NamedTool(names.out(choice.name)) if isinstance(choice, NamedTool) else choice


def _metadata(given: Mapping[str, str] | None, changes: Changes) -> Mapping[str, str] | None:
    if not given:
        return given
    kept = {
        str(name)[:MAX_METADATA_KEY]: str(value)[:MAX_METADATA_VALUE]
        for name, value in list(given.items())[:MAX_METADATA]
    }
    if kept != given:
        changes.say("metadata", "Metadata was cut to the 16 entries of 512 characters that can be sent.")
    return kept


def _output_tokens(given: int | None, changes: Changes) -> int | None:
    if given is None or given >= MIN_OUTPUT_TOKENS:
        return given
    changes.say(
        "output", f"An answer of {given} tokens cannot be asked for; {MIN_OUTPUT_TOKENS} is the least."
    )
    return MIN_OUTPUT_TOKENS
