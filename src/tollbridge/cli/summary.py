"""Summarise the events of a turn in one value, and encode values as JSON lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from tollbridge.types.errors import BridgeError
from tollbridge.types.events import (
    Corrected,
    Data,
    Ending,
    Event,
    Failed,
    File,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.text import replace_surrogates
from tollbridge.types.usage import Usage


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The content, usage and ending of a turn. The fields are those of `ask --json` and `replay --json`."""

    text: str
    reasoning: str
    tool_calls: list[dict[str, Any]]
    files: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    data: list[dict[str, Any]]
    usage: dict[str, int | None] | None
    finish_reason: FinishReason | None
    errors: list[dict[str, Any]]
    ended: Ending


def summarise(events: Iterable[Event]) -> Summary:
    """Combine the events of a turn. Content that arrived before a failure is kept."""
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    sources: list[dict[str, Any]] = []
    data: list[dict[str, Any]] = []
    errors: list[BridgeError] = []
    finished: Finished | None = None
    usage: Usage | None = None
    for event in events:
        match event:
            case TextDelta():
                _append(text, event)
            case ReasoningDelta():
                _append(reasoning, event)
            case Corrected():
                _append(text if event.of == "text" else reasoning, event)
            case ReasoningEnded():
                pass
            case ToolCall():
                calls.append(_call(event))
            case File():
                files.append(_file(event))
            case Source():
                sources.append(_set_fields(event, "kind", "id", "url", "title", "mime", "filename"))
            case Data():
                data.append({**_set_fields(event, "name", "id"), "value": event.value})
            case Finished():
                finished, usage = event, event.usage
            case Failed():
                errors.append(event.error)
                usage = usage or event.error.usage
            case _:
                assert_never(event)
    return Summary(
        text="".join(text),
        reasoning="".join(reasoning),
        tool_calls=calls,
        files=files,
        sources=sources,
        data=data,
        usage=_usage(usage),
        finish_reason=None if finished is None else finished.reason,
        errors=[describe_error(error) for error in errors],
        ended=_ending(finished, errors),
    )


def describe_error(error: BridgeError) -> dict[str, Any]:
    """Return an error as JSON; what the gateway did not say is null."""
    names = ("kind", "message", "status", "code", "request_id", "retry_after")
    return {name: getattr(error, name) for name in names}


def _append(pieces: list[str], delta: TextDelta | ReasoningDelta | Corrected) -> None:
    if delta.replaces:
        pieces[:] = ["".join(pieces)[: -delta.replaces]]
    pieces.append(delta.text)


# DEL and the C1 control characters, which JSON does not require to be escaped.
_ESCAPED_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def to_json(value: object) -> str:
    """Encode a value as one line of JSON that every parser accepts, whatever a model wrote into it.

    Surrogate pairs are joined, lone surrogates are replaced, and numbers that are not valid in JSON (NaN,
    infinities) become null. Control characters are escaped, also those that JSON allows: on a terminal,
    U+009B starts an escape sequence.
    """
    plain = msgspec.to_builtins(value)
    try:
        line = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        with_nulls = json.loads(json.dumps(plain), parse_constant=lambda _: None)
        line = json.dumps(with_nulls, ensure_ascii=False)
    return replace_surrogates(line).translate(_ESCAPED_CONTROLS)


def _ending(finished: Finished | None, errors: list[BridgeError]) -> Ending:
    if finished is not None:
        return finished.ended
    return "cut" if {error.kind for error in errors} <= {"disconnected"} else "error"


def _call(call: ToolCall) -> dict[str, Any]:
    return {"call_id": call.call_id, "name": call.name, "input": call.input, "offered": call.offered}


def _file(file: File) -> dict[str, Any]:
    return {
        "mime": file.mime,
        "length": None if file.data is None else len(file.data),
        "sha256": None if file.data is None else hashlib.sha256(file.data).hexdigest(),
        **_set_fields(file, "name", "url"),
    }


def _set_fields(event: Source | Data | File, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _usage(usage: Usage | None) -> dict[str, int | None] | None:
    if usage is None or not usage.known:
        return None
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "total": usage.total_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
    }
