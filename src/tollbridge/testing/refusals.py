"""What servers refuse though the protocol has it: rules that a scenario puts up, by name.

The refusals say nothing: no field, no reason. Only who has asked before knows what to leave out. (`rejects`
has the servers that do say.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import formatdate
from functools import partial
from typing import Any

import msgspec

# SECTION How the gateway says no: one exception, and the error body the protocol gives it.

# The specification's error types by status; 401, 403 and 503 are not in its table and follow common use.
TYPES: dict[int, str] = {
    400: "invalid_request",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found",
    405: "invalid_request",
    413: "invalid_request",
    415: "invalid_request",
    429: "too_many_requests",
    500: "server_error",
    503: "server_error",
}


class RequestRejected(Exception):
    """A request that gets an error instead of an answer.

    `param` and `code` are always strings: there are clients that hide the message when either is null.
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
    def error(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request" if self.status < 500 else "server_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.error}


# SECTION What can be sent in place of an answer: refusals in every shape that servers give them.

RETRY_AFTER = 1  # seconds


class CannedReply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}


MakeReply = Callable[[], CannedReply]


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> MakeReply:
    body = msgspec.json.encode(RequestRejected(status, code, message).body)
    return lambda: CannedReply(status=status, body=body, headers=headers or {})


def shaped(status: int, body: Any) -> MakeReply:
    """Any JSON as an error body."""
    return lambda: CannedReply(status=status, body=msgspec.json.encode(body))


def page(status: int, body: str, content_type: str) -> MakeReply:
    return lambda: CannedReply(status=status, body=body.encode(), content_type=content_type)


def rate_limit_by_date() -> CannedReply:
    # A date has whole seconds: one more, so that it is never already past.
    when = formatdate(time.time() + RETRY_AFTER + 1, usegmt=True)
    return refusal(
        429, "rate_limit_exceeded", "Too many requests; wait until Retry-After.", {"Retry-After": when}
    )()


HTML = (
    "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>"
    "<body><center><h1>502 Bad Gateway</h1></center><hr><center>proxy</center></body></html>"
)
SSE_ERROR = (
    'event: error\ndata: {"type":"error","sequence_number":0,"error":{"type":"server_error",'
    '"code":"server_error","message":"The upstream failed before it said anything.","param":""}}\n\n'
)


# SECTION Requests that real servers refuse, in the words of the server that does; fine once they are mended.

Body = Mapping[str, Any]


class RejectionRule(msgspec.Struct, frozen=True):
    says: str
    when: Callable[[Body], bool]
    reply: MakeReply


def items_of(body: Body) -> Iterator[Body]:
    """The items of a request that is yet to be checked."""
    given = body.get("input")
    for item in given if isinstance(given, list) else ():
        if isinstance(item, Mapping):
            yield item


def _content(body: Body) -> Iterator[Any]:
    for item in items_of(body):
        for field in ("content", "output"):
            if isinstance(item.get(field), list):
                yield from item[field]


def _holds(kind: str) -> Callable[[Body], bool]:
    return lambda body: any(item.get("type") == kind for item in items_of(body))


def _holds_role(role: str) -> Callable[[Body], bool]:
    return lambda body: any(item.get("role") == role for item in items_of(body))


def _holds_part(kind: str) -> Callable[[Body], bool]:
    return lambda body: any(isinstance(part, Mapping) and part.get("type") == kind for part in _content(body))


def _has_input(field: str) -> Callable[[Body], bool]:
    return lambda body: body.get(field) is not None


def _holds_array(body: Body) -> bool:
    return any(isinstance(item.get("content"), list) for item in items_of(body))


def _holds_array_output(body: Body) -> bool:
    return any(isinstance(item.get("output"), list) for item in items_of(body))


def _holds_string(body: Body) -> bool:
    return any(isinstance(item.get("content"), str) for item in items_of(body))


def _holds_reasoning_id(body: Body) -> bool:
    return any(item.get("type") == "reasoning" and item.get("id") for item in items_of(body))


def _holds_unsigned_call(body: Body) -> bool:
    return any(
        item.get("type") == "function_call" and "thought_signature" not in item for item in items_of(body)
    )


def _unsupported(field: str, message: str) -> MakeReply:
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": field,
        "code": "unsupported_parameter",
    }
    return shaped(400, {"error": error})


def _said(message: str, status: int = 400) -> MakeReply:
    """Only words: no code and no field, as gateways hand on what a provider said."""
    return shaped(status, {"error": {"message": message, "type": "invalid_request_error"}})


