"""Finding the parameter that an error is about, with error messages of real servers."""

from __future__ import annotations

import pytest

from tollbridge.compat.fields import SENSITIVE_NOTES, describe_omissions, omitted_fields, refused_fields
from tollbridge.types.errors import InvalidRequest
from tollbridge.types.messages import ChatRequest, Message, OutputFormat, Role
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


# Errors of servers that do not know a field. Each is tried with each field that changes privacy or meaning.
UNSUPPORTED = [
    "Unsupported parameter: '{}'.",  # OpenAI
    "Unsupported parameter: '{}' is not supported with this model.",
    "Unknown parameter: '{}'.",
    "Unrecognized request argument supplied: {}",
    "Unrecognized request arguments supplied: metadata, {}",
    "{}: Extra inputs are not permitted",  # Anthropic
    "Extra inputs are not permitted at body.{}",  # FastAPI, as `protocols.errors` reads it
    'json: unknown field "{}"',  # servers in Go
    "property '{}' is unsupported, did you mean 'x'?",  # Groq
    "Additional properties are not allowed ('{}' was unexpected)",  # jsonschema
    "openai does not support parameters: ['{}'], for model=m.",  # LiteLLM
    "create() got an unexpected keyword argument '{}'",
    "This model does not support the `{}` parameter.",
    "The following parameters are not supported: {}",
]
# Errors that mention a field and are about something else.
MENTIONS = [
    "Background mode is not supported when {} is set.",
    "Invalid value: {} must be true.",
    "Unsupported value: '{}' does not support this value.",
    "Unknown parameter: '{}.mode'.",
    "Unknown parameter: 'background', which needs {}.",
    "The {} is not valid; unsupported request.",
    "Unsupported parameter: 'my_{}'.",
    "The value of {} is not supported.",
    "{} is not supported when background is true.",
    "Unsupported parameter: {} requires tools.",
    "{}d responses are not available in this region.",
]
SENSITIVE = ChatRequest(
    model="m",
    messages=(Message(Role.USER, "Hi"),),
    tool_choice="required",
    max_output_tokens=100,
    metadata={"a": "b"},
    extra={"text": {}, "response_format": {}, "providerOptions": {}},
)
FIELDS = ["store", "tool_choice", "max_output_tokens", "text", "response_format", "providerOptions"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("message", UNSUPPORTED)
def test_a_field_that_changes_the_meaning_is_found_if_it_is_unsupported(message: str, field: str) -> None:
    error = InvalidRequest(message.format(field), status=400)
    assert field in refused_fields(error, SENSITIVE)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("message", MENTIONS)
def test_a_field_that_changes_the_meaning_is_not_found_if_it_is_mentioned(message: str, field: str) -> None:
    assert refused_fields(InvalidRequest(message.format(field), status=400), SENSITIVE) == []


@pytest.mark.parametrize("code", ["unsupported_value", "invalid_parameter", None])
def test_an_error_about_the_value_of_store_does_not_remove_store(code: str | None) -> None:
    error = InvalidRequest("Unsupported value: false.", status=400, code=code, param="store")
    assert refused_fields(error, SENSITIVE) == []


def test_a_field_of_the_caller_may_have_any_name() -> None:
    request = ChatRequest(model="m", messages=(Message(Role.USER, "Hi"),), extra={"a(b": 1})
    assert refused_fields(InvalidRequest("Unknown parameter: 'a(b'", status=400), request) == ["a(b"]


def test_leaving_out_the_format_of_the_answer_is_reported() -> None:
    quirks = Quirks(without=frozenset({"text"}))
    request = ChatRequest(model="m", messages=(), output_format=OutputFormat("o", {"type": "object"}))
    [sentence] = describe_omissions(omitted_fields(request, quirks))
    assert sentence in SENSITIVE_NOTES


def test_an_error_about_the_input_is_not_about_a_field() -> None:
    error = InvalidRequest("Unknown text: 'temperature'", status=400, param="input[0].content")
    assert refused_fields(error, REQUEST) == []


def test_an_omitted_field_is_reported_only_if_the_request_has_it() -> None:
    quirks = Quirks(without=frozenset({"temperature", "tool_choice", "store"}))
    assert omitted_fields(REQUEST, quirks) == ["store", "temperature"]  # `store` is in every request
