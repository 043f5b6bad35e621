"""Half a character (a lone surrogate), wherever it stands: no server is sent one, none stops an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.recorded_streams import RECORDINGS

from tollbridge.cli.summary import summarise, to_json
from tollbridge.clients.ai_sdk import AiSdkClient, UiStreamClient
from tollbridge.clients.base import GatewayClient, Observer
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter, VSCodeStreamAdapter
from tollbridge.frontends.vscode.encode import encode_parts
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


class Body(Observer):
    sent = b""

    def asked(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.sent = body


@pytest.mark.parametrize("kind", [OpenResponsesClient, AiSdkClient, UiStreamClient])
@pytest.mark.parametrize(
    "request_", [REQUEST, {"model": "m", "input": HALF, HALF: [HALF]}], ids=["ours", "raw"]
)
async def test_no_server_is_sent_one(kind: type[GatewayClient], request_: Any) -> None:
    seen = Body()
    async with (
        answering(http(200, b"")) as server,
        kind(server.url, retries=RetryPolicy(attempts=1)) as client,
    ):
        with pytest.raises(BridgeError):
            async for _ in client.watched(seen).stream(request_):
                pass
    for text in texts(json.loads(seen.sent)):
        text.encode()
        if text.startswith("{"):  # arguments, which are JSON in JSON
            for inner in texts(json.loads(text)):
                inner.encode()
    assert "a\ufffdb" in list(texts(json.loads(seen.sent)))


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


# --- what comes back ---------------------------------------------------------------------------------------


def with_halves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The value once for each text in it, with half a character in that text; `type` is left as it is."""
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
    """Streams, one for each text of each kind of chunk that was ever recorded: the others around it stay."""
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
async def test_none_stops_an_answer_wherever_it_stands(pattern: str, adapter: Any, decoder: Any) -> None:
    streams = recorded(pattern)
    assert len(streams) > 20
    for chunks in streams:
        parts: list[Part] = []
        try:
            async for part in adapter().adapt_stream(each(chunks)):
                parts.append(part)  # noqa: PERF401 (what came before an error counts)
        except BridgeError as error:
            to_json({"error": error.message})
        encode_notification("parts", encode_parts(parts))
        turn = decoder()
        events = [event for chunk in chunks for event in turn.take(chunk)] + turn.close()
        to_json(summarise(events)).encode()


async def each(values: list[Any]) -> Any:
    for value in values:
        yield value
