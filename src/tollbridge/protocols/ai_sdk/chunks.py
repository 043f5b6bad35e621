"""What each chunk of the AI SDK does to a turn: one line in the table for each name, of all versions."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.ai_sdk.state import StreamState, not_json, read_arguments
from tollbridge.protocols.errors import error_from
from tollbridge.types.errors import BridgeError, StreamError
from tollbridge.types.events import Data, File, Source
from tollbridge.types.media import UNKNOWN

# SECTION Errors in a stream: what the SDK serialises of them, down to one sentence and a kind.
#
# A serialised error often holds the whole request, prompt included, and seldom its own message. So it is never
# shown as it is: the message is searched for in the places where the versions keep it.

_DEPTH = 6  # of objects inside objects; deeper than any version nests


def read_failure(chunk: wire.Chunk) -> BridgeError:
    """The error of an `error` chunk: `errorText` in the UI stream, any JSON value in the others."""
    value = chunk.get("errorText")
    return failure_from(value if value is not None else chunk.get("error"))


def failure_from(value: object) -> BridgeError:
    layers = list(_layers(value, _DEPTH))
    message = next((text for layer in layers if (text := _message(layer))), None)
    status = next((number for layer in layers if (number := _status(layer)) is not None), None)
    code = next((text for layer in layers if (text := _code(layer))), None)
    if message is None:
        message = _by_name(layers)
    return error_from({"message": message, "type": code}, status=status)


def _layers(value: object, depth: int) -> Iterator[Mapping[str, Any]]:
    """The objects of an error, outermost first: itself, `error`, `data`, the response's body, `cause`."""
    if isinstance(value, str):
        value = _parsed(value) or {"message": value}
    if not isinstance(value, Mapping) or depth == 0:
        return
    yield value
    for name in ("error", "data", "responseBody", "cause"):
        inner = value.get(name)
        if isinstance(inner, Mapping):
            yield from _layers(inner, depth - 1)
        elif isinstance(inner, str):
            # A response's body is shown only for a message inside it; as text it could be anything.
            found = _parsed(inner) if name == "responseBody" else _parsed(inner) or {"message": inner}
            yield from _layers(found, depth - 1)


