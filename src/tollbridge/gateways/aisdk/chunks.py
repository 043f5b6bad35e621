"""What each chunk of the AI SDK does to a turn: one line in the table for each name, of all versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from tollbridge.core.errors import StreamError
from tollbridge.core.events import Data, Source
from tollbridge.gateways.aisdk import wire
from tollbridge.gateways.aisdk.calls import not_json, read_arguments
from tollbridge.gateways.aisdk.failures import read_failure
from tollbridge.gateways.aisdk.files import read_file
from tollbridge.gateways.aisdk.turn import Turn

# All that the streams before 5.0.0 tell of a tool of the backend's own that failed.
_TOOL_FAILED = re.compile(r"Error executing tool (.+?): ")
_SOURCES: dict[str, Literal["url", "document"]] = {
    "document": "document",
    "source-document": "document",
    "source-url": "url",
    "url": "url",
}


def take(turn: Turn, chunk: wire.Chunk) -> None:
    """Let one chunk act. What is in no table does nothing; it is counted, and `on_unknown` is told."""
    if turn.over:
        return
    kind = chunk.get("type")
    if not isinstance(kind, str):
        if "error" not in chunk:
            turn.fail(StreamError("The stream holds a chunk without a type."))
            return
        kind = "error"  # the bare body of an error
    act = _ACTS.get(kind)
    if act is not None:
        turn.known = True
        act(turn, chunk)
    elif kind.startswith("data-"):
        turn.known = True
        turn.emit(Data(kind.removeprefix("data-"), chunk.get("data"), wire.first_text(chunk, "id")))
    else:
        turn.unknown.note(kind)
        if turn.on_unknown is not None:
            turn.on_unknown(chunk)


def is_known(kind: str) -> bool:
    return kind in _ACTS or kind.startswith("data-")


def _silent(turn: Turn, chunk: wire.Chunk) -> None:
    """Known, and nothing to an editor."""


def _text(turn: Turn, chunk: wire.Chunk) -> None:
    text = wire.first_text(chunk, "textDelta", "text", "delta")
    if text:
        turn.deltas.watch(text)
        turn.deltas.add_text(text)


def _reasoning(turn: Turn, chunk: wire.Chunk) -> None:
    block, said = wire.first_text(chunk, "id"), wire.metadata(chunk)
    if said:
        turn.remember(block, said)
    text = wire.first_text(chunk, "textDelta", "text", "delta")
    if text:
        turn.deltas.watch(text)
        turn.deltas.add_reasoning(text, block)


def _start_reasoning(turn: Turn, chunk: wire.Chunk) -> None:
    turn.remember(wire.first_text(chunk, "id"), wire.metadata(chunk) or {})


def _end_reasoning(turn: Turn, chunk: wire.Chunk) -> None:
    block = wire.first_text(chunk, "id")
    turn.remember(block, wire.metadata(chunk) or {})
    turn.end_reasoning(block)


def _sign_reasoning(turn: Turn, chunk: wire.Chunk) -> None:
    """Version 4 names no block and no provider; only Anthropic's models signed or redacted then."""
    names = {"signature": "signature", "data": "redactedData"}
    said = {late: chunk[early] for early, late in names.items() if early in chunk}
    turn.remember(None, {"anthropic": said})
    turn.end_reasoning(None)


def _start_input(turn: Turn, chunk: wire.Chunk) -> None:
    call_id = wire.call_id(chunk)
    if call_id is not None:
        is_text, is_ours = chunk.get("inputEncoding") == "text", chunk.get("providerExecuted") is not True
        turn.calls.start_input(call_id, wire.tool_name(chunk), is_text=is_text, offered=is_ours)


def _input(turn: Turn, chunk: wire.Chunk) -> None:
    call_id, piece = wire.call_id(chunk), wire.first_text(chunk, "argsTextDelta", "inputTextDelta", "delta")
    if call_id is not None and piece:
        turn.calls.add_input(call_id, piece, wire.tool_name(chunk))


def _end_input(turn: Turn, chunk: wire.Chunk) -> None:
    turn.calls.end_input(wire.call_id(chunk) or "")


def _call(turn: Turn, chunk: wire.Chunk) -> None:
    call_id, name = wire.call_id(chunk), wire.tool_name(chunk)
    if call_id is None:
        turn.fail(StreamError(f"A call of the tool “{name}” has no id."))
        return
    is_ours, is_valid = chunk.get("providerExecuted") is not True, chunk.get("invalid") is not True
    offered = None if is_ours and is_valid else False
    if is_ours and not is_valid:
        turn.calls.refuse(call_id)
    value = chunk["args"] if "args" in chunk else chunk.get("input")
    if isinstance(value, str) and (turn.model_parts or "toolCallType" in chunk):
        try:
            value = read_arguments(value)
        except ValueError:
            offered = False
            turn.fail(not_json(call_id, name))
    turn.deltas.flush()
    turn.calls.call(call_id, name, value, offered=offered, metadata=wire.metadata(chunk))


def _broken_call(turn: Turn, chunk: wire.Chunk) -> None:
    _call(turn, {**chunk, "invalid": True})


def _answer(turn: Turn, chunk: wire.Chunk) -> None:
    call_id = wire.call_id(chunk)
    if call_id is not None:
        turn.deltas.flush()
        turn.calls.answer(call_id)


