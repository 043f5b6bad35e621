"""Validate requests, and reject invalid ones with an error that names the field.

Reading is lenient: null is the same as an omitted field, unknown fields are ignored, and values that
gateways accept beyond the specification are allowed. `tollbridge.testing.strict` has the strict checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.protocols.openresponses.schema import (
    CONTENT,
    ITEMS,
    CompactBody,
    CreateBody,
    FunctionTool,
    Shape,
    content_fields,
)
from tollbridge.testing.refusals import RequestRejected
from tollbridge.types.media import image_size, sniff, split_data_url

Item = dict[str, Any]
_Shape = TypeVar("_Shape", bound=Shape)
# The parts of an error message of msgspec.
_CONVERSION_ERROR = re.compile(r"^(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING_FIELD = re.compile(r"missing required field `(?P<field>\w+)`")
_SHOWN_LENGTH = 80
_FORMAT_NAME_LENGTH = 64


# --- Reading bodies ---


def read_json(data: bytes | str) -> dict[str, Any]:
    """Decode a request body that must be a JSON object.

    Raises:
        RequestRejected: The body is not JSON, or not an object.
    """
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRejected(400, "invalid_json", f"The body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        message = f"The body must be a JSON object, not {_describe_type(body)}."
        raise RequestRejected(400, "invalid_json", message)
    return body


def read_create(body: Mapping[str, Any]) -> CreateBody:
    return read_shape(body, CreateBody, "")


def read_compact(body: Mapping[str, Any]) -> CompactBody:
    return read_shape(body, CompactBody, "")


def read_shape(value: Mapping[str, Any], shape: type[_Shape], param: str) -> _Shape:
    """Convert a JSON object to a struct.

    Args:
        value: The object.
        shape: The struct type.
        param: Path of the object in the request, used in errors. Empty for the body itself.

    Raises:
        RequestRejected: The object does not match. The error's `param` is the path of the invalid field.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        match = _CONVERSION_ERROR.match(str(error))
        problem, path = (match["problem"], match["path"] or "") if match else (str(error), "")
        missing = _MISSING_FIELD.search(problem)
        field = f"{param}{path}" + (f".{missing['field']}" if missing else "")
        field = field.removeprefix(".")
        if missing:
            raise RequestRejected(
                400, "missing_required_parameter", f"Missing required parameter: {field}.", param=field
            ) from error
        message = f"{field or 'The body'}: {problem}."
        raise RequestRejected(400, "invalid_value", message, param=field) from error


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
    kind = item.get("type") or ("message" if "role" in item else "item_reference" if "id" in item else None)
    shape = ITEMS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise RequestRejected(
            400,
            "unknown_item_type",
            f"{param}.type is {_show(kind)}. Valid types: {', '.join(ITEMS)}.",
            param=f"{param}.type",
        )
    read_shape(item, shape, param)
    typed_item: Item = {**item, "type": kind}
    for field, allowed in content_fields(typed_item):
        if isinstance(item.get(field), list):
            _check_parts(item[field], allowed, f"{param}.{field}")
    return typed_item


def _check_parts(parts: Sequence[Mapping[str, Any]], allowed: frozenset[str], param: str) -> None:
    for index, part in enumerate(parts):
        path, kind = f"{param}[{index}]", part.get("type")
        if not isinstance(kind, str) or kind not in allowed:
            raise RequestRejected(
                400,
                "invalid_content_type",
                f"{path}.type is {_show(kind)}. Allowed here: {', '.join(sorted(allowed))}.",
                param=f"{path}.type",
            )
        read_shape(part, CONTENT[kind], path)
        if kind == "input_image":
            _check_image(part.get("image_url"), f"{path}.image_url")


def _check_image(url: str | None, param: str) -> None:
    if not url:
        raise RequestRejected(400, "missing_required_parameter", f"{param} is missing.", param=param)
    if url.startswith(("http://", "https://")):
        return  # accepted, but never fetched
    try:
        split_data_url(url)
    except ValueError as error:
        message = f"{param} is neither an http(s) URL nor a base64 data URL: {error}."
        raise RequestRejected(400, "invalid_image_url", message, param=param) from error


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[FunctionTool]:
    """Return the function tools of a request.

    Tools of other types are ignored: agents declare many types by default, and gateways pass them on.

    Raises:
        RequestRejected: A function tool is invalid, or two have the same name.
    """
    functions: list[FunctionTool] = []
    for index, tool in enumerate(tools or ()):
        if isinstance(kind := tool.get("type"), str) and kind != "function":
            continue
        functions.append(read_shape(tool, FunctionTool, f"tools[{index}]"))
    names = [function.name for function in functions]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RequestRejected(
                400, "duplicate_tool", f"Two tools have the name {name!r}.", param=f"tools[{index}].name"
            )
    return functions


# --- Checks across fields ---


