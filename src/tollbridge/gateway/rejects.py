"""Requests that real servers refuse, in the words of the server that does; fine once they are mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from tollbridge.gateway.replies import MakeReply, refusal, shaped

Body = Mapping[str, Any]


class Reject(msgspec.Struct, frozen=True):
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


def _has(field: str) -> Callable[[Body], bool]:
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


REJECTS: dict[str, Reject] = {
    "reject-reasoning": Reject(
        "400 while the input holds reasoning items, fine without them",
        _holds("reasoning"),
        refusal(400, "invalid_encrypted_content", "The encrypted content could not be verified."),
    ),
    "reject-reasoning-ids": Reject(
        "404 while reasoning has an id, as where items are not kept",
        _holds_reasoning_id,
        refusal(404, "", "Item 'rs_1' not found. Items are not persisted when `store` is set to false."),
    ),
    "reject-unsigned-calls": Reject(
        "400 while a call has no thought_signature, as Gemini",
        _holds_unsigned_call,
        _said("Function call `default_api:f` in the 2. content block is missing a `thought_signature`."),
    ),
    "reject-calls": Reject(
        "400 while the input holds function calls, as a gateway that reads no history of tools",
        _holds("function_call"),
        _said("input: Invalid input"),
    ),
    "reject-temperature": Reject(
        "400 while a temperature is set, with the field named",
        _has("temperature"),
        _unsupported("temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
    ),
    "reject-top-p": Reject(
        "400 while top_p is set, in words alone",
        _has("top_p"),
        _said("`top_p` is deprecated for this model."),
    ),
    "reject-effort": Reject(
        "400 while a reasoning effort is set",
        _has("reasoning"),
        _unsupported("reasoning.effort", "Unsupported parameter: 'reasoning.effort' is not supported."),
    ),
    "reject-include": Reject(
        "400 while encrypted reasoning is asked for",
        _has("include"),
        _said("Encrypted content is not supported with this model."),
    ),
    "reject-metadata": Reject(
        "422 while metadata is sent, as a server that validates with pydantic",
        _has("metadata"),
        shaped(422, {"detail": [{"loc": ["body", "metadata"], "msg": "Extra inputs are not permitted"}]}),
    ),
    "reject-parallel": Reject(
        "400 while parallel_tool_calls is set",
        _has("parallel_tool_calls"),
        _said("Unknown parameter: 'parallel_tool_calls'."),
    ),
    "reject-array-content": Reject(
        "400 while any content is an array, as a server that reads strings alone",
        _holds_array,
        _said("input[1].content: invalid type: sequence, expected a string"),
    ),
    "reject-array-output": Reject(
        "400 while the result of a tool is an array",
        _holds_array_output,
        _said("function_call_output.output must be a string"),
    ),
    "reject-string-content": Reject(
        "400 while any content is a string, as a server that reads arrays alone",
        _holds_string,
        _said("messages[0].content: invalid type: string \"Hi\", expected a sequence"),
    ),
    "reject-images": Reject(
        "400 while the input holds an image",
        _holds_part("input_image"),
        _said("This model does not support image input."),
    ),
    "reject-this-image": Reject(
        "400 while the input holds an image, as one that cannot be read",
        _holds_part("input_image"),
        _said("messages.0.content.1.image.source.base64: Could not process image"),
    ),
    "reject-files": Reject(
        "400 while the input holds a file",
        _holds_part("input_file"),
        _said("Unknown content type: input_file"),
    ),
    "reject-developer": Reject(
        "400 while a message has the role developer",
        _holds_role("developer"),
        _said("Unexpected role 'developer': must be one of 'system', 'user', 'assistant', 'tool'."),
    ),
}  # fmt: skip