def _ask_approval(turn: Turn, chunk: wire.Chunk) -> None:
    call_id = wire.call_id({**wire.mapping(chunk.get("toolCall")), **chunk})
    approval = wire.first_text(chunk, "approvalId")
    if call_id is not None and approval is not None:
        turn.approvals[approval] = call_id


def _give_approval(turn: Turn, chunk: wire.Chunk) -> None:
    asked = turn.approvals.get(wire.first_text(chunk, "approvalId") or "")
    if chunk.get("approved") is False:
        _answer(turn, {"toolCallId": asked, **wire.mapping(chunk.get("toolCall"))})


def _file(turn: Turn, chunk: wire.Chunk) -> None:
    try:
        turn.emit(read_file(chunk))
    except StreamError as error:
        turn.fail(error)


def _source(turn: Turn, chunk: wire.Chunk) -> None:
    given = {**chunk, **wire.mapping(chunk.get("source"))}
    kind = _SOURCES.get(wire.first_text(given, "sourceType") or chunk["type"])
    if kind is not None:
        source = Source(
            kind,
            id=wire.first_text(given, "sourceId", "id"),
            url=wire.first_text(given, "url"),
            title=wire.first_text(given, "title"),
            mime=wire.first_text(given, "mediaType"),
            filename=wire.first_text(given, "filename"),
        )
        turn.emit(source)


def _unnamed_data(turn: Turn, chunk: wire.Chunk) -> None:
    values = chunk.get("data")
    for value in values if isinstance(values, list) else [values]:
        turn.emit(Data("data", value))


def _start_step(turn: Turn, _: wire.Chunk) -> None:
    turn.deltas.start_step()
    turn.calls.start_step()


def _reset_step(turn: Turn, _: wire.Chunk) -> None:
    turn.deltas.reset_step()
    turn.calls.reset_step()


def _finish_step(turn: Turn, chunk: wire.Chunk) -> None:
    turn.deltas.flush()
    turn.calls.end_step()
    turn.toll.add_step(wire.usage(chunk))
    _name_response(turn, wire.mapping(chunk.get("response")))


def _finish(turn: Turn, chunk: wire.Chunk) -> None:
    turn.deltas.flush()
    if wire.is_models_finish(chunk) and not turn.model_parts:
        turn.model_parts = True
        for error in turn.calls.read_texts():
            turn.fail(error)
    turn.calls.end_step()
    turn.finished = True
    turn.reason = wire.finish_reason(chunk) or turn.reason
    turn.toll.add_turn(wire.usage(chunk))
    _name_response(turn, wire.mapping(chunk.get("response")))


def _name_response(turn: Turn, chunk: wire.Chunk) -> None:
    turn.response_id = wire.first_text(chunk, "id") or turn.response_id
    turn.model = wire.first_text(chunk, "modelId") or turn.model


def _model_speaks(turn: Turn, chunk: wire.Chunk) -> None:
    """Only a model itself says this, never the SDK around it."""
    turn.model_parts = True
    _name_response(turn, chunk)


def _abort(turn: Turn, _: wire.Chunk) -> None:
    turn.aborted = True


def _error(turn: Turn, chunk: wire.Chunk) -> None:
    error = chunk.get("errorText", chunk.get("error"))
    answered = wire.first_text(wire.mapping(error), "toolCallId")
    failed = _TOOL_FAILED.match(error) if isinstance(error, str) else None
    turn.deltas.flush()
    if answered is not None:
        turn.calls.answer(answered)
    elif failed is not None:
        turn.calls.answer_by_name(failed[1])
    turn.fail(read_failure(chunk))


_ACTS: dict[str, Callable[[Turn, wire.Chunk], None]] = {
    "abort": _abort,
    "custom": _silent,
    "data": _unnamed_data,  # version 4's
    "error": _error,
    "file": _file,
    "finish": _finish,
    "finish-step": _finish_step,
    "message-metadata": _silent,
    "metadata": _silent,
    "ping": _silent,
    "raw": _silent,
    "reasoning": _reasoning,  # before 5.0.0
    "reasoning-delta": _reasoning,
    "reasoning-end": _end_reasoning,
    "reasoning-file": _silent,
    "reasoning-part-finish": _end_reasoning,  # 5.0.0's previews
    "reasoning-signature": _sign_reasoning,
    "reasoning-start": _start_reasoning,
    "redacted-reasoning": _sign_reasoning,
    "reset-step": _reset_step,
    "response-metadata": _model_speaks,
    "source": _source,
    "source-document": _source,
    "source-url": _source,
    "start": _silent,
    "start-step": _start_step,
    "steering-message": _silent,  # the user's words, not the model's
    "step-finish": _finish_step,
    "step-start": _start_step,
    "stream-start": _model_speaks,
    "text": _text,  # 5.0.0's previews
    "text-delta": _text,
    "text-end": _silent,
    "text-start": _silent,
    "tool-approval-request": _ask_approval,
    "tool-approval-response": _give_approval,
    "tool-call": _call,
    "tool-call-delta": _input,
    "tool-call-streaming-start": _start_input,
    "tool-error": _answer,
    "tool-input-available": _call,
    "tool-input-delta": _input,
    "tool-input-end": _end_input,
    "tool-input-error": _broken_call,
    "tool-input-start": _start_input,
    "tool-output-available": _answer,
    "tool-output-denied": _answer,
    "tool-output-error": _answer,
    "tool-result": _answer,
}
