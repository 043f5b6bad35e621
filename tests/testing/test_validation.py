"""Requests that the gateway rejects, and the errors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.testing.client import DEMO, WEATHER, Client, assistant, result, user

CALL = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    # name: the body, and the param and the code of the error
    "no model": ({"input": "Hi", "model": None}, "model", "invalid_value"),
    "no input": ({}, "input", "missing_required_parameter"),
    "empty text": ({"input": ""}, "input", "missing_required_parameter"),
    "no items": ({"input": []}, "input", "missing_required_parameter"),
    "input of the wrong type": ({"input": 42}, "input", "invalid_value"),
    "an item that is no object": ({"input": ["Hi"]}, "input[0]", "invalid_value"),
    "an unknown item": ({"input": [{"type": "telegram"}]}, "input[0].type", "unknown_item_type"),
    "an item without a type": ({"input": [{}]}, "input[0].type", "unknown_item_type"),
    "an unknown role": ({"input": [{"role": "boss", "content": "Hi"}]}, "input[0].role", "invalid_value"),
    "no content": ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
    "content of the wrong type": ({"input": [user(1)]}, "input[0].content", "invalid_value"),
    "an unknown part": (
        {"input": [user([{"type": "smell"}])]},
        "input[0].content[0].type",
        "invalid_content_type",
    ),
    "a part for another role": (
        {"input": [user([{"type": "output_text", "text": "Hi"}])]},
        "input[0].content[0].type",
        "invalid_content_type",
    ),
    "an image said by the model": (
        {"input": [assistant([{"type": "input_image", "image_url": "https://x/"}])]},
        "input[0].content[0].type",
        "invalid_content_type",
    ),
    "a part without text": (
        {"input": [user("a"), user([{"type": "input_text"}])]},
        "input[1].content[0].text",
        "missing_required_parameter",
    ),
    "an image without a URL": (
        {"input": [user([{"type": "input_image"}])]},
        "input[0].content[0].image_url",
        "missing_required_parameter",
    ),
    "an image that is no URL": (
        {"input": [user([{"type": "input_image", "image_url": "data:image/png;base64,***"}])]},
        "input[0].content[0].image_url",
        "invalid_image_url",
    ),
    "an orphan result": ({"input": [user("a"), result("c1", "b")]}, "input[1].call_id", "no_tool_call_found"),
    "a result before its call": (
        {"input": [result("c1", "b"), CALL]},
        "input[0].call_id",
        "no_tool_call_found",
    ),
    "a call without a result": ({"input": [CALL, user("a")]}, "input[0].call_id", "no_tool_output_found"),
    "a result told twice": (
        {"input": [CALL, result("c1", "b"), result("c1", "b")]},
        "input[2].call_id",
        "duplicate_tool_output",
    ),
    "a call_id used twice": (
        {"input": [CALL, result("c1", "b"), CALL]},
        "input[2].call_id",
        "duplicate_call_id",
    ),
    "a call_id too long": ({"input": [{**CALL, "call_id": "c" * 65}]}, "input[0].call_id", "invalid_value"),
    "an empty call_id": ({"input": [{**CALL, "call_id": ""}]}, "input[0].call_id", "invalid_value"),
    "a name too long": ({"input": [{**CALL, "name": "n" * 65}]}, "input[0].name", "invalid_value"),
    "a name with a dot": ({"input": [{**CALL, "name": "a.b"}]}, "input[0].name", "invalid_value"),
    "arguments as an object": ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments", "invalid_value"),
    "reasoning without a summary": (
        {"input": [{"type": "reasoning"}]},
        "input[0].summary",
        "missing_required_parameter",
    ),
    "a tool's name with a space": (
        {"input": "Hi", "tools": [{"type": "function", "name": "a b"}]},
        "tools[0].name",
        "invalid_value",
    ),
    "a tool in a nested shape": (
        {"input": "Hi", "tools": [{"type": "function", "function": {"name": "a"}}]},
        "tools[0].name",
        "missing_required_parameter",
    ),
    "a tool without a type": (
        {"input": "Hi", "tools": [{"name": "a"}]},
        "tools[0].type",
        "missing_required_parameter",
    ),
    "two tools of one name": (
        {"input": "Hi", "tools": [WEATHER, WEATHER]},
        "tools[1].name",
        "duplicate_tool",
    ),
    "required without tools": ({"input": "Hi", "tool_choice": "required"}, "tool_choice", "invalid_value"),
    "a choice that is not offered": (
        {"input": "Hi", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}},
        "tool_choice",
        "unknown_tool",
    ),
    "an unknown choice": ({"input": "Hi", "tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    "too few output tokens": (
        {"input": "Hi", "max_output_tokens": 15},
        "max_output_tokens",
        "invalid_value",
    ),
    "a temperature too high": ({"input": "Hi", "temperature": 3}, "temperature", "invalid_value"),
    "too much metadata": (
        {"input": "Hi", "metadata": {str(n): "x" for n in range(17)}},
        "metadata",
        "invalid_value",
    ),
    "a cache key too long": (
        {"input": "Hi", "prompt_cache_key": "k" * 65},
        "prompt_cache_key",
        "invalid_value",
    ),
    "an unknown effort": (
        {"input": "Hi", "reasoning": {"effort": "heroic"}},
        "reasoning.effort",
        "invalid_value",
    ),
    "a format without a schema": (
        {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x"}}},
        "text.format.schema",
        "missing_required_parameter",
    ),
    "background": ({"input": "Hi", "background": True}, "background", "unsupported_parameter"),
    "an unknown previous response": (
        {"input": "Hi", "previous_response_id": "resp_x"},
        "previous_response_id",
        "previous_response_not_found",
    ),
    "an unknown scenario": ({"input": "Hi fault:nonsense"}, "scenario", "unknown_scenario"),
    "images for the plain model": (
        {"model": "tollbridge/plain", "input": [user([{"type": "input_image", "image_url": "https://x/"}])]},
        "input",
        "unsupported_content",
    ),
    "tools for the plain model": (
        {"model": "tollbridge/plain", "input": "Hi", "tools": [WEATHER]},
        "tools",
        "unsupported_parameter",
    ),
    "a model that embeds": ({"model": "tollbridge/embed", "input": "Hi"}, "model", "unsupported_model"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_error_names_the_invalid_field(client: Client, case: str) -> None:
    body, param, code = REFUSED[case]
    answer = await client.post("/responses", {"model": DEMO, **body})
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, param, code)
    assert answer.error["type"] == "invalid_request"
    assert answer.error["message"]


@pytest.mark.parametrize("case", ["an orphan result", "no input", "two tools of one name"])
async def test_the_token_count_rejects_the_same_requests(client: Client, case: str) -> None:
    body, param, code = REFUSED[case]
    answer = await client.post("/responses/input_tokens", {"model": DEMO, **body})
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, param, code)


NO_OBJECTS = [
    *(b"", b"{", b"\xff\xfe", b"[]", b"null", b'"Hi"', b"\x00" * 10),
    *(b'{"model":"\xff"}', b"[" * 100_000, b'{"input":' + b"[" * 100_000),
]


@pytest.mark.parametrize("data", NO_OBJECTS, ids=range(len(NO_OBJECTS)))
async def test_a_body_that_is_not_a_json_object_is_rejected(client: Client, data: bytes) -> None:
    answer = await client.post("/responses", data)
    assert (answer.status, answer.error["code"]) == (400, "invalid_json")


async def test_an_unknown_model_is_not_found(client: Client) -> None:
    answer = await client.post("/responses", {"model": "acme/none", "input": "Hi"})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
    assert "tollbridge/demo" in answer.error["message"]


async def test_a_missing_model_is_named(client: Client) -> None:
    answer = await client.post("/responses", {"input": "Hi"})
    assert (answer.status, answer.error["param"]) == (400, "model")
    assert answer.error["message"] == "Missing required parameter: model."


async def test_a_prompt_that_is_too_long_is_rejected_with_the_token_counts(client: Client) -> None:
    body = {"model": "tollbridge/plain", "input": "word " * 5_000}
    answer = await client.post("/responses", body)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 4096 tokens" in answer.error["message"]
    assert "resulted in 5005 tokens" in answer.error["message"]


async def test_a_prompt_that_just_fits_is_answered(client: Client) -> None:
    # An item has 4 tokens in addition to its text.
    fits = await client.post("/responses", {"model": "tollbridge/plain", "input": " word" * 4_092})
    over = await client.post("/responses", {"model": "tollbridge/plain", "input": " word" * 4_093})
    assert (fits.status, fits.json["usage"]["input_tokens"], over.status) == (200, 4_096, 400)


async def test_the_type_of_a_message_can_be_omitted(client: Client) -> None:
    answer = await client.ask([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}])
    assert answer.status == 200


async def test_unknown_fields_are_ignored(client: Client) -> None:
    answer = await client.ask("Hi", providerOptions={"gateway": {"order": ["x"]}}, user="me")
    assert answer.status == 200


async def test_null_is_the_same_as_an_omitted_field(client: Client) -> None:
    fields = (
        "tools",
        "tool_choice",
        "temperature",
        "metadata",
        "reasoning",
        "text",
        "instructions",
        "stream",
    )
    answer = await client.ask("Hi", **dict.fromkeys(fields))
    assert answer.status == 200


async def test_a_body_with_another_content_type_is_rejected(client: Client) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await client.post("/responses", b'{"model":"tollbridge/demo","input":"Hi"}', headers)
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")


async def test_tools_of_other_types_are_ignored(client: Client) -> None:
    answer = await client.ask(
        "Hi", tools=[{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}]
    )
    assert answer.status == 200
