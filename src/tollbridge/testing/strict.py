"""Reasoning that must come back as it was given: sealed for one model, and before the call it led to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.validation import read_shape
from tollbridge.types.text import MAX_FILE_DATA, MAX_IMAGE_URL, MAX_TEXT

# SECTION The schema of a request, field by field, as the specification of 2026-04-24 has it.
#
# Optional is not nullable: a field that may be left out but not be null is `UNSET` here. Fields beyond these
# are allowed. What depends on `type` or `role` is looked up in the tables at the end.

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
CallId = Annotated[str, Meta(min_length=1, max_length=64)]
Short = Annotated[str, Meta(max_length=64)]
Status = Literal["in_progress", "completed", "incomplete"]
Content = Text | list[Any]


class Reasoning(msgspec.Struct, frozen=True):
    effort: Literal["none", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["concise", "detailed", "auto"] | None = None


class TextOptions(msgspec.Struct, frozen=True):
    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | UnsetType = UNSET


class PlainFormat(msgspec.Struct, frozen=True):
    pass


class JsonFormat(msgspec.Struct, frozen=True):
    description: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_obfuscation: bool | UnsetType = UNSET


class Request(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    input: Text | list[Any] | None = None
    previous_response_id: str | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | UnsetType = UNSET
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    text: TextOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | UnsetType = UNSET
    stream_options: StreamOptions | None = None
    background: bool | UnsetType = UNSET
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: Reasoning | None = None
    safety_identifier: Short | None = None
    prompt_cache_key: Short | None = None
    truncation: Literal["auto", "disabled"] | UnsetType = UNSET
    instructions: str | None = None
    store: bool | UnsetType = UNSET
    service_tier: Literal["auto", "default", "flex", "priority"] | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


# --- tools -----------------------------------------------------------------------------------------------


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | UnsetType = UNSET


class FunctionChoice(msgspec.Struct, frozen=True):
    type: Literal["function"]
    name: str


class AllowedTools(msgspec.Struct, frozen=True):
    type: Literal["allowed_tools"]
    tools: Annotated[list[FunctionChoice], Meta(min_length=1, max_length=128)]
    mode: Literal["none", "auto", "required"] | UnsetType = UNSET


# --- items -----------------------------------------------------------------------------------------------


class ItemReference(msgspec.Struct, frozen=True):
    id: str


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True):
    summary: list[Any]
    id: str | None = None
    content: None = None
    encrypted_content: str | None = None


class CompactionItem(msgspec.Struct, frozen=True, kw_only=True):
    encrypted_content: Text
    id: str | None = None


class MessageItem(msgspec.Struct, frozen=True, kw_only=True):
    content: Content
    id: str | None = None
    status: str | None = None


class AssistantItem(MessageItem, frozen=True, kw_only=True):
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET


class FunctionCallItem(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    name: Name
    arguments: str
    id: str | None = None
    status: Status | None = None


class FunctionOutputItem(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    output: Content
    id: str | None = None
    status: Status | None = None


# --- content ---------------------------------------------------------------------------------------------


class TextContent(msgspec.Struct, frozen=True):
    text: Text


class UrlCitation(msgspec.Struct, frozen=True):
    type: Literal["url_citation"]
    start_index: Annotated[int, Meta(ge=0)]
    end_index: Annotated[int, Meta(ge=0)]
    url: str
    title: str


class OutputText(msgspec.Struct, frozen=True):
    text: Text
    annotations: list[UrlCitation] | UnsetType = UNSET


class Refusal(msgspec.Struct, frozen=True):
    refusal: Text


class Image(msgspec.Struct, frozen=True):
    image_url: Annotated[str, Meta(max_length=MAX_IMAGE_URL)] | None = None
    detail: Literal["low", "high", "auto"] | None = None


class File(msgspec.Struct, frozen=True):
    filename: str | None = None
    file_data: Annotated[str, Meta(max_length=MAX_FILE_DATA)] | None = None
    file_url: str | None = None


class Video(msgspec.Struct, frozen=True):
    video_url: str


Table = dict[str, type[msgspec.Struct]]

MESSAGES: Table = {
    "user": MessageItem,
    "system": MessageItem,
    "developer": MessageItem,
    "assistant": AssistantItem,
}
ITEMS: Table = {
    "item_reference": ItemReference,
    "reasoning": ReasoningItem,
    "compaction": CompactionItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionOutputItem,
}
FORMATS: Table = {"text": PlainFormat, "json_schema": JsonFormat}
CHOICES: Table = {"function": FunctionChoice, "allowed_tools": AllowedTools}

_INPUT: Table = {"input_text": TextContent, "input_image": Image, "input_file": File}
# What the lists inside an item may hold: by the role of a message, or the type of any other item.
CONTENTS: dict[str, tuple[str, Table]] = {
    "user": ("content", _INPUT),
    "system": ("content", {"input_text": TextContent}),
    "developer": ("content", {"input_text": TextContent}),
    "assistant": ("content", {"output_text": OutputText, "refusal": Refusal}),
    "function_call_output": ("output", {**_INPUT, "input_video": Video}),
    "reasoning": ("summary", {"summary_text": TextContent}),
}


# SECTION The laws no schema can say, each of which some provider enforces.
#
# a question        at least one user message
# nothing blank     no message without words or files
# legal ids         of calls too: letters, digits, _ and -
# one id, one item  no item twice
# arguments         the JSON text of an object
# adjacency         results follow their calls at once, in the order of the calls
# consequence       reasoning is followed by what the model said or called

Item = Mapping[str, Any]
_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def check_rules(given: str | Sequence[Item] | None) -> None:
    """`given` is the `input` of a request that keeps to the schema."""
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given or []
    if not any(item.get("role") == "user" for item in items):
        raise RequestRejected(
            400, "missing_user_message", "input holds no message of the user.", param="input"
        )
    for index, item in enumerate(items):
        _check_words(item, f"input[{index}]")
        _check_call(item, f"input[{index}]")
        _check_consequence(items, index)
    _check_identity(items)
    _check_adjacency(items)


def _check_identity(items: Sequence[Item]) -> None:
    known: set[str] = set()
    for index, item in enumerate(items):
        id_ = item.get("id")
        if id_ in known:
            message = (
                f"Duplicate item found with id {id_}. Remove duplicate items from your input and try again."
            )
            raise RequestRejected(400, "duplicate_item", message, param=f"input[{index}].id")
        if id_:
            known.add(id_)


def _check_words(item: Item, param: str) -> None:
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return
    parts = [{"text": content}] if isinstance(content, str) else content
    words = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    if not words.strip() and not any(part.get("type") in ("input_image", "input_file") for part in parts):
        raise RequestRejected(
            400, "empty_message", f"{param}.content says nothing.", param=f"{param}.content"
        )


def _check_call(item: Item, param: str) -> None:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and not _LEGAL.match(call_id):
        message = f"{param}.call_id {call_id[:80]!r} has characters other than letters, digits, _ and -."
        raise RequestRejected(400, "invalid_value", message, param=f"{param}.call_id")
    if item.get("type") != "function_call":
        return
    try:
        msgspec.json.decode(item["arguments"], type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        message = f"{param}.arguments is not the JSON text of an object: {error}."
        raise RequestRejected(400, "invalid_arguments", message, param=f"{param}.arguments") from error


def _check_consequence(items: Sequence[Item], index: int) -> None:
    if items[index].get("type") != "reasoning":
        return
    after = next((item for item in items[index:] if item.get("type") != "reasoning"), {})
    if after.get("type") != "function_call" and after.get("role") != "assistant":
        message = f"input[{index}] is reasoning that was provided without its required following item."
        raise RequestRejected(400, "reasoning_without_following_item", message, param=f"input[{index}]")


def _check_adjacency(items: Sequence[Item]) -> None:
    """While calls wait, only more calls, reasoning and their results may come; results in turn."""
    waiting: list[str] = []
    answering = False
    for index, item in enumerate(items):
        match item.get("type"):
            case "function_call" if waiting and answering:
                raise _out_of_order(index, f"the call {waiting[0]} still waits for its result")
            case "function_call":
                waiting.append(item["call_id"])
            case "function_call_output":
                if not waiting or item["call_id"] != waiting[0]:
                    expected = (
                        f"the result of {waiting[0]} comes first" if waiting else "no call waits for it"
                    )
                    raise _out_of_order(index, expected)
                waiting.pop(0)
                answering = bool(waiting)
            case "reasoning":
                pass
            case _ if waiting:
                raise _out_of_order(index, f"the call {waiting[0]} still waits for its result")


def _out_of_order(index: int, why: str) -> RequestRejected:
    return RequestRejected(
        400, "out_of_order", f"input[{index}] is out of order: {why}.", param=f"input[{index}]"
    )


# SECTION Whether a request keeps to the schema; if not, a refusal that names the place.


def check_schema(given: Mapping[str, Any]) -> None:
    body = _with_whole_numbers(given)
    read_shape(body, Request, "")
    if isinstance(body.get("input"), list):
        for index, item in enumerate(body["input"]):
            _check_item(item, f"input[{index}]")
    for index, tool in enumerate(body.get("tools") or ()):
        read_shape(_object(tool, f"tools[{index}]"), FunctionTool, f"tools[{index}]")
    _check_choice(body.get("tool_choice"))
    form = (body.get("text") or {}).get("format")
    if form is not None:
        form = {"type": "json_schema", **form}  # the one shape of the schema that needs no type
        read_shape(form, _by_type(form, FORMATS, "text.format"), "text.format")


def _with_whole_numbers(value: Any) -> Any:
    """JSON has one kind of number: 16.0 is an integer."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_whole_numbers(each) for name, each in value.items()}
        case list():
            return [_with_whole_numbers(each) for each in value]
    return value


