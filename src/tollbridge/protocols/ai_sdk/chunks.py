"""Apply AI SDK chunks to the state of a stream.

`_HANDLERS` has one handler for each chunk type of all versions. This module also reads the two chunk contents
that have many forms: errors and files.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.ai_sdk.state import StreamState, invalid_arguments, read_arguments
from tollbridge.protocols.errors import error_from
from tollbridge.types.errors import BridgeError, StreamError
from tollbridge.types.events import Data, Event, File, Source
from tollbridge.types.media import UNKNOWN
from tollbridge.types.text import TOO_DEEP, Fields, exceeds_depth, limit_depth, read_mapping

# An error that the SDK serialized often contains the whole request with the prompt, and no message. Therefore
# it is never shown as it is; the message is taken from the fields where the versions put it.

_MAX_DEPTH = 6  # more levels than any version uses


def parse_error(value: object) -> BridgeError:
    """Return the exception for an error that the SDK serialized to any JSON value."""
    layers = list(_iter_layers(value, _MAX_DEPTH))
    messages = (wire.first_text(layer, "message") for layer in layers)
    message = next((text for text in messages if text and text.strip()), None)
    numbers = (layer.get("statusCode", layer.get("status")) for layer in layers)
    status = next((number for number in numbers if isinstance(number, int) and 400 <= number < 600), None)
    code = next((text for layer in layers if (text := _read_code(layer))), None)
    if message is None:
        message = _describe(layers)
    return error_from({"message": message, "type": code}, status=status)


def _iter_layers(value: object, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the nested objects of an error, outermost first."""
    if isinstance(value, str):
        value = _parse_object(value) or {"message": value}
    if not isinstance(value, Mapping) or depth == 0:
        return
    yield value
    for name in ("error", "data", "responseBody", "cause"):
        inner = value.get(name)
        if name == "responseBody" and isinstance(inner, str):
            inner = _parse_object(inner)  # other text of a body is not necessarily a message
        yield from _iter_layers(inner, depth - 1)


