"""Error replies, and the requests that get one.

* `RequestRejected` is raised for an invalid request and becomes the error body of the protocol.
* `CannedReply` and the `make_…` functions create replies that a scenario sends in place of a response.
* `REJECTION_RULES` are requests that one real server rejects although they are valid, with the message of
  that server. They name the reason, so a client can change the request and send it again.
* `SERVER_RULES` are features that a server lacks. The errors give no field and no reason, so a client must
  know in advance what to omit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import formatdate
from typing import Any, NoReturn

import msgspec

Body = Mapping[str, Any]
Predicate = Callable[[Body], bool]


# The specification's error types by status; others are `invalid_request` or `server_error`. 401, 403 and 503
# are not in its table and follow common use.
ERROR_TYPES: dict[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found",
    429: "too_many_requests",
}


class RequestRejected(Exception):
    """Raised for a request that gets an error instead of a response.

    `param` is the path of the field that caused the error, or an empty string. It and the code are always
    strings, because some clients do not show the message if either is null.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The body of the HTTP response."""
        kind = ERROR_TYPES.get(self.status, "invalid_request" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def reject(code: str, message: str, param: str = "") -> NoReturn:
    """Raise `RequestRejected` with the status 400."""
    raise RequestRejected(400, code, message, param=param)


def show_value(value: object) -> str:
    """Return a value of a request as error messages quote it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


RETRY_AFTER = 1  # seconds


class CannedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete HTTP response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}


MakeReply = Callable[[], CannedReply]


def make_error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> MakeReply:
    """Return a factory of replies with the error body of the protocol."""
    body = msgspec.json.encode(RequestRejected(status, code, message).body)
    return lambda: CannedReply(status=status, body=body, headers=headers or {})


def make_json_error(status: int, body: Any) -> MakeReply:
    """Return a factory of replies with any JSON as the error body."""
    return lambda: CannedReply(status=status, body=msgspec.json.encode(body))


def make_page(status: int, body: str, content_type: str) -> MakeReply:
    """Return a factory of replies with a text as the body."""
    return lambda: CannedReply(status=status, body=body.encode(), content_type=content_type)


def make_rate_limit(retry_after: Callable[[], str]) -> MakeReply:
    """Return a factory of 429 replies with this Retry-After."""
    message = "Rate limited (simulated by the gateway)."
    return lambda: make_error(429, "rate_limit_exceeded", message, {"Retry-After": retry_after()})()


def make_retry_date() -> str:
    """Return the date after which to retry. It has whole seconds: one is added, so that it is not past."""
    return formatdate(time.time() + RETRY_AFTER + 1, usegmt=True)


BAD_GATEWAY_PAGE = (
    "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>"
    "<body><center><h1>502 Bad Gateway</h1></center><hr><center>proxy</center></body></html>"
)
SSE_ERROR = (
    'event: error\ndata: {"type":"error","sequence_number":0,"error":{"type":"server_error",'
    '"code":"server_error","message":"The upstream failed before it sent anything.","param":""}}\n\n'
)


# The requests have not been validated yet, so any value can have any type.


def _items(body: Body) -> Iterator[Body]:
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping):
            yield item


def _has_item(*kinds: str) -> Predicate:
    return lambda body: any(item.get("type") in kinds for item in _items(body))


def _has_role(role: str) -> Predicate:
    return lambda body: any(item.get("role") == role for item in _items(body))


def _has_part(kind: str) -> Predicate:
    """Return whether messages or tool results have a content part of this kind."""

    def applies(body: Body) -> bool:
        contents = [item.get(field) for item in _items(body) for field in ("content", "output")]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        return any(isinstance(part, Mapping) and part.get("type") == kind for part in parts)

    return applies


def _has_value(field: str) -> Predicate:
    return lambda body: body.get(field) is not None


def _has_field(field: str) -> Predicate:
    return lambda body: field in body


def _has_form(field: str, form: type, *, messages_only: bool = False) -> Predicate:
    """Return whether a field of an item has this form: content or output as a list or as a text."""
    return lambda body: any(
        isinstance(item.get(field), form) and ("role" in item or not messages_only) for item in _items(body)
    )


def _unsupported(field: str, message: str) -> MakeReply:
    error = {"message": message, "type": "invalid_request_error", "param": field}
    return make_json_error(400, {"error": {**error, "code": "unsupported_parameter"}})


def _message_only(message: str) -> MakeReply:
    """Return an error without code and field, as gateways forward the errors of a provider."""
    return make_json_error(400, {"error": {"message": message, "type": "invalid_request_error"}})


