"""Finding the parameter that an error is about, with error messages of real servers."""

from __future__ import annotations

import pytest

from tollbridge.compat.parameters import omitted_fields, refused_fields
from tollbridge.types.errors import InvalidRequest
from tollbridge.types.messages import ChatRequest, Message, Role
from tollbridge.types.quirks import Quirks

REQUEST = ChatRequest(
    model="m",
    messages=(Message(Role.USER, "Hi"),),
    temperature=0.2,
    top_p=0.9,
    max_output_tokens=100,
    reasoning_effort="low",
    metadata={"a": "b"},
    parallel_tool_calls=True,
    extra={"providerOptions": {}},
)


@pytest.mark.parametrize(
    ("message", "param", "fields"),
    [
        ("Unsupported parameter: 'temperature' is not supported.", "temperature", ["temperature"]),
        ("'temperature' does not support 0.2. Only the default (1) is.", None, ["temperature"]),
        ("Unsupported value: 'reasoning.effort' does not support 'low'.", "reasoning.effort", ["reasoning"]),
        ("Unrecognized request argument supplied: reasoning_effort", None, ["reasoning"]),
        ("Encrypted content is not supported with this model.", "include", ["include"]),
        ("Extra inputs are not permitted at body.metadata", None, ["metadata"]),
        ("Unknown parameter: 'max_tokens'.", None, ["max_output_tokens"]),
        ("`temperature` and `top_p` cannot both be specified: invalid value", None, ["temperature", "top_p"]),
        ("Unknown parameter: 'providerOptions'.", None, ["providerOptions"]),
    ],
)  # fmt: skip
def test_the_rejected_field_is_found(message: str, param: str | None, fields: list[str]) -> None:
    assert refused_fields(InvalidRequest(message, status=400, param=param), REQUEST) == fields


@pytest.mark.parametrize(
    "message",
    [
        "Your temperature is fine, but you are not.",
        "The model does not exist.",
        "Unknown parameter: 'tool_choice'.",  # which this request does not have
        "Invalid value: 'input' is required.",
    ],
)
def test_no_field_is_removed_for_other_errors(message: str) -> None:
    assert refused_fields(InvalidRequest(message, status=400), REQUEST) == []


def test_an_omitted_field_is_reported_only_if_the_request_has_it() -> None:
    quirks = Quirks(without=frozenset({"temperature", "tool_choice", "store"}))
    assert omitted_fields(REQUEST, quirks) == ["store", "temperature"]  # `store` is in every request