def _check_choice(choice: object) -> None:
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise _wrong("tool_choice", f"{choice[:80]!r} is neither none, auto nor required")
    if isinstance(choice, Mapping):
        read_shape(choice, _by_type(choice, CHOICES, "tool_choice"), "tool_choice")


def _check_item(given: object, param: str) -> None:
    item = _object(given, param)
    kind = item.get("type")
    if kind == "message":
        kind = item.get("role")
        if not isinstance(kind, str) or kind not in MESSAGES:
            raise _wrong(f"{param}.role", f"{kind!r} is none of {', '.join(MESSAGES)}")
        read_shape(item, MESSAGES[kind], param)
    else:
        kind = kind if kind is not None else "item_reference"
        shape = ITEMS.get(kind) if isinstance(kind, str) else None
        if shape is None:
            raise _wrong(f"{param}.type", f"{kind!r} is none of message, {', '.join(ITEMS)}")
        read_shape(item, shape, param)
    field, allowed = CONTENTS.get(kind, ("", {}))
    if isinstance(item.get(field), list):
        for index, part in enumerate(item[field]):
            at = f"{param}.{field}[{index}]"
            read_shape(_object(part, at), _by_type(part, allowed, at), at)


def _by_type(given: Mapping[str, Any], table: Table, param: str) -> type[msgspec.Struct]:
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in table:
        raise _wrong(f"{param}.type", f"{kind!r} is none of {', '.join(table)}")
    return table[kind]


