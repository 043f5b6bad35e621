"""The OpenResponses adapter converts bytes, text, parsed events and our events to parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

import pytest
from tests.recorded_streams import openresponses

from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import BridgeError, Disconnected, ServerFailed, StreamError
from tollbridge.types.events import Failed, Finished, TextDelta, Usage
from tollbridge.types.messages import Part, TextPart, ThinkingPart, ToolCallPart

RECORDED = {
    name: recording.body
    for name, recording in openresponses().items()
    if name.endswith("-stream") and recording.status == 200
}
TEXT = RECORDED["llamacpp.text-stream"]


async def iterate(values: Iterable[Any]) -> AsyncIterator[Any]:
    for value in values:
        await asyncio.sleep(0)
        yield value


def as_bytes(body: bytes) -> AsyncIterator[Any]:
    return iterate(body[at : at + 100] for at in range(0, len(body), 100))


def as_text(body: bytes) -> AsyncIterator[Any]:
    text = body.decode()
    return iterate(text[at : at + 100] for at in range(0, len(text), 100))


def as_parsed(body: bytes) -> AsyncIterator[Any]:
    lines = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return iterate(json.loads(line) for line in lines if line != b"[DONE]")


def as_events(body: bytes) -> AsyncIterator[Any]:
    decoder = StreamDecoder()
    return iterate(decoder.feed(body) + decoder.close())


FORMS: list[Callable[[bytes], AsyncIterator[Any]]] = [as_bytes, as_text, as_parsed, as_events]


def joined(parts: list[Part]) -> list[Part]:
    """Join consecutive parts, because their size has no meaning."""
    result_parts: list[Part] = []
    for part in parts:
        match (result_parts[-1] if result_parts else None), part:
            case TextPart(before), TextPart(after):
                result_parts[-1] = TextPart(before + after)
            case ThinkingPart(before, one, None), ThinkingPart(after, other, metadata) if one == other:
                result_parts[-1] = ThinkingPart(before + after, one, metadata)
            case _:
                result_parts.append(part)
    return result_parts


class Result(NamedTuple):
    """The facts about an answer that are compared."""

    usage: Usage | None = None
    context: Usage | None = None
    finish_reason: str | None = None
    response_id: str | None = None
    model: str | None = None

    @classmethod
    def of(cls, answer: Answer) -> Result:
        return cls(*(getattr(answer, name) for name in cls._fields))


async def read(stream: AsyncIterator[Any], **options: Any) -> tuple[list[Part], Result, BridgeError | None]:
    adapter, parts = OpenResponsesStreamAdapter(**options), list[Part]()
    try:
        result = await adapter.process_stream(stream, parts.append)
    except BridgeError as error:
        return joined(parts), Result.of(adapter.get_usage()), error
    assert result is adapter.get_usage()
    return joined(parts), Result.of(result), None


@pytest.mark.parametrize("name", RECORDED)
async def test_the_parts_do_not_depend_on_the_form_of_the_stream(name: str) -> None:
    bytes_, *others = [await read(form(RECORDED[name])) for form in FORMS]
    assert others == [bytes_] * 3


async def test_a_recorded_answer_has_its_text_and_usage() -> None:
    parts, result, error = await read(as_bytes(TEXT))
    final = json.loads(
        next(line for line in TEXT.splitlines() if b'"response.completed"' in line and b"data:" in line)[5:]
    )
    assert error is None
    assert parts == [TextPart(final["response"]["output"][0]["content"][0]["text"])]
    assert result.response_id == final["response"]["id"]
    assert result.finish_reason == "stop"
    assert result.usage is not None
    assert result.usage.total_tokens == final["response"]["usage"]["total_tokens"]


async def test_a_recorded_tool_call_is_a_part_for_the_editor() -> None:
    parts, result, error = await read(as_bytes(RECORDED["litellm.tool-stream"]))
    assert error is None
    assert [part.name for part in parts if isinstance(part, ToolCallPart)] == ["get_weather"]
    assert result.finish_reason == "tool-calls"


class Progress:
    """An editor's progress object."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def report(self, part: Part, /) -> None:
        self.parts.append(part)


async def test_progress_can_be_a_function_or_an_object() -> None:
    called, progress = list[Part](), Progress()
    adapter = OpenResponsesStreamAdapter()
    assert await adapter.process_stream(as_bytes(TEXT), called.append) == adapter.get_usage()
    await adapter.process_stream(as_bytes(TEXT), progress)
    generated = [part async for part in adapter.adapt_stream(as_bytes(TEXT))]
    assert called == progress.parts == generated
    assert called


