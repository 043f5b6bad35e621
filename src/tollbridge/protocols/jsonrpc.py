"""JSON-RPC 2.0 in Content-Length frames: what `vscode-jsonrpc` and every LSP client speak."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tollbridge.types.text import join_escaped_surrogates, write_json

MAX_HEADER_BYTES = 8 * 1024
# A prompt carries its images in base64; gateways refuse far less than this.
MAX_FRAME_BYTES = 256 * 1024 * 1024

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_INITIALIZED = -32002
REQUEST_CANCELLED = -32800

Id = int | str

_HEAD_BYTES = 512
# The id as it stands in the first bytes of a message that could not be read, so that its sender is answered.
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\]{0,64}")\s*[,}]')


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `error` of an answer."""

    code: int
    message: str
    data: Any = None


class Call(msgspec.Struct, frozen=True):
    """A request, or without an `id` a notification; `params` is still JSON."""

    method: str
    params: msgspec.Raw
    id: Id | None = None


class Bad(msgspec.Struct, frozen=True):
    """A frame that carried no message. After a `lost` one the next frame cannot be found."""

    fault: Fault
    id: Id | None = None
    lost: bool = False


class _Message(msgspec.Struct, frozen=True):
    jsonrpc: str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    id: Id | None = None


_decode_message = msgspec.json.Decoder(_Message).decode
_encode = msgspec.json.Encoder().encode


class Reader:
    """Bytes in, messages out, wherever the bytes were cut."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._length: int | None = None  # of the body that comes next, once its header has been read
        self._skip = 0  # bytes still to be thrown away of a body over the limit
        self._head = b""  # its first bytes, where its id stands
        self._lost = False

    def feed(self, chunk: bytes) -> list[Call | Bad]:
        found: list[Call | Bad] = []
        self._buffer += chunk
        while not self._lost:
            step = (
                self._skipped()
                if self._skip
                else self._body()
                if self._length is not None
                else self._header()
            )
            if step is None:
                break
            found += step
        return found

    @property
    def idle(self) -> bool:
        """Whether the bytes so far end where a message ends."""
        return not (self._buffer or self._skip) and self._length is None and not self._lost

    def _header(self) -> list[Bad] | None:
        """One step: `None` when more bytes are needed, else what was found (often nothing yet)."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and len(self._buffer) <= MAX_HEADER_BYTES:
            return None
        if end < 0 or end > MAX_HEADER_BYTES:
            return self._give_up(f"no header ended within {MAX_HEADER_BYTES} bytes")
        length = _content_length(bytes(self._buffer[:end]))
        if length is None:
            return self._give_up("a header had no Content-Length")
        del self._buffer[: end + 4]
        if length > self._max:
            self._skip, self._head = length, b""
        else:
            self._length = length
        return []

    def _body(self) -> list[Call | Bad] | None:
        length = self._length or 0
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._length = None
        found = read_message(body)
        return [found] if found else []

    def _skipped(self) -> list[Bad] | None:
        self._head = (self._head + self._buffer[:_HEAD_BYTES])[:_HEAD_BYTES]
        passed = min(self._skip, len(self._buffer))
        del self._buffer[:passed]
        self._skip -= passed
        if self._skip:
            return None
        message = f"The message is larger than {self._max} bytes, the limit for one frame."
        return [Bad(Fault(INVALID_REQUEST, message), _find_id(self._head))]

    def _give_up(self, why: str) -> list[Bad]:
        self._lost = True
        self._buffer.clear()
        return [Bad(Fault(PARSE_ERROR, f"The frames cannot be followed any further: {why}."), lost=True)]


def read_message(body: bytes) -> Call | Bad | None:
    """What one frame says. `None` is an answer: we ask the editor nothing, so nothing waits for one."""
    try:
        message = _read(body)
    except msgspec.ValidationError as error:
        said = "A batch is not supported" if body.lstrip()[:1] == b"[" else f"Not a JSON-RPC message: {error}"
        return Bad(Fault(INVALID_REQUEST, f"{said}."), _find_id(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Bad(Fault(PARSE_ERROR, "The frame is not JSON."), _find_id(body))
    if message.jsonrpc != "2.0":
        return Bad(Fault(INVALID_REQUEST, 'Not a JSON-RPC message: `jsonrpc` must be "2.0".'), message.id)
    if message.method is None:
        return None
    return Call(message.method, message.params, message.id)


def _read(body: bytes) -> _Message:
    try:
        return _decode_message(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _decode_message(join_escaped_surrogates(body))


def encode_result(call_id: Id, result: Any) -> bytes:
    return _framed({"jsonrpc": "2.0", "id": call_id, "result": result})


def encode_fault(call_id: Id | None, fault: Fault) -> bytes:
    return _framed({"jsonrpc": "2.0", "id": call_id, "error": fault})


def encode_notification(method: str, params: Any) -> bytes:
    return _framed({"jsonrpc": "2.0", "method": method, "params": params})


def _framed(message: dict[str, Any]) -> bytes:
    try:
        body = _encode(message)
    except UnicodeEncodeError:  # half a character of a model's: an editor takes its escape
        body = write_json(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _content_length(header: bytes) -> int | None:
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) <= 15 else None
    return None


def _find_id(body: bytes) -> Id | None:
    found = _ID.search(body, 0, _HEAD_BYTES)
    if found is None:
        return None
    try:
        call_id: Id = msgspec.json.decode(found[1], type=Id)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return call_id
