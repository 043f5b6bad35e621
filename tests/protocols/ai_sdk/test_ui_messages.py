"""Encoding of messages as UI messages for a chat endpoint."""

from __future__ import annotations

from tests.protocols.ai_sdk.test_requests import CALL, DATA, PNG, answered, model, system, user

from tollbridge.protocols.ai_sdk.requests import convert_messages, encode_chat_body, encode_ui_messages
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Origin,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    add_origin,
)


def test_a_call_and_its_result_are_one_part_of_a_ui_message() -> None:
    messages = [system("S"), user(TextPart("Hi")), model(CALL), user(answered(TextPart("ok")))]
    tool = {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c", "input": {"at": "it"}}
    request = ChatRequest(model="endpoint", messages=messages, extra={"id": "chat"})
    assert encode_chat_body(request, stream=True).body == {
        "id": "chat",
        "messages": [
            {"id": "msg-0", "role": "system", "parts": [{"type": "text", "text": "S"}]},
            {"id": "msg-1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
            {
                "id": "msg-2",
                "role": "assistant",
                "parts": [{**tool, "state": "output-available", "output": "ok"}],
            },
        ],
        "trigger": "submit-message",
    }


def test_a_failed_or_missing_result_is_a_tool_error() -> None:
    [failed] = encode_ui_messages([model(CALL), user(answered(TextPart("no"), is_error=True))])
    assert (failed["parts"][0]["state"], failed["parts"][0]["errorText"]) == ("output-error", "no")
    [missing] = encode_ui_messages([model(CALL)])
    assert missing["parts"][0]["state"] == "output-error"


def test_a_json_error_result_is_an_error_in_ui_messages() -> None:
    result = answered(DataPart(b'{"code": 7}', "application/json"), is_error=True)
    [failed] = encode_ui_messages([model(CALL), user(result)])
    assert (failed["parts"][0]["state"], failed["parts"][0]["errorText"]) == ("output-error", '{"code":7}')


def test_calls_with_the_same_id_have_their_own_results_in_ui_messages() -> None:
    again = ToolCallPart("c", "list", {})
    one, more, two = (answered(TextPart(text)) for text in ("one", "more", "two"))
    encoded = encode_ui_messages([model(CALL), user(one, more), model(again), user(two)])
    [[looked], [orphan], [listed]] = [message["parts"] for message in encoded]
    assert (looked["toolName"], looked["output"]) == ("look", "one")
    assert (listed["toolName"], listed["output"]) == ("list", "two")
    assert orphan == {"type": "text", "text": "more"}


def test_internal_metadata_is_not_sent() -> None:
    mark = add_origin(Origin.of("m", "https://gateway.test"), {"anthropic": {"signature": "s"}})
    messages = [model(ThinkingPart("hm", "r", mark), DataPart(b"{}", PACK_MIME))]
    signed = {"anthropic": {"signature": "s"}}
    [answer] = encode_ui_messages(messages)
    assert answer["parts"] == [{"type": "reasoning", "text": "hm", "providerMetadata": signed}]
    [encoded] = convert_messages(messages)
    assert encoded["content"] == [{"type": "reasoning", "text": "hm", "providerOptions": signed}]


def test_files_and_reasoning_are_sent_in_ui_messages() -> None:
    thought = ThinkingPart("hm", None, {"anthropic": {"signature": "s"}})
    [question, answer] = encode_ui_messages([user(DataPart(PNG, "image/png", "x.png")), model(thought)])
    url = f"data:image/png;base64,{DATA}"
    assert question["parts"] == [{"type": "file", "mediaType": "image/png", "url": url, "filename": "x.png"}]
    assert answer["parts"] == [
        {"type": "reasoning", "text": "hm", "providerMetadata": {"anthropic": {"signature": "s"}}}
    ]
