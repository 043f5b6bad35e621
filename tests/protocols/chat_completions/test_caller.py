"""Callers of Chat Completions: their requests, and the answers to them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tollbridge.protocols.caller_request import CallerRequest, CallerTool
from tollbridge.protocols.chat_completions.caller import CODEC
from tollbridge.protocols.chat_completions.requests import encode_messages, encode_request
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    Disconnected,
    NotFound,
    RateLimited,
    RequestError,
    ServerFailed,
)
from tollbridge.types.events import (
    Corrected,
    Event,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    DataPart,
    Message,
    NamedTool,
    Origin,
    OutputFormat,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
    part_digest,
)

PNG = draw_png()
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "D", "parameters": SCHEMA}}
NOW = {"type": "function", "function": {"name": "now"}}


HERE = Origin.of("m", "http://here/v1")


def decode(*messages: dict[str, Any], native: Origin | None = None, **fields: Any) -> CallerRequest:
    sent = list(messages) or [{"role": "user", "content": "Hi"}]
    return CODEC.decode({"model": "m", "messages": sent, **fields}, native=native)


def messages(*sent: dict[str, Any]) -> list[Message]:
    return list(decode(*sent).request.messages)


def call(call_id: str, arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **fields}


def test_system_and_developer_are_system_messages() -> None:
    assert messages(
        {"role": "system", "content": "A"},
        {"role": "developer", "content": [{"type": "text", "text": "B"}]},
        {"role": "user", "content": "C", "name": "ann"},
    ) == [Message("system", "A"), Message("system", "B"), Message("user", "C", "ann")]


def test_a_conversation_with_parallel_calls_and_results() -> None:
    decoded = messages(
        {"role": "user", "content": "Compare"},
        {"role": "assistant", "content": None, "tool_calls": [call("a", '{"city": "Oslo"}'), call("b", "")]},
        {"role": "tool", "tool_call_id": "a", "content": "Sunny"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "Rain"}]},
        {"role": "assistant", "content": "Oslo."},
    )
    assert decoded[1:] == [
        Message(
            "assistant", [ToolCallPart("a", "weather", {"city": "Oslo"}), ToolCallPart("b", "weather", {})]
        ),
        Message("user", [ToolResultPart("a", "Sunny"), ToolResultPart("b", "Rain")]),
        Message("assistant", "Oslo."),
    ]


def test_arguments_that_are_not_an_object_are_kept_as_text() -> None:
    [_, message] = messages(
        {"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call("a", "{oops")]}
    )
    assert message.parts == (ToolCallPart("a", "weather", "{oops"),)


def test_images_and_files_in_messages_and_results() -> None:
    image = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
    pdf = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
    bare = {"type": "file", "file": {"filename": "b.pdf", "file_data": "JVBERi0="}}
    user, result = messages(
        {"role": "user", "content": [{"type": "text", "text": "Look"}, image, pdf, bare]},
        {"role": "tool", "tool_call_id": "a", "content": [image]},
    )
    picture, file = DataPart(PNG, "image/png"), DataPart(b"%PDF-", "application/pdf", "a.pdf")
    other_file = DataPart(b"%PDF-", "application/pdf", "b.pdf")
    assert user.parts == (TextPart("Look"), picture, file, other_file)
    assert result.parts == (ToolResultPart("a", [picture]),)


@pytest.mark.parametrize(
    ("part", "text", "omission"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
            "[image: https://a.example/b.png]",
            "image that is not a base64 data URL",
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, None, "file that is not a base64 data URL"),
        ({"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}, None, "'input_audio'"),
        ({"type": "hologram"}, None, "'hologram'"),
    ],
)
def test_content_that_cannot_be_passed_on_is_left_out_with_a_note(
    part: dict[str, Any], text: str | None, omission: str
) -> None:
    caller = decode({"role": "user", "content": [part, {"type": "text", "text": "Hi"}]})
    texts = [part.text for part in caller.request.messages[0].parts if isinstance(part, TextPart)]
    assert texts == [*([text] if text else []), "Hi"]
    assert any(omission in sentence for sentence in caller.omissions)


@pytest.mark.parametrize("native", [HERE, None])
def test_options_are_decoded_and_unknown_fields_are_kept_for_the_same_protocol(native: Origin | None) -> None:
    caller = decode(
        native=native,
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=50,
        max_tokens=60,
        temperature=1,
        top_p=0.5,
        reasoning_effort="high",
        parallel_tool_calls=False,
        tools=[WEATHER],
        metadata={"a": "b"},
        stop=["\n"],
        seed=7,
        logit_bias=None,
        prompt_cache_key="k",
        a_field_of_tomorrow={"x": 1},
    )
    request = caller.request
    assert caller.stream
    assert (request.max_output_tokens, request.temperature, request.top_p) == (50, 1, 0.5)
    assert (request.reasoning_effort, request.parallel_tool_calls) == ("high", False)
    assert request.tools == (Tool("weather", "D", SCHEMA),)
    assert request.metadata == {"a": "b"}
    expected = {"stop": ["\n"], "seed": 7, "prompt_cache_key": "k", "a_field_of_tomorrow": {"x": 1}}
    assert caller.extra == expected
    assert request.extra == (expected if native else None)
    listed = ("a_field_of_tomorrow", "seed", "stop")  # not those that do not change the answer
    sentences = tuple(
        f"Left out the field {name}: the gateway's protocol does not have it." for name in listed
    )
    assert caller.omissions == (() if native else sentences)


def test_openrouters_form_of_the_effort_and_the_old_name_of_the_limit() -> None:
    caller = decode(reasoning={"effort": "low", "max_tokens": 99}, max_tokens=9)
    assert (caller.request.reasoning_effort, caller.request.max_output_tokens) == ("low", 9)
    assert caller.omissions == ("Left out reasoning.max_tokens.",)


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [
        ("auto", "auto", ["weather", "now"]),
        ("none", "none", ["weather", "now"]),
        ("required", "required", ["weather", "now"]),
        ("any", "required", ["weather", "now"]),
        ({"type": "function", "function": {"name": "now"}}, NamedTool("now"), ["weather", "now"]),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "now"}}],
                },
            },
            "required",
            ["now"],
        ),
        ({"type": "function", "function": {"name": "missing"}}, None, ["weather", "now"]),
        ({"type": "web_search"}, None, ["weather", "now"]),
    ],
)
def test_every_form_of_the_tool_choice(choice: Any, expected: Any, names: list[str]) -> None:
    request = decode(tools=[WEATHER, NOW], tool_choice=choice).request
    assert request.tool_choice == expected
    assert [tool.name for tool in request.tools] == names


def test_cache_control_is_kept_where_the_caller_placed_it() -> None:
    mark, longer = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
    sent: list[dict[str, Any]] = [
        {"role": "system", "content": [{"type": "text", "text": "S", "cache_control": longer}]},
        {"role": "user", "content": "U", "cache_control": mark},
        {"role": "assistant", "content": None, "tool_calls": [call("a")]},
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "text", "text": "R", "cache_control": mark}],
        },
    ]
    request = decode(*sent).request
    marked = [
        part for message in request.messages for part in message.parts if not isinstance(part, ToolCallPart)
    ]
    system, user, result = map(part_digest, marked)
    assert request.cache_points is not None
    assert request.cache_points[system] == longer
    assert request.cache_points[user] == request.cache_points[result] == mark
    returned = encode_messages(request.messages, cache_points=request.cache_points)
    assert [returned[0], returned[3]] == [sent[0], sent[3]]
    assert returned[1]["content"] == [{"type": "text", "text": "U", "cache_control": mark}]


def test_unknown_tools_are_left_out_with_a_note() -> None:
    caller = decode(tools=[{"type": "web_search"}, NOW, {"type": "mcp", "server": "x"}])
    assert [tool.name for tool in caller.request.tools] == ["now"]
    assert caller.omissions == ("Left out tool of type 'mcp'.", "Left out tool of type 'web_search'.")


def test_unknown_tools_are_passed_on_to_a_gateway_of_the_same_protocol() -> None:
    search = {"type": "web_search", "filters": {"a": 1}}
    caller = decode(tools=[search, NOW], native=HERE)
    assert caller.omissions == ()
    first, second = encode_request(caller.request)["tools"]
    assert (first["function"]["name"], second) == ("now", search)


def test_reasoning_for_a_gateway_of_the_same_protocol_is_bound_to_it() -> None:
    details = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm", "signature": "S"}]}
    answers: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Y", "reasoning": "Hm"},
        {"role": "assistant", "content": "Y", "reasoning": "Hm", **details},
    ]
    request = decode({"role": "user", "content": "x"}, *answers, native=HERE).request
    plain, signed = (message.parts[0] for message in request.messages[1:])
    assert plain == ThinkingPart("Hm", "reasoning", add_origin(HERE, None))
    assert signed == ThinkingPart("Hm", "reasoning", add_origin(HERE, details))
    assert encode_messages(request.messages)[1:] == answers


def test_a_custom_tool_becomes_a_function_with_one_argument() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    custom = {"type": "custom", "custom": {"name": "patch", "description": "Patch.", "format": grammar}}
    past = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "text"}}
    caller = decode(
        {"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [past]}, tools=[custom]
    )
    [tool] = caller.request.tools
    assert tool.parameters == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    }
    assert "start: WORD" in tool.description
    assert caller.tools == {"patch": CallerTool("patch", custom=True)}
    assert caller.request.messages[1].parts == (ToolCallPart("c", "patch", {"input": "text"}),)


def test_the_legacy_functions_are_tools() -> None:
    caller = decode(
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
        {"role": "function", "name": "weather", "content": "Sunny"},
        functions=[WEATHER["function"]],
        function_call={"name": "weather"},
    )
    assert caller.request.tool_choice == NamedTool("weather")
    _, assistant, result = caller.request.messages
    [called] = assistant.parts
    assert isinstance(called, ToolCallPart)
    assert result.parts == (ToolResultPart(called.call_id, "Sunny"),)


@pytest.mark.parametrize(
    ("response_format", "expected", "extra"),
    [
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            OutputFormat("n", SCHEMA, strict=True),
            None,
        ),
        ({"type": "json_object"}, None, {"response_format": {"type": "json_object"}}),
        ({"type": "text"}, None, None),
    ],
)
def test_structured_output(response_format: Any, expected: Any, extra: Any) -> None:
    request = decode(response_format=response_format, native=HERE).request
    assert (request.output_format, request.extra) == (expected, extra)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_that_the_caller_returns(field: str) -> None:
    details = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm", "signature": "S"}]}
    _, message = messages(
        {"role": "user", "content": "x"}, {"role": "assistant", "content": "Y", field: "Hm", **details}
    )
    assert message == Message(Role.ASSISTANT, [ThinkingPart("Hm", field, details), TextPart("Y")])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": "Hi"}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "m", "messages": ["Hi"]}, "messages[0]"),
        ({"model": "m", "messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"model": "m", "messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"model": "m", "messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": "9"}, "max_tokens"),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [1]}, "tools[0]"),
    ],
)
def test_an_invalid_body_is_an_error_that_names_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        CODEC.decode(body)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


# A body with everything that is read.
FULL: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "S", "name": "n"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "T", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": URL}},
                {
                    "type": "file",
                    "file": {"filename": "f", "file_data": "data:application/pdf;base64,JVBERi0="},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}],
            "refusal": "R",
            "reasoning_content": "Hm",
            "reasoning_details": [{"type": "reasoning.encrypted", "format": "tollbridge-v1", "data": "x"}],
            "thinking_blocks": [{"type": "thinking", "thinking": "Hm"}],
            "reasoning_opaque": "o",
            "tool_calls": [
                call("a", '{"city": "Oslo"}', extra_content={"tollbridge": "x"}),
                {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "x"}},
            ],
            "function_call": {"name": "weather", "arguments": "{}"},
        },
        {"role": "tool", "tool_call_id": "a", "content": "Sunny"},
        {"role": "function", "name": "weather", "content": "Sunny"},
    ],
    "tools": [
        WEATHER,
        {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {}}}},
    ],
    "functions": [{"name": "now", "parameters": SCHEMA, "strict": True}],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "now"}}]},
    },
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "max_completion_tokens": 9,
    "max_tokens": 9,
    "temperature": 1,
    "top_p": 1,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "metadata": {"a": "b"},
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 1,
    "audio": None,
    "seed": 1,
}
WRONG: tuple[Any, ...] = (None, True, 3, 1.5, "x", "", [], [1], {}, {"type": "x"}, {"name": ["x"]})


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def test_any_wrong_value_is_understood_or_refused_with_the_name_of_its_field() -> None:
    refusals: list[tuple[str, str | None]] = []
    for *outer, last in paths(FULL):
        for wrong in WRONG:
            body = deepcopy(FULL)
            place: Any = body
            for key in outer:
                place = place[key]
            place[last] = wrong
            try:
                CODEC.decode(body)
            except RequestError as error:
                refusals.append((str([*outer, last][0]), error.param))
    assert len(refusals) > 100  # most values of a wrong type
    assert all(str(param).startswith(field) for field, param in refusals)


def test_a_full_body_is_decoded() -> None:
    caller = CODEC.decode(FULL)
    assert [tool.name for tool in caller.request.tools] == ["now"]  # the only allowed one
    assert [message.role for message in caller.request.messages] == ["system", "user", "assistant", "user"]


HEAD = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}


def caller(**fields: Any) -> CallerRequest:
    return CODEC.decode({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields})


@pytest.fixture(autouse=True)
def same_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every answer the same id and time."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "x")
    monkeypatch.setattr("time.time", lambda: 1700000000.5)


def encode(
    caller_request: CallerRequest, *events: Event, error: BridgeError | None = None
) -> list[dict[str, Any]]:
    encoder = CODEC.encoder(caller_request)
    return [*encoder.start(), *encoder.encode(events), *encoder.finish(error)]


def encode_body(caller_request: CallerRequest, *events: Event) -> dict[str, Any]:
    encoder = CODEC.encoder(caller_request)
    encoder.start()
    encoder.encode(events)
    encoder.finish()
    return encoder.body()


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def test_a_stream_of_text() -> None:
    chunks = encode(caller(stream=True), TextDelta("Hello"), Finished("stop", usage=Usage(1, 2, 3)))
    assert chunks == [
        {
            **HEAD,
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
            ],
        },
        {**HEAD, "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]},
        {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]


def test_the_usage_is_the_last_chunk_if_the_caller_asks_for_it() -> None:
    caller_request = caller(stream=True, stream_options={"include_usage": True})
    usage = Usage(100, 20, 120, 60, 8, 30)
    *_, last = encode(caller_request, TextDelta("x"), Finished("stop", usage=usage))
    assert last == {
        **HEAD,
        "choices": [],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 8},
        },
    }


def test_calls_have_indexes_and_only_offered_ones_are_sent() -> None:
    chunks = encode(
        caller(stream=True),
        ToolCall("a", "weather", {"city": "Oslo"}),
        ToolCall("x", "search", {}, offered=False),
        ToolCall("b", "now", None),
        Finished("tool-calls"),
    )
    assert [delta["tool_calls"] for delta in deltas(chunks) if "tool_calls" in delta] == [
        [
            {
                "index": 0,
                "id": "a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
            }
        ],
        [{"index": 1, "id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_custom_tool_is_called_with_text() -> None:
    caller_request = caller(stream=True, tools=[{"type": "custom", "custom": {"name": "patch"}}])
    chunks = encode(caller_request, ToolCall("a", "patch", {"input": "*** Begin"}), Finished("tool-calls"))
    [call] = deltas(chunks)[1]["tool_calls"]
    assert call == {
        "index": 0,
        "id": "a",
        "type": "custom",
        "custom": {"name": "patch", "input": "*** Begin"},
    }


def test_a_caller_with_functions_gets_a_function_call() -> None:
    caller_request = caller(functions=[{"name": "now"}])
    body = encode_body(caller_request, ToolCall("a", "now", {}), Finished("tool-calls"))
    [choice] = body["choices"]
    assert choice["message"]["function_call"] == {"name": "now", "arguments": "{}"}
    assert choice["finish_reason"] == "function_call"


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content-filter", "content_filter"),
        ("tool-calls", "tool_calls"),
        ("other", "stop"),
        (None, "stop"),
    ],
)
def test_every_finish_reason_has_a_name(reason: Any, name: str) -> None:
    chunks = encode(caller(stream=True), Finished(reason))
    assert chunks[-1]["choices"][0]["finish_reason"] == name


def test_one_body_has_everything_that_the_chunks_have() -> None:
    body = encode_body(
        caller(),
        ReasoningDelta("Let ", "r"),
        ReasoningDelta("me.", "r"),
        ReasoningEnded("r"),
        TextDelta("See "),
        TextDelta("this."),
        Source("url", url="https://a.example", title="A"),
        File("image/png", b"png"),
        ToolCall("a", "now", {}),
        Finished("tool-calls", usage=Usage(1, 2, 3)),
    )
    citation = {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 0}
    assert body == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "See this.",
                    "refusal": None,
                    "reasoning_content": "Let me.",
                    "annotations": [{"type": "url_citation", "url_citation": citation}],
                    "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}],
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def test_a_correction_of_text_that_was_sent_adds_nothing() -> None:
    events = TextDelta("Hello ab"), Corrected("ac", 2), TextDelta("!"), Finished("stop")
    streamed = deltas(encode(caller(stream=True), *events))
    assert streamed[1:] == [{"content": "Hello ab"}, {"content": "!"}, {}]
    [choice] = encode_body(caller(), *events)["choices"]
    assert choice["message"]["content"] == "Hello ac!"


def test_a_restarted_step_replaces_its_text_if_nothing_was_sent() -> None:
    events = TextDelta("Hello"), TextDelta("Good day", replaces=5), Finished("stop")
    [choice] = encode_body(caller(), *events)["choices"]
    assert choice["message"]["content"] == "Good day"
    assert deltas(encode(caller(stream=True), *events))[1:3] == [
        {"content": "Hello"},
        {"content": "Good day"},
    ]


def test_the_proof_of_reasoning_is_stored_with_the_corrected_text() -> None:
    events: list[Event] = [
        ReasoningDelta("Let mee", "r"),
        Corrected("me.", 3, "reasoning", "r"),
        ReasoningEnded("r", {"signature": "s"}),
        Finished("stop"),
    ]
    [choice] = encode_body(caller(), *events)["choices"]
    messages = [{"role": "user", "content": "Hi"}, choice["message"]]
    returned = CODEC.decode({"model": "m", "messages": messages}).request
    assert returned.messages[1].parts == (ThinkingPart("Let me.", "r", {"signature": "s"}),)


def test_metadata_of_any_protocol_passes_through_the_caller() -> None:
    proof, signature = {"id": "rs_1", "encrypted_content": "abc"}, {"google": {"thoughtSignature": "s"}}
    body = encode_body(
        caller(),
        ReasoningDelta("One", "rs_1"),
        ReasoningEnded("rs_1", proof),
        ReasoningDelta("Two", "rs_2"),
        ReasoningEnded("rs_2", {"signature": "s2"}),
        ToolCall("a", "now", {}, metadata=signature),
        Finished("tool-calls"),
    )
    [choice] = body["choices"]
    returned = CODEC.decode(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}, choice["message"]]}
    )
    assert returned.request.messages[1].parts == (
        ThinkingPart("One", "rs_1", proof),
        ThinkingPart("Two", "rs_2", {"signature": "s2"}),
        ToolCallPart("a", "now", {}, signature),
    )


def test_an_error_ends_the_stream_in_the_form_of_an_error_response() -> None:
    error = RateLimited("Slow down.", status=429, code="rate_limit_exceeded")
    chunks = encode(caller(stream=True), TextDelta("Half"), error=error)
    assert (
        chunks[-1]
        == CODEC.encode_error(error, 429)
        == {
            "error": {
                "message": "Slow down.",
                "type": "invalid_request_error",
                "param": None,
                "code": "rate_limit_exceeded",
            }
        }
    )


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (ContextTooLong("Too long."), 400, "invalid_request_error", "context_length_exceeded"),
        (
            ContextTooLong("Too long.", code="exceed_context_size_error"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (NotFound("No."), 404, "invalid_request_error", "model_not_found"),
        (Disconnected("Gone."), 502, "server_error", "disconnected"),
    ],
)
def test_an_error_has_the_code_that_callers_know(
    error: BridgeError, status: int, kind: str, code: str
) -> None:
    body = CODEC.encode_error(error, status)["error"]
    assert (body["type"], body["code"]) == (kind, code)


def test_an_answer_without_an_end_is_an_error() -> None:
    assert "error" in encode(caller(stream=True), TextDelta("Half"))[-1]
    with pytest.raises(ServerFailed):
        encode_body(caller(), TextDelta("Half"))


def test_frames_are_server_sent_events() -> None:
    assert CODEC.write([{"a": "é\n"}, {}]) == 'data: {"a":"é\\n"}\n\ndata: {}\n\n'.encode()
