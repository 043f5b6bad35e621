"""Normalize a request: make any history valid for the server, without losing content that can be sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

import msgspec

from tollbridge.history.arguments import valid_input
from tollbridge.history.contents import Changes, valid_content
from tollbridge.history.names import Names
from tollbridge.history.pairing import calls_as_text, pair_results, results_as_text, system_as_user
from tollbridge.history.reasoning import drop_stale_reasoning, is_question, select_reasoning
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Origin,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import MAX_DEPTH, exceeds_depth, limit_depth

# Limits of the OpenResponses protocol.
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
MIN_OUTPUT_TOKENS = 16

CONTINUE = "Continue."
UNFOLLOWED = "Dropped reasoning: no assistant output follows it."


class NormalizedRequest(msgspec.Struct, frozen=True):
    """A request that can be sent, and the changes that were made to it.

    Attributes:
        changes: Sentences that describe the changes.
        counts: The number of changes by kind.
        names: The mapping between the caller's tool names and the names that are sent.
    """

    request: ChatRequest
    changes: tuple[str, ...]
    counts: Mapping[str, int]
    names: Names


def normalize_request(
    request: ChatRequest,
    learned: LearnedQuirks | None = None,
    origin: Origin | None = None,
    *,
    min_output_tokens: int = MIN_OUTPUT_TOKENS,
) -> NormalizedRequest:
    """Make a request valid for its server. The result depends only on the arguments.

    Args:
        learned: What the server and the model accept, and what the server has refused. A caller that knows
            the model's capabilities clears `quirks.images` and `quirks.files` accordingly. The default is a
            server that accepts everything the protocol has.
        origin: The model and gateway that will receive the request. Reasoning of others is dropped. If
            `None`, all reasoning with a proof is kept.
        min_output_tokens: The lowest output limit that the server's protocol allows; by default that of
            OpenResponses.
    """
    learned = learned or LearnedQuirks()
    quirks = learned.quirks
    changes = Changes()
    names = _tool_names(request, changes)
    messages = select_reasoning(request.messages, learned, origin, changes)
    messages = [_normalize_parts(message, names, learned, changes) for message in messages]
    messages = pair_results(messages, changes)
    if not quirks.rich_results:
        messages = [results_as_text(message, changes) for message in messages]
    if not quirks.calls:
        messages = calls_as_text(messages, changes)
    elif learned.calls_as_text:
        messages = calls_as_text(messages, changes, learned.calls_as_text)
    if quirks.system == "user":
        messages = system_as_user(messages)
    choice, limit = request.tool_choice, request.max_output_tokens
    if limit is not None and limit < min_output_tokens:
        sentence = f"max_output_tokens was raised from {limit} to the minimum of {min_output_tokens}."
        changes.add("output", sentence)
        limit = min_output_tokens
    normalized = msgspec.structs.replace(
        request,
        messages=tuple(normalize_shape(messages, changes)),
        tools=_normalize_tools(request.tools, names, changes),
        tool_choice=NamedTool(names.out(choice.name)) if isinstance(choice, NamedTool) else choice,
        metadata=_normalize_metadata(request.metadata, changes),
        max_output_tokens=limit,
    )
    return NormalizedRequest(normalized, changes.sentences, dict(changes.counts), names)


def _tool_names(request: ChatRequest, changes: Changes) -> Names:
    calls = (part for message in request.messages for part in message.parts if isinstance(part, ToolCallPart))
    choice = [request.tool_choice.name] if isinstance(request.tool_choice, NamedTool) else []
    names = Names([*(tool.name for tool in request.tools), *choice, *(call.name for call in calls)])
    for name, sent in names.changed.items():
        changes.add("name", f'Tool name "{name[:80]}" is not allowed by the API; it was sent as "{sent}".')
    return names


def _normalize_parts(message: Message, names: Names, learned: LearnedQuirks, changes: Changes) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case TextPart() | DataPart():
                parts += valid_content(part, learned, changes)
            case ToolResultPart(call_id, content, is_error):
                valid = [piece for item in content for piece in valid_content(item, learned, changes)]
                parts.append(ToolResultPart(call_id, valid, is_error))
            case ToolCallPart(call_id, name, value, metadata):
                arguments, is_changed = valid_input(value)
                if is_changed:
                    sentence = f"Converted the arguments of a call to {name[:80]} to a JSON object."
                    changes.add("arguments", sentence)
                proof = None if exceeds_depth(metadata) else metadata
                parts.append(ToolCallPart(call_id, names.out(name), arguments, proof))
            case _:
                parts.append(part)
    return Message(message.role, tuple(parts), message.name)


def _normalize_tools(tools: Sequence[Tool], names: Names, changes: Changes) -> tuple[Tool, ...]:
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in by_name:
            changes.add("tool", f'Duplicate tool "{tool.name[:80]}"; using the first definition.')
        else:
            parameters = tool.parameters
            if parameters and "type" not in parameters:
                # Servers reject a schema of arguments that does not say that they are an object.
                parameters = {"type": "object", **parameters}
            if exceeds_depth(parameters):
                changes.add("tool", f'Cut the schema of the tool "{tool.name[:80]}" at {MAX_DEPTH} levels.')
                parameters = limit_depth(parameters)
            by_name[tool.name] = Tool(names.out(tool.name), tool.description, parameters)
    return tuple(by_name.values())


def _normalize_metadata(metadata: Mapping[str, str] | None, changes: Changes) -> Mapping[str, str] | None:
    if not metadata:
        return metadata
    truncated = {
        str(name)[:MAX_METADATA_KEY]: str(value)[:MAX_METADATA_VALUE]
        for name, value in list(metadata.items())[:MAX_METADATA]
    }
    if truncated != metadata:
        changes.add(
            "metadata",
            f"Truncated metadata to {MAX_METADATA} entries with keys of {MAX_METADATA_KEY} and values of "
            f"{MAX_METADATA_VALUE} characters.",
        )
    return truncated


def normalize_shape(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Remove empty messages, merge adjacent messages of one role, and add a user message if there is none."""
    result = remove_empty_messages(messages, changes)
    if not any(is_question(message) for message in result):
        changes.add("question", f'Added a user message ("{CONTINUE}").')
        result.append(Message(Role.USER, CONTINUE))
    result = merge_messages(drop_stale_reasoning(result, changes), changes)
    result = [_drop_trailing_reasoning(message, changes) for message in result]
    return merge_messages([message for message in result if message.parts], changes)