REJECTION_RULES: dict[str, RejectionRule] = {
    "reject-reasoning": RejectionRule(
        "400 while the input holds reasoning items, fine without them",
        _holds("reasoning"),
        refusal(400, "invalid_encrypted_content", "The encrypted content could not be verified."),
    ),
    "reject-reasoning-ids": RejectionRule(
        "404 while reasoning has an id, as where items are not kept",
        _holds_reasoning_id,
        refusal(404, "", "Item 'rs_1' not found. Items are not persisted when `store` is set to false."),
    ),
    "reject-unsigned-calls": RejectionRule(
        "400 while a call has no thought_signature, as Gemini",
        _holds_unsigned_call,
        _said("Function call `default_api:f` in the 2. content block is missing a `thought_signature`."),
    ),
    "reject-calls": RejectionRule(
        "400 while the input holds function calls, as a gateway that reads no history of tools",
        _holds("function_call"),
        _said("input: Invalid input"),
    ),
    "reject-temperature": RejectionRule(
        "400 while a temperature is set, with the field named",
        _has_input("temperature"),
        _unsupported("temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
    ),
    "reject-top-p": RejectionRule(
        "400 while top_p is set, in words alone",
        _has_input("top_p"),
        _said("`top_p` is deprecated for this model."),
    ),
    "reject-effort": RejectionRule(
        "400 while a reasoning effort is set",
        _has_input("reasoning"),
        _unsupported("reasoning.effort", "Unsupported parameter: 'reasoning.effort' is not supported."),
    ),
    "reject-include": RejectionRule(
        "400 while encrypted reasoning is asked for",
        _has_input("include"),
        _said("Encrypted content is not supported with this model."),
    ),
    "reject-metadata": RejectionRule(
        "422 while metadata is sent, as a server that validates with pydantic",
        _has_input("metadata"),
        shaped(422, {"detail": [{"loc": ["body", "metadata"], "msg": "Extra inputs are not permitted"}]}),
    ),
    "reject-parallel": RejectionRule(
        "400 while parallel_tool_calls is set",
        _has_input("parallel_tool_calls"),
        _said("Unknown parameter: 'parallel_tool_calls'."),
    ),
    "reject-array-content": RejectionRule(
        "400 while any content is an array, as a server that reads strings alone",
        _holds_array,
        _said("input[1].content: invalid type: sequence, expected a string"),
    ),
    "reject-array-output": RejectionRule(
        "400 while the result of a tool is an array",
        _holds_array_output,
        _said("function_call_output.output must be a string"),
    ),
    "reject-string-content": RejectionRule(
        "400 while any content is a string, as a server that reads arrays alone",
        _holds_string,
        _said("messages[0].content: invalid type: string \"Hi\", expected a sequence"),
    ),
    "reject-images": RejectionRule(
        "400 while the input holds an image",
        _holds_part("input_image"),
        _said("This model does not support image input."),
    ),
    "reject-this-image": RejectionRule(
        "400 while the input holds an image, as one that cannot be read",
        _holds_part("input_image"),
        _said("messages.0.content.1.image.source.base64: Could not process image"),
    ),
    "reject-files": RejectionRule(
        "400 while the input holds a file",
        _holds_part("input_file"),
        _said("Unknown content type: input_file"),
    ),
    "reject-developer": RejectionRule(
        "400 while a message has the role developer",
        _holds_role("developer"),
        _said("Unexpected role 'developer': must be one of 'system', 'user', 'assistant', 'tool'."),
    ),
}  # fmt: skip


# SECTION What servers refuse though the protocol has it: rules that a scenario puts up, by name.
#
# The refusals say nothing: no field, no reason. Only who has asked before knows what to leave out. (`rejects`
# has the servers that do say.)

# Fields that may be refused as such.
FIELDS = ("include", "max_output_tokens", "metadata", "parallel_tool_calls", "store", "temperature")
_CALLS = ("function_call", "function_call_output")


def _messages(body: Body) -> Iterator[Mapping[str, Any]]:
    return (item for item in items_of(body) if "role" in item)


def _parts(body: Body) -> Iterator[Mapping[str, Any]]:
    for item in items_of(body):
        content = item.get("content") or item.get("output")
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))


def _results(body: Body) -> Iterator[Any]:
    return (item.get("output") for item in items_of(body) if item.get("type") == "function_call_output")


def _has(field: str, body: Body) -> bool:
    return field in body


# Whether a body breaks the rule.
RULES: dict[str, Callable[[Body], bool]] = {
    "developer": lambda body: any(item["role"] == "developer" for item in _messages(body)),
    "system": lambda body: any(item["role"] == "system" for item in _messages(body)),
    "instructions": lambda body: "instructions" in body,
    "arrays": lambda body: any(isinstance(item.get("content"), list) for item in _messages(body)),
    "strings": lambda body: any(isinstance(item.get("content"), str) for item in _messages(body)),
    "calls": lambda body: any(item.get("type") in _CALLS for item in items_of(body)),
    "rich results": lambda body: any(isinstance(each, list) for each in _results(body)),
    "images": lambda body: any(part.get("type") == "input_image" for part in _parts(body)),
    "files": lambda body: any(part.get("type") == "input_file" for part in _parts(body)),
    "reasoning": lambda body: any(item.get("type") == "reasoning" for item in items_of(body)),
    "flat tools": lambda body: any("name" in tool for tool in body.get("tools") or ()),
    **{field: partial(_has, field) for field in FIELDS},
}


def check_server_rules(names: Iterable[str], body: object) -> None:
    """Refuses the body that breaks one of the rules named."""
    if not isinstance(body, Mapping):
        return
    if any(RULES[name](body) for name in names):
        raise RequestRejected(400, "invalid_request", "Bad request.")


def unnested(body: dict[str, Any]) -> dict[str, Any]:
    """A body whose tools came as chat completions name them, as the protocol does."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    flat = [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in tools]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and "function" in choice:
        choice = {"type": "function", **choice["function"]}
    return {**body, "tools": flat, **({} if choice is None else {"tool_choice": choice})}