def _object(given: object, param: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise _wrong(param, "it is not an object")
    return given


def _wrong(param: str, what: str) -> RequestRejected:
    return RequestRejected(400, "invalid_value", f"{param}: {what[:200]}.", param=param)


# SECTION Reasoning that must come back as it was given: sealed for one model, and before the call it led to.

_Value = TypeVar("_Value")
# Sealed thoughts and calls remembered; the oldest are forgotten, and then taken on trust no longer.
SEALS_LIMIT = 10_000


class _Sealed(msgspec.Struct, frozen=True):
    model: str
    item: Item


class ReasoningSeals:
    """What the gateway sealed. Kept only where `include` asked for encrypted content."""

    def __init__(self) -> None:
        # By encrypted content and id: the same thought, thought again, has the same seal.
        self._thoughts: dict[str, dict[str, _Sealed]] = {}
        self._calls: dict[str, _Sealed] = {}  # the thought each call followed from, by the call's id

    def keep(self, model: str, output: Sequence[Item]) -> None:
        thought: _Sealed | None = None
        for item in output:
            if item["type"] == "reasoning":
                thought = _Sealed(model, item) if item.get("encrypted_content") else None
                if thought is not None:
                    alike = self._thoughts.get(item["encrypted_content"], {})
                    _put(self._thoughts, item["encrypted_content"], {**alike, item["id"]: thought})
            elif item["type"] == "function_call" and thought is not None:
                _put(self._calls, item["call_id"], thought)

    def check(self, model: str, items: Sequence[Item]) -> None:
        latest: Item | None = None
        for index, item in enumerate(items):
            match item["type"]:
                case "reasoning":
                    self._check_thought(model, item, f"input[{index}]")
                    latest = item
                case "function_call":
                    self._check_call(model, item, latest, f"input[{index}]")
                case "function_call_output":
                    pass
                case _:
                    latest = latest if item.get("role") == "assistant" else None

    def _check_thought(self, model: str, item: Item, param: str) -> None:
        sealed = item.get("encrypted_content")
        if sealed is None:
            return
        known = [one for one in self._thoughts.get(sealed, {}).values() if one.model == model]
        if not known:
            message = (
                f"The encrypted content of {param} could not be verified: it was not sealed for {model}."
            )
            raise RequestRejected(
                400, "invalid_encrypted_content", message, param=f"{param}.encrypted_content"
            )
        if not any(_is_same(item, one.item) for one in known):
            message = f"The reasoning in {param} is not as it was given."
            raise RequestRejected(400, "invalid_encrypted_content", message, param=param)

    def _check_call(self, model: str, item: Item, latest: Item | None, param: str) -> None:
        thought = self._calls.get(item["call_id"])
        if thought is None or thought.model != model:
            return
        if latest is None or latest.get("encrypted_content") != thought.item["encrypted_content"]:
            message = f"{param} is a function_call that was provided without its required 'reasoning' item."
            raise RequestRejected(400, "reasoning_missing", message, param=param)


def _is_same(item: Item, given: Item) -> bool:
    return item.get("summary") == given["summary"] and item.get("id") in (None, given["id"])


def _put(known: dict[str, _Value], key: str, value: _Value) -> None:
    while len(known) >= SEALS_LIMIT:
        known.pop(next(iter(known)))
    known[key] = value
