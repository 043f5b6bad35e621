"""Strict checks: reject every request that the specification, or some provider, does not accept.

* `check_schema` checks the body against the specification's JSON schema of 2026-04-24.
* `check_rules` checks rules that a schema cannot express, each of which some provider enforces.
* `ReasoningRegistry` checks that encrypted reasoning comes back unchanged, for the model that created it,
  and before the function call that it led to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from tollbridge.protocols.openresponses.schema import (
    EXTRA_EFFORTS,
    INCLUDABLE,
    NOT_NULL,
    SPECIFIED_CONTENT,
    SPECIFIED_ITEMS,
    TOOL_CHOICES,
    AssistantMessageItem,
    CreateResponseBody,
    FunctionTool,
    Shape,
    StreamOptions,
    TextFormat,
    TextOptions,
    content_fields,
)
from tollbridge.testing.limits import LIMITS
from tollbridge.testing.refusals import reject
from tollbridge.testing.validation import read_shape, read_type

Item = Mapping[str, Any]
_Shape = TypeVar("_Shape", bound=Shape)
_Value = TypeVar("_Value")
_VALID_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def check_schema(body: Mapping[str, Any]) -> None:
    """Check a body of `POST /responses` against the specification's JSON schema.

    The shapes are those of the lenient reader. In addition, this function rejects null where a field may
    only be omitted, and the values that the shapes allow beyond the specification.
    """
    body = _with_whole_numbers(body)
    output_format, body = _pop_output_format(body)
    request = _read_strictly(body, CreateResponseBody, "")
    if request.text is not None:
        _check_not_null(body["text"], TextOptions, "text")
    if request.stream_options is not None:
        _read_strictly(request.stream_options, StreamOptions, "stream_options")
    if request.reasoning is not None and request.reasoning.effort in EXTRA_EFFORTS:
        _reject_value("reasoning.effort", f"{request.reasoning.effort!r} is not in the specification")
    for index, value in enumerate(request.include or ()):
        if value not in INCLUDABLE:
            _reject_value(f"include[{index}]", f"{value!r} is not one of {', '.join(INCLUDABLE)}")
    if isinstance(request.input, list):
        for index, item in enumerate(request.input):
            _check_item(item, f"input[{index}]")
    for index, tool in enumerate(request.tools or ()):
        _read_strictly(tool, FunctionTool, f"tools[{index}]")
    if isinstance(request.tool_choice, dict):
        choice = request.tool_choice
        _read_strictly(choice, TOOL_CHOICES[read_type(choice, TOOL_CHOICES, "tool_choice")], "tool_choice")
    if output_format is not None:
        output_format = {"type": "json_schema", **output_format}
        if read_type(output_format, ("text", "json_schema"), "text.format") == "json_schema":
            _read_strictly(output_format, TextFormat, "text.format")


def _with_whole_numbers(value: Any) -> Any:
    """Convert floats such as 16.0 to integers: JSON has only one type of number."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_whole_numbers(member) for name, member in value.items()}
        case list():
            return [_with_whole_numbers(member) for member in value]
    return value


