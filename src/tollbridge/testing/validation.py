"""Whether a request is one the protocol allows; if not, a refusal that names the field and what is wrong."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.protocols.openresponses.schema import (
    ALLOWED,
    CONTENT,
    ITEMS,
    CompactBody,
    CreateBody,
    FunctionTool,
)
from tollbridge.testing.refusals import RequestRejected
from tollbridge.types.media import image_size, sniff

# SECTION What can be said of an image from its first bytes.


class Picture(msgspec.Struct, frozen=True):
    """`size` is width and height in pixels, where the bytes tell."""

    mime: str
    size: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.mime} of unknown size"
        return f"{self.mime}, {self.size[0]} × {self.size[1]} pixels"


def split_data_url(url: str) -> tuple[str, bytes]:
    """The label and the bytes of a base64 `data:` URL; raises `ValueError` where it is not one."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ValueError("not a base64 data URL")
    try:
        return head[5:-7] or "text/plain", base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise ValueError("its base64 is broken") from error


def read_picture(data: bytes) -> Picture | None:
    """What the bytes show, or `None` where they are no image we know."""
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        return None
    return Picture(mime, image_size(data))


# SECTION Whether a request is one the protocol allows; if not, a refusal that names the field and what is wrong.

Item = dict[str, Any]
_Shape = TypeVar("_Shape", bound=msgspec.Struct)
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<field>\w+)`")


def read_json(data: bytes | str) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRejected(400, "invalid_json", f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestRejected(400, "invalid_json", f"The body must be a JSON object, not {_kind(body)}.")
    return body


def read_create(body: Mapping[str, Any]) -> CreateBody:
    return read_shape(body, CreateBody, "")


def read_compact(body: Mapping[str, Any]) -> CompactBody:
    return read_shape(body, CompactBody, "")


def read_input(given: str | Sequence[Mapping[str, Any]] | None) -> list[Item]:
    """The items of `input`, each checked and with its `type` said. Nothing given gives no items."""
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}] if given else []
    return [_read_item(item, f"input[{index}]") for index, item in enumerate(given)]


def read_tools(given: Sequence[Mapping[str, Any]] | None) -> list[FunctionTool]:
    tools: list[FunctionTool] = []
    for index, tool in enumerate(given or ()):
        param = f"tools[{index}]"
        if tool.get("type") != "function":
            raise RequestRejected(
                400,
                "unsupported_tool",
                f"{param}.type is {_shown(tool.get('type'))}; only 'function' tools are offered here.",
                param=f"{param}.type",
            )
        tools.append(read_shape(tool, FunctionTool, param))
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RequestRejected(
                400, "duplicate_tool", f"Two tools are named {name!r}.", param=f"tools[{index}].name"
            )
    return tools


def check_tool_choice(choice: str | Mapping[str, Any] | None, tools: Sequence[FunctionTool]) -> None:
    names = {tool.name for tool in tools}
    if isinstance(choice, Mapping):
        wanted = choice.get("tools") if choice.get("type") == "allowed_tools" else [choice]
        if choice.get("type") not in ("function", "allowed_tools") or not isinstance(wanted, list):
            raise RequestRejected(
                400,
                "invalid_value",
                "tool_choice.type must be function or allowed_tools.",
                param="tool_choice",
            )
        if not 1 <= len(wanted) <= 128:
            raise RequestRejected(
                400, "invalid_value", "tool_choice.tools holds 1 to 128 tools.", param="tool_choice.tools"
            )
        for tool in wanted:
            name = tool.get("name") if isinstance(tool, Mapping) else None
            if not isinstance(name, str) or name not in names:
                raise RequestRejected(
                    400,
                    "unknown_tool",
                    f"tool_choice names {_shown(name)}, which is not among the tools.",
                    param="tool_choice",
                )
    elif choice == "required" and not names:
        raise RequestRejected(
            400, "invalid_value", "tool_choice is required, but no tools are given.", param="tool_choice"
        )


def check_output_format(body: CreateBody) -> None:
    form = body.text.format if body.text else None
    if form is not None and form.type == "json_schema" and (form.name is None or form.schema is None):
        field = "name" if form.name is None else "schema"
        raise RequestRejected(
            400,
            "missing_required_parameter",
            f"text.format of type json_schema needs a {field}.",
            param=f"text.format.{field}",
        )


def check_conversation(items: Sequence[Item], names: Sequence[str]) -> None:
    """A result follows its call, a call has its result. `names` say where each item came from."""
    if not items:
        raise RequestRejected(
            400,
            "missing_required_parameter",
            "input is missing or empty: give a string or at least one item.",
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
                why = "was answered already" if call_id in answered else "has no function_call before it"
                raise RequestRejected(
                    400,
                    "duplicate_tool_output" if call_id in answered else "no_tool_call_found",
                    f"No tool call found for function call output with call_id {call_id!r}: it {why}.",
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


def check_window(model: Mapping[str, Any], tokens: int) -> None:
    window = model["context_window"]
    if tokens > window:
        raise RequestRejected(
            400,
            "context_length_exceeded",
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages.",
            param="input",
        )


def check_abilities(model: Mapping[str, Any], items: Sequence[Item], tools: Sequence[FunctionTool]) -> None:
    tags = model["tags"]
    if tools and "tool-use" not in tags:
        raise RequestRejected(
            400, "unsupported_parameter", f"{model['id']} does not use tools.", param="tools"
        )
    if "vision" not in tags and any(_holds_image(item) for item in items):
        raise RequestRejected(
            400, "unsupported_content", f"{model['id']} does not see images.", param="input"
        )


def _holds_image(item: Item) -> bool:
    content = item.get("content") or item.get("output")
    return isinstance(content, list) and any(part["type"] == "input_image" for part in content)


def _read_item(item: Mapping[str, Any], param: str) -> Item:
    # The specification wants a type on messages; OpenAI's clients leave it out.
    kind = item.get("type") or ("message" if "role" in item else "item_reference" if "id" in item else None)
    shape = ITEMS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise RequestRejected(
            400,
            "unknown_item_type",
            f"{param}.type is {_shown(kind)}. Known types: {', '.join(ITEMS)}.",
            param=f"{param}.type",
        )
    read_shape(item, shape, param)
    for field, allowed in _content_fields(str(kind), item):
        if isinstance(item.get(field), list):
            _check_parts(item[field], allowed, f"{param}.{field}")
    return {**item, "type": kind}


def _content_fields(kind: str, item: Mapping[str, Any]) -> list[tuple[str, frozenset[str]]]:
    match kind:
        case "message":
            return [("content", ALLOWED[item["role"]])]
        case "function_call_output":
            return [("output", ALLOWED["function_call_output"])]
        case "reasoning":
            return [("summary", ALLOWED["summary"]), ("content", ALLOWED["reasoning"])]
    return []


def _check_parts(parts: Sequence[Mapping[str, Any]], allowed: frozenset[str], param: str) -> None:
    for index, part in enumerate(parts):
        at, kind = f"{param}[{index}]", part.get("type")
        if not isinstance(kind, str) or kind not in allowed:
            raise RequestRejected(
                400,
                "invalid_content_type",
                f"{at}.type is {_shown(kind)}; allowed here: {', '.join(sorted(allowed))}.",
                param=f"{at}.type",
            )
        read_shape(part, CONTENT[kind], at)
        if kind == "input_image":
            _check_image(part.get("image_url"), f"{at}.image_url")


def _check_image(url: str | None, param: str) -> None:
    if not url:
        raise RequestRejected(400, "missing_required_parameter", f"{param} is missing.", param=param)
    if url.startswith(("http://", "https://")):
        return  # taken as it is, and never fetched
    try:
        split_data_url(url)
    except ValueError as error:
        message = f"{param} is neither an http(s) URL nor a base64 data URL: {error}."
        raise RequestRejected(400, "invalid_image_url", message, param=param) from error


def read_shape(given: Mapping[str, Any], shape: type[_Shape], param: str) -> _Shape:
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        found = _AT.match(str(error))
        what, path = (found["what"], found["path"] or "") if found else (str(error), "")
        missing = _MISSING.search(what)
        field = f"{param}{path}" + (f".{missing['field']}" if missing else "")
        field = field.removeprefix(".")
        if missing:
            raise RequestRejected(
                400, "missing_required_parameter", f"Missing required parameter: {field}.", param=field
            ) from error
        raise RequestRejected(400, "invalid_value", f"{field or 'The body'}: {what}.", param=field) from error


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(
        type(value), "a number"
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
