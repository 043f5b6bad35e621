"""The AI SDK adapter converts chunks to parts and raises errors at the end."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tollbridge.frontends.vscode.adapters import VSCodeStreamAdapter
from tollbridge.types.errors import BridgeError, Disconnected, GatewayError
from tollbridge.types.events import Usage
from tollbridge.types.media import display_mime
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart

RECORDINGS = Path(__file__).parents[2] / "recordings" / "aisdk"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


async def stream(chunks: Iterable[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the parsed chunks of a recorded `fullStream`."""
    return [json.loads(line) for line in (RECORDINGS / name).read_bytes().split(b"\n") if line]


async def parts_of(adapter: VSCodeStreamAdapter, chunks: Iterable[Any]) -> list[Part]:
    return [part async for part in adapter.adapt_stream(stream(chunks))]


async def test_text_thinking_and_calls_become_parts() -> None:
    adapter = VSCodeStreamAdapter()
    chunks = [
        *recorded("7.0.169/reasoning-then-text.full.jsonl")[:-2],
        *recorded("7.0.169/tool-call-streamed.full.jsonl"),
    ]
    parts = await parts_of(adapter, chunks)
    assert parts == [
        ThinkingPart("Let me ", "r"),
        ThinkingPart("think.", "r"),
        ThinkingPart("", "r", {"anthropic": {"signature": "sig-abc"}}),
        TextPart("Answer: 42"),
        TextPart("Checking."),
        ToolCallPart("call_1", "get_weather", {"city": "Oslo", "unit": "c"}),
    ]


async def test_reasoning_can_be_disabled() -> None:
    adapter = VSCodeStreamAdapter(enable_reasoning=False)
    parts = await parts_of(adapter, recorded("7.0.169/reasoning-then-text.full.jsonl"))
    assert parts == [TextPart("Answer: 42")]


async def test_progress_can_be_an_object_or_a_function_and_the_usage_is_returned() -> None:
    class Progress:
        def __init__(self) -> None:
            self.parts: list[Part] = []

        def report(self, part: Part) -> None:
            self.parts.append(part)

    progress, called = Progress(), list[Part]()
    adapter = VSCodeStreamAdapter()
    await adapter.process_stream(stream(recorded("6.0.326/multi-step.full.jsonl")), progress)
    result = await adapter.process_stream(stream(recorded("6.0.326/multi-step.full.jsonl")), called.append)
    assert progress.parts == called == [TextPart("Looking up. "), TextPart("It is 7°C.")]
    assert result is adapter.get_usage()
    assert (result.input_tokens, result.output_tokens) == (250, 28)
    assert result.usage == Usage(250, 28, 278)
    assert result.context == Usage(150, 8, 158), "what fills the window is the last step's"


@pytest.mark.parametrize(
    "name", ["7.0.169/multi-step.full.jsonl", "6.0.326/multi-step.ui.sse", "4.3.19/multi-step.ui.ds.txt"]
)
async def test_bytes_of_any_protocol_can_be_split_anywhere(name: str) -> None:
    body = (RECORDINGS / name).read_bytes()
    parts = await parts_of(VSCodeStreamAdapter(), [body[i : i + 7] for i in range(0, len(body), 7)])
    assert "".join(part.text for part in parts if isinstance(part, TextPart)) == "Looking up. It is 7°C."


async def test_an_error_is_raised_after_the_parts_before_it_and_is_never_text() -> None:
    adapter, parts = VSCodeStreamAdapter(), list[Part]()
    with pytest.raises(GatewayError, match="plain string failure"):
        await adapter.process_stream(
            stream(recorded("7.0.169/error-mid-stream-string.full.jsonl")), parts.append
        )
    assert parts == [TextPart("Partial")]
    assert adapter.get_usage().usage == Usage(10, 1, 11)


async def test_a_stream_without_an_end_is_an_error() -> None:
    with pytest.raises(Disconnected):
        await parts_of(VSCodeStreamAdapter(), recorded("7.0.169/error-stream-throw.full.jsonl"))
    with pytest.raises(Disconnected):
        await parts_of(VSCodeStreamAdapter(), [])


async def test_unknown_chunks_produce_no_parts_and_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    adapter = VSCodeStreamAdapter(on_unknown_chunk=seen.append, logger=logging.getLogger("mine"))
    chunks = [{"type": "future-chunk", "secret": "s"}, {"type": "finish", "finishReason": "stop"}]
    with caplog.at_level(logging.DEBUG, "mine"):
        assert await parts_of(adapter, chunks) == []
    assert seen == chunks[:1]
    assert "future-chunk" in caplog.text
    assert "secret" not in caplog.text


