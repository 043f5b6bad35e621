"""Lone surrogates anywhere in a request or a response: none is sent, and none breaks an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.recorded_streams import RECORDINGS
from tests.turns import answer_of

from tollbridge.cli.output import describe_answer, to_json
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.observer import Observer
from tollbridge.clients.protocols import (
    AiSdkClient,
    ChatCompletionsClient,
    OpenResponsesClient,
    UiStreamClient,
)
from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter, VSCodeStreamAdapter
from tollbridge.frontends.vscode.answers import encode_parts
from tollbridge.protocols.ai_sdk.stream import FullDecoder
from tollbridge.protocols.jsonrpc import encode_notification
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    OutputFormat,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

HALF = "a\ud800b"
REQUEST = ChatRequest(
    model="m",
    messages=(
        Message(Role.SYSTEM, HALF),
        Message(Role.USER, (TextPart(HALF), DataPart(b"%PDF-1", "application/pdf", HALF)), HALF),
        Message(
            Role.ASSISTANT,
            (
                ThinkingPart(HALF, HALF, {"signature": HALF}),
                TextPart(HALF),
                ToolCallPart("c1", "f", {HALF: [HALF]}),
                ToolCallPart("c2", "f", HALF),
            ),
        ),
        Message(Role.USER, tuple(ToolResultPart(f"c{n}", HALF) for n in (1, 2))),
    ),
    tools=(Tool("f", HALF, {"type": "object", "description": HALF, "properties": {HALF: {}}}),),
    output_format=OutputFormat("o", {"title": HALF}, HALF),
    metadata={"k": HALF},
    reasoning_effort=HALF,
    extra={"providerOptions": {HALF: HALF}},
)


class BodyObserver(Observer):
    body = b""

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.body = body


@pytest.mark.parametrize("kind", [OpenResponsesClient, ChatCompletionsClient, AiSdkClient, UiStreamClient])
@pytest.mark.parametrize(
    "request_", [REQUEST, {"model": "m", "input": HALF, HALF: [HALF]}], ids=["ours", "raw"]
)
async def test_lone_surrogates_are_not_sent(kind: Callable[..., GatewayClient], request_: Any) -> None:
    observer = BodyObserver()
    async with (
        answering(http(200, b"")) as server,
        kind(server.url, retries=RetryPolicy(attempts=1)) as client,
    ):
        with pytest.raises(BridgeError):
            async for _ in client.stream(request_, observers=[observer]):
                pass
    for text in texts(json.loads(observer.body)):
        text.encode()
        if text.startswith("{"):  # arguments, which are JSON within JSON
            for inner in texts(json.loads(text)):
                inner.encode()
    assert "a\ufffdb" in list(texts(json.loads(observer.body)))


def texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from texts(each)
        case dict():
            for name, each in value.items():
                yield name
                yield from texts(each)


# --- responses ---------------------------------------------------------------------------------------------


def with_halves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield a copy of the value for each text in it, with a lone surrogate in that text; not in `type`."""
    match value:
        case str():
            yield at, "https://e.com/\ud800" if value.startswith("http") else value + HALF
        case list():
            for place, each in enumerate(value[:2]):
                for path, changed in with_halves(each, (*at, "[]")):
                    yield path, [*value[:place], changed, *value[place + 1 :]]
        case dict():
            for name, each in value.items():
                if name != "type":
                    for path, changed in with_halves(each, (*at, name)):
                        yield path, {**value, name: changed}


def recorded(pattern: str) -> list[list[dict[str, Any]]]:
    """Return a changed stream for each text of each kind of chunk in the recordings."""
    seen: set[tuple[Any, ...]] = set()
    streams: list[list[dict[str, Any]]] = []
    for path in sorted(RECORDINGS.glob(pattern)):
        lines = [line.removeprefix(b"data:").strip() for line in path.read_bytes().split(b"\n")]
        chunks = [json.loads(line) for line in lines if line.startswith(b"{")]
        for place, chunk in enumerate(chunks):
            for at, changed in with_halves(chunk):
                if (chunk.get("type"), *at) not in seen:
                    seen.add((chunk.get("type"), *at))
                    streams.append([*chunks[:place], changed, *chunks[place + 1 :]])
    return streams


@pytest.mark.parametrize(
    ("pattern", "adapter", "decoder"),
    [
        ("aisdk/*/*.jsonl", VSCodeStreamAdapter, FullDecoder),
        ("aisdk/*/*.sse", VSCodeStreamAdapter, FullDecoder),
        ("openresponses/*.sse", OpenResponsesStreamAdapter, StreamDecoder),
    ],
)
async def test_lone_surrogates_do_not_break_an_answer(pattern: str, adapter: Any, decoder: Any) -> None:
    streams = recorded(pattern)
    assert len(streams) > 20
    for chunks in streams:
        parts: list[Part] = []
        try:
            async for part in adapter().adapt_stream(each(chunks)):
                parts.append(part)  # noqa: PERF401 (the parts before an error are needed)
        except BridgeError as error:
            to_json({"error": error.message})
        encode_notification("parts", encode_parts(parts))
        turn = decoder()
        events = [event for chunk in chunks for event in turn.feed_parsed(chunk)] + turn.close()
        to_json(describe_answer(answer_of(events))).encode()


async def each(values: list[Any]) -> Any:
    for value in values:
        yield value
