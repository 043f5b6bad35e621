"""An exception in a decoder costs one event, or ends one response, and is never raised."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter, VSCodeStreamAdapter
from tollbridge.protocols.ai_sdk import chunks
from tollbridge.protocols.detect import GuardedDecoder, decoder_for
from tollbridge.protocols.openresponses.items import MediaEmitter
from tollbridge.protocols.sse import SseDecoder
from tollbridge.protocols.stream import decode_body
from tollbridge.types.errors import NotFound, RateLimited, StreamError
from tollbridge.types.events import Event, Failed, Finished, TextDelta, Usage
from tollbridge.types.messages import TextPart

SECRET = "a part of the conversation"


def fail(*_: object, **__: object) -> NoReturn:
    raise LookupError(SECRET)


def sse(*events: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def text(delta: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "delta": delta, "item_id": "m", "output_index": 0}


IMAGE = {
    "type": "response.output_item.done",
    "output_index": 1,
    "item": {"type": "image_generation_call", "id": "ig", "result": "AAAA"},
}
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def completed(*output: object) -> dict[str, Any]:
    response = {"status": "completed", "output": list(output), "usage": USAGE}
    return {"type": "response.completed", "response": response}


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_event_that_fails_is_skipped_and_the_others_of_the_read_survive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(MediaEmitter, "emit_image", fail)
    decoder = decoder_for("openresponses")
    events = decoder.feed(sse(text("Hello"), IMAGE, IMAGE, text(" there"), completed()))
    assert events == [TextDelta("Hello"), TextDelta(" there"), Finished("stop", usage=Usage(3, 2, 5))]
    assert decoder.is_finished
    assert decoder.unknown == {"response.output_item.done (not decoded)": 2}
    [message] = logged(caplog)
    assert "LookupError" in message
    assert SECRET not in caplog.text


def test_an_item_of_the_final_response_that_fails_does_not_cost_its_usage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MediaEmitter, "emit_image", fail)
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    for body in (
        sse(completed(IMAGE["item"], message)),
        json.dumps(completed(IMAGE["item"], message)["response"]),
    ):
        decoder = decoder_for("openresponses")
        events = decoder.feed(body.encode() if isinstance(body, str) else body) + decoder.close()
        assert events == [TextDelta("Hi"), Finished("stop", usage=Usage(3, 2, 5))]


def test_a_chunk_that_fails_is_skipped_and_the_others_of_the_read_survive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(chunks._HANDLERS, "file", fail)
    decoder = decoder_for("ai-sdk-ui")
    finish = {"type": "finish", "finishReason": "stop"}
    stream = sse(
        {"type": "text-delta", "delta": "A"}, {"type": "file"}, {"type": "text-delta", "delta": "B"}, finish
    )
    events = decoder.feed(stream) + decoder.close()
    assert events == [TextDelta("AB"), Finished("stop")]
    assert decoder.unknown == {"file (not decoded)": 1}
    assert len(logged(caplog)) == 1


class Broken:
    """A decoder with a defect."""

    is_finished = False
    unknown: Mapping[str, int] = {}
    billing = None

    def __init__(self) -> None:
        self.closed = 0

    def feed(self, chunk: bytes) -> list[Event]:
        if chunk:
            fail()
        return [TextDelta("before")]

    def close(self) -> list[Event]:
        self.closed += 1
        return [TextDelta("rest"), Failed(StreamError("cut"))]


def test_a_decoder_that_fails_ends_the_response_after_everything_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = Broken()
    decoder = GuardedDecoder(inner)
    assert decoder.feed(b"") == [TextDelta("before")]
    rest, failed = decoder.feed(b"x")
    assert rest == TextDelta("rest")
    assert failed == Failed(StreamError("The gateway's answer could not be decoded."))
    assert decoder.is_finished
    assert decoder.feed(b"x") == []
    assert decoder.close() == []
    assert inner.closed == 1
    assert len(logged(caplog)) == 1
    assert SECRET not in caplog.text


def test_the_framing_can_fail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SseDecoder, "buffer", fail)
    for protocol in ("openresponses", "ai-sdk-ui", "ai-sdk-model"):
        decoder = decoder_for(protocol)
        assert [type(event) for event in decoder.feed(sse(text("x")))] == [Failed]


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (429, RateLimited)])
def test_an_error_response_that_cannot_be_read_has_the_error_of_its_status(
    status: int, error: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollbridge.protocols.errors.read_error_response", fail)
    [event] = decoder_for("openresponses", status).close()
    assert isinstance(event, Failed)
    assert type(event.error) is error
    assert event.error.status == status


def test_a_body_that_cannot_be_decoded_is_a_stream_error() -> None:
    with pytest.raises(StreamError, match="could not be decoded") as caught:
        decode_body(fail, b"{}")
    assert caught.value.__cause__ is None
    with pytest.raises(NotFound):
        decode_body(lambda _: (_ for _ in ()).throw(NotFound("none")), b"")


async def test_the_public_adapters_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MediaEmitter, "emit_image", fail)
    monkeypatch.setitem(chunks._HANDLERS, "file", fail)

    async def parsed(*events: dict[str, Any]) -> Any:
        for event in events:
            yield event

    async def parts(adapter: Any, *events: dict[str, Any]) -> list[Any]:
        return [part async for part in adapter.adapt_stream(parsed(*events))]

    assert await parts(OpenResponsesStreamAdapter(), text("A"), IMAGE, text("B"), completed()) == [
        TextPart("A"),
        TextPart("B"),
    ]
    stream = (
        {"type": "text-delta", "text": "A"},
        {"type": "file"},
        {"type": "finish", "finishReason": "stop"},
    )
    assert await parts(VSCodeStreamAdapter(), *stream) == [TextPart("A")]
