"""OpenResponses events for tests, and the events decoded from them."""

from __future__ import annotations

import json
from typing import Any

from tests.recorded_streams import events_of
from tests.turns import answer_of

from tollbridge.cli.output import describe_answer
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.types.events import Event, TextDelta, ToolCall

Json = dict[str, Any]
ARGUMENTS = '{"city":"Oslo"}'
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": ARGUMENTS}
OPENED = {**CALL, "arguments": ""}
OSLO = ToolCall("call_1", "weather", {"city": "Oslo"})
COMPLETED = {"type": "response.completed", "response": {"status": "completed", "output": []}}


def text(delta: str, **more: Any) -> Json:
    return {
        "type": "response.output_text.delta",
        "delta": delta,
        "output_index": 0,
        "item_id": "msg_1",
        **more,
    }


def arguments(delta: str, **more: Any) -> Json:
    place = {"output_index": 1, "item_id": "fc_1"}
    return {"type": "response.function_call_arguments.delta", "delta": delta, **place, **more}


def added(item: Json, index: int | None = 1) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: Json, index: int | None = 1) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def completed(*output: Json, **more: Any) -> Json:
    return {"type": "response.completed", "response": {"status": "completed", "output": list(output), **more}}


def frame(event: Json | str) -> bytes:
    return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()


def decode(*events: Json | str) -> list[Event]:
    return events_of(StreamDecoder(), [frame(event) for event in events])


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def texts_of(events: list[Event]) -> tuple[str, str]:
    """Return the text and the reasoning, with corrections applied."""
    summary = describe_answer(answer_of(events))
    return summary["text"], summary["reasoning"]


def calls(events: list[Event]) -> list[ToolCall]:
    return [event for event in events if isinstance(event, ToolCall)]
