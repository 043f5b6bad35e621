"""Validate requests, and reject invalid ones: `RequestRejected` is raised with the name of the field.

Reading is lenient: null is the same as an omitted field, unknown fields are ignored, and values that
gateways accept beyond the specification are allowed. `strict` has the checks of a strict gateway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.protocols.caller_request import name_type
from tollbridge.protocols.openresponses.schema import (
    CONTENT,
    ITEMS,
    CreateBody,
    FunctionTool,
    Shape,
    content_fields,
)
from tollbridge.testing.refusals import reject, show_value
from tollbridge.types.media import split_data_url

Item = dict[str, Any]
_Shape = TypeVar("_Shape", bound=Shape)
# An error message of msgspec: the problem, and the path of the value. Every text matches.
_CONVERSION_ERROR = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?", re.DOTALL)
_MISSING_FIELD = re.compile(r"missing required field `(\w+)`")


def read_json(data: bytes | str) -> dict[str, Any]:
    """Decode a request body that must be a JSON object."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reject("invalid_json", f"The body is not valid JSON: {error}")
    if not isinstance(body, dict):
        reject("invalid_json", f"The body must be a JSON object, not {name_type(body)}.")
    return body


def read_shape(value: Mapping[str, Any], shape: type[_Shape], param: str) -> _Shape:
    """Convert a JSON object to a struct.

    `param` is the path of the object in the request, used in errors. It is empty for the body itself.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        problem, path = _CONVERSION_ERROR.fullmatch(str(error)).groups("")  # type: ignore[union-attr]
        if missing := _MISSING_FIELD.search(problem):
            field = f"{param}{path}.{missing[1]}".removeprefix(".")
            reject("missing_required_parameter", f"Missing required parameter: {field}.", field)
        field = f"{param}{path}".removeprefix(".")
        reject("invalid_value", f"{field or 'The body'}: {problem}.", field)


def read_type(
    value: Mapping[str, Any], allowed: Collection[str], param: str, code: str = "invalid_value"
) -> str:
    """Return the type of an object, which must be one of those that are allowed."""
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        problem = f"{param}.type is {show_value(kind)}. Valid types: {', '.join(sorted(allowed))}."
        reject(code, problem, f"{param}.type")
    return kind


def read_input(value: str | Sequence[Mapping[str, Any]] | None) -> list[Item]:
    """Return the items of `input`, each validated and with an explicit `type`.

    A text becomes one user message. The list is empty if `input` is missing or an empty text.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}] if value else []
    return [_read_item(item, f"input[{index}]") for index, item in enumerate(value)]


def _read_item(item: Mapping[str, Any], param: str) -> Item:
    # The specification requires a type for messages; OpenAI's clients omit it.
    default = "message" if "role" in item else "item_reference" if "id" in item else None
    typed_item: Item = {**item, "type": item.get("type") or default}
    kind = read_type(typed_item, ITEMS, param, "unknown_item_type")
    read_shape(item, ITEMS[kind], param)
    for field, allowed in content_fields(typed_item):
        if isinstance(item.get(field), list):
            _check_parts(item[field], allowed, f"{param}.{field}")
    return typed_item


def _check_parts(parts: Sequence[Mapping[str, Any]], allowed: frozenset[str], param: str) -> None:
    for index, part in enumerate(parts):
        path = f"{param}[{index}]"
        kind = read_type(part, allowed, path, "invalid_content_type")
        read_shape(part, CONTENT[kind], path)
        if kind == "input_image":
            _check_image(part.get("image_url"), f"{path}.image_url")


def _check_image(url: str | None, param: str) -> None:
    if not url:
        reject("missing_required_parameter", f"{param} is missing.", param)
    if url.startswith(("http://", "https://")):
        return  # accepted, but never fetched
    try:
        split_data_url(url)
    except ValueError as error:
        problem = f"{param} is neither an http(s) URL nor a base64 data URL: {error}."
        reject("invalid_image_url", problem, param)


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[FunctionTool]:
    """Return the function tools of a request, which must have different names.

    Tools of other types are ignored: agents declare many types by default, and gateways pass them on.
    """
    functions: list[FunctionTool] = []
    for index, tool in enumerate(tools or ()):
        if isinstance(kind := tool.get("type"), str) and kind != "function":
            continue
        functions.append(read_shape(tool, FunctionTool, f"tools[{index}]"))
    names = [function.name for function in functions]
    for index, name in enumerate(names):
        if name in names[:index]:
            reject("duplicate_tool", f"Two tools have the name {name!r}.", f"tools[{index}].name")
    return functions