# By the name of the scenario: its description, which requests it rejects, and the error.
REJECTION_RULES: dict[str, tuple[str, Predicate, MakeReply]] = {
    "reject-reasoning": (
        "400 if the input has reasoning items",
        _has_item("reasoning"),
        make_error(400, "invalid_encrypted_content", "The encrypted content could not be verified."),
    ),
    "reject-reasoning-ids": (
        "404 if reasoning has an id, as with store=false",
        lambda body: any(item.get("type") == "reasoning" and item.get("id") for item in _items(body)),
        make_error(404, "", "Item 'rs_1' not found. Items are not persisted when `store` is set to false."),
    ),
    "reject-unsigned-calls": (
        "400 if a call has no thought_signature, like Gemini",
        lambda body: any(
            item.get("type") == "function_call" and "thought_signature" not in item for item in _items(body)
        ),
        _message_only(
            "Function call `default_api:f` in the 2. content block is missing a `thought_signature`."
        ),
    ),
    "reject-calls": (
        "400 if the input has function calls, like gateways that do not accept tool history",
        _has_item("function_call"),
        _message_only("input: Invalid input"),
    ),
    "reject-temperature": (
        "400 if temperature is set (with param)",
        _has_value("temperature"),
        _unsupported("temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
    ),
    "reject-top-p": (
        "400 if top_p is set (error message only, no param)",
        _has_value("top_p"),
        _message_only("`top_p` is deprecated for this model."),
    ),
    "reject-effort": (
        "400 if a reasoning effort is set",
        _has_value("reasoning"),
        _unsupported("reasoning.effort", "Unsupported parameter: 'reasoning.effort' is not supported."),
    ),
    "reject-include": (
        "400 if encrypted reasoning is requested",
        _has_value("include"),
        _message_only("Encrypted content is not supported with this model."),
    ),
    "reject-metadata": (
        "422 if metadata is sent, like servers that validate with pydantic",
        _has_value("metadata"),
        make_json_error(
            422, {"detail": [{"loc": ["body", "metadata"], "msg": "Extra inputs are not permitted"}]}
        ),
    ),
    "reject-parallel": (
        "400 if parallel_tool_calls is set",
        _has_value("parallel_tool_calls"),
        _message_only("Unknown parameter: 'parallel_tool_calls'."),
    ),
    "reject-store": (
        "400 if store is sent (with code and param)",
        _has_field("store"),
        _unsupported("store", "Unsupported parameter: 'store'."),
    ),
    "reject-tool-choice": (
        "400 if tool_choice is sent (error message only, no param)",
        _has_value("tool_choice"),
        _message_only("This model does not support the `tool_choice` parameter."),
    ),
    "reject-output-limit": (
        "400 if max_output_tokens is sent (error message only, no param)",
        _has_value("max_output_tokens"),
        _message_only("Unsupported parameter: max_output_tokens"),
    ),
    "reject-array-content": (
        "400 if any content is an array, like servers that accept only strings",
        _has_form("content", list),
        _message_only("input[1].content: invalid type: sequence, expected a string"),
    ),
    "reject-array-output": (
        "400 if a tool result is an array",
        _has_form("output", list),
        _message_only("function_call_output.output must be a string"),
    ),
    "reject-string-content": (
        "400 if any content is a string, like servers that accept only arrays",
        _has_form("content", str),
        _message_only('messages[0].content: invalid type: string "Hi", expected a sequence'),
    ),
    "reject-images": (
        "400 if the input has an image",
        _has_part("input_image"),
        _message_only("This model does not support image input."),
    ),
    "reject-this-image": (
        "400 if the input has an image, as for an image that cannot be read",
        _has_part("input_image"),
        _message_only("messages.0.content.1.image.source.base64: Could not process image"),
    ),
    "reject-files": (
        "400 if the input has a file",
        _has_part("input_file"),
        _message_only("Unknown content type: input_file"),
    ),
    "reject-developer": (
        "400 if a message has the role developer",
        _has_role("developer"),
        _message_only("Unexpected role 'developer': must be one of 'system', 'user', 'assistant', 'tool'."),
    ),
}


# Fields that a server can reject. The other rules concern the input and the tools.
_FIELDS = ("include", "max_output_tokens", "metadata", "parallel_tool_calls", "store", "temperature")

# By name: whether a body uses the feature.
SERVER_RULES: dict[str, Predicate] = {
    "developer": _has_role("developer"),
    "system": _has_role("system"),
    "instructions": _has_field("instructions"),
    "arrays": _has_form("content", list, messages_only=True),
    "strings": _has_form("content", str, messages_only=True),
    "calls": _has_item("function_call", "function_call_output"),
    "rich results": _has_form("output", list),
    "images": _has_part("input_image"),
    "files": _has_part("input_file"),
    "reasoning": _has_item("reasoning"),
    "flat tools": lambda body: any("name" in tool for tool in body.get("tools") or ()),
    **{field: _has_field(field) for field in _FIELDS},
}


def check_server_rules(names: Iterable[str], body: object) -> None:
    """Reject a body that uses a feature which the server lacks, by its name in `SERVER_RULES`."""
    # Anything but an object is left to the validation.
    if isinstance(body, Mapping) and any(SERVER_RULES[name](body) for name in names):
        reject("invalid_request", "Bad request.")


def drop_items(*types: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that removes the items of these types from a body, so that the model ignores them."""

    def drop(body: dict[str, Any]) -> dict[str, Any]:
        items = body.get("input")
        if not isinstance(items, list):
            return body
        return {**body, "input": [item for item in items if item.get("type") not in types]}

    return drop


def drop_attachments(body: dict[str, Any]) -> dict[str, Any]:
    """Remove all images and files from a body, so that the model ignores them."""
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        for field, value in item.items():
            if isinstance(value, list):
                item[field] = [
                    part for part in value if part.get("type") not in ("input_image", "input_file")
                ]
    return body


def flatten_tools(body: dict[str, Any]) -> dict[str, Any]:
    """Convert tools in the nested form of Chat Completions to the flat form of OpenResponses."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    flat = [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in tools]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and "function" in choice:
        choice = {"type": "function", **choice["function"]}
    return {**body, "tools": flat, **({} if choice is None else {"tool_choice": choice})}
