"""Encoding of messages as ModelMessages and call options, for each version."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from typing import Any, Literal

import pytest

from tollbridge.protocols.ai_sdk.requests import (
    convert_messages,
    describe_key,
    encode_call,
    encode_headers,
    encode_prompt,
)
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    OutputFormat,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

Target = Literal[5, 6, 7]
PNG = b"\x89PNG\r\n\x1a\n"
DATA = b64encode(PNG).decode()
CALL = ToolCallPart("c", "look", {"at": "it"})
CALLED = {"type": "tool-call", "toolCallId": "c", "toolName": "look", "input": {"at": "it"}}
targets = pytest.mark.parametrize("target", [5, 6, 7])


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def model(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (TextPart(text),))


def answered(*parts: TextPart | DataPart, is_error: bool = False) -> ToolResultPart:
    return ToolResultPart("c", parts, is_error)


def output_of(result: ToolResultPart, target: Target = 6) -> Any:
    [_, converted] = convert_messages([model(CALL), user(result)], target=target)
    assert converted["role"] == "tool"
    [part] = converted["content"]
    assert (part["type"], part["toolCallId"], part["toolName"]) == ("tool-result", "c", "look")
    return part["output"]


def test_a_plain_conversation() -> None:
    assert convert_messages([user(TextPart("Hi")), model(TextPart("Hello"))]) == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
    ]


@targets
def test_the_system_prompt_is_where_the_target_expects_it(target: Target) -> None:
    converted = convert_messages([system("A"), user(TextPart("Hi")), system("B")], target=target)
    expected = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    if target == 7:
        assert (converted, converted.instructions) == ([expected], "A\n\nB")
    else:
        assert (converted, converted.instructions) == (
            [{"role": "system", "content": "A\n\nB"}, expected],
            None,
        )


@targets
def test_a_file_is_a_string_with_its_detected_media_type(target: Target) -> None:
    [converted] = convert_messages([user(DataPart(PNG, "image/jpeg", "x.png"))], target=target)
    file = {"type": "file", "data": DATA, "mediaType": "image/png", "filename": "x.png"}
    assert converted["content"] == [file]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (answered(), {"type": "text", "value": ""}),
        (answered(TextPart("t")), {"type": "text", "value": "t"}),
        (answered(TextPart("t"), is_error=True), {"type": "error-text", "value": "t"}),
        (answered(is_error=True), {"type": "error-text", "value": ""}),
        (answered(DataPart(b'{"a": 1}', "application/json")), {"type": "json", "value": {"a": 1}}),
        (answered(DataPart(b"null", "application/json; charset=utf-8")), {"type": "json", "value": None}),
        (answered(DataPart(b"[1]", "application/json"), is_error=True), {"type": "error-json", "value": [1]}),
        (answered(DataPart(b"{", "application/json")), {"type": "text", "value": "{"}),
        (answered(DataPart(b"[NaN]", "application/json")), {"type": "text", "value": "[NaN]"}),
        (
            answered(TextPart("a"), TextPart("b")),
            {"type": "content", "value": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ),
        (answered(TextPart("a"), TextPart("b"), is_error=True), {"type": "error-text", "value": "a\nb"}),
    ],
)
@targets
def test_a_result_has_the_type_of_its_content(result: ToolResultPart, output: Any, target: Target) -> None:
    assert output_of(result, target) == output


@pytest.mark.parametrize(
    ("target", "image"),
    [
        (5, {"type": "media", "data": DATA, "mediaType": "image/png"}),
        (6, {"type": "image-data", "data": DATA, "mediaType": "image/png"}),
        (7, {"type": "file", "data": {"type": "data", "data": DATA}, "mediaType": "image/png"}),
    ],
)
def test_an_image_in_a_result_has_the_format_of_the_target(target: Target, image: Any) -> None:
    picture = DataPart(PNG, "image/png")
    text = {"type": "text", "text": "See:"}
    assert output_of(answered(TextPart("See:"), picture), target) == {
        "type": "content",
        "value": [text, image],
    }
    failed = output_of(answered(picture, is_error=True), target)
    assert failed == {"type": "content", "value": [{"type": "text", "text": "Error:"}, image]}


def test_a_late_result_is_moved_to_its_call() -> None:
    converted = convert_messages([model(CALL), user(TextPart("Wait")), user(answered(TextPart("ok")))])
    assert [message["role"] for message in converted] == ["assistant", "tool", "user"]
    assert converted.notes == []


def test_a_call_without_a_result_gets_a_placeholder_and_a_note() -> None:
    expected: list[str] = []
    converted = convert_messages([model(CALL), user(TextPart("Go on"))], on_note=expected.append)
    assert [message["role"] for message in converted] == ["assistant", "tool", "user"]
    assert converted[1]["content"][0]["output"]["type"] == "error-text"
    assert converted.notes == expected == ["Added a placeholder result for call c to the tool look."]


def test_results_of_calls_with_the_same_id_have_the_name_of_their_call() -> None:
    again = ToolCallPart("c", "list", {})
    one, two = answered(TextPart("one")), answered(TextPart("two"))
    converted = convert_messages([model(CALL), user(one), model(again), user(two)])
    assert _results(converted) == [("look", "one"), ("list", "two")]
    converted = convert_messages([model(CALL), user(TextPart("Hm")), model(again), user(two)])
    assert _results(converted) == [("look", "The tool gave no result."), ("list", "two")]
    assert converted.notes == ["Added a placeholder result for call c to the tool look."]


def test_a_second_result_belongs_to_the_call_before_it() -> None:
    again = ToolCallPart("c", "list", {})
    results = [answered(TextPart(text)) for text in ("one", "more", "two")]
    converted = convert_messages([model(CALL), user(*results[:2]), model(again), user(results[2])])
    assert _results(converted) == [("look", "one"), ("look", "more"), ("list", "two")]
    assert converted.notes == ["Call c to the tool look has more than one result."]


def _results(converted: list[dict[str, Any]]) -> list[tuple[str, str]]:
    content = [part for message in converted if message["role"] == "tool" for part in message["content"]]
    return [(part["toolName"], part["output"]["value"]) for part in content]


def test_a_text_file_in_the_system_prompt_is_text_and_other_files_are_noted() -> None:
    rules = DataPart(b"Be brief.", "text/markdown", "rules.md")
    converted = convert_messages([Message(Role.SYSTEM, (TextPart("S"), rules))])
    assert (converted[0]["content"], converted.notes) == ("S\n[rules.md]\nBe brief.", [])
    converted = convert_messages([Message(Role.SYSTEM, (DataPart(b"%PDF-1.4", "application/pdf"),))])
    assert converted[0]["content"] == "[application/pdf: 8 bytes]"
    assert converted.notes == ["A file (application/pdf, 8 bytes) in a system message was removed."]


def test_a_result_without_a_call_is_sent_for_an_unknown_tool() -> None:
    converted = convert_messages([user(answered(TextPart("ok")))])
    assert converted[0]["content"][0]["toolName"] == "unknown_tool"
    assert converted.notes == ["Tool result c has no matching call."]


@pytest.mark.parametrize("value", [None, "", {}])
def test_a_call_without_arguments_has_an_empty_object(value: Any) -> None:
    converted = convert_messages([model(ToolCallPart("c", "look", value))])
    assert converted[0]["content"] == [{**CALLED, "input": {}}]


def test_an_image_in_an_answer_is_replaced_skipped_or_an_error() -> None:
    messages = [model(TextPart("Here:"), DataPart(PNG, "image/png"))]
    placed = convert_messages(messages)
    assert placed[0]["content"][1] == {"type": "text", "text": "[image/png: 8 bytes]"}
    assert len(placed.notes) == 1
    assert convert_messages(messages, image_in_non_user="skip")[0]["content"] == [
        {"type": "text", "text": "Here:"}
    ]
    with pytest.raises(RequestError, match="image/png"):
        convert_messages(messages, image_in_non_user="error")


def test_reasoning_keeps_only_metadata_by_provider() -> None:
    kept = ThinkingPart("hm", "r", {"anthropic": {"signature": "s"}, "encrypted_content": "x"})
    converted = convert_messages([model(kept)])
    assert converted[0]["content"] == [
        {"type": "reasoning", "text": "hm", "providerOptions": {"anthropic": {"signature": "s"}}}
    ]
    assert converted.notes == [
        "Removed provider metadata from reasoning of another protocol: encrypted_content."
    ]


def test_empty_texts_and_messages_are_not_sent() -> None:
    assert convert_messages([user(TextPart("")), model(), model(ThinkingPart(""))]) == []


def test_an_unknown_target_or_image_option_is_an_error() -> None:
    with pytest.raises(RequestError, match="5, 6, 7"):
        convert_messages([], target=4)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="placeholder"):
        convert_messages([], image_in_non_user="drop")  # type: ignore[arg-type]


# --- the language-model protocol ----------------------------------------------------------------------------


def test_the_body_contains_only_options_that_were_set() -> None:
    bare = ChatRequest(model="m", messages=(system("S"), user(TextPart("Hi"))))
    prompt = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    for spec in (2, 3, 4):
        assert encode_call(bare, spec) == {"prompt": prompt}


def test_every_option_is_encoded() -> None:
    request = ChatRequest(
        model="m",
        messages=(user(TextPart("Hi")),),
        tools=(Tool("look", "Looks.", {"type": "object"}), Tool("stop")),
        tool_choice=NamedTool("look"),
        reasoning_effort="high",
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        output_format=OutputFormat("answer", {"type": "object"}, "An answer."),
        extra={"providerOptions": {"gateway": {"only": ["x"]}}, "seed": 1},
    )
    body = encode_call(request, 4)
    del body["prompt"]
    assert body == {
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "topP": 0.9,
        "reasoning": "high",
        "responseFormat": {
            "type": "json",
            "name": "answer",
            "description": "An answer.",
            "schema": {"type": "object"},
        },
        "tools": [
            {"type": "function", "name": "look", "description": "Looks.", "inputSchema": {"type": "object"}},
            {"type": "function", "name": "stop", "inputSchema": {"type": "object", "properties": {}}},
        ],
        "toolChoice": {"type": "tool", "toolName": "look"},
        "providerOptions": {"gateway": {"only": ["x"]}},
        "seed": 1,
    }


def test_file_data_is_tagged_from_specification_4_on() -> None:
    messages = [user(DataPart(PNG, "image/png"))]
    for spec, data in ((2, DATA), (3, DATA), (4, {"type": "data", "data": DATA})):
        [converted] = encode_prompt(messages, spec)  # type: ignore[arg-type]
        assert converted["content"] == [{"type": "file", "data": data, "mediaType": "image/png"}]


def test_the_model_and_the_specification_are_headers() -> None:
    headers = encode_headers("openai/gpt-5", 3)
    assert headers["ai-language-model-id"] == "openai/gpt-5"
    assert headers["ai-language-model-specification-version"] == "3"
    assert headers["ai-language-model-streaming"] == "true"


def _token(*parts: bytes) -> str:
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    ("key", "method"),
    [
        (_token(b'{"alg":"RS256","kid":"k"}', b'{"sub":"x"}', b"signature"), "oidc"),
        ("vck_0123456789abcdef", "api-key"),
        ("sk.proj.key", "api-key"),
        (_token(b"7", b"8", b"9"), "api-key"),
        (_token(b'{"alg":"RS256"}', b"{}"), "api-key"),
        ("a.b.c", "api-key"),
        ("", "api-key"),
    ],
)
def test_a_login_token_is_sent_as_oidc(key: str, method: str) -> None:
    assert describe_key(key) == {"ai-gateway-auth-method": method}


def test_unsupported_options_are_an_error() -> None:
    thinking = ChatRequest(model="m", messages=(), reasoning_effort="high")
    with pytest.raises(RequestError, match="reasoning effort"):
        encode_call(thinking, 3)
    with pytest.raises(RequestError, match="2, 3, 4"):
        encode_call(thinking, 5)  # type: ignore[arg-type]
    choosing = ChatRequest(model="m", messages=(), tools=(Tool("a"),), tool_choice=NamedTool("b"))
    with pytest.raises(RequestError, match='"b"'):
        encode_call(choosing)
