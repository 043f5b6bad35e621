"""Validate requests, and reject invalid ones with an error that names the field.

Reading is lenient: null is the same as an omitted field, unknown fields are ignored, and values that
gateways accept beyond the specification are allowed. The strict checks reject every request that the
specification, or some provider, does not accept:

* `check_schema` checks the body against the specification's JSON schema of 2026-04-24.
* `check_rules` checks rules that a schema cannot express, each of which some provider enforces.
* `ReasoningRegistry` checks that encrypted reasoning comes back unchanged, for the model that created it,
  and before the function call that it led to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.protocols.caller_request import name_type
from tollbridge.protocols.openresponses.schema import (
    CONTENT,
    EXTRA_EFFORTS,
    INCLUDABLE,
    ITEMS,
    SPECIFIED_CONTENT,
    SPECIFIED_ITEMS,
    SPECIFIED_MESSAGES,
    TOOL_CHOICES,
    CreateBody,
    CreateResponseBody,
    FunctionTool,
    Shape,
    StreamOptions,
    TextFormat,
    TextOptions,
    content_fields,
)
from tollbridge.testing.refusals import RequestRejected, invalid
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
        message = f"The body must be a JSON object, not {name_type(body)}."
        raise RequestRejected(400, "invalid_json", message)
    return body


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
            raise invalid(
                field, "missing_required_parameter", f"Missing required parameter: {field}."
            ) from error
        message = f"{field or 'The body'}: {problem}."
        raise invalid(field, "invalid_value", message) from error


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
        raise invalid(
            f"{param}.type",
            "unknown_item_type",
            f"{param}.type is {_show(kind)}. Valid types: {', '.join(ITEMS)}.",
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
            raise invalid(
                f"{path}.type",
                "invalid_content_type",
                f"{path}.type is {_show(kind)}. Allowed here: {', '.join(sorted(allowed))}.",
            )
        read_shape(part, CONTENT[kind], path)
        if kind == "input_image":
            _check_image(part.get("image_url"), f"{path}.image_url")


def _check_image(url: str | None, param: str) -> None:
    if not url:
        raise invalid(param, "missing_required_parameter", f"{param} is missing.")
    if url.startswith(("http://", "https://")):
        return  # accepted, but never fetched
    try:
        split_data_url(url)
    except ValueError as error:
        message = f"{param} is neither an http(s) URL nor a base64 data URL: {error}."
        raise invalid(param, "invalid_image_url", message) from error


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
            raise invalid(f"tools[{index}].name", "duplicate_tool", f"Two tools have the name {name!r}.")
    return functions


# --- Checks across fields ---


def check_tool_choice(choice: str | Mapping[str, Any] | None, tools: Sequence[FunctionTool]) -> None:
    """Reject a `tool_choice` that the tools of the request cannot satisfy."""
    names = {tool.name for tool in tools}
    if isinstance(choice, Mapping):
        chosen = choice.get("tools") if choice.get("type") == "allowed_tools" else [choice]
        if choice.get("type") not in ("function", "allowed_tools") or not isinstance(chosen, list):
            raise invalid(
                "tool_choice", "invalid_value", "tool_choice.type must be function or allowed_tools."
            )
        if not 1 <= len(chosen) <= 128:
            message = "tool_choice.tools must contain 1 to 128 tools."
            raise invalid("tool_choice.tools", "invalid_value", message)
        for tool in chosen:
            name = tool.get("name") if isinstance(tool, Mapping) else None
            if not isinstance(name, str) or name not in names:
                raise invalid(
                    "tool_choice",
                    "unknown_tool",
                    f"tool_choice names {_show(name)}, which is not one of the tools.",
                )
    elif choice == "required" and not names:
        message = "tool_choice is required, but the request has no tools."
        raise invalid("tool_choice", "invalid_value", message)


def check_output_format(body: CreateBody) -> None:
    """Reject a `text.format` with an invalid name, or a JSON schema format without name or schema."""
    output_format = body.text.format if body.text else None
    if output_format is None:
        return
    name = output_format.name
    if name is not None and not 1 <= len(name) <= _FORMAT_NAME_LENGTH:
        message = f"text.format.name must have 1 to {_FORMAT_NAME_LENGTH} characters."
        raise invalid("text.format.name", "invalid_value", message)
    if output_format.type == "json_schema" and (name is None or output_format.schema is None):
        field = "name" if name is None else "schema"
        raise invalid(
            f"text.format.{field}",
            "missing_required_parameter",
            f"text.format of type json_schema requires a {field}.",
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
        raise invalid(
            "input",
            "missing_required_parameter",
            "input is missing or empty. Send a string or at least one item.",
        )
    open_calls: dict[str, str] = {}
    answered: set[str] = set()
    for item, name in zip(items, names, strict=True):
        call_id = item.get("call_id", "")
        if item["type"] == "function_call":
            if call_id in open_calls or call_id in answered:
                raise invalid(
                    f"{name}.call_id", "duplicate_call_id", f"{name} repeats the call_id {call_id!r}."
                )
            open_calls[call_id] = name
        elif item["type"] == "function_call_output":
            if call_id not in open_calls:
                reason = "already has an output" if call_id in answered else "has no function_call before it"
                raise invalid(
                    f"{name}.call_id",
                    "duplicate_tool_output" if call_id in answered else "no_tool_call_found",
                    f"No tool call found for function call output with call_id {call_id!r}: it {reason}.",
                )
            del open_calls[call_id]
            answered.add(call_id)
    for call_id, name in open_calls.items():
        raise invalid(
            f"{name}.call_id", "no_tool_output_found", f"No tool output found for function call {call_id!r}."
        )


def check_window(window: int, tokens: int) -> None:
    """Reject a prompt that is larger than the model's context window."""
    if tokens > window:
        raise invalid(
            "input",
            "context_length_exceeded",
            (
                f"This model's maximum context length is {window} tokens. However, your messages resulted in "
                f"{tokens} tokens. Please reduce the length of the messages."
            ),
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
        raise invalid("tools", "unsupported_parameter", f"{model['id']} does not support tools.")
    contents = [item.get("content") or item.get("output") for item in items]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    if "vision" not in tags and any(part["type"] == "input_image" for part in parts):
        raise invalid("input", "unsupported_content", f"{model['id']} does not support images.")


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


# --- Strict checks ---

ItemFields = Mapping[str, Any]
_Value = TypeVar("_Value")

_VALID_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
# Number of reasoning items, and of calls, that a registry keeps. Older ones are dropped and no longer
# accepted.
REGISTRY_LIMIT = 10_000


# --- The specification's schema ---


def check_schema(body: Mapping[str, Any]) -> None:
    """Check a body of `POST /responses` against the specification's JSON schema.

    The shapes are those of the lenient reader. In addition, this function rejects null where a field may
    only be omitted, and the values that the shapes allow beyond the specification.

    Raises:
        RequestRejected: The body does not match. The error's `param` is the exact path.
    """
    body = _with_whole_numbers(body)
    output_format, body = _pop_output_format(body)
    request = _read_strictly(body, CreateResponseBody, "")
    if request.text is not None:
        _check_not_null(body["text"], TextOptions, "text")
    if request.stream_options is not None:
        _read_strictly(request.stream_options, StreamOptions, "stream_options")
    if request.reasoning is not None and request.reasoning.effort in EXTRA_EFFORTS:
        raise _invalid("reasoning.effort", f"{request.reasoning.effort!r} is not in the specification")
    for index, value in enumerate(request.include or ()):
        if value not in INCLUDABLE:
            raise _invalid(f"include[{index}]", f"{value!r} is not one of {', '.join(INCLUDABLE)}")
    if isinstance(request.input, list):
        for index, item in enumerate(request.input):
            _check_item(item, f"input[{index}]")
    for index, tool in enumerate(request.tools or ()):
        _read_strictly(tool, FunctionTool, f"tools[{index}]")
    if isinstance(request.tool_choice, dict):
        choice = request.tool_choice
        _read_strictly(choice, TOOL_CHOICES[_read_type(choice, TOOL_CHOICES, "tool_choice")], "tool_choice")
    if output_format is not None:
        _check_output_format(output_format)


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


def _check_output_format(output_format: Mapping[str, Any]) -> None:
    output_format = {"type": "json_schema", **output_format}
    if _read_type(output_format, ("text", "json_schema"), "text.format") == "json_schema":
        _read_strictly(output_format, TextFormat, "text.format")


def _check_item(item: Mapping[str, Any], param: str) -> None:
    kind = item.get("type")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str) or role not in SPECIFIED_MESSAGES:
            raise _invalid(f"{param}.role", f"{role!r} is not one of {', '.join(SPECIFIED_MESSAGES)}")
        shape = SPECIFIED_MESSAGES[role]
    elif kind is None and "role" in item:
        # Without a type the specification allows only a reference, which has no role.
        path = f"{param}.type"
        message = f"Missing required parameter: {path}."
        raise invalid(path, "missing_required_parameter", message)
    else:
        kind = "item_reference" if kind is None else kind
        if not isinstance(kind, str) or kind not in SPECIFIED_ITEMS:
            raise _invalid(f"{param}.type", f"{kind!r} is not one of message, {', '.join(SPECIFIED_ITEMS)}")
        shape = SPECIFIED_ITEMS[kind]
    _read_strictly(item, shape, param)
    if kind == "reasoning" and item.get("content") is not None:
        raise _invalid(f"{param}.content", "must be null: the specification has no raw reasoning in requests")
    for field, allowed in content_fields({**item, "type": kind}):
        if isinstance(item.get(field), list):
            for index, part in enumerate(item[field]):
                path = f"{param}.{field}[{index}]"
                _read_strictly(part, SPECIFIED_CONTENT[_read_type(part, sorted(allowed), path)], path)


