"""VS Code's messages become ours, and our parts, usage, models and errors become VS Code's."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.config.loading import SettingsUnusable
from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.codec import (
    Decoded,
    decode_chat,
    decode_message,
    encode_error,
    encode_model,
    encode_model_id,
    encode_models,
    encode_parts,
    encode_usage,
)
from tollbridge.protocols import jsonrpc
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    Disconnected,
    NotAuthenticated,
    RateLimited,
    RequestError,
    ServerFailed,
    StreamError,
)
from tollbridge.types.events import Usage
from tollbridge.types.messages import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.models import Model, Prices, PriceTier


def _png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\0\0\0"))
        + chunk(b"IEND", b"")
    )


PNG = _png()


def data(content: bytes, mime: str) -> dict[str, Any]:
    return {"type": "data", "mimeType": mime, "data": base64.b64encode(content).decode()}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "value": value}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": 1, "content": content, "name": ""}


def decoded(*messages: dict[str, Any], takes_files: bool = True, **fields: Any) -> Decoded:
    """Decode by way of JSON, as in production."""
    body = msgspec.json.encode({"model": "m", "messages": messages, **fields})
    return decode_chat(msgspec.json.decode(body, type=wire.Chat), takes_files=takes_files)


def the_parts(*content: dict[str, Any]) -> tuple[Any, ...]:
    (message,) = decoded(user(*content)).request.messages
    return message.parts


def test_the_first_request_of_an_agent_is_decoded_completely() -> None:
    result = decoded(
        {"role": 3, "content": [text("You are an agent.")]},
        user(text("What is here?")),
        tools=[{"name": "list_dir", "description": "Lists.", "inputSchema": {"type": "object"}}],
        toolMode=1,
        modelOptions={"_telemetryTurn": 1, "_enableThinking": True},
        modelConfiguration={"reasoningEffort": "high"},
    )
    request = result.request
    assert request.messages == (
        Message(Role.SYSTEM, (TextPart("You are an agent."),)),
        Message(Role.USER, (TextPart("What is here?"),)),
    )
    assert request.tools == (Tool("list_dir", "Lists.", {"type": "object"}),)
    assert request.reasoning_effort == "high"
    assert request.tool_choice is None
    assert request.extra is None
    assert result.dropped == {}


def test_vs_code_says_what_a_request_belongs_to() -> None:
    trace = {"traceId": "4BF92F3577B34DA6A3CE929D0E0E4736", "spanId": "00f067aa0ba902b7"}
    options = {"_conversationId": "chat-1", "_telemetryTurn": 3, "_otelTraceContext": trace}
    request = decoded(user(text("hi")), modelOptions=options).request
    assert (request.conversation, request.caller_turn) == ("chat-1", "3")
    assert request.traceparent == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert request.extra is None
    body = OpenResponsesClient("https://ai-gateway.vercel.sh/v1").encode_request(request)
    assert not any(value in body for value in (b"chat-1", b"4bf92f", b"telemetry"))


def test_other_editors_have_fields_for_it() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    request = decoded(user(text("hi")), conversation="c", turn="t", traceparent=parent).request
    assert (request.conversation, request.caller_turn, request.traceparent) == ("c", "t", parent)


@pytest.mark.parametrize(
    "options",
    [
        {"_conversationId": 1.5, "_telemetryTurn": True, "_otelTraceContext": "x"},
        {"_conversationId": "", "_telemetryTurn": None, "_otelTraceContext": {"traceId": 1}},
        {"_conversationId": {}, "_otelTraceContext": {"traceId": "z" * 32, "spanId": "0" * 16}},
    ],
)
def test_what_is_no_id_and_no_trace_is_ignored(options: dict[str, Any]) -> None:
    request = decoded(user(text("hi")), modelOptions=options, traceparent="00-x").request
    assert (request.conversation, request.caller_turn, request.traceparent) == (None, None, None)


def test_several_system_messages_are_joined_at_the_start() -> None:
    request = decoded(
        user(text("hi")), {"role": 3, "content": [text("a")]}, {"role": 3, "content": [text("b")]}
    ).request
    assert request.messages == (
        Message(Role.SYSTEM, (TextPart("a\n\nb"),)),
        Message(Role.USER, (TextPart("hi"),)),
    )


def test_a_tool_round_keeps_its_calls_results_and_thinking() -> None:
    thinking = {"type": "thinking", "value": ["hm", "m"], "id": "rs_1", "metadata": {"signature": "s"}}
    call = {"type": "toolCall", "callId": "c1", "name": "read", "input": {"path": "a"}}
    tsx = {
        "node": {
            "type": 1,
            "children": [{"type": 2, "text": "x"}, {"type": 2, "text": "y", "lineBreakBefore": True}],
        }
    }
    result = {
        "type": "toolResult",
        "callId": "c1",
        "isError": True,
        "content": [text("18C"), data(PNG, "image/png"), {"type": "promptTsx", "value": tsx}],
    }
    _, answer, answered = decoded(
        user(text("q")), {"role": 2, "content": [thinking, call]}, user(result)
    ).request.messages
    assert answer == Message(
        Role.ASSISTANT,
        (ThinkingPart("hmm", "rs_1", {"signature": "s"}), ToolCallPart("c1", "read", {"path": "a"})),
    )
    assert answered.parts == (
        ToolResultPart("c1", (TextPart("18C"), DataPart(PNG, "image/png"), TextPart("x\ny")), is_error=True),
    )


def test_the_type_of_an_image_is_detected_from_its_bytes() -> None:
    assert the_parts(data(PNG, "image/jpeg")) == (DataPart(PNG, "image/png"),)


@pytest.mark.parametrize(
    "mime", ["text/plain", "text/x-json", "application/json; charset=utf-8", "image/svg+xml"]
)
def test_text_data_becomes_a_text_part(mime: str) -> None:
    assert the_parts(data("grün".encode(), mime)) == (TextPart("grün"),)


def test_a_pdf_is_sent_only_to_models_that_accept_files() -> None:
    pdf = data(b"%PDF-1.7 ...", "application/pdf")
    assert the_parts(text("q"), pdf)[1] == DataPart(b"%PDF-1.7 ...", "application/pdf")
    result = decoded(user(text("q"), pdf), takes_files=False)
    assert result.request.messages[0].parts == (TextPart("q"),)
    assert result.dropped == {"application/pdf": 1}


def test_vs_code_markers_and_unknown_parts_are_dropped_and_counted() -> None:
    result = decoded(
        user(
            text("q"),
            data(b"ephemeral", "cache_control"),
            data(b"m\\r", "stateful_marker"),
            data(b"m\\r", "stateful_marker"),
            {"type": "unknown", "name": "LanguageModelHologramPart"},
        )
    )
    assert result.request.messages[0].parts == (TextPart("q"),)
    assert result.dropped == {"cache_control": 1, "stateful_marker": 2, "LanguageModelHologramPart": 1}


def test_empty_messages_are_dropped() -> None:
    request = decoded(user(text("")), user(text("q")), {"role": 2, "content": []}).request
    assert request.messages == (Message(Role.USER, (TextPart("q"),)),)


def test_thinking_without_text_is_kept_for_its_signature() -> None:
    (message,) = decoded(
        {"role": 2, "content": [{"type": "thinking", "value": "", "metadata": {"s": 1}}]}
    ).request.messages
    assert message.parts == (ThinkingPart("", None, {"s": 1}),)


def test_a_name_is_kept() -> None:
    (message,) = decoded({"role": 1, "content": [text("q")], "name": "ada"}).request.messages
    assert message.name == "ada"


def test_a_required_tool_is_required() -> None:
    assert decoded(user(text("q")), tools=[{"name": "t"}], toolMode=2).request.tool_choice == "required"
    assert decoded(user(text("q")), toolMode=2).request.tool_choice is None


def test_options_are_renamed_and_sent_only_if_set() -> None:
    request = decoded(
        user(text("q")), modelOptions={"temperature": 0, "max_tokens": 5, "service_tier": "flex"}
    ).request
    assert (request.temperature, request.max_output_tokens, request.top_p) == (0, 5, None)
    assert request.extra == {"service_tier": "flex"}


def test_a_context_size_is_not_sent_because_vscode_has_applied_it() -> None:
    assert decoded(user(text("q")), modelConfiguration={"contextSize": 128_000}).request.extra is None


def test_an_option_of_the_request_has_priority_over_the_model_configuration() -> None:
    request = decoded(
        user(text("q")),
        modelOptions={"reasoningEffort": "low"},
        modelConfiguration={"reasoningEffort": "high"},
    ).request
    assert request.reasoning_effort == "low"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modelOptions": {"temperature": "hot"}}, "modelOptions.temperature has the wrong type: 'hot'"),
        ({"modelOptions": {"max_tokens": True}}, "modelOptions.max_tokens has the wrong type: True"),
        ({"modelOptions": {"stream": False}}, "modelOptions.stream cannot be set"),
        ({"toolMode": 9, "tools": [{"name": "t"}]}, "Invalid toolMode 9"),
    ],
)
def test_an_invalid_field_is_an_error_that_names_it(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        decoded(user(text("q")), **fields)


def _read(params: Any, shape: type[Any]) -> Any:
    return wire.read_parameters(msgspec.Raw(msgspec.json.encode(params)), shape)


NO_VALUES: dict[str, tuple[Any, Any]] = {
    "null for an optional field": (
        {"model": "m", "messages": [], "tools": None, "toolMode": None, "modelOptions": None},
        wire.Chat("m", []),
    ),
    "null for an optional field of a message": (
        {"model": "m", "messages": [{"role": 1, "content": None, "name": None}]},
        wire.Chat("m", [wire.Message(1)]),
    ),
    "null for an optional field of a part": (
        {
            "model": "m",
            "messages": [
                {
                    "role": 1,
                    "content": [{"type": "toolResult", "callId": "1", "content": None, "isError": None}],
                }
            ],
        },
        wire.Chat("m", [wire.Message(1, [wire.ToolResult("1")])]),
    ),
    "a list for an empty object": (
        {"model": "m", "messages": [], "modelOptions": [], "modelConfiguration": []},
        wire.Chat("m", []),
    ),
    "a list for an empty object in a part": (
        {
            "model": "m",
            "messages": [{"role": 2, "content": [{"type": "thinking", "value": "x", "metadata": []}]}],
            "tools": [{"name": "t", "inputSchema": []}],
        },
        wire.Chat("m", [wire.Message(2, [wire.Thinking("x", None, {})])], [wire.Tool("t", "", {})]),
    ),
    "a list that is one, beside a part of an unknown type": (
        {
            "model": "m",
            "messages": [{"role": 2, "content": [{"type": "thinking", "value": []}, {"type": "new"}]}],
            "modelOptions": {"stop": [], "seed": None},
        },
        wire.Chat(
            "m",
            [wire.Message(2, [wire.Thinking([]), wire.Unknown("new")])],
            model_options={"stop": [], "seed": None},
        ),
    ),
}


@pytest.mark.parametrize("case", NO_VALUES)
def test_null_and_an_empty_list_stand_for_no_value(case: str) -> None:
    params, chat = NO_VALUES[case]
    assert _read(params, wire.Chat) == chat


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"model": None, "messages": []}, r"\$\.model"),
        ({"model": "m", "messages": None}, r"\$\.messages"),
        ({"model": "m", "messages": [], "modelOptions": [1]}, r"\$\.modelOptions"),
        ({"model": "m", "messages": [[]]}, r"role.*\$\.messages\[0\]"),
        ({"model": "m", "messages": [{"role": 1, "content": {}}]}, r"\$\.messages\[0\]\.content"),
    ],
)
def test_a_missing_value_that_is_required_is_an_error_that_names_it(params: Any, path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=path):
        _read(params, wire.Chat)


def test_an_empty_list_in_a_tool_or_its_call_is_an_empty_object() -> None:
    schema = {"type": "object", "properties": []}
    call = wire.ToolCall("1", "now", [])
    chat = wire.Chat("m", [wire.Message(2, [call])], [wire.Tool("now", "", schema)])
    request = decode_chat(chat).request
    assert request.tools == (Tool("now", "", {"type": "object", "properties": {}}),)
    assert request.messages[0].parts == (ToolCallPart("1", "now", {}),)


def test_an_invalid_role_is_an_error_that_names_the_message() -> None:
    with pytest.raises(RequestError, match=r"Invalid messages\[1\].role 4"):
        decoded(user(text("q")), {"role": 4, "content": []})


def test_a_single_message_is_decoded_for_a_token_count() -> None:
    assert decode_message(wire.Message(2, [wire.Text("a")])) == Message(Role.ASSISTANT, (TextPart("a"),))


@given(st.text())
def test_the_encoded_model_id_has_no_slash(model_id: str) -> None:
    assert "/" not in encode_model_id(model_id)


@pytest.mark.parametrize(
    ("options", "configuration", "efforts", "sent"),
    [
        ({}, {"reasoningEffort": "default"}, ("none", "low", "high"), None),
        ({}, {"reasoningEffort": "high"}, ("none", "low", "high"), "high"),
        ({"_enableThinking": False}, {"reasoningEffort": "high"}, ("none", "low", "high"), "none"),
        ({"_enableThinking": False}, {}, ("low", "medium", "high"), "low"),
        ({"_enableThinking": False}, {}, (), None),
        ({"_enableThinking": True}, {}, ("none", "low"), None),
    ],
)
def test_the_effort_is_what_the_user_chose_or_the_weakest_if_the_editor_wants_no_thinking(
    options: dict[str, Any], configuration: dict[str, Any], efforts: tuple[str, ...], sent: str | None
) -> None:
    chat = wire.Chat(
        "m", [wire.Message(1, [wire.Text("q")])], model_options=options, model_configuration=configuration
    )
    assert decode_chat(chat, efforts=efforts).request.reasoning_effort == sent


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (TextPart("hi"), {"type": "text", "value": "hi"}),
        (ThinkingPart("hm"), {"type": "thinking", "value": "hm"}),
        (
            ThinkingPart("", "rs_1", {"signature": "s"}),
            {"type": "thinking", "value": "", "id": "rs_1", "metadata": {"signature": "s"}},
        ),
        (
            ToolCallPart("c1", "read", {"a": 1}),
            {"type": "toolCall", "callId": "c1", "name": "read", "input": {"a": 1}},
        ),
        (ToolCallPart("c1", "now", ""), {"type": "toolCall", "callId": "c1", "name": "now", "input": {}}),
        (ToolCallPart("c1", "now", None), {"type": "toolCall", "callId": "c1", "name": "now", "input": {}}),
        (
            DataPart(b"\x89PNG", "image/png"),
            {"type": "data", "mimeType": "image/png", "data": base64.b64encode(b"\x89PNG").decode()},
        ),
    ],
)
def test_every_part_is_encoded(part: Part, sent: dict[str, Any]) -> None:
    assert as_json(encode_parts([part])) == [sent]


@pytest.mark.parametrize("value", ['{"a": ', [1], 3])
def test_arguments_that_are_not_an_object_are_an_error_that_names_the_tool(value: Any) -> None:
    with pytest.raises(StreamError, match="tool read_file"):
        encode_parts([ToolCallPart("c1", "read_file", value)])


def test_a_tool_result_in_an_answer_is_an_error() -> None:
    with pytest.raises(StreamError, match="c1"):
        encode_parts([ToolResultPart("c1", (TextPart("x"),))])


def test_usage_is_encoded_for_the_context_meter() -> None:
    part = encode_usage(Usage(1234, 56, 1290, cached_tokens=1000, reasoning_tokens=20))
    assert part is not None
    assert part.mime_type == "usage"
    assert json.loads(part.data) == {
        "prompt_tokens": 1234,
        "completion_tokens": 56,
        "total_tokens": 1290,
        "prompt_tokens_details": {"cached_tokens": 1000},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }


def test_a_missing_total_is_the_sum() -> None:
    part = encode_usage(Usage(10, 5))
    assert part is not None
    assert json.loads(part.data) == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 0, 0), Usage(10, None), Usage(None, 10)])
def test_unknown_usage_is_not_encoded(usage: Usage | None) -> None:
    assert encode_usage(usage) is None


def test_the_prices_of_long_prompts_have_a_column_of_their_own() -> None:
    prices = Prices(
        input=Decimal("0.00000125"),
        output=Decimal("0.00001"),
        cache_read=Decimal("0.000000125"),
        tiers=(PriceTier(200_000, Decimal("0.0000025"), Decimal("0.000015")),),
    )
    info = as_json(encode_model(Model(id="google/gemini-2.5-pro", prices=prices)))
    costs = {name: value for name, value in info.items() if name.endswith("Cost")}
    # Credits per million tokens: a credit is a cent, so $1.25 is 125.
    assert costs == {
        "inputCost": 125,
        "outputCost": 1000,
        "cacheCost": 12.5,
        "longContextInputCost": 250,
        "longContextOutputCost": 1500,
        "longContextCacheCost": 12.5,
    }
    assert info["pricing"] == "$1.25 in, $0.125 cached, $10.00 out per 1M tokens"


def test_a_model_without_prices_has_no_costs() -> None:
    info = as_json(encode_model(Model(id="m")))
    assert not [name for name in info if name.endswith("Cost") or name.startswith("pric")]
    cheap = Prices(Decimal("0.000000075"), Decimal("0.0000003"))
    assert as_json(encode_model(Model(id="m", prices=cheap)))["pricing"].startswith("$0.075 in, $0.30 out")


def test_a_model_is_encoded_with_all_fields() -> None:
    model = Model(
        id="anthropic/claude-sonnet-4.5",
        name="Claude Sonnet 4.5",
        description="A model.",
        context_window=200_000,
        max_output_tokens=64_000,
        tags=frozenset({"tool-use", "vision", "reasoning"}),
        reasoning_efforts=("low", "ultra"),
        prices=Prices(input=Decimal("0.000003"), output=Decimal("0.000015"), cache_read=Decimal("0.0000003")),
    )
    assert as_json(encode_model(model)) == {
        "id": "anthropic:claude-sonnet-4.5",
        "model": "anthropic/claude-sonnet-4.5",
        "name": "Claude Sonnet 4.5",
        "family": "claude-sonnet-4.5",
        "version": "4.5",
        "maxInputTokens": 191_808,
        "maxOutputTokens": 8_192,
        "contextWindow": 200_000,
        "maxContextWindowTokens": 200_000,
        "capabilities": {"toolCalling": True, "imageInput": True},
        "tooltip": "A model.",
        "detail": "anthropic",
        "inputCost": 300,
        "outputCost": 1500,
        "cacheCost": 30,
        "pricing": "$3.00 in, $0.30 cached, $15.00 out per 1M tokens",
        "priceCategory": "medium",
        "category": "reasoning",
        "infoText": {"prices": "Prices: $3.00 in, $0.30 cached, $15.00 out per 1M tokens."},
        "configurationSchema": {
            "properties": {
                "reasoningEffort": {
                    "type": "string",
                    "title": "Thinking Effort",
                    "group": "navigation",
                    "enum": ["default", "low", "ultra"],
                    "enumItemLabels": ["Auto", "Low", "Ultra"],
                    "enumDescriptions": [
                        "What the model does if nothing is set",
                        "Little reasoning, faster answers",
                        "ultra",
                    ],
                },
                "contextSize": {
                    "type": "number",
                    "title": "Context Size",
                    "group": "tokens",
                    "enum": [64_000, 128_000, 191_808],
                    "enumItemLabels": ["64K", "128K", "200K"],
                    "enumDescriptions": [
                        "Summarise earlier, at lower cost",
                        "Summarise earlier, at lower cost",
                        "Longer sessions",
                    ],
                    "default": 191_808,
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Model(id="m", tags=frozenset({"vision"}), context_window=128_000), "tools"),
        (Model(id="m", context_window=8_192), "window"),
        (Model(id="m", context_window=128_000), None),
    ],
)
def test_a_model_that_the_chat_cannot_use_says_why(model: Model, reason: str | None) -> None:
    info = as_json(encode_model(model))
    if reason is None:
        assert not {"warningText", "statusIcon"} & set(info)
        return
    assert info["statusIcon"] == {"id": "warning"}
    assert list(info["warningText"]) == [reason]
    assert info["tooltip"].startswith(info["warningText"][reason])


@pytest.mark.parametrize(("window", "default"), [(200_000, None), (32_768, "default")])
def test_one_value_is_shown_next_to_the_model(window: int, default: str | None) -> None:
    """The context size if it can be chosen, or else the effort. Beside both, VS Code hides the name."""
    schema = encode_model(
        Model(id="m", reasoning_efforts=("low",), context_window=window)
    ).configuration_schema
    assert schema is not None
    efforts, sizes = schema.properties.reasoning_effort, schema.properties.context_size
    assert efforts is not None
    assert efforts.default == default
    assert (sizes is None) == (default is not None)


def test_ids_are_readable_and_unique() -> None:
    models = encode_models([Model(id="a/b"), Model(id="a:b"), Model(id="a/b/c:free")])
    assert [info.id for info in models] == ["a:b", "a%3Ab", "a:b:c:free"]
    assert [info.model for info in models] == ["a/b", "a:b", "a/b/c:free"]


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        (Model(id="m", context_window=1_048_576), ["128K", "200K", "400K", "1M"]),
        (Model(id="m", context_window=200_000, context_size=100_000), ["64K", "100K"]),
        (Model(id="m", context_window=32_768), None),
    ],
)
def test_the_context_size_can_be_chosen_if_there_is_a_choice(model: Model, labels: list[str] | None) -> None:
    schema = encode_model(model).configuration_schema
    if labels is None:
        assert schema is None
        return
    assert schema is not None
    sizes = schema.properties.context_size
    assert sizes is not None
    assert list(sizes.enum_item_labels) == labels
    assert sizes.default == sizes.enum[-1] == model.limits.input


@pytest.mark.parametrize(
    ("model", "is_listed"),
    [
        (Model(id="odd", context_window=10**401, max_output_tokens=10**400), True),
        (Model(id="odd", prices=Prices(input=Decimal("1e999999"), output=Decimal(1))), False),
        (Model(id="odd", tags=frozenset({"\ud83d"}), name="\ud83d"), True),
    ],
)
def test_one_odd_model_does_not_hide_the_others(model: Model, is_listed: bool) -> None:
    infos = encode_models([Model(id="a"), model, Model(id="b")])
    assert [info.model for info in infos] == (["a", "odd", "b"] if is_listed else ["a", "b"])
    assert jsonrpc.encode_result(1, infos)


def test_a_model_with_only_an_id_is_encoded() -> None:
    assert as_json(encode_model(Model(id="smollm2"))) == {
        "id": "smollm2",
        "model": "smollm2",
        "name": "smollm2",
        "family": "smollm2",
        "version": "2",
        "maxInputTokens": 24_576,
        "maxOutputTokens": 8_192,
        "contextWindow": 32_768,
        "maxContextWindowTokens": 32_768,
        "capabilities": {"toolCalling": True, "imageInput": False},
        "tooltip": "smollm2",
    }


@pytest.mark.parametrize(
    ("error", "sentence", "facts"),
    [
        (
            NotAuthenticated("Invalid API key", status=401),
            "Invalid API key. Check the account's API key with “Tollbridge: Set Up”.",
            {"kind": "authentication", "status": 401},
        ),
        (
            RateLimited("Slow down.", status=429, retry_after=7.0, code="rate_limit_exceeded"),
            "Slow down. Try again in 7 s.",
            {"kind": "rate_limited", "status": 429, "code": "rate_limit_exceeded", "retryAfter": 7.0},
        ),
        (
            ContextTooLong("Too long", tokens=210, limit=200),
            "Too long. Start a new chat or remove attachments.",
            {"kind": "context_too_long", "tokens": 210, "limit": 200},
        ),
        (
            ServerFailed("", request_id="req_1"),
            "The gateway gave no reason.",
            {"kind": "server", "requestId": "req_1"},
        ),
        (
            Disconnected("The gateway hung up"),
            "The gateway hung up. The partial answer was kept. Try again.",
            {"kind": "disconnected"},
        ),
    ],
)
def test_an_error_is_encoded_as_message_and_data(
    error: BridgeError, sentence: str, facts: dict[str, Any]
) -> None:
    assert encode_error(error) == (sentence, facts)


def test_an_error_with_its_own_advice_gives_that() -> None:
    error = SettingsUnusable("The file is not TOML.", "Correct it.")
    assert encode_error(error)[0] == "The file is not TOML. Correct it."
