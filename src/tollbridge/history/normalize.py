"""Any request made one that a gateway takes: every law of the wire kept, nothing lost that could be sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tollbridge.history.content import Changes, Names, Receiver, valid_content
from tollbridge.history.reasoning import current_reasoning, is_question, own_reasoning
from tollbridge.history.tool_calls import (
    calls_as_text,
    pair_results,
    results_as_text,
    system_as_user,
    valid_input,
)
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

# SECTION The outer form of a conversation: no empty messages, no side twice in a row, at least one question.

CONTINUE = "Continue."
LONE = "Reasoning was left out: nothing the model said follows it."
# Between two texts of one side that were messages of their own.
_BREAK = "\n\n"


def normalize_shape(messages: Iterable[Message], changes: Changes) -> list[Message]:
    found = without_empty_messages(messages, changes)
    if not any(is_question(message) for message in found):
        changes.say("question", "The conversation had no question; “Continue.” was asked.")
        found.append(Message(Role.USER, CONTINUE))
    found = merge_messages(current_reasoning(found, changes), changes)
    followed = [_followed(message, changes) for message in found]
    return merge_messages([message for message in followed if message.parts], changes)


def without_empty_messages(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Without texts that say nothing: providers refuse a message of blanks alone."""
    found: list[Message] = []
    for message in messages:
        parts = _without_blanks(message.parts)
        if parts:
            found.append(Message(message.role, parts))
        if len(parts) < len(message.parts) or not parts:
            changes.count("empty")
    return found


def merge_messages(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Messages of one side in a row made one. Providers that alternate strictly would do it, or refuse."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else None
        # System messages are one already, wherever they stand: the wire has one place for them.
        if last is None or last.role is not message.role or message.role is Role.SYSTEM:
            found.append(message)
            continue
        changes.count("joined")
        found[-1] = Message(message.role, (*last.parts, *_apart(last, message), *message.parts))
    return found


def _without_blanks(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Blanks between words stay. A run of texts is what becomes one message on a wire."""
    found: list[Part] = []
    for is_content, run in groupby(parts, lambda part: isinstance(part, TextPart | DataPart)):
        content = list(run)
        if not is_content or not all(map(_is_blank, content)):
            found += content
    return tuple(found)


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _apart(last: Message, message: Message) -> tuple[Part, ...]:
    """Parts of a user's message are lines already; those of an answer are pieces of one text."""
    texts = isinstance(last.parts[-1], TextPart) and isinstance(message.parts[0], TextPart)
    return (TextPart(_BREAK),) if texts and message.role is Role.ASSISTANT else ()


def _followed(message: Message, changes: Changes) -> Message:
    """Reasoning leads to something the model said or called; alone it is refused."""
    parts = list(message.parts)
    while parts and isinstance(parts[-1], ThinkingPart):
        changes.say("reasoning", LONE)
        parts.pop()
    return Message(message.role, tuple(parts))


# SECTION Any request made one that a gateway takes: every law of the wire kept, nothing lost that could be sent.

# As the protocol limits them.
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
MIN_OUTPUT_TOKENS = 16


class NormalizedRequest(msgspec.Struct, frozen=True):
    """A request that can be sent, what was changed to make it so, and the way back for tools' names."""

    request: ChatRequest
    changes: tuple[str, ...]
    counts: Mapping[str, int]
    names: Names


def normalize_request(request: ChatRequest, target: Receiver | None = None) -> NormalizedRequest:
    """Pure: the same request for the same target is always made the same."""
    target = target or Receiver()
    changes = Changes()
    names = _names(request, changes)
    messages = own_reasoning(request.messages, target, changes)
    messages = [_legal_parts(message, names, target, changes) for message in messages]
    messages = pair_results(messages, changes)
    if not target.rich_results:
        messages = results_as_text(messages, changes)
    if not target.calls:
        messages = calls_as_text(messages, changes)
    elif target.spoken:
        messages = calls_as_text(messages, changes, target.spoken)
    if not target.system:
        messages = system_as_user(messages)
    made = msgspec.structs.replace(
        request,
        messages=tuple(normalize_shape(messages, changes)),
        tools=_tools(request.tools, names, changes),
        tool_choice=_choice(request, names),
        metadata=_metadata(request.metadata, changes),
        max_output_tokens=_output_tokens(request.max_output_tokens, changes),
    )
    return NormalizedRequest(made, changes.sentences, dict(changes.counts), names)


def _names(request: ChatRequest, changes: Changes) -> Names:
    calls = (part for message in request.messages for part in message.parts if isinstance(part, ToolCallPart))
    chosen = [request.tool_choice.name] if isinstance(request.tool_choice, NamedTool) else []
    names = Names([*(tool.name for tool in request.tools), *chosen, *(call.name for call in calls)])
    for name, sent in names.changed.items():
        changes.say("name", f"The tool “{name[:80]}” is called {sent} on the way.")
    return names


def _legal_parts(message: Message, names: Names, target: Receiver, changes: Changes) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case TextPart() | DataPart():
                parts += valid_content(part, target, changes)
            case ToolResultPart(call_id, given, is_error):
                content = [each for one in given for each in valid_content(one, target, changes)]
                parts.append(ToolResultPart(call_id, content, is_error))
            case ToolCallPart():
                parts.append(_legal_call(part, names, changes))
            case _:
                parts.append(part)
    return Message(message.role, tuple(parts), message.name)


def _legal_call(call: ToolCallPart, names: Names, changes: Changes) -> ToolCallPart:
    given, changed = valid_input(call.input)
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
