"""Chunks of Chat Completions for tests, and the events decoded from them."""

from __future__ import annotations

import json
from typing import Any

from tests.recorded_streams import events_of

from tollbridge.protocols.chat_completions.stream import StreamDecoder
from tollbridge.types.events import Event, Failed, Finished, ReasoningEnded, ToolCall

Json = dict[str, Any]
DONE = "[DONE]"


def chunk(finish_reason: str | None = None, **delta: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def usage_chunk(**usage: Any) -> Json:
    return {**chunk(), "choices": [], "usage": usage}


def call(index: int | None, arguments: str | None = None, **fields: Any) -> Json:
    """Return an entry of `tool_calls`; `name` belongs to its function."""
    function = {"name": fields.pop("name")} if "name" in fields else {}
    if arguments is not None:
        function["arguments"] = arguments
    place = {} if index is None else {"index": index}
    return {**place, **fields, "function": function}


def calls_chunk(*calls: Json, finish_reason: str | None = None) -> Json:
    return chunk(finish_reason, tool_calls=list(calls))


def frame(value: Json | str) -> bytes:
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def decode(*chunks: Json | str) -> list[Event]:
    return events_of(StreamDecoder(), [frame(value) for value in chunks])


def decode_at_once(*chunks: Json | str) -> list[Event]:
    return events_of(StreamDecoder(), [b"".join(frame(value) for value in chunks)])


def decode_message(finish_reason: str | None = "stop", **message: Any) -> list[Event]:
    """Decode a body that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
    return events_of(StreamDecoder(), [json.dumps(body).encode()])


def tool_calls(events: list[Event]) -> list[ToolCall]:
    return [event for event in events if isinstance(event, ToolCall)]


def finished(events: list[Event]) -> Finished:
    (end,) = [event for event in events if isinstance(event, Finished)]
    return end


def failure(events: list[Event]) -> Failed:
    (failed,) = [event for event in events if isinstance(event, Failed)]
    return failed


def proofs(events: list[Event]) -> list[Any]:
    return [event.metadata for event in events if isinstance(event, ReasoningEnded)]
