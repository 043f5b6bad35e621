"""VS Code's requests and messages become ours."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import msgspec
import pytest

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.requests import DecodedChat, decode_chat, decode_message
from tollbridge.types.errors import (
    RequestError,
)
from tollbridge.types.messages import (
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)


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


def decoded(*messages: dict[str, Any], takes_files: bool = True, **fields: Any) -> DecodedChat:
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


def test_vs_code_says_which_conversation_a_request_belongs_to() -> None:
    trace = {"traceId": "4BF92F3577B34DA6A3CE929D0E0E4736", "spanId": "00f067aa0ba902b7"}
    options = {"_conversationId": "chat-1", "_telemetryTurn": 3, "_otelTraceContext": trace}
    request = decoded(user(text("hi")), modelOptions=options).request
    assert request.conversation == "chat-1"
    assert request.extra is None
    body = OpenResponsesClient("https://ai-gateway.vercel.sh/v1").encode_request(request)
    assert not any(value in body for value in (b"chat-1", b"4bf92f", b"telemetry"))


def test_other_editors_have_a_field_for_it() -> None:
    assert decoded(user(text("hi")), conversation="c").request.conversation == "c"


@pytest.mark.parametrize("value", [1.5, True, "", None, {}])
def test_what_is_no_id_is_ignored(value: Any) -> None:
    request = decoded(user(text("hi")), modelOptions={"_conversationId": value}).request
    assert request.conversation is None


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