async def test_sources_and_data_are_json_parts() -> None:
    parts = await parts_of(VSCodeStreamAdapter(), recorded("7.0.169/sources.full.jsonl"))
    sources = [part for part in parts if isinstance(part, DataPart)]
    assert [part.mime for part in sources] == ["application/vnd.vscode.citation+json"] * 2
    assert json.loads(sources[0].data) == {
        "type": "citation",
        "sourceId": "s1",
        "url": "https://example.com/a",
        "title": "A",
    }
    body = (RECORDINGS / "7.0.169/data-parts.ui.sse").read_bytes()
    data = [part for part in await parts_of(VSCodeStreamAdapter(), [body]) if isinstance(part, DataPart)]
    assert data[-1].mime == "application/vnd.vercel.weather-report+json"
    assert json.loads(data[-1].data) == [1, {"a": None}]


async def test_calls_that_are_not_offered_are_not_parts() -> None:
    for name in (
        "provider-executed-tool",
        "tool-executed-result",
        "tool-call-invalid-json",
        "tool-auto-denied",
    ):
        parts = await parts_of(VSCodeStreamAdapter(), recorded(f"7.0.169/{name}.full.jsonl"))
        assert not [part for part in parts if isinstance(part, ToolCallPart)], name


@pytest.mark.parametrize(
    ("name", "text"),
    [("tool-call-invalid-json", '{"city": "Oslo"'), ("tool-call-schema-mismatch", '{"city":42}')],
)
async def test_a_call_that_the_backend_reported_as_invalid_is_passed_to_the_tool(
    name: str, text: str
) -> None:
    body = (RECORDINGS / f"7.0.169/{name}.ui.sse").read_bytes()
    parts = await parts_of(VSCodeStreamAdapter(), [body])
    assert parts == [ToolCallPart("call_1", "get_weather", {"_invalid_arguments": text})]


async def test_the_type_of_a_file_is_detected_from_its_bytes() -> None:
    chunks: list[dict[str, Any]] = [
        {"type": "file", "file": {"uint8ArrayData": list(PNG), "mediaType": "text/plain"}},
        {"type": "file", "url": "https://example.com/x.png", "mediaType": "image/png"},
        {"type": "finish", "finishReason": "stop"},
    ]
    picture, link = await parts_of(VSCodeStreamAdapter(), chunks)
    assert picture == DataPart(PNG, "image/png")
    assert link == DataPart(b"https://example.com/x.png", "text/uri-list"), "a reference, never fetched"


@pytest.mark.parametrize(
    ("data", "label", "mime"),
    [
        (PNG, "image/jpeg", "image/png"),
        (PNG, "application/json", "image/png"),
        (b'{"a": 1}', "application/json", "application/json"),
        (b'{"a": 1}', "application/ld+json", "application/ld+json"),
        (b'{"a": 1', "application/json", "text/plain"),
        (b'{"a": 1}', "image/png", "application/json"),
        (b"hello", "image/png", "text/plain"),
        (b"\xff\xfe\x00", "image/x-icon", "image/x-icon"),
        (b"\xff\xfe\x00", "application/json", "application/octet-stream"),
        (b"plain", "", "text/plain"),
        (b"[1]", "", "application/json"),
        (b"\x00\x01", "", "application/octet-stream"),
        (b"# title", "text/markdown; charset=utf-8", "text/markdown"),
        (b"%PDF-1.7", "application/octet-stream", "application/pdf"),
        (b"<svg/>", "image/svg+xml", "image/svg+xml"),
    ],
)
def test_mime_types_are_chosen_by_label_and_bytes(data: bytes, label: str, mime: str) -> None:
    assert display_mime(data, label) == mime


async def test_a_chunk_that_is_not_an_object_is_an_error() -> None:
    with pytest.raises(BridgeError) as caught:
        await parts_of(VSCodeStreamAdapter(), ["text", {"type": "finish"}])
    assert caught.value.kind == "protocol"


async def test_a_lone_surrogate_reaches_the_editor_without_an_exception() -> None:
    chunks = [{"type": "text-delta", "text": "a\ud83d"}, {"type": "finish"}]
    assert await parts_of(VSCodeStreamAdapter(), chunks) == [TextPart("a"), TextPart("\ud83d")]
