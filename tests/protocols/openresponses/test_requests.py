"""Requests contain everything that was set, nothing else, and are always valid."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testing.protocol import check_shape

from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.openresponses.requests import encode_request, translate_messages
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import RequestError
from tollbridge.types.media import draw_png
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
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import write_json

Json = dict[str, Any]
PNG = draw_png()
PDF = b"%PDF-1.7\nempty"
HI = Message(Role.USER, (TextPart("Hi"),))
WEATHER = Tool("weather", "The weather at a place", {"type": "object", "properties": {"city": {}}})


def items(*messages: Message) -> list[Json]:
    encoded = translate_messages(messages)
    check_shape({"input": encoded}, "CreateResponseBody")
    return encoded


def body(**fields: Any) -> Json:
    encoded = encode_request(ChatRequest(**{"model": "m", "messages": (HI,), **fields}))
    check_shape(encoded, "CreateResponseBody")
    return encoded


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def assistant(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def message_item(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


def image(mime: str, data: bytes) -> Json:
    url = f"data:{mime};base64,{b64encode(data).decode()}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def test_options_that_were_not_set_are_not_sent() -> None:
    assert body() == {"model": "m", "input": [message_item("user", "Hi")], "stream": True, "store": False}


@pytest.mark.parametrize("role", list(Role))
def test_text_is_sent_as_a_string(role: Role) -> None:
    name = {Role.SYSTEM: "developer", Role.USER: "user", Role.ASSISTANT: "assistant"}[role]
    assert items(Message(role, (TextPart("Hi"),))) == [message_item(name, "Hi")]


def test_user_parts_are_joined_by_line_breaks_and_assistant_parts_directly() -> None:
    two = (TextPart("Hel"), TextPart(""), TextPart("lo"))
    assert items(user(*two), assistant(*two)) == [
        message_item("user", "Hel\nlo"),
        message_item("assistant", "Hello"),
    ]


def test_system_messages_are_joined_at_the_start() -> None:
    first, second = (
        Message(Role.SYSTEM, (TextPart(text), TextPart("x"))) for text in ("Be kind.", "Be brief.")
    )
    assert items(first, HI, second) == [
        message_item("developer", "Be kind.\nx\n\nBe brief.\nx"),
        message_item("user", "Hi"),
    ]


def test_a_text_file_in_a_system_message_is_sent_as_text() -> None:
    assert items(Message(Role.SYSTEM, (DataPart(b"Be kind.", "text/plain"),))) == [
        message_item("developer", "Be kind.")
    ]


@pytest.mark.parametrize("part", [DataPart(PNG, "image/png"), ToolCallPart("c", "weather", {})])
def test_content_that_a_system_message_cannot_contain_is_an_error(part: Part) -> None:
    with pytest.raises(RequestError, match=r"image/png|ToolCallPart"):
        translate_messages([Message(Role.SYSTEM, (part,))])


@pytest.mark.parametrize("message", [user(), user(TextPart("")), Message(Role.SYSTEM, (TextPart(""),))])
def test_an_empty_message_is_not_sent(message: Message) -> None:
    assert items(message) == []


def test_the_type_of_an_image_is_detected_from_its_bytes() -> None:
    (item,) = items(user(TextPart("Look"), DataPart(PNG, "image/jpeg"), TextPart("well")))
    expected = [{"type": "input_text", "text": "Look"}, image("image/png", PNG)]
    assert item == message_item("user", [*expected, {"type": "input_text", "text": "well"}])


def test_a_file_is_sent_completely_with_its_name() -> None:
    (item,) = items(user(DataPart(PDF, "application/octet-stream", "a.pdf"), DataPart(b"\0\1", "x/y+z")))
    pdf, other = item["content"]
    assert (pdf["type"], pdf["filename"]) == ("input_file", "a.pdf")
    assert pdf["file_data"].startswith("data:application/pdf;base64,")
    assert b64decode(pdf["file_data"].partition(",")[2]) == PDF
    assert (other["filename"], other["file_data"]) == ("file.y", "data:x/y+z;base64,AAE=")


@pytest.mark.parametrize(
    "mime", ["text/x-python", "text/plain; charset=utf-8", "application/json;charset=utf-8", "image/svg+xml"]
)
def test_text_files_are_sent_as_text(mime: str) -> None:
    assert items(user(DataPart("a = “b”".encode(), mime))) == [message_item("user", "a = “b”")]


def test_a_text_file_that_starts_like_an_image_is_sent_as_text() -> None:
    assert items(user(DataPart(b"BMW makes cars.", "text/plain"))) == [
        message_item("user", "BMW makes cars.")
    ]


def test_a_text_file_with_invalid_utf8_is_sent() -> None:
    assert items(user(DataPart(b"a\xffb", "text/plain"))) == [message_item("user", "a\ufffdb")]


def test_an_image_of_the_assistant_is_replaced_by_a_text() -> None:
    answer = assistant(TextPart("Here: "), DataPart(PNG, "image/png"), DataPart(b"[1]", "application/json"))
    assert items(answer) == [message_item("assistant", f"Here: [image/png: {len(PNG)} bytes][1]")]


def test_calls_and_results_are_items_in_order() -> None:
    call = ToolCallPart("c1", "weather", {"city": "Zürich"})
    encoded = items(
        HI,
        assistant(TextPart("I look."), call, TextPart("Wait.")),
        user(ToolResultPart("c1", (TextPart("sun"),))),
    )
    assert encoded == [
        message_item("user", "Hi"),
        message_item("assistant", "I look."),
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Zürich"}'},
        message_item("assistant", "Wait."),
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        ({}, {}),
        (None, {}),
        ("", {}),
        ({"a": [1, None, "é"]}, {"a": [1, None, "é"]}),
        ('{"a": 1}', {"a": 1}),
        ("*** patch", {"input": "*** patch"}),
        ('{"a": ', {"input": '{"a": '}),
        ("[1]", {"input": "[1]"}),
        ([1], {"input": [1]}),
        (0, {"input": 0}),
        ({"odd": "\ud800"}, {"odd": "\ufffd"}),
        ('{"odd": "\\uD800"}', {"odd": "\ufffd"}),
        ('{"even": "\\uD83D\\uDE00"}', {"even": "😀"}),
    ],
)
def test_arguments_are_always_a_json_object(value: Any, arguments: Json) -> None:
    (item,) = items(assistant(ToolCallPart("c", "weather", value)))
    assert json.loads(item["arguments"]) == arguments
    item["arguments"].encode()


def test_arguments_that_are_not_json_serializable_are_an_error() -> None:
    with pytest.raises(RequestError, match=r"arguments of a tool call cannot be sent: object"):
        translate_messages([assistant(ToolCallPart("c", "weather", {"a": object()}))])


TEXT = TextPart("sun")
RESULTS: list[tuple[ToolResultPart, Any]] = [
    (ToolResultPart("c"), ""),
    (ToolResultPart("c", (TextPart(""),)), ""),
    (ToolResultPart("c", (TEXT, TextPart("wind"))), "sun\nwind"),
    (ToolResultPart("c", (TEXT, TextPart("wind")), is_error=True), "Error: sun\nwind"),
    (ToolResultPart("c", is_error=True), "Error:"),
    (ToolResultPart("c", (DataPart(b"{}", "application/json"),)), "{}"),
    (
        ToolResultPart("c", (TEXT, DataPart(PNG, "image/jpeg"))),
        [{"type": "input_text", "text": "sun"}, image("image/png", PNG)],
    ),
    (
        ToolResultPart("c", (TEXT, DataPart(PNG, "image/png")), is_error=True),
        [{"type": "input_text", "text": "Error: sun"}, image("image/png", PNG)],
    ),
    (
        ToolResultPart("c", (DataPart(PNG, "image/png"),), is_error=True),
        [{"type": "input_text", "text": "Error:"}, image("image/png", PNG)],
    ),
]


@pytest.mark.parametrize(("result", "output"), RESULTS)
def test_a_result_is_sent_completely_and_an_error_is_marked(result: ToolResultPart, output: Any) -> None:
    assert items(user(result)) == [{"type": "function_call_output", "call_id": "c", "output": output}]


def test_reasoning_is_sent_back_only_with_its_signature() -> None:
    proven = ThinkingPart("Hm", "x", {"encrypted_content": "abc", "id": "rs_1"})
    silent = ThinkingPart("", None, {"encrypted_content": "def"})
    bare = ThinkingPart("Hm", "rs_2", {"encrypted_content": None})
    assert items(assistant(ThinkingPart("Hm"), proven, silent, bare, ToolCallPart("c", "weather", {}))) == [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm"}],
            "encrypted_content": "abc",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "def"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
    ]


def test_tools_are_flat_and_never_strict() -> None:
    sent = body(tools=(WEATHER, Tool("now")))["tools"]
    assert sent == [
        {
            "type": "function",
            "name": "weather",
            "description": "The weather at a place",
            "parameters": {"type": "object", "properties": {"city": {}}},
            "strict": False,
        },
        {
            "type": "function",
            "name": "now",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        *((word, word) for word in ("auto", "required", "none")),
        (NamedTool("weather"), {"type": "function", "name": "weather"}),
    ],
)
def test_a_tool_choice_is_sent_with_tools_and_not_without(choice: Any, sent: Any) -> None:
    assert body(tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=False)["tool_choice"] == sent
    assert body(tools=(WEATHER,), parallel_tool_calls=False)["parallel_tool_calls"] is False
    without = body(tool_choice=choice, parallel_tool_calls=True)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(without)


def test_a_tool_choice_that_is_not_a_tool_is_an_error_that_names_it() -> None:
    with pytest.raises(RequestError, match='"news"'):
        body(tools=(WEATHER,), tool_choice=NamedTool("news"))


def test_reasoning_requests_include_encrypted_content() -> None:
    sent = body(reasoning_effort="low", reasoning_summary="auto")
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert body(reasoning_summary="auto")["reasoning"] == {"summary": "auto"}


def test_an_output_format_is_sent_with_its_options() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    bare = body(output_format=OutputFormat("thing", schema))["text"]["format"]
    assert bare == {"type": "json_schema", "name": "thing", "schema": schema}
    full = body(output_format=OutputFormat("thing", schema, "A thing", strict=False))["text"]["format"]
    assert full == {**bare, "description": "A thing", "strict": False}


def test_zero_is_a_value_that_was_set() -> None:
    sent = body(temperature=0.0, top_p=0.0, max_output_tokens=16, metadata={"a": "b"})
    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.0, 0.0, 16)
    assert sent["metadata"] == {"a": "b"}
    assert "metadata" not in body(metadata={})


def test_extra_fields_are_sent_unchanged() -> None:
    options = {"gateway": {"order": ["azure"]}}
    assert body(extra={"providerOptions": options, "service_tier": "flex"})["providerOptions"] == options


# --- any conversation --------------------------------------------------------------------------------------

TEXTS = st.text(max_size=12).map(TextPart)
DATA = st.builds(
    DataPart,
    st.sampled_from([PNG, PDF, b"BMW", b"\xff\xd8\xff\xe0\0", b""]) | st.binary(max_size=12),
    st.sampled_from(["image/png", "application/pdf", "text/plain", "application/json", "video/mp4"]),
    st.none() | st.just("a.bin"),
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
IDS = st.sampled_from(["c1", "c2", "c3"])
PARTS: st.SearchStrategy[Part] = (
    TEXTS
    | DATA
    | st.builds(
        ThinkingPart, st.text(max_size=5), st.none(), st.none() | st.just({"encrypted_content": "abc"})
    )
    | st.builds(ToolCallPart, IDS, st.just("weather"), ANY)
    | st.builds(ToolResultPart, IDS, st.lists(TEXTS | DATA, max_size=3).map(tuple), st.booleans())
)
MESSAGES = st.builds(Message, st.just(Role.SYSTEM), st.lists(TEXTS, max_size=2).map(tuple)) | st.builds(
    Message, st.sampled_from([Role.USER, Role.ASSISTANT]), st.lists(PARTS, max_size=4).map(tuple)
)
HISTORIES = st.lists(MESSAGES, max_size=5)
REQUESTS = st.builds(
    ChatRequest,
    model=st.just("tollbridge/demo"),
    messages=HISTORIES.map(tuple),
    tools=st.sampled_from([(), (WEATHER,)]),
    tool_choice=st.sampled_from([None, "auto", "none"]),
    parallel_tool_calls=st.none() | st.booleans(),
    reasoning_effort=st.sampled_from([None, "none", "low", "medium", "high", "xhigh"]),
    reasoning_summary=st.sampled_from([None, "auto", "concise", "detailed"]),
    max_output_tokens=st.none() | st.integers(16, 10**6),
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    metadata=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(REQUESTS)
def test_any_request_is_valid(request: ChatRequest) -> None:
    sent = encode_request(request)
    check_shape(json.loads(write_json(sent)), "CreateResponseBody")


@settings(max_examples=150, deadline=None)
@given(HISTORIES)
def test_every_text_of_any_conversation_is_sent(messages: list[Message]) -> None:
    sent = write_json(translate_messages(messages))
    for message in messages:
        for part in message.parts:
            if isinstance(part, TextPart):
                assert write_json(part.text)[1:-1] in sent


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_strict_server_accepts_any_valid_conversation(
    session: aiohttp.ClientSession,
) -> None:
    conversations: list[list[Message]] = []

    @settings(max_examples=60, deadline=None, database=None)
    @given(HISTORIES)
    def collect(messages: list[Message]) -> None:
        conversations.append([*messages, HI])

    collect()
    assert len(conversations) >= 60
    async with Gateway() as gateway:
        for messages in conversations:
            request = ChatRequest(model="tollbridge/demo", messages=tuple(messages), tools=(WEATHER,))
            request = normalize_request(request).request
            sent = write_json({**encode_request(request), "stream": False}).encode()
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{gateway.url}/responses", data=sent, headers=headers) as reply:
                assert reply.status == 200, (await reply.text(), sent)


def quirky(**fields: Any) -> Json:
    call = ToolCallPart("c1", "weather", {}, {"thought_signature": "s"})
    thought = ThinkingPart("Hm.", "rs_1", {"id": "rs_1", "encrypted_content": "x"})
    messages = (
        Message(Role.SYSTEM, "Be kind."),
        Message(Role.USER, "Hi"),
        Message(Role.ASSISTANT, (thought, call)),
        Message(Role.USER, (ToolResultPart("c1", "sun"),)),
        Message(Role.ASSISTANT, "Sun."),
    )
    request = ChatRequest(
        model="m", messages=messages, temperature=1, reasons=True, quirks=Quirks(**fields), extra={"x": 1}
    )
    return encode_request(request)


def test_fields_that_a_server_does_not_accept_are_not_sent() -> None:
    sent = quirky(without=frozenset({"temperature", "include", "store", "x"}))
    assert set(sent) == {"model", "input", "stream"}
    assert {"temperature", "include", "store", "x"} <= set(quirky())


@pytest.mark.parametrize("role", ["developer", "system"])
def test_the_system_prompt_has_the_role_that_the_server_accepts(role: Any) -> None:
    assert quirky(system=role)["input"][0] == {"type": "message", "role": role, "content": "Be kind."}


def test_the_system_prompt_can_be_sent_as_instructions() -> None:
    sent = quirky(system="instructions")
    assert sent["instructions"] == "Be kind."
    assert sent["input"][0]["role"] == "user"
    assert "instructions" not in quirky()


def test_text_can_be_sent_in_lists() -> None:
    contents = [item["content"] for item in quirky(text_as="array")["input"] if item["type"] == "message"]
    kinds = [[part["type"] for part in content] for content in contents]
    assert kinds == [["input_text"], ["input_text"], ["output_text"]]


def test_reasoning_is_sent_in_the_format_of_the_server() -> None:
    usual, bare = quirky()["input"][2], quirky(reasoning_ids=False, reasoning_as="content")["input"][2]
    text = "Hm."
    assert usual["id"] == "rs_1"
    assert usual["summary"] == [{"type": "summary_text", "text": text}]
    assert "id" not in bare
    assert (bare["summary"], bare["content"]) == ([], [{"type": "reasoning_text", "text": text}])


def test_the_signatures_of_a_call_are_sent_back() -> None:
    assert quirky()["input"][3]["thought_signature"] == "s"


def test_tools_are_nested_for_a_server_that_uses_the_chat_completions_format() -> None:
    request = ChatRequest(
        model="m",
        messages=(Message(Role.USER, "Hi"),),
        tools=(Tool("look", "Looks", {"type": "object"}),),
        tool_choice=NamedTool("look"),
        quirks=Quirks(tools_as="nested"),
    )
    body = encode_request(request)
    function = {"name": "look", "description": "Looks", "parameters": {"type": "object"}, "strict": False}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