def remove_empty_messages(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Remove blank texts and empty messages. Providers reject a message of only whitespace."""
    remaining: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        # A run of texts and files becomes one message when it is encoded; one of only blank texts is removed.
        for is_content, group in groupby(message.parts, lambda part: isinstance(part, TextPart | DataPart)):
            run = list(group)
            is_blank = all(isinstance(part, TextPart) and not part.text.strip() for part in run)
            parts += [] if is_content and is_blank else run
        if len(parts) < len(message.parts) or not parts:
            changes.count("empty")
            message = Message(message.role, tuple(parts))
        if parts:
            remaining.append(message)
    return remaining


def merge_messages(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Merge adjacent messages of one role. Providers that require alternating roles merge or reject them."""
    merged: list[Message] = []
    for role, group in groupby(messages, lambda message: message.role):
        run = list(group)
        # System messages need no merge: the encoder puts them together.
        if role is Role.SYSTEM or len(run) == 1:
            merged += run
            continue
        parts = list(run[0].parts)
        for last, message in pairwise(run):
            changes.count("joined")
            # The parts of a user message are encoded as separate lines; those of an answer are pieces of one
            # text, which need a separator.
            are_texts = isinstance(last.parts[-1], TextPart) and isinstance(message.parts[0], TextPart)
            if are_texts and role is Role.ASSISTANT:
                parts.append(TextPart("\n\n"))
            parts += message.parts
        merged.append(Message(role, tuple(parts)))
    return merged


def _drop_trailing_reasoning(message: Message, changes: Changes) -> Message:
    """Drop reasoning at the end of a message. Servers reject reasoning without a text or call after it."""
    end = len(message.parts)
    while end > 0 and isinstance(message.parts[end - 1], ThinkingPart):
        changes.add("reasoning", UNFOLLOWED)
        end -= 1
    return message if end == len(message.parts) else Message(message.role, message.parts[:end])
