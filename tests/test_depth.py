"""Deeply nested values cost only themselves: the rest of an answer, a request or a recording survives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.protocols.openresponses.streams import CALL, done, text
from tests.turns import AnswerParts, Runner
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.profiles import UnreadableProfile, load_profile, profile_file
from tollbridge.frontends.stdio.parameters import read_parameters
from tollbridge.frontends.stdio.wire import ChatParams
from tollbridge.frontends.vscode.answers import encode_parts
from tollbridge.frontends.vscode.requests import decode_chat, read_prompt_text
from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.jsonrpc import Call, read_message
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.recorder.recording import read_line, read_recording
from tollbridge.recorder.writer import RecordingWriter
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import BrokenCall
from tollbridge.types.events import Event, Failed, Finished, TextDelta, ToolCall, Usage
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Origin,
    Role,
    ThinkingPart,
    Tool,
    ToolCallPart,
    read_reasoning_pack,
)
from tollbridge.types.text import (
    MAX_DEPTH,
    exceeds_depth,
    limit_depth,
    limit_text_depth,
    read_json,
    read_json_to_depth,
    write_json,
)

DEPTHS = (300, 990, 20_000)
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
END = {"type": "response.completed", "response": {"status": "completed", "output": [], "usage": USAGE}}
# json cannot write deep values, so they are put into the text.
HOLE = "DEEP VALUE"


def deep_text(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def deep_value(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return {"a": value}


def fill(value: object, depth: int) -> str:
    return json.dumps(value).replace(f'"{HOLE}"', deep_text(depth))


def read(protocol: str, *frames: str) -> list[Event]:
    decoder = decoder_for(protocol)
    return decoder.feed("".join(frames).encode()) + decoder.close()


def sse(value: object, depth: int) -> str:
    return f"data: {fill(value, depth)}\n\n"


def at_depth(frames: int, function: Any) -> Any:
    return function() if frames == 0 else at_depth(frames - 1, function)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_delta_with_a_deeply_nested_unknown_field_keeps_its_text(depth: int) -> None:
    for delta in (
        text("lo", future=HOLE),
        {**text("lo"), "type": "response.refusal.delta", "future": [HOLE]},
    ):
        events = read("openresponses", sse(text("Hel"), 0), sse(delta, depth), sse(text("!"), 0), sse(END, 0))
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello!"
        assert events[-1] == Finished("stop", usage=Usage(3, 2, 5))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("place", ["item", "response", "body"])
def test_arguments_as_a_deep_object_cost_only_their_call(place: str, depth: int) -> None:
    call = {**CALL, "arguments": HOLE}
    response = {"status": "completed", "output": [call], "usage": USAGE}
    match place:
        case "item":
            frames = [sse(text("Hi"), 0), sse(done(call), depth), sse(END, 0)]
        case "response":
            frames = [sse(text("Hi"), 0), sse({"type": "response.completed", "response": response}, depth)]
        case _:
            message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
            frames = [fill({**response, "output": [message, call]}, depth)]
    events = read("openresponses", *frames)
    assert events[0] == TextDelta("Hi")
    [finished] = [event for event in events if isinstance(event, Finished)]
    assert finished.usage == Usage(3, 2, 5)
    [withheld] = [event for event in events if isinstance(event, ToolCall)]
    assert not withheld.offered
    [failed] = [event for event in events if isinstance(event, Failed)]
    assert isinstance(failed.error, BrokenCall)
    answer = AnswerParts()
    answer.take(events)
    [part], error = answer.close(failed.error)
    assert error is None
    assert isinstance(part, ToolCallPart)
    assert str(MAX_DEPTH) in part.input["_invalid_arguments"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_arguments_as_a_deep_text_cost_only_their_call(depth: int) -> None:
    call = {**CALL, "arguments": deep_text(depth)}
    events = read("openresponses", sse(text("Hi"), 0), sse(done(call), 0), sse(END, 0))
    assert [event for event in events if isinstance(event, ToolCall) and event.offered] == []
    assert Finished("tool-calls", usage=Usage(3, 2, 5)) in events


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("protocol", ["ai-sdk-ui", "ai-sdk-full"])
def test_deep_values_in_an_ai_sdk_stream_cost_only_themselves(protocol: str, depth: int) -> None:
    chunks = [
        {"type": "text-delta", "id": "1", "delta": "A", "future": HOLE},
        {"type": "reasoning-delta", "id": "r", "delta": "B", "providerMetadata": {"p": HOLE}},
        {"type": "data-x", "data": HOLE},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": HOLE},
        {"type": "text-delta", "id": "1", "delta": "Z"},
        {"type": "finish", "finishReason": "stop", "usage": {"inputTokens": 3, "outputTokens": 2}},
    ]
    lines = [fill(chunk, depth) for chunk in chunks]
    frames = (
        [f"data: {line}\n\n" for line in lines]
        if protocol == "ai-sdk-ui"
        else [f"{line}\n" for line in lines]
    )
    events = read(protocol, *frames)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "AZ"
    [finished] = [event for event in events if isinstance(event, Finished)]
    assert finished.usage == Usage(3, 2, 5)
    [call] = [event for event in events if isinstance(event, ToolCall)]
    assert not call.offered
    parts = AnswerParts(origin=Origin("m", "g")).take(events)
    msgspec.json.encode(encode_parts(parts))


def test_the_limit_does_not_depend_on_the_stack_of_the_caller() -> None:
    for depth, is_read in ((MAX_DEPTH, True), (MAX_DEPTH + 30, False)):
        for frames in (0, 300):
            try:
                at_depth(frames, lambda depth=depth: write_json(read_json(deep_text(depth))))
            except ValueError:
                assert not is_read
            else:
                assert is_read


def test_a_text_is_cut_without_being_parsed() -> None:
    data = b'{"s": "{[\\"", "deep": ' + b"[" * 5_000 + b"]" * 5_000 + b', "after": [1, {}]}'
    assert read_json_to_depth(data)["after"] == [1, {}]
    assert read_json_to_depth(data)["s"] == '{["'
    assert limit_text_depth(b'{"a": [1]}') == b'{"a": [1]}'
    assert not exceeds_depth(limit_depth(deep_value(600)))
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(data)
    with pytest.raises(ValueError, match=r"."):
        read_json_to_depth(b"{" * 10_000)


@pytest.mark.parametrize("width", [1, 15, 16, 1000])
@pytest.mark.parametrize("kind", ["list", "dict"])
def test_the_depth_is_exact_beside_any_number_of_items(kind: str, width: int) -> None:
    value: Any = 0
    for _ in range(10):
        items = [*range(width - 1), value]
        value = items if kind == "list" else dict(enumerate(items))
    assert not exceeds_depth(value, 10)
    assert exceeds_depth(value, 9)


# --- Requests ---


def ask(*parts: Any, **fields: Any) -> ChatRequest:
    messages = (Message(Role.USER, "Hi"), Message(Role.ASSISTANT, parts), Message(Role.USER, "Go on"))
    return ChatRequest(model="m", messages=messages, **fields)


@pytest.mark.parametrize("depth", [250, 700, 990])
def test_a_history_with_deep_values_can_be_sent(depth: int) -> None:
    call = ToolCallPart("c1", "f", deep_value(depth), {"extra_content": deep_value(depth)})
    thinking = ThinkingPart("Hm.", "r", {"encrypted_content": "E", "x": deep_value(depth)})
    normalized = normalize_request(ask(thinking, call, tools=(Tool("f", parameters=deep_value(depth)),)))
    body = json.loads(write_json(encode_request(normalized.request)))
    assert any(item["type"] == "function_call_output" for item in body["input"])
    assert any("schema" in change for change in normalized.changes)
    assert not exceeds_depth(normalized.request.tools[0].parameters)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_deep_value_in_a_message_of_the_editor_does_not_block_the_conversation(depth: int) -> None:
    chat = {
        "account": {"baseUrl": "http://127.0.0.1/v1"},
        "model": "m",
        "messages": [
            {"role": 2, "content": [{"type": "toolCall", "callId": "c", "name": "f", "input": HOLE}]},
            {"role": 1, "content": [{"type": "text", "value": "Hello"}]},
        ],
        "tools": [{"name": "f", "inputSchema": {"type": "object", "properties": HOLE}}],
    }
    body = fill({"jsonrpc": "2.0", "id": 7, "method": "chat", "params": chat}, depth).encode()
    call = read_message(body)
    assert isinstance(call, Call)
    request = normalize_request(decode_chat(read_parameters(call.params, ChatParams)).request).request
    assert "Hello" in write_json(encode_request(request))


def test_a_deep_result_of_an_extension_has_a_text() -> None:
    assert read_prompt_text(deep_value(900)).startswith('{"a":')


def test_a_deep_reasoning_pack_is_ignored() -> None:
    pack = '{"model":"m","gateway":"g","blocks":[{"proof":' + deep_text(3_000) + "}]}"
    assert read_reasoning_pack(pack.encode()) is None
    assert read_reasoning_pack(b'{"model":"\xff"}') is None


# --- Files ---


async def test_a_deep_request_is_answered_and_recorded_without_it(tmp_path: Path) -> None:
    request = ask(ToolCallPart("c1", "f", deep_value(600)))
    writer = RecordingWriter(tmp_path, request)
    async with (
        Gateway() as gateway,
        OpenResponsesClient(gateway.url) as client,
        Runner(client, observers=[writer]).turn(
            msgspec.structs.replace(request, model="tollbridge/demo")
        ) as turn,
    ):
        assert [event async for event in turn]
    [path] = tmp_path.iterdir()
    assert read_recording(path).start.request is None
    assert read_recording(path).end is not None


def test_a_deep_line_of_a_recording_is_invalid() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_line(fill({"line": "begun", "request": HOLE}, 50_000).encode())


def test_a_deep_profile_is_invalid(tmp_path: Path) -> None:
    path = profile_file("http://127.0.0.1/v1", tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"a = " + b"[" * 50_000)
    with pytest.raises(UnreadableProfile):
        load_profile("http://127.0.0.1/v1", tmp_path)
