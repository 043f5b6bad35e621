"""JSON-RPC 2.0 in Content-Length frames, the format of `vscode-jsonrpc` and of LSP clients.

`Reader` decodes requests and notifications. The `encode_*` functions encode results, errors and
notifications.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tollbridge.types.text import join_escaped_surrogates, limit_text_depth, write_json

MAX_HEADER_BYTES = 8 * 1024
# Prompts contain images in base64. The limits of gateways are far below this one.
MAX_FRAME_BYTES = 256 * 1024 * 1024

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_INITIALIZED = -32002
REQUEST_CANCELLED = -32800

Id = int | str

# How many bytes of an invalid message are searched for its id.
_HEAD_BYTES = 512


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `error` object of a response."""

    code: int
    message: str
    data: Any = None


class Call(msgspec.Struct, frozen=True):
    """A request, or a notification if it has no `id`. `params` is not decoded yet."""

    method: str
    params: msgspec.Raw
    id: Id | None = None


class InvalidMessage(msgspec.Struct, frozen=True):
    """A frame without a valid message, and the error to send.

    If it is `unrecoverable`, the start of the next frame is unknown, and no more messages can be read.
    """

    fault: Fault
    id: Id | None = None
    unrecoverable: bool = False


class _Message(msgspec.Struct, frozen=True):
    jsonrpc: str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    id: Id | None = None


_decode_message = msgspec.json.Decoder(_Message).decode
_encode = msgspec.json.Encoder().encode


class Reader:
    """Decodes messages from bytes; it does not matter where the bytes are split.

    A message that is larger than the maximum is skipped and reported as an `InvalidMessage`.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._length: int | None = None  # of the next body, if its header was read
        self._skip = 0  # remaining bytes of a body over the limit
        self._head = b""  # the first bytes of that body, which can contain its id
        self._is_lost = False

    def feed(self, chunk: bytes) -> list[Call | InvalidMessage]:
        """Return the messages that these bytes complete."""
        messages: list[Call | InvalidMessage] = []
        self._buffer += chunk
        while not self._is_lost:
            if self._skip:
                step: list[Call | InvalidMessage] | None = self._skip_body()
            elif self._length is not None:
                step = self._read_body()
            else:
                step = self._read_header()
            if step is None:
                break
            messages += step
        return messages

    @property
    def idle(self) -> bool:
        """Whether the bytes so far end at the end of a message."""
        return not (self._buffer or self._skip) and self._length is None and not self._is_lost

    # Each of the following methods is one step. It returns `None` if it needs more bytes, else the messages
    # that it completes.

    def _read_header(self) -> list[Call | InvalidMessage] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and len(self._buffer) <= MAX_HEADER_BYTES:
            return None
        if end < 0 or end > MAX_HEADER_BYTES:
            return self._give_up(f"no header ended within {MAX_HEADER_BYTES} bytes")
        length = _read_content_length(bytes(self._buffer[:end]))
        if length is None:
            return self._give_up("a header had no Content-Length")
        del self._buffer[: end + 4]
        if length > self._max:
            self._skip, self._head = length, b""
        else:
            self._length = length
        return []

    def _read_body(self) -> list[Call | InvalidMessage] | None:
        length = self._length or 0
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._length = None
        message = read_message(body)
        return [message] if message else []

    def _skip_body(self) -> list[Call | InvalidMessage] | None:
        self._head = (self._head + self._buffer[:_HEAD_BYTES])[:_HEAD_BYTES]
        count = min(self._skip, len(self._buffer))
        del self._buffer[:count]
        self._skip -= count
        if self._skip:
            return None
        message = f"The message is larger than {self._max} bytes, the limit for one frame."
        return [InvalidMessage(Fault(INVALID_REQUEST, message), _find_id(self._head))]

    def _give_up(self, reason: str) -> list[Call | InvalidMessage]:
        self._is_lost = True
        self._buffer.clear()
        return [InvalidMessage(Fault(PARSE_ERROR, f"Lost message framing: {reason}."), unrecoverable=True)]


def read_message(body: bytes) -> Call | InvalidMessage | None:
    """Return the message of a frame, or `None` for a response: this side sends no requests."""
    try:
        message = _decode(body)
    except msgspec.ValidationError as error:
        is_batch = body.lstrip()[:1] == b"["
        reason = "Batches are not supported" if is_batch else f"Not a JSON-RPC message: {error}"
        return InvalidMessage(Fault(INVALID_REQUEST, f"{reason}."), _find_id(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return InvalidMessage(Fault(PARSE_ERROR, "The frame is not JSON."), _find_id(body))
    if message.jsonrpc != "2.0":
        return InvalidMessage(
            Fault(INVALID_REQUEST, 'Not a JSON-RPC message: `jsonrpc` must be "2.0".'), message.id
        )
    if message.method is None:
        return None
    return Call(message.method, message.params, message.id)


def _decode(body: bytes) -> _Message:
    try:
        return _decode_message(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _decode_message(join_escaped_surrogates(body))
    except RecursionError:  # values that are nested too deeply become empty
        return _decode_message(limit_text_depth(body))


def encode_result(call_id: Id, result: Any) -> bytes:
    return _encode_frame({"jsonrpc": "2.0", "id": call_id, "result": result})


def encode_fault(call_id: Id | None, fault: Fault) -> bytes:
    return _encode_frame({"jsonrpc": "2.0", "id": call_id, "error": fault})


def encode_notification(method: str, params: Any) -> bytes:
    return _encode_frame({"jsonrpc": "2.0", "method": method, "params": params})


def _encode_frame(message: dict[str, Any]) -> bytes:
    try:
        body = _encode(message)
    except UnicodeEncodeError:  # a lone surrogate from a model; editors accept it as an escape sequence
        body = write_json(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _read_content_length(header: bytes) -> int | None:
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) <= 15 else None
    return None


def _find_id(body: bytes) -> Id | None:
    """Find the id of a message that could not be decoded, so that its sender receives an error."""
    match = re.search(rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\]{0,64}")\s*[,}]', body[:_HEAD_BYTES])
    if match is None:
        return None
    try:
        call_id: Id = msgspec.json.decode(match[1], type=Id)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return call_id