def check_tool_choice(choice: str | Mapping[str, Any] | None, tools: Sequence[FunctionTool]) -> None:
    """Reject a `tool_choice` that the tools of the request cannot satisfy."""
    names = {tool.name for tool in tools}
    if isinstance(choice, Mapping):
        chosen = choice.get("tools") if choice.get("type") == "allowed_tools" else [choice]
        if choice.get("type") not in ("function", "allowed_tools") or not isinstance(chosen, list):
            raise RequestRejected(
                400,
                "invalid_value",
                "tool_choice.type must be function or allowed_tools.",
                param="tool_choice",
            )
        if not 1 <= len(chosen) <= 128:
            message = "tool_choice.tools must contain 1 to 128 tools."
            raise RequestRejected(400, "invalid_value", message, param="tool_choice.tools")
        for tool in chosen:
            name = tool.get("name") if isinstance(tool, Mapping) else None
            if not isinstance(name, str) or name not in names:
                raise RequestRejected(
                    400,
                    "unknown_tool",
                    f"tool_choice names {_show(name)}, which is not one of the tools.",
                    param="tool_choice",
                )
    elif choice == "required" and not names:
        message = "tool_choice is required, but the request has no tools."
        raise RequestRejected(400, "invalid_value", message, param="tool_choice")


def check_output_format(body: CreateBody) -> None:
    """Reject a `text.format` with an invalid name, or a JSON schema format without name or schema."""
    output_format = body.text.format if body.text else None
    if output_format is None:
        return
    name = output_format.name
    if name is not None and not 1 <= len(name) <= _FORMAT_NAME_LENGTH:
        message = f"text.format.name must have 1 to {_FORMAT_NAME_LENGTH} characters."
        raise RequestRejected(400, "invalid_value", message, param="text.format.name")
    if output_format.type == "json_schema" and (name is None or output_format.schema is None):
        field = "name" if name is None else "schema"
        raise RequestRejected(
            400,
            "missing_required_parameter",
            f"text.format of type json_schema requires a {field}.",
            param=f"text.format.{field}",
        )


def check_conversation(items: Sequence[Item], names: Sequence[str]) -> None:
    """Check that every function call has exactly one output, and that the output follows the call.

    Args:
        items: The whole conversation.
        names: The source of each item, such as `input[0]`; used in errors.

    Raises:
        RequestRejected: The conversation is empty, or calls and outputs do not match.
    """
    if not items:
        raise RequestRejected(
            400,
            "missing_required_parameter",
            "input is missing or empty. Send a string or at least one item.",
            param="input",
        )
    open_calls: dict[str, str] = {}
    answered: set[str] = set()
    for item, name in zip(items, names, strict=True):
        call_id = item.get("call_id", "")
        if item["type"] == "function_call":
            if call_id in open_calls or call_id in answered:
                raise RequestRejected(
                    400,
                    "duplicate_call_id",
                    f"{name} repeats the call_id {call_id!r}.",
                    param=f"{name}.call_id",
                )
            open_calls[call_id] = name
        elif item["type"] == "function_call_output":
            if call_id not in open_calls:
                reason = "already has an output" if call_id in answered else "has no function_call before it"
                raise RequestRejected(
                    400,
                    "duplicate_tool_output" if call_id in answered else "no_tool_call_found",
                    f"No tool call found for function call output with call_id {call_id!r}: it {reason}.",
                    param=f"{name}.call_id",
                )
            del open_calls[call_id]
            answered.add(call_id)
    for call_id, name in open_calls.items():
        raise RequestRejected(
            400,
            "no_tool_output_found",
            f"No tool output found for function call {call_id!r}.",
            param=f"{name}.call_id",
        )


def check_window(window: int, tokens: int) -> None:
    """Reject a prompt that is larger than the model's context window."""
    if tokens > window:
        raise RequestRejected(
            400,
            "context_length_exceeded",
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages.",
            param="input",
        )


def check_shared_window(window: int, tokens: int, output: int) -> None:
    """Reject a prompt that does not fit the window together with the output limit, in Anthropic's words."""
    if tokens + output > window:
        raise RequestRejected(
            400,
            "invalid_request_error",
            f"input length and `max_tokens` exceed context limit: {tokens} + {output} > {window}, decrease "
            "input length or `max_tokens` and try again",
        )


def check_abilities(model: Mapping[str, Any], items: Sequence[Item], tools: Sequence[FunctionTool]) -> None:
    """Reject tools and images for a model that does not support them."""
    tags = model["tags"]
    if tools and "tool-use" not in tags:
        raise RequestRejected(
            400, "unsupported_parameter", f"{model['id']} does not support tools.", param="tools"
        )
    if "vision" not in tags and any(_has_image(item) for item in items):
        raise RequestRejected(
            400, "unsupported_content", f"{model['id']} does not support images.", param="input"
        )


def _has_image(item: Item) -> bool:
    content = item.get("content") or item.get("output")
    return isinstance(content, list) and any(part["type"] == "input_image" for part in content)


def _describe_type(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(
        type(value), "a number"
    )


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


# --- Images ---


class ImageInfo(msgspec.Struct, frozen=True):
    """What the first bytes of an image show.

    Attributes:
        mime: The media type.
        size: Width and height in pixels, or None if the bytes do not contain them.
    """

    mime: str
    size: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.mime} of unknown size"
        return f"{self.mime}, {self.size[0]} × {self.size[1]} pixels"


def read_image(data: bytes) -> ImageInfo | None:
    """Return type and size of an image, or None if the bytes are not a known image format."""
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        return None
    return ImageInfo(mime, image_size(data))
