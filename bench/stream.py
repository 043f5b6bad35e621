"""A long synthetic OpenResponses stream: text, reasoning and three tool calls, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

TEXT, REASONING, CALLS, ARGUMENTS = 16_000, 4_000, 3, 2_000
WORDS = ("The", " bridge", " stands", " between", " an", " editor", " and", " a", " gateway", ",", "\n")


def events(
    text: int = TEXT, reasoning: int = REASONING, arguments: int = ARGUMENTS
) -> Iterator[dict[str, Any]]:
    """Yield the events in order, by default about 26,000."""
    response = {
        "id": "resp_bench",
        "object": "response",
        "status": "in_progress",
        "model": "bench",
        "output": [],
    }
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    items = [_reasoning(reasoning), _message(text), *(_call(n, arguments) for n in range(CALLS))]
    output = []
    for index, (item, deltas) in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": _in_progress(item)}
        for delta in deltas:
            yield {**delta, "item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
        output.append(item)
    usage = {
        "input_tokens": 1200,
        "output_tokens": text + reasoning,
        "total_tokens": 1200 + text + reasoning,
        "input_tokens_details": {"cached_tokens": 1024},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }
    final = {**response, "status": "completed", "output": output, "usage": usage}
    yield {"type": "response.completed", "response": final}


def frames(stream: Iterator[dict[str, Any]] | None = None) -> list[bytes]:
    """Encode the events as frames, as a server writes them."""
    numbered = enumerate(stream or events())
    encoded = [_frame({**event, "sequence_number": number}) for number, event in numbered]
    return [*encoded, b"data: [DONE]\n\n"]


def _frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


def _message(count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    words = [WORDS[n % len(WORDS)] for n in range(count)]
    part = {"type": "output_text", "text": "".join(words), "annotations": [], "logprobs": []}
    item = {
        "type": "message",
        "id": "msg_" + "a" * 40,
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    head = {"type": "response.output_text.delta", "content_index": 0, "logprobs": []}
    return item, [{**head, "delta": word} for word in words]


def _reasoning(count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    words = [WORDS[n % len(WORDS)] for n in range(count)]
    part = {"type": "reasoning_text", "text": "".join(words)}
    item = {
        "type": "reasoning",
        "id": "rs_" + "b" * 40,
        "status": "completed",
        "summary": [],
        "content": [part],
    }
    head = {"type": "response.reasoning_text.delta", "content_index": 0}
    return item, [{**head, "delta": word} for word in words]


def _call(number: int, count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    arguments = json.dumps({"path": f"file{number}.py", "lines": list(range(count))})
    size = max(1, len(arguments) // count)
    pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    item = {
        "type": "function_call",
        "id": f"fc_{number}" + "c" * 40,
        "call_id": f"call_{number}",
        "name": "edit",
        "arguments": arguments,
        "status": "completed",
    }
    return item, [{"type": "response.function_call_arguments.delta", "delta": piece} for piece in pieces]


def _in_progress(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": [], "summary": [], "arguments": ""}
    return {name: empty.get(name, value) for name, value in item.items()} | {"status": "in_progress"}