def _parsed(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _message(layer: Mapping[str, Any]) -> str | None:
    message = layer.get("message")
    return message if isinstance(message, str) and message.strip() else None


def _status(layer: Mapping[str, Any]) -> int | None:
    status = layer.get("statusCode", layer.get("status"))
    return status if isinstance(status, int) and 400 <= status < 600 else None


def _code(layer: Mapping[str, Any]) -> str | None:
    """The most telling code: `code`, or `type` unless it only says that this is an error."""
    for name in ("code", "type"):
        code = layer.get(name)
        if isinstance(code, str) and code not in ("", "error"):
            return code
    return None


def _by_name(layers: list[Mapping[str, Any]]) -> str:
    """`JSON.stringify(new Error("x"))` is `{}`: then a name, a tool or a status is all that is left."""
    outer = layers[0] if layers else {}
    name, tool = wire.first_text(outer, "name"), wire.first_text(outer, "toolName")
    if name and tool:
        return f"{name} in the tool “{tool}”; the stream gave no message."
    if name:
        return f"{name}; the stream gave no message."
    return "The stream reported an error and gave no message."


# SECTION Files in a stream: the many ways in which the AI SDK's versions serialise the same bytes.


def read_file(chunk: wire.Chunk) -> File:
    """The file in a chunk. A remote URL stays a URL: nobody fetches what a model names."""
    carrier = {**chunk, **wire.mapping(chunk.get("file"))}
    mime = wire.first_text(carrier, "mediaType", "mimeType") or ""
    name = wire.first_text(carrier, "filename", "name")
    url = wire.first_text(carrier, "url")
    data = carrier.get("data")
    if isinstance(data, Mapping) and data.get("type") in ("url", "data"):  # a model of version 4
        url = wire.first_text(data, "url") or url
        data = data.get("data")
    if url is None and isinstance(data, str) and _is_url(data):
        url, data = data, None
    if url is not None:
        return _at_url(url, mime, name)
    for given in (carrier.get("base64"), carrier.get("base64Data"), data):
        if isinstance(given, str):
            return File(mime or UNKNOWN, _from_base64(given), name=name)
    for given in (carrier.get("uint8Array"), carrier.get("uint8ArrayData"), data):
        if given is not None:
            return File(mime or UNKNOWN, _from_numbers(given), name=name)
    raise StreamError("The stream holds a file without any data.")


def _is_url(text: str) -> bool:
    return text.startswith(("data:", "http://", "https://"))


def _at_url(url: str, mime: str, name: str | None) -> File:
    if not url.startswith("data:"):
        return File(mime or UNKNOWN, url=url, name=name)
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise StreamError("The stream holds a file whose data URL has no data.")
    label, *parameters = head.split(";")
    raw = unquote_to_bytes(body.encode("utf-8", "surrogatepass"))
    if "base64" in (parameter.strip().lower() for parameter in parameters):
        raw = _from_base64(raw)
    return File(mime or label or "text/plain", raw, name=name)


def _from_base64(text: str | bytes) -> bytes:
    """Also the URL-safe alphabet, missing padding and line breaks, which JavaScript's decoders let pass."""
    try:
        raw = text.encode("ascii") if isinstance(text, str) else text
        raw = b"".join(raw.split()).rstrip(b"=").translate(_STANDARD)
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise StreamError("The stream holds a file whose base64 is broken.") from None


_STANDARD = bytes.maketrans(b"-_", b"+/")


def _from_numbers(given: Any) -> bytes:
    """Bytes as JSON sees them: a list of numbers, or an object `{"0": 137, "1": 80, …}` without gaps."""
    numbers = given
    if isinstance(given, Mapping):
        numbers = given.get("data") if given.get("type") == "Buffer" else _in_order(given)
    try:
        return bytes(numbers) if isinstance(numbers, list) else _broken()
    except (TypeError, ValueError):
        return _broken()


def _in_order(given: Mapping[str, Any]) -> list[Any] | None:
    try:
        return [given[str(index)] for index in range(len(given))]
    except KeyError:
        return None


def _broken() -> bytes:
    raise StreamError("The stream holds a file whose bytes are incomplete.")


# SECTION What each chunk of the AI SDK does to a turn: one line in the table for each name, of all versions.

# All that the streams before 5.0.0 tell of a tool of the backend's own that failed.
_TOOL_FAILED = re.compile(r"Error executing tool (.+?): ")
_SOURCES: dict[str, Literal["url", "document"]] = {
    "document": "document",
    "source-document": "document",
    "source-url": "url",
    "url": "url",
}


def apply_chunk(turn: StreamState, chunk: wire.Chunk) -> None:
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


def _silent(turn: StreamState, chunk: wire.Chunk) -> None:
    """Known, and nothing to an editor."""


def _text(turn: StreamState, chunk: wire.Chunk) -> None:
    text = wire.first_text(chunk, "textDelta", "text", "delta")
    if text:
        turn.deltas.watch(text)
        turn.deltas.add_text(text)


def _reasoning(turn: StreamState, chunk: wire.Chunk) -> None:
    block, said = wire.first_text(chunk, "id"), wire.metadata(chunk)
    if said:
        turn.remember(block, said)
    text = wire.first_text(chunk, "textDelta", "text", "delta")
    if text:
        turn.deltas.watch(text)
        turn.deltas.add_reasoning(text, block)


def _start_reasoning(turn: StreamState, chunk: wire.Chunk) -> None:
    turn.remember(wire.first_text(chunk, "id"), wire.metadata(chunk) or {})


def _end_reasoning(turn: StreamState, chunk: wire.Chunk) -> None:
    block = wire.first_text(chunk, "id")
    turn.remember(block, wire.metadata(chunk) or {})
    turn.end_reasoning(block)


def _sign_reasoning(turn: StreamState, chunk: wire.Chunk) -> None:
    """Version 4 names no block and no provider; only Anthropic's models signed or redacted then."""
    names = {"signature": "signature", "data": "redactedData"}
    said = {late: chunk[early] for early, late in names.items() if early in chunk}
    turn.remember(None, {"anthropic": said})
    turn.end_reasoning(None)


def _start_input(turn: StreamState, chunk: wire.Chunk) -> None:
    call_id = wire.call_id(chunk)
    if call_id is not None:
        is_text, is_ours = chunk.get("inputEncoding") == "text", chunk.get("providerExecuted") is not True
        turn.calls.start_input(call_id, wire.tool_name(chunk), is_text=is_text, offered=is_ours)


def _input(turn: StreamState, chunk: wire.Chunk) -> None:
    call_id, piece = wire.call_id(chunk), wire.first_text(chunk, "argsTextDelta", "inputTextDelta", "delta")
    if call_id is not None and piece:
        turn.calls.add_input(call_id, piece, wire.tool_name(chunk))


def _end_input(turn: StreamState, chunk: wire.Chunk) -> None:
    turn.calls.end_input(wire.call_id(chunk) or "")


def _call(turn: StreamState, chunk: wire.Chunk) -> None:
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


def _broken_call(turn: StreamState, chunk: wire.Chunk) -> None:
    _call(turn, {**chunk, "invalid": True})


def _answer(turn: StreamState, chunk: wire.Chunk) -> None:
    call_id = wire.call_id(chunk)
    if call_id is not None:
        turn.deltas.flush()
        turn.calls.answer(call_id)


def _ask_approval(turn: StreamState, chunk: wire.Chunk) -> None:
    call_id = wire.call_id({**wire.mapping(chunk.get("toolCall")), **chunk})
    approval = wire.first_text(chunk, "approvalId")
    if call_id is not None and approval is not None:
        turn.approvals[approval] = call_id


def _give_approval(turn: StreamState, chunk: wire.Chunk) -> None:
    asked = turn.approvals.get(wire.first_text(chunk, "approvalId") or "")
    if chunk.get("approved") is False:
        _answer(turn, {"toolCallId": asked, **wire.mapping(chunk.get("toolCall"))})


def _file(turn: StreamState, chunk: wire.Chunk) -> None:
    try:
        turn.emit(read_file(chunk))
    except StreamError as error:
        turn.fail(error)


def _source(turn: StreamState, chunk: wire.Chunk) -> None:
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


def _unnamed_data(turn: StreamState, chunk: wire.Chunk) -> None:
    values = chunk.get("data")
    for value in values if isinstance(values, list) else [values]:
        turn.emit(Data("data", value))


def _start_step(turn: StreamState, _: wire.Chunk) -> None:
    turn.deltas.start_step()
    turn.calls.start_step()


def _reset_step(turn: StreamState, _: wire.Chunk) -> None:
    turn.deltas.reset_step()
    turn.calls.reset_step()


def _finish_step(turn: StreamState, chunk: wire.Chunk) -> None:
    turn.deltas.flush()
    turn.calls.end_step()
    turn.toll.add_step(wire.usage(chunk))
    _name_response(turn, wire.mapping(chunk.get("response")))


def _finish(turn: StreamState, chunk: wire.Chunk) -> None:
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


def _name_response(turn: StreamState, chunk: wire.Chunk) -> None:
    turn.response_id = wire.first_text(chunk, "id") or turn.response_id
    turn.model = wire.first_text(chunk, "modelId") or turn.model


def _model_speaks(turn: StreamState, chunk: wire.Chunk) -> None:
    """Only a model itself says this, never the SDK around it."""
    turn.model_parts = True
    _name_response(turn, chunk)


def _abort(turn: StreamState, _: wire.Chunk) -> None:
    turn.aborted = True


def _error(turn: StreamState, chunk: wire.Chunk) -> None:
    error = chunk.get("errorText", chunk.get("error"))
    answered = wire.first_text(wire.mapping(error), "toolCallId")
    failed = _TOOL_FAILED.match(error) if isinstance(error, str) else None
    turn.deltas.flush()
    if answered is not None:
        turn.calls.answer(answered)
    elif failed is not None:
        turn.calls.answer_by_name(failed[1])
    turn.fail(read_failure(chunk))


_ACTS: dict[str, Callable[[StreamState, wire.Chunk], None]] = {
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
