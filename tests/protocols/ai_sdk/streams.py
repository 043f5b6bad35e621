"""Decode streams that a test writes as chunks."""

from __future__ import annotations

import json
from typing import Any

from tollbridge.protocols.ai_sdk.stream import FullDecoder, ModelDecoder
from tollbridge.types.events import Event, Failed, Finished

FINISH = {"type": "finish", "finishReason": "stop"}
DONE = Finished("stop")


def full(*chunks: Any) -> list[Event]:
    """Return the events of a full stream of these chunks."""
    return full_of(b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks))


def full_of(body: bytes) -> list[Event]:
    decoder = FullDecoder()
    return decoder.feed(body) + decoder.close()


def model(*parts: Any) -> list[Event]:
    """Return the events of a stream of model chunks."""
    decoder = ModelDecoder()
    body = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts)
    return decoder.feed(body) + decoder.close()


def call(call_id: str = "c", name: str = "read", **more: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": {"a": 1}, **more}


def failures(events: list[Event]) -> list[str]:
    return [event.error.message for event in events if isinstance(event, Failed)]