def _pop_output_format(body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return `text.format` if it is an object, and the body without it.

    It is checked separately: in the specification its `type` can be omitted, and the fields that are
    checked depend on it.
    """
    text = body.get("text")
    if not isinstance(text, dict) or not isinstance(text.get("format"), dict):
        return None, body
    return text["format"], {**body, "text": {**text, "format": None}}


def _check_item(item: Mapping[str, Any], param: str) -> None:
    # Without a type the specification allows only a reference, which has no role.
    if item.get("type") is None and "role" in item:
        problem = f"Missing required parameter: {param}.type."
        reject("missing_required_parameter", problem, f"{param}.type")
    kind = "item_reference" if item.get("type") is None else read_type(item, SPECIFIED_ITEMS, param)
    is_answer = kind == "message" and item.get("role") == "assistant"
    _read_strictly(item, AssistantMessageItem if is_answer else SPECIFIED_ITEMS[kind], param)
    if kind == "reasoning" and item.get("content") is not None:
        _reject_value(f"{param}.content", "must be null: the specification has no raw reasoning in requests")
    for field, allowed in content_fields({**item, "type": kind}):
        if isinstance(item.get(field), list):
            for index, part in enumerate(item[field]):
                path = f"{param}.{field}[{index}]"
                _read_strictly(part, SPECIFIED_CONTENT[read_type(part, allowed, path)], path)


def _read_strictly(value: Mapping[str, Any], shape: type[_Shape], param: str) -> _Shape:
    """Convert an object to a struct like `read_shape`, but reject null where the specification does."""
    struct = read_shape(value, shape, param)
    _check_not_null(value, shape, param)
    return struct


def _check_not_null(value: Mapping[str, Any], shape: type[Shape], param: str) -> None:
    for field in NOT_NULL.get(shape, ()):
        if field in value and value[field] is None:
            path = f"{param}.{field}" if param else field
            _reject_value(path, "must not be null; omit the field instead")


def _reject_value(param: str, problem: str) -> NoReturn:
    reject("invalid_value", f"{param}: {problem[:200]}.", param)


def check_rules(value: str | Sequence[Item] | None) -> None:
    """Check rules that a schema cannot express, each of which some provider enforces.

    * There is at least one user message.
    * Every message has text, an image or a file.
    * Call ids consist of letters, digits, `_` and `-`.
    * No item id occurs twice.
    * The arguments of a call are the JSON text of an object.
    * Outputs follow their calls immediately, in the order of the calls.
    * Reasoning is followed by a message of the assistant or a function call.

    The value is the `input` of a request that `check_schema` accepts.
    """
    items = [{"type": "message", "role": "user", "content": value}] if isinstance(value, str) else value or []
    if not any(item.get("role") == "user" for item in items):
        reject("missing_user_message", "input has no user message.", "input")
    for index, item in enumerate(items):
        _check_not_empty(item, f"input[{index}]")
        _check_call(item, f"input[{index}]")
        _check_reasoning_is_followed(items, index)
    _check_ids(items)
    _check_output_order(items)


def _check_not_empty(item: Item, param: str) -> None:
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return
    parts = [{"text": content}] if isinstance(content, str) else content
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    if not text.strip() and not any(part.get("type") in ("input_image", "input_file") for part in parts):
        reject("empty_message", f"{param}.content is empty.", f"{param}.content")


def _check_call(item: Item, param: str) -> None:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and not _VALID_CALL_ID.match(call_id):
        message = f"{param}.call_id {call_id[:80]!r} has characters other than letters, digits, _ and -."
        reject("invalid_value", message, f"{param}.call_id")
    if item.get("type") != "function_call":
        return
    try:
        msgspec.json.decode(item["arguments"], type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        message = f"{param}.arguments is not the JSON text of an object: {error}."
        reject("invalid_arguments", message, f"{param}.arguments")


def _check_reasoning_is_followed(items: Sequence[Item], index: int) -> None:
    if items[index].get("type") != "reasoning":
        return
    next_item = next((item for item in items[index:] if item.get("type") != "reasoning"), {})
    if next_item.get("type") != "function_call" and next_item.get("role") != "assistant":
        message = f"input[{index}] is reasoning that was provided without its required following item."
        reject("reasoning_without_following_item", message, f"input[{index}]")


def _check_ids(items: Sequence[Item]) -> None:
    ids: set[str] = set()
    for index, item in enumerate(items):
        item_id = item.get("id")
        if item_id in ids:
            advice = "Remove duplicate items from your input and try again."
            message = f"Duplicate item found with id {item_id}. {advice}"
            reject("duplicate_item", message, f"input[{index}].id")
        if item_id:
            ids.add(item_id)


def _check_output_order(items: Sequence[Item]) -> None:
    """While calls have no output yet, allow only further calls, reasoning and the outputs in order."""
    open_calls: list[str] = []
    outputs_started = False
    for index, item in enumerate(items):
        match item.get("type"):
            case "function_call" if open_calls and outputs_started:
                _reject_order(index, f"the call {open_calls[0]} has no output yet")
            case "function_call":
                open_calls.append(item["call_id"])
            case "function_call_output":
                if not open_calls:
                    _reject_order(index, "no call before it needs an output")
                if item["call_id"] != open_calls[0]:
                    _reject_order(index, f"the output of {open_calls[0]} must come first")
                open_calls.pop(0)
                outputs_started = bool(open_calls)
            case "reasoning":
                pass
            case _ if open_calls:
                _reject_order(index, f"the call {open_calls[0]} has no output yet")


def _reject_order(index: int, reason: str) -> NoReturn:
    reject("out_of_order", f"input[{index}] is out of order: {reason}.", f"input[{index}]")


class _EncryptedReasoning(msgspec.Struct, frozen=True):
    model: str
    item: Item


class ReasoningRegistry:
    """The encrypted reasoning that a gateway has sent, to check what comes back.

    It contains only the reasoning of responses whose request asked for `reasoning.encrypted_content`.
    """

    def __init__(self) -> None:
        # By encrypted content, then by item id: equal reasoning in two responses has equal content.
        self._reasoning: dict[str, dict[str, _EncryptedReasoning]] = {}
        # By call id: the reasoning before the call.
        self._calls: dict[str, _EncryptedReasoning] = {}

    def add(self, model: str, output: Sequence[Item]) -> None:
        """Add the reasoning items and calls of a response."""
        reasoning: _EncryptedReasoning | None = None
        for item in output:
            if item["type"] == "reasoning":
                content = item.get("encrypted_content")
                reasoning = _EncryptedReasoning(model, item) if content else None
                if reasoning is not None:
                    equal = self._reasoning.get(item["encrypted_content"], {})
                    _put(self._reasoning, item["encrypted_content"], {**equal, item["id"]: reasoning})
            elif item["type"] == "function_call" and reasoning is not None:
                _put(self._calls, item["call_id"], reasoning)

    def check(self, model: str, items: Sequence[Item]) -> None:
        """Reject reasoning that was changed or belongs to another model, and a call without its reasoning."""
        latest: Item | None = None
        for index, item in enumerate(items):
            match item["type"]:
                case "reasoning":
                    self._check_reasoning(model, item, f"input[{index}]")
                    latest = item
                case "function_call":
                    self._check_call(model, item, latest, f"input[{index}]")
                case "function_call_output":
                    pass
                case _:
                    latest = latest if item.get("role") == "assistant" else None

    def _check_reasoning(self, model: str, item: Item, param: str) -> None:
        content = item.get("encrypted_content")
        if content is None:
            return
        candidates = [entry for entry in self._reasoning.get(content, {}).values() if entry.model == model]
        if not candidates:
            message = (
                f"The encrypted content of {param} could not be verified: "
                f"this server did not create it for {model}."
            )
            reject("invalid_encrypted_content", message, f"{param}.encrypted_content")
        if not any(
            item.get("summary") == entry.item["summary"] and item.get("id") in (None, entry.item["id"])
            for entry in candidates
        ):
            message = f"The reasoning in {param} was changed. Send it back as it was received."
            reject("invalid_encrypted_content", message, param)

    def _check_call(self, model: str, item: Item, latest: Item | None, param: str) -> None:
        reasoning = self._calls.get(item["call_id"])
        if reasoning is None or reasoning.model != model:
            return
        if latest is None or latest.get("encrypted_content") != reasoning.item["encrypted_content"]:
            message = f"{param} is a function_call that was provided without its required 'reasoning' item."
            reject("reasoning_missing", message, param)


def _put(table: dict[str, _Value], key: str, value: _Value) -> None:
    while len(table) >= LIMITS.reasoning:
        table.pop(next(iter(table)))
    table[key] = value