def _read_strictly(value: Mapping[str, Any], shape: type[_Shape], param: str) -> _Shape:
    """Convert an object to a struct like `read_shape`, but reject null where the specification does."""
    struct = read_shape(value, shape, param)
    _check_not_null(value, shape, param)
    return struct


def _check_not_null(value: Mapping[str, Any], shape: type[Shape], param: str) -> None:
    for field in sorted(shape.not_null):
        if field in value and value[field] is None:
            path = f"{param}.{field}" if param else field
            raise _invalid(path, "must not be null; omit the field instead")


def _read_type(value: Mapping[str, Any], allowed: Sequence[str] | Mapping[str, Any], param: str) -> str:
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        raise _invalid(f"{param}.type", f"{kind!r} is not one of {', '.join(allowed)}")
    return kind


def _invalid(param: str, problem: str) -> RequestRejected:
    return invalid(param, "invalid_value", f"{param}: {problem[:200]}.")


# --- Rules beyond the schema ---


def check_rules(value: str | Sequence[ItemFields] | None) -> None:
    """Check rules that a schema cannot express, each of which some provider enforces.

    * There is at least one user message.
    * Every message has text, an image or a file.
    * Call ids consist of letters, digits, `_` and `-`.
    * No item id occurs twice.
    * The arguments of a call are the JSON text of an object.
    * Outputs follow their calls immediately, in the order of the calls.
    * Reasoning is followed by a message of the assistant or a function call.

    Args:
        value: The `input` of a request that `check_schema` accepts.

    Raises:
        RequestRejected: A rule is broken.
    """
    items = [{"type": "message", "role": "user", "content": value}] if isinstance(value, str) else value or []
    if not any(item.get("role") == "user" for item in items):
        raise invalid("input", "missing_user_message", "input has no user message.")
    for index, item in enumerate(items):
        _check_not_empty(item, f"input[{index}]")
        _check_call(item, f"input[{index}]")
        _check_reasoning_is_followed(items, index)
    _check_ids(items)
    _check_output_order(items)


