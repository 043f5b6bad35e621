"""The AI SDK's protocol of the gateway: streams, answers in one body, errors, and both protocols compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import aiohttp
import pytest
from tests.turns import Runner

from tollbridge.clients.protocols import AiSdkClient
from tollbridge.connections import open_client
from tollbridge.protocols import BACKENDS, Backend
from tollbridge.protocols.ai_sdk import PATHS
from tollbridge.testing.ai_sdk import read_call
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.messages import ChatRequest, DataPart, Message, Part, Role, TextPart, Tool, ToolCallPart

READ = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def headers(spec: int = 4, stream: bool = False, model: str = "tollbridge/demo") -> dict[str, str]:
    return {
        "ai-language-model-id": model,
        "ai-language-model-specification-version": str(spec),
        "ai-language-model-streaming": str(stream).lower(),
    }


def prompt(text: str) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": [{"type": "text", "text": text}]}]}


async def post(gateway: Gateway, body: Any, **named: Any) -> tuple[int, Any]:
    url = gateway.url.removesuffix("/v1") + "/v4/ai/language-model"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers=headers(**named)) as reply,
    ):
        return reply.status, await reply.json()


async def test_an_answer_in_one_body_has_everything_that_a_streamed_answer_has() -> None:
    async with Gateway() as gateway:
        status, answer = await post(gateway, prompt("Think, then cite"))
    assert status == 200
    kinds = [part["type"] for part in answer["content"]]
    assert kinds == ["reasoning", "text", "source", "source"]
    assert answer["content"][0]["providerMetadata"]["scripted"]["encrypted_content"]
    assert answer["finishReason"] == {"unified": "stop", "raw": "stop"}
    assert answer["usage"]["inputTokens"]["total"] > 0


async def streamed(gateway: Gateway, text: str, scenario: str = "demo") -> bytes:
    url = gateway.url.removesuffix("/v1") + "/v4/ai/language-model"
    named = {**headers(stream=True), **({"x-tollbridge-scenario": scenario} if scenario != "demo" else {})}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=prompt(text), headers=named) as reply,
    ):
        assert (reply.status, reply.content_type) == (200, "text/event-stream")
        return await reply.read()


@pytest.mark.parametrize(
    ("scenario", "shown"),
    [
        ("demo", lambda body: body.endswith(b"}\n\n") and b"\r" not in body and b"event:" not in body),
        ("crlf", lambda body: body.count(b"\r\n") == body.count(b"\n") > 0),
        ("cr", lambda body: b"\r\r" in body and b"\n" not in body),
        ("no-space", lambda body: b"data:{" in body and b"data: " not in body),
        ("multi-line", lambda body: b"data: {\ndata:" in body),
        ("unterminated", lambda body: body.endswith(b"}")),
        ("byte-order-mark", lambda body: body.startswith(b"\xef\xbb\xbfdata: {")),
        ("keep-alive", lambda body: body.startswith(b": keep-alive\n\ndata: {")),
        ("odd-lines", lambda body: b"retry: 3000\n" in body and b"id: 1\n" in body),
        ("garbage", lambda body: b"\x00\xff\xfe" in body and body.endswith(b"data: <html>\n\n")),
        ("no-terminal", lambda body: b'"finish"' not in body and b'"error"' not in body),
    ],
)
@pytest.mark.parametrize("by", ["header", "question"])
async def test_faults_of_the_framing_apply_to_this_protocol_too(
    scenario: str, shown: Callable[[bytes], bool], by: str
) -> None:
    async with Gateway() as gateway:
        if by == "header":
            body = await streamed(gateway, "Hello", scenario)
        else:
            body = await streamed(gateway, f"Hello fault:{scenario}")
    assert shown(body), body[:500]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("disconnect", aiohttp.ClientError), ("garbage", ValueError), ("no-terminal", ValueError)],
)
async def test_an_answer_in_one_body_fails_like_a_streamed_answer(name: str, kind: type[Exception]) -> None:
    async with Gateway(scenario=name) as gateway:
        with pytest.raises(kind):
            await post(gateway, prompt("Hello"))


async def test_unsupported_options_cause_warnings() -> None:
    body = {**prompt("Hi"), "seed": 1, "topK": 5}
    async with Gateway() as gateway:
        _, new = await post(gateway, body, spec=4)
        _, old = await post(gateway, body, spec=2)
    assert new["warnings"] == [{"type": "unsupported", "feature": name} for name in ("seed", "topK")]
    assert old["warnings"] == [{"type": "unsupported-setting", "setting": name} for name in ("seed", "topK")]


@pytest.mark.parametrize(
    ("body", "named", "status", "kind"),
    [
        ({}, {}, 400, "invalid_request_error"),
        ({"prompt": ["x"]}, {}, 400, "invalid_request_error"),
        ({"prompt": [{"role": "user", "content": "text"}]}, {}, 400, "invalid_request_error"),
        ({"prompt": [{"role": "user", "content": [{"type": "video"}]}]}, {}, 400, "invalid_request_error"),
        (prompt("Hi"), {"spec": 9}, 400, "invalid_request_error"),
        (prompt("Hi"), {"model": "no/such"}, 404, "model_not_found"),
    ],
)
async def test_an_error_has_the_type_of_this_protocol(body: Any, named: Any, status: int, kind: str) -> None:
    async with Gateway() as gateway:
        answered, error = await post(gateway, body, **named)
    assert (answered, error["error"]["type"]) == (status, kind)
    assert error["error"]["message"]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_failure_mid_stream_keeps_the_output_before_it(backend: Backend) -> None:
    parts: list[Part] = []
    async with Gateway(scenario="failed") as gateway, open_client(backend, gateway.url) as client:
        with pytest.raises(BridgeError) as caught:
            await Runner(client).run(question("Hello"), parts.extend)
    assert caught.value.message
    assert parts


def question(text: str) -> ChatRequest:
    message = Message(Role.USER, (TextPart(text),))
    return ChatRequest(
        model="tollbridge/demo", messages=(message,), tools=(Tool("read_file", "Reads.", READ),)
    )


@pytest.mark.parametrize(
    "text", ["Hello", "Think about it", "Use the tool read_file", "Draw an image", "Cite"]
)
async def test_all_backends_give_the_same_answer(text: str) -> None:
    """The same conversation over any protocol gives the same result. Messages has no generated images."""
    answers = []
    for backend in BACKENDS:
        if text == "Draw an image" and backend == "anthropic-messages":
            continue
        parts: list[Part] = []
        async with Gateway() as gateway, open_client(backend, gateway.url) as client:
            turn = await Runner(client).run(question(text), parts.extend)
        answers.append((_shown(parts), turn.usage, turn.finish_reason))
    assert all(answer == answers[0] for answer in answers)


def _shown(parts: list[Part]) -> dict[str, list[Any]]:
    """Return the events by kind, without ids, which are random, and with the deltas of a text joined."""
    shown: dict[str, list[Any]] = {}
    for part in parts:
        value: Any = part
        if isinstance(part, ToolCallPart):
            value = (part.name, part.input)
        elif hasattr(part, "text"):
            value = part.text
        elif isinstance(part, DataPart):
            value = part.mime
        shown.setdefault(type(part).__name__, []).append(value)
    return {
        kind: ["".join(values)] if kind in ("TextPart", "ThinkingPart") else values
        for kind, values in shown.items()
    }


@pytest.mark.parametrize("spec", [2, 3, 4])
async def test_a_wrong_key_is_rejected_and_not_shown(spec: Literal[2, 3, 4]) -> None:
    async with Gateway(api_key="right-key") as gateway:
        base = gateway.url.removesuffix("/v1") + PATHS[spec]
        async with AiSdkClient(base, "wrong-key", spec=spec) as client:
            with pytest.raises(BridgeError) as caught:
                [event async for event in client.stream(question("Hi"))]
    assert caught.value.kind == "authentication"
    assert "wrong-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://ai-gateway.vercel.sh/v1", "https://ai-gateway.vercel.sh/v4/ai"),
        ("https://ai-gateway.vercel.sh/v1/", "https://ai-gateway.vercel.sh/v4/ai"),
        ("https://ai-gateway.vercel.sh/v3/ai", "https://ai-gateway.vercel.sh/v3/ai"),
        ("https://example.com", "https://example.com/v4/ai"),
    ],
)
def test_the_url_of_the_ai_sdk_protocol_is_derived_from_the_base_url(base: str, url: str) -> None:
    assert open_client("ai-sdk", base).base_url == url
    assert open_client("openresponses", base).base_url == base.rstrip("/")


def test_every_form_of_a_prompt_is_converted_to_an_equivalent_request() -> None:
    inline = "data:image/png;base64,AAAA"
    call = read_call(
        {
            "prompt": [
                {"role": "system", "content": "S"},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {"type": "file", "mediaType": "image/png", "data": "AAAA"},
                        {"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": "AAAA"}},
                        {"type": "file", "mediaType": "image/png", "data": "https://example.com/x.png"},
                        {
                            "type": "file",
                            "mediaType": "application/pdf",
                            "filename": "p.pdf",
                            "data": {"type": "url", "url": "https://example.com/p.pdf"},
                        },
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "reasoning", "text": "hm"},
                        {
                            "type": "reasoning",
                            "text": "hm",
                            "providerOptions": {"scripted": {"encrypted_content": "e"}},
                        },
                        {"type": "text", "text": "I look."},
                        {"type": "file", "mediaType": "image/png", "data": "AAAA"},
                        {"type": "tool-call", "toolCallId": "c", "toolName": "look", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "tool",
                    "content": [
                        _result({"type": "json", "value": [1]}),
                        _result({"type": "error-text", "value": "no"}),
                        _result(
                            {
                                "type": "content",
                                "value": [
                                    {"type": "text", "text": "See:"},
                                    {"type": "image-data", "mediaType": "image/png", "data": "AAAA"},
                                ],
                            }
                        ),
                    ],
                },
            ],
            "tools": [{"type": "function", "name": "look", "description": "Looks.", "inputSchema": READ}],
            "toolChoice": {"type": "tool", "toolName": "look"},
            "responseFormat": {"type": "json", "schema": READ},
            "reasoning": "high",
            "maxOutputTokens": 99,
        },
        "m",
    )
    assert call["input"] == [
        {"type": "message", "role": "developer", "content": "S"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": inline},
                {"type": "input_image", "image_url": inline},
                {"type": "input_image", "image_url": "https://example.com/x.png"},
                {"type": "input_file", "filename": "p.pdf", "file_url": "https://example.com/p.pdf"},
            ],
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "e",
        },
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "message", "role": "assistant", "content": "[image/png]"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c", "output": "[1]"},
        {"type": "function_call_output", "call_id": "c", "output": "no"},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [
                {"type": "input_text", "text": "See:"},
                {"type": "input_image", "image_url": inline},
            ],
        },
    ]
    assert call["tools"] == [
        {"type": "function", "name": "look", "description": "Looks.", "parameters": READ, "strict": False}
    ]
    assert call["tool_choice"] == {"type": "function", "name": "look"}
    assert call["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": READ}}
    assert (call["reasoning"], call["max_output_tokens"]) == ({"effort": "high"}, 99)


def _result(output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": "c", "toolName": "look", "output": output}


async def test_a_custom_body_is_sent_unchanged() -> None:
    async with Gateway() as gateway, open_client("ai-sdk", gateway.url) as client:
        events = [event async for event in client.stream({"model": "tollbridge/demo", **prompt("Hello")})]
        with pytest.raises(RequestError, match="has no model"):
            [event async for event in client.stream(prompt("Hello"))]
        assert gateway.requests[0].body == prompt("Hello")
    assert events
    with pytest.raises(RequestError, match="2, 3, 4"):
        AiSdkClient(spec=1)  # type: ignore[arg-type]
    assert AiSdkClient(spec=3).base_url == "https://ai-gateway.vercel.sh/v3/ai"