def check_tool_choice(choice: str | Mapping[str, Any] | None, tools: Sequence[FunctionTool]) -> None:
    """Reject a `tool_choice` that the tools of the request cannot satisfy."""
    names = {tool.name for tool in tools}
    if isinstance(choice, Mapping):
        chosen = choice.get("tools") if choice.get("type") == "allowed_tools" else [choice]
        if choice.get("type") not in ("function", "allowed_tools") or not isinstance(chosen, list):
            reject("invalid_value", "tool_choice.type must be function or allowed_tools.", "tool_choice")
        if not 1 <= len(chosen) <= 128:
            reject("invalid_value", "tool_choice.tools must contain 1 to 128 tools.", "tool_choice.tools")
        for tool in chosen:
            name = tool.get("name") if isinstance(tool, Mapping) else None
            if not isinstance(name, str) or name not in names:
                problem = f"tool_choice names {show_value(name)}, which is not one of the tools."
                reject("unknown_tool", problem, "tool_choice")
    elif choice == "required" and not names:
        reject("invalid_value", "tool_choice is required, but the request has no tools.", "tool_choice")


def check_output_format(body: CreateBody) -> None:
    """Reject a `text.format` with an invalid name, or a JSON schema format without name or schema."""
    output_format = body.text.format if body.text else None
    if output_format is None:
        return
    name = output_format.name
    if name is not None and not 1 <= len(name) <= 64:
        reject("invalid_value", "text.format.name must have 1 to 64 characters.", "text.format.name")
    if output_format.type == "json_schema" and (name is None or output_format.schema is None):
        field = "name" if name is None else "schema"
        problem = f"text.format of type json_schema requires a {field}."
        reject("missing_required_parameter", problem, f"text.format.{field}")


def check_conversation(items: Sequence[Item], names: Sequence[str]) -> None:
    """Check that there are items, that every call has exactly one output, and that it follows the call.

    The names are the source of each item, such as `input[0]`; used in errors.
    """
    if not items:
        problem = "input is missing or empty. Send a string or at least one item."
        reject("missing_required_parameter", problem, "input")
    open_calls: dict[str, str] = {}
    answered: set[str] = set()
    for item, name in zip(items, names, strict=True):
        call_id = item.get("call_id", "")
        if item["type"] == "function_call":
            if call_id in open_calls or call_id in answered:
                reject("duplicate_call_id", f"{name} repeats the call_id {call_id!r}.", f"{name}.call_id")
            open_calls[call_id] = name
        elif item["type"] == "function_call_output":
            if call_id not in open_calls:
                reason = "already has an output" if call_id in answered else "has no function_call before it"
                reject(
                    "duplicate_tool_output" if call_id in answered else "no_tool_call_found",
                    f"No tool call found for function call output with call_id {call_id!r}: it {reason}.",
                    f"{name}.call_id",
                )
            del open_calls[call_id]
            answered.add(call_id)
    for call_id, name in open_calls.items():
        problem = f"No tool output found for function call {call_id!r}."
        reject("no_tool_output_found", problem, f"{name}.call_id")


def check_window(window: int, tokens: int, output: int = 0) -> None:
    """Reject a prompt that is larger than the context window.

    With an output limit, prompt and output share the window, and the error is in Anthropic's words.
    """
    if tokens > window:
        reject(
            "context_length_exceeded",
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages.",
            "input",
        )
    if tokens + output > window:
        reject(
            "invalid_request_error",
            f"input length and `max_tokens` exceed context limit: {tokens} + {output} > {window}, decrease "
            "input length or `max_tokens` and try again",
        )


def check_abilities(model: Mapping[str, Any], items: Sequence[Item], tools: Sequence[FunctionTool]) -> None:
    """Reject tools and images for a model that does not support them."""
    tags = model["tags"]
    if tools and "tool-use" not in tags:
        reject("unsupported_parameter", f"{model['id']} does not support tools.", "tools")
    contents = [item.get("content") or item.get("output") for item in items]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    if "vision" not in tags and any(part["type"] == "input_image" for part in parts):
        reject("unsupported_content", f"{model['id']} does not support images.", "input")