def _check_not_empty(item: ItemFields, param: str) -> None:
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return
    parts = [{"text": content}] if isinstance(content, str) else content
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    if not text.strip() and not any(part.get("type") in ("input_image", "input_file") for part in parts):
        raise invalid(f"{param}.content", "empty_message", f"{param}.content is empty.")


def _check_call(item: ItemFields, param: str) -> None:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and not _VALID_CALL_ID.match(call_id):
        message = f"{param}.call_id {call_id[:80]!r} has characters other than letters, digits, _ and -."
        raise invalid(f"{param}.call_id", "invalid_value", message)
    if item.get("type") != "function_call":
        return
    try:
        msgspec.json.decode(item["arguments"], type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        message = f"{param}.arguments is not the JSON text of an object: {error}."
        raise invalid(f"{param}.arguments", "invalid_arguments", message) from error


def _check_reasoning_is_followed(items: Sequence[ItemFields], index: int) -> None:
    if items[index].get("type") != "reasoning":
        return
    next_item = next((item for item in items[index:] if item.get("type") != "reasoning"), {})
    if next_item.get("type") != "function_call" and next_item.get("role") != "assistant":
        message = f"input[{index}] is reasoning that was provided without its required following item."
        raise invalid(f"input[{index}]", "reasoning_without_following_item", message)


def _check_ids(items: Sequence[ItemFields]) -> None:
    ids: set[str] = set()
    for index, item in enumerate(items):
        item_id = item.get("id")
        if item_id in ids:
            message = (
                f"Duplicate item found with id {item_id}. "
                "Remove duplicate items from your input and try again."
            )
            raise invalid(f"input[{index}].id", "duplicate_item", message)
        if item_id:
            ids.add(item_id)


def _check_output_order(items: Sequence[ItemFields]) -> None:
    """While calls have no output yet, allow only further calls, reasoning and the outputs in order."""
    open_calls: list[str] = []
    outputs_started = False
    for index, item in enumerate(items):
        match item.get("type"):
            case "function_call" if open_calls and outputs_started:
                raise _out_of_order(index, f"the call {open_calls[0]} has no output yet")
            case "function_call":
                open_calls.append(item["call_id"])
            case "function_call_output":
                if not open_calls or item["call_id"] != open_calls[0]:
                    reason = (
                        f"the output of {open_calls[0]} must come first"
                        if open_calls
                        else "no call before it needs an output"
                    )
                    raise _out_of_order(index, reason)
                open_calls.pop(0)
                outputs_started = bool(open_calls)
            case "reasoning":
                pass
            case _ if open_calls:
                raise _out_of_order(index, f"the call {open_calls[0]} has no output yet")


def _out_of_order(index: int, reason: str) -> RequestRejected:
    return invalid(f"input[{index}]", "out_of_order", f"input[{index}] is out of order: {reason}.")


# --- Encrypted reasoning ---


class _EncryptedReasoning(msgspec.Struct, frozen=True):
    model: str
    item: ItemFields


class ReasoningRegistry:
    """The encrypted reasoning that a gateway has sent, to check what comes back.

    It contains only the reasoning of responses whose request asked for `reasoning.encrypted_content`.
    """

    def __init__(self) -> None:
        # By encrypted content, then by item id: equal reasoning in two responses has equal content.
        self._reasoning: dict[str, dict[str, _EncryptedReasoning]] = {}
        # By call id: the reasoning before the call.
        self._calls: dict[str, _EncryptedReasoning] = {}

    def add(self, model: str, output: Sequence[ItemFields]) -> None:
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

    def check(self, model: str, items: Sequence[ItemFields]) -> None:
        """Check the reasoning in a conversation.

        Raises:
            RequestRejected: Reasoning was changed or belongs to another model, or a call is sent without
                the reasoning that preceded it.
        """
        latest: ItemFields | None = None
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

    def _check_reasoning(self, model: str, item: ItemFields, param: str) -> None:
        content = item.get("encrypted_content")
        if content is None:
            return
        candidates = [entry for entry in self._reasoning.get(content, {}).values() if entry.model == model]
        if not candidates:
            message = (
                f"The encrypted content of {param} could not be verified: "
                f"this server did not create it for {model}."
            )
            raise invalid(f"{param}.encrypted_content", "invalid_encrypted_content", message)
        if not any(
            item.get("summary") == entry.item["summary"] and item.get("id") in (None, entry.item["id"])
            for entry in candidates
        ):
            message = f"The reasoning in {param} was changed. Send it back as it was received."
            raise invalid(param, "invalid_encrypted_content", message)

    def _check_call(self, model: str, item: ItemFields, latest: ItemFields | None, param: str) -> None:
        reasoning = self._calls.get(item["call_id"])
        if reasoning is None or reasoning.model != model:
            return
        if latest is None or latest.get("encrypted_content") != reasoning.item["encrypted_content"]:
            message = f"{param} is a function_call that was provided without its required 'reasoning' item."
            raise invalid(param, "reasoning_missing", message)


def _put(table: dict[str, _Value], key: str, value: _Value) -> None:
    while len(table) >= REGISTRY_LIMIT:
        table.pop(next(iter(table)))
    table[key] = value