def _parse_object(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _read_code(layer: Mapping[str, Any]) -> str | None:
    """Return `code`, or else `type` if it is more specific than `error`."""
    for name in ("code", "type"):
        code = layer.get(name)
        if isinstance(code, str) and code not in ("", "error"):
            return code
    return None


def _describe(layers: list[Mapping[str, Any]]) -> str:
    """Return a message for an error without one: in JavaScript, `JSON.stringify(new Error("x"))` is `{}`."""
    outer = layers[0] if layers else {}
    name, tool = wire.first_text(outer, "name"), wire.first_text(outer, "toolName")
    if name and tool:
        return f'{name} in the tool "{tool}"; the stream contained no message.'
    if name:
        return f"{name}; the stream contained no message."
    return "The stream reported an error without a message."


def read_file(chunk: wire.Chunk) -> File:
    """Return the file of a chunk. A remote URL stays a URL, because URLs from models are never fetched.

    Raises:
        StreamError: The file has no data, or invalid data.
    """
    fields = {**chunk, **read_mapping(chunk.get("file"))}
    mime = wire.first_text(fields, "mediaType", "mimeType") or ""
    name = wire.first_text(fields, "filename", "name")
    url = wire.first_text(fields, "url")
    data = fields.get("data")
    if isinstance(data, Mapping) and data.get("type") in ("url", "data"):  # specification 4
        url = wire.first_text(data, "url") or url
        data = data.get("data")
    if url is None and isinstance(data, str) and data.startswith(("data:", "http://", "https://")):
        url, data = data, None
    if url is not None:
        return _read_url(url, mime, name)
    for value in (fields.get("base64"), fields.get("base64Data"), data):
        if isinstance(value, str):
            return File(mime or UNKNOWN, _decode_base64(value), name=name)
    for value in (fields.get("uint8Array"), fields.get("uint8ArrayData"), data):
        if value is not None:
            return File(mime or UNKNOWN, _decode_numbers(value), name=name)
    raise StreamError("The stream contains a file without data.")


def _read_url(url: str, mime: str, name: str | None) -> File:
    if not url.startswith("data:"):
        return File(mime or UNKNOWN, url=url, name=name)
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise StreamError("The stream contains a file whose data URL has no data.")
    label, *parameters = head.split(";")
    raw = unquote_to_bytes(body.encode("utf-8", "surrogatepass"))
    if "base64" in (parameter.strip().lower() for parameter in parameters):
        raw = _decode_base64(raw)
    return File(mime or label or "text/plain", raw, name=name)


def _decode_base64(text: str | bytes) -> bytes:
    """Decode base64. As in JavaScript, the URL-safe alphabet, missing padding and line breaks are allowed."""
    try:
        raw = text.encode("ascii") if isinstance(text, str) else text
        raw = b"".join(raw.split()).rstrip(b"=")
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise StreamError("The stream contains a file with invalid base64.") from None


def _decode_numbers(value: Any) -> bytes:
    """Return the bytes of a list of numbers, of a Buffer, or of an object `{"0": 137, "1": 80, …}`."""
    try:
        if isinstance(value, Mapping) and value.get("type") == "Buffer":
            value = value.get("data")
        elif isinstance(value, Mapping):
            value = [value[str(index)] for index in range(len(value))]
        if isinstance(value, list):
            return bytes(value)
    except (KeyError, TypeError, ValueError):
        pass
    raise StreamError("The stream contains a file with incomplete data.")


# Before version 5.0.0, this error is the only sign that a tool of the backend failed.
_TOOL_FAILED = re.compile(r"Error executing tool (.+?): ")
_SOURCES: dict[str, Literal["url", "document"]] = {
    "document": "document",
    "source-document": "document",
    "source-url": "url",
    "url": "url",
}


class ChunkState(StreamState):
    """The state of one stream, to which chunks are applied."""

    def apply(self, event: object, name: bytes = b"") -> list[Event]:  # noqa: ARG002
        self.add(event)
        return self.drain()

    def add(self, chunk: object) -> None:
        """Apply a chunk, whose events `drain` returns."""
        if isinstance(chunk, (dict, Mapping)):  # the check for dict is faster
            super().apply(dict(chunk))
        else:
            self.fail(StreamError("The stream contains a chunk that is not an object."))

    def apply_body(self, body: Fields) -> list[Event]:
        is_error = any(body.raw.get(name) is not None for name in ("error", "errorText", "message"))
        return self.interrupt(parse_error(body.raw) if is_error else self._not_recognized())

    def _apply(self, event: object, _name: bytes) -> list[Event]:
        """Apply a chunk. One of an unknown type is counted and passed to `on_unknown`."""
        fields = Fields(event)
        chunk, kind = fields.raw, fields.text("type")
        if kind is None and "error" in chunk:
            kind = "error"  # the body of an error response
        handler = _HANDLERS.get(kind or "")
        self.has_known_events = self.has_known_events or is_known(kind or "")
        if kind is None:
            self.fail(StreamError("The stream contains a chunk without a type."))
        elif handler is not None:
            handler(self, chunk)
        elif kind.startswith("data-"):
            value = _limit(chunk.get("data"))
            self.emit(Data(kind.removeprefix("data-"), value, wire.first_text(chunk, "id")))
        else:
            self.unknown.record(kind)
            if self.on_unknown is not None:
                self.on_unknown(chunk)
        return []


def is_known(kind: str) -> bool:
    """Return whether this is a chunk type of any AI SDK version."""
    return kind in _HANDLERS or kind.startswith("data-")


def _ignore(state: StreamState, chunk: wire.Chunk) -> None:
    """Ignore a chunk of a known type that an editor does not need."""


def _add_text(state: StreamState, chunk: wire.Chunk) -> None:
    text = wire.first_text(chunk, "textDelta", "text", "delta")
    if text:
        state.deltas.check_surrogates(text)
        state.deltas.add_text(text)


def _add_reasoning(state: StreamState, chunk: wire.Chunk) -> None:
    block, metadata = wire.first_text(chunk, "id"), wire.metadata(chunk)
    if metadata:
        state.add_metadata(block, metadata)
    text = wire.first_text(chunk, "textDelta", "text", "delta")
    if text:
        state.deltas.check_surrogates(text)
        state.deltas.add_reasoning(text, block)


def _start_reasoning(state: StreamState, chunk: wire.Chunk) -> None:
    state.add_metadata(wire.first_text(chunk, "id"), wire.metadata(chunk) or {})


def _end_reasoning(state: StreamState, chunk: wire.Chunk) -> None:
    block = wire.first_text(chunk, "id")
    state.add_metadata(block, wire.metadata(chunk) or {})
    state.end_reasoning(block)


def _sign_reasoning(state: StreamState, chunk: wire.Chunk) -> None:
    """Apply a signature of version 4, which has no block id and no provider name.

    At that time only Anthropic models signed or redacted reasoning.
    """
    names = {"signature": "signature", "data": "redactedData"}
    metadata = {new: chunk[old] for old, new in names.items() if old in chunk}
    state.add_metadata(None, {"anthropic": metadata})
    state.end_reasoning(None)


def _start_input(state: StreamState, chunk: wire.Chunk) -> None:
    call_id = wire.call_id(chunk)
    if call_id is not None:
        is_text, offered = chunk.get("inputEncoding") == "text", chunk.get("providerExecuted") is not True
        state.calls.start_input(call_id, wire.tool_name(chunk), is_text=is_text, offered=offered)


def _add_input(state: StreamState, chunk: wire.Chunk) -> None:
    call_id, piece = wire.call_id(chunk), wire.first_text(chunk, "argsTextDelta", "inputTextDelta", "delta")
    if call_id is not None and piece:
        state.calls.add_input(call_id, piece, wire.tool_name(chunk))


def _add_call(state: StreamState, chunk: wire.Chunk) -> None:
    call_id, name = wire.call_id(chunk), wire.tool_name(chunk)
    if call_id is None:
        state.fail(StreamError(f'A call to the tool "{name}" has no id.'))
        return
    by_provider, is_invalid = chunk.get("providerExecuted") is True, chunk.get("invalid") is True
    offered = False if by_provider or is_invalid else None
    if is_invalid and not by_provider:
        state.calls.mark_invalid(call_id)
    value = chunk["args"] if "args" in chunk else chunk.get("input")
    if isinstance(value, str) and (state.model_parts or "toolCallType" in chunk):
        try:
            value = read_arguments(value)
        except ValueError:
            offered = False
            state.fail(invalid_arguments(call_id, name))
    elif exceeds_depth(value):
        value, offered = TOO_DEEP, False
        state.fail(invalid_arguments(call_id, name))
    state.deltas.flush()
    state.calls.add_call(call_id, name, value, offered=offered, metadata=wire.metadata(chunk))


def _mark_answered(state: StreamState, chunk: wire.Chunk) -> None:
    call_id = wire.call_id(chunk)
    if call_id is not None:
        state.deltas.flush()
        state.calls.mark_answered(call_id)


def _request_approval(state: StreamState, chunk: wire.Chunk) -> None:
    call_id = wire.call_id({**read_mapping(chunk.get("toolCall")), **chunk})
    approval = wire.first_text(chunk, "approvalId")
    if call_id is not None and approval is not None:
        state.approvals[approval] = call_id


def _apply_approval(state: StreamState, chunk: wire.Chunk) -> None:
    call_id = state.approvals.get(wire.first_text(chunk, "approvalId") or "")
    if chunk.get("approved") is False:
        _mark_answered(state, {"toolCallId": call_id, **read_mapping(chunk.get("toolCall"))})


def _add_file(state: StreamState, chunk: wire.Chunk) -> None:
    try:
        state.emit(read_file(chunk))
    except StreamError as error:
        state.fail(error)


def _add_source(state: StreamState, chunk: wire.Chunk) -> None:
    fields = {**chunk, **read_mapping(chunk.get("source"))}
    kind = _SOURCES.get(wire.first_text(fields, "sourceType") or chunk["type"])
    if kind is not None:
        source = Source(
            kind,
            id=wire.first_text(fields, "sourceId", "id"),
            url=wire.first_text(fields, "url"),
            title=wire.first_text(fields, "title"),
            mime=wire.first_text(fields, "mediaType"),
            filename=wire.first_text(fields, "filename"),
        )
        state.emit(source)


def _add_unnamed_data(state: StreamState, chunk: wire.Chunk) -> None:
    values = chunk.get("data")
    for value in values if isinstance(values, list) else [values]:
        state.emit(Data("data", _limit(value)))


def _limit(value: object) -> Any:
    """Return a value of the application, made shallower if it is nested too deeply to be encoded."""
    return limit_depth(value) if exceeds_depth(value) else value


def _start_step(state: StreamState, _: wire.Chunk) -> None:
    state.deltas.start_step()
    state.calls.start_step()


def _reset_step(state: StreamState, _: wire.Chunk) -> None:
    state.deltas.reset_step()
    state.calls.reset_step()


def _finish_step(state: StreamState, chunk: wire.Chunk) -> None:
    state.deltas.flush()
    state.calls.end_step()
    state.usage.add_step(wire.usage(chunk))
    state.read_billing(chunk, step=True)
    _set_response(state, read_mapping(chunk.get("response")))


def _finish(state: StreamState, chunk: wire.Chunk) -> None:
    state.deltas.flush()
    if wire.is_model_finish(chunk) and not state.model_parts:
        state.model_parts = True
        for error in state.calls.parse_inputs():
            state.fail(error)
    state.calls.end_step()
    state.finished = True
    state.reason = wire.finish_reason(chunk) or state.reason
    state.usage.add_total(wire.usage(chunk))
    state.read_billing(chunk)
    _set_response(state, read_mapping(chunk.get("response")))


def _set_response(state: StreamState, chunk: wire.Chunk) -> None:
    state.response_id = wire.first_text(chunk, "id") or state.response_id
    state.model = wire.first_text(chunk, "modelId") or state.model


def _start_model(state: StreamState, chunk: wire.Chunk) -> None:
    """Apply a chunk that only language models send; the SDK does not forward it."""
    state.model_parts = True
    _set_response(state, chunk)


def _abort(state: StreamState, _: wire.Chunk) -> None:
    state.aborted = True


def _add_error(state: StreamState, chunk: wire.Chunk) -> None:
    error = chunk.get("errorText")  # in the UI stream
    error = chunk.get("error") if error is None else error
    call_id = wire.first_text(read_mapping(error), "toolCallId")
    tool_failure = _TOOL_FAILED.match(error) if isinstance(error, str) else None
    state.deltas.flush()
    if call_id is not None:
        state.calls.mark_answered(call_id)
    elif tool_failure is not None:
        state.calls.mark_answered_by_name(tool_failure[1])
    state.fail(parse_error(error))


_HANDLERS: dict[str, Callable[[StreamState, wire.Chunk], None]] = {
    "abort": _abort,
    "custom": _ignore,
    "data": _add_unnamed_data,  # version 4
    "error": _add_error,
    "file": _add_file,
    "finish": _finish,
    "finish-step": _finish_step,
    "message-metadata": _ignore,
    "metadata": _ignore,
    "ping": _ignore,
    "raw": _ignore,
    "reasoning": _add_reasoning,  # before version 5.0.0
    "reasoning-delta": _add_reasoning,
    "reasoning-end": _end_reasoning,
    "reasoning-file": _ignore,
    "reasoning-part-finish": _end_reasoning,  # previews of version 5.0.0
    "reasoning-signature": _sign_reasoning,
    "reasoning-start": _start_reasoning,
    "redacted-reasoning": _sign_reasoning,
    "reset-step": _reset_step,
    "response-metadata": _start_model,
    "source": _add_source,
    "source-document": _add_source,
    "source-url": _add_source,
    "start": _ignore,
    "start-step": _start_step,
    "steering-message": _ignore,  # text of the user, not of the model
    "step-finish": _finish_step,
    "step-start": _start_step,
    "stream-start": _start_model,
    "text": _add_text,  # previews of version 5.0.0
    "text-delta": _add_text,
    "text-end": _ignore,
    "text-start": StreamState.read_billing,  # the gateway's id of the generation
    "tool-approval-request": _request_approval,
    "tool-approval-response": _apply_approval,
    "tool-call": _add_call,
    "tool-call-delta": _add_input,
    "tool-call-streaming-start": _start_input,
    "tool-error": _mark_answered,
    "tool-input-available": _add_call,
    "tool-input-delta": _add_input,
    "tool-input-end": lambda state, chunk: state.calls.end_input(wire.call_id(chunk) or ""),
    "tool-input-error": lambda state, chunk: _add_call(state, {**chunk, "invalid": True}),
    "tool-input-start": _start_input,
    "tool-output-available": _mark_answered,
    "tool-output-denied": _mark_answered,
    "tool-output-error": _mark_answered,
    "tool-result": _mark_answered,
}