@pytest.mark.parametrize("name", ["litellm.reasoning-stream"])
async def test_reasoning_can_be_disabled(name: str) -> None:
    with_reasoning, result, _ = await read(as_bytes(RECORDED[name]))
    without_reasoning, same, _ = await read(as_bytes(RECORDED[name]), enable_reasoning=False)
    assert any(isinstance(part, ThinkingPart) for part in with_reasoning)
    assert without_reasoning == joined(
        [part for part in with_reasoning if not isinstance(part, ThinkingPart)]
    )
    assert without_reasoning
    assert result == same


@pytest.mark.parametrize("form", FORMS)
async def test_a_failure_is_raised_after_the_parts_before_it(
    form: Callable[[bytes], AsyncIterator[Any]],
) -> None:
    parts, _, error = await read(form(RECORDED["litellm.miderror-stream"]))
    assert isinstance(error, BridgeError)
    assert any(isinstance(part, TextPart) and part.text for part in parts)


async def test_a_truncated_stream_is_a_failure() -> None:
    half = TEXT[: TEXT.index(b"response.completed") - 20]
    for form in (as_bytes, as_parsed):
        parts, result, error = await read(form(half[: half.rindex(b"\n\n")]))
        assert isinstance(error, Disconnected)
        assert parts
        assert result == Result()


async def test_an_empty_stream_and_invalid_data_are_failures() -> None:
    assert isinstance((await read(iterate([])))[2], Disconnected)
    assert isinstance((await read(iterate([b"<html>", b"</html>"])))[2], StreamError)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
async def test_every_bytes_type_is_accepted(wrap: Callable[[bytes], Any]) -> None:
    parts, _, error = await read(iterate([wrap(TEXT)]))
    assert error is None
    assert parts


async def test_unknown_events_produce_no_parts() -> None:
    odd = iterate(
        [{"type": "acme:thing", "delta": "x"}, {}, {"type": 7}, *[event async for event in as_parsed(TEXT)]]
    )
    assert await read(odd) == await read(as_bytes(TEXT))


@pytest.mark.parametrize("form", [as_bytes, as_parsed])
async def test_the_adapter_does_not_wait_for_a_server_that_keeps_the_connection_open(
    form: Callable[[bytes], AsyncIterator[Any]],
) -> None:
    async def held() -> AsyncIterator[Any]:
        async for chunk in form(TEXT):
            yield chunk
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        _, result, error = await read(held())
    assert error is None
    assert result.finish_reason == "stop"


async def test_an_adapter_keeps_no_state_between_streams() -> None:
    adapter = OpenResponsesStreamAdapter()
    await adapter.process_stream(as_bytes(TEXT), list[Part]().append)
    assert adapter.get_usage().usage is not None
    with pytest.raises(Disconnected):
        await adapter.process_stream(iterate([]), list[Part]().append)
    assert adapter.get_usage().usage is None


async def test_the_context_is_the_usage_of_the_last_step() -> None:
    billed, last = Usage(100, 20, 120), Usage(60, 10, 70)
    _, result, _ = await read(iterate([TextDelta("Hi"), Finished("stop", usage=billed, context=last)]))
    assert (result.usage, result.context) == (billed, last)
    _, result, _ = await read(iterate([Finished("stop", usage=billed)]))
    assert result.context == billed


async def test_a_failed_event_is_raised_at_the_end() -> None:
    parts, _, error = await read(iterate([TextDelta("Hi"), Failed(ServerFailed("No."))]))
    assert (parts, error) == ([TextPart("Hi")], ServerFailed("No."))


async def test_the_stream_of_a_client_can_be_adapted() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        request = {"model": "tollbridge/demo", "input": "Say hello"}
        parts, result, error = await read(client.stream(request))
        answer = await client.create(request)
    assert error is None
    assert parts == [TextPart(answer.text)]
    assert result.usage is not None


async def test_an_exception_of_progress_closes_the_stream() -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        try:
            yield TEXT
            yield b""
        finally:
            closed.set()

    def report(part: Part) -> None:
        raise KeyError("the editor's own")

    with pytest.raises(KeyError):
        await OpenResponsesStreamAdapter().process_stream(source(), report)
    async with asyncio.timeout(5):
        await closed.wait()
