"""Decode the four stream protocols of the AI SDK: bytes to events.

    UiDecoder      the UI message stream: server-sent events, ended by `[DONE]`  (ai 5 to 7)
    ModelDecoder   the gateway's language-model protocol: server-sent events with the chunks of a model
    FullDecoder    `fullStream`, one JSON object per line                        (ai 4 to 7)
    DataDecoder    the data stream, one `code:JSON` per line                     (ai 4)

A decoder decodes one response. The events do not depend on where the bytes are split, and no method raises: a
failure is the last event.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.ai_sdk.chunks import apply_chunk, parse_error
from tollbridge.protocols.ai_sdk.state import StreamState
from tollbridge.protocols.errors import HEAD_LIMIT, describe_body
from tollbridge.protocols.sse import FRAME_LIMIT, SseDecoder, UnknownNames, frame_too_large
from tollbridge.protocols.stream import DELTA_ERRORS
from tollbridge.types.errors import BridgeError, StreamError
from tollbridge.types.events import Billing, Event
from tollbridge.types.text import exceeds_depth, read_json_to_depth

_BOM = b"\xef\xbb\xbf"
# Bytes that can precede the first significant byte: white space, and a byte order mark.
BLANK = b" \t\r\n\xef\xbb\xbf"
# A JSON body with one of these fields is an error.
_ERROR_FIELDS = ("error", "errorText", "message")

_DELTA = msgspec.json.Decoder(wire.Delta)
_STRING = msgspec.json.Decoder(str)


class LineDecoder:
    """Splits one stream into lines. A line ends only at LF: models write all other line ends.

    Attributes:
        error: Set when a line is larger than the limit. After that, no more lines are returned.
    """

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._partial: list[bytes] = []
        self._size = 0
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if self.error is not None:
            return []
        *lines, rest = chunk.split(b"\n")
        if lines and (self._partial or not self._started):
            lines[0] = self._complete(lines[0])
        if rest:
            self._partial.append(rest)
            self._size += len(rest)
        if self._size > self._limit or (len(chunk) > self._limit and len(max(lines, key=len)) > self._limit):
            self.error = frame_too_large(self._limit)
            return []
        return lines

    def close(self) -> list[bytes]:
        """Return the last line, which has no line end."""
        return [] if self.error is not None else [self._complete(b"")]

    def _complete(self, end: bytes) -> bytes:
        line = b"".join([*self._partial, end])
        self._partial.clear()
        self._size = 0
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        return line


class JsonBody:
    """Collects a response that is one JSON body with an error instead of a stream.

    Attributes:
        error: Set when the body is larger than the limit.
    """

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._limit:
            self.error = frame_too_large(self._limit)
            self._pieces.clear()
        else:
            self._pieces.append(chunk)

    def read_error(self) -> BridgeError | None:
        """Return the error in the body, or `None` if it contains none."""
        if self.error is not None:
            return self.error
        try:
            value = read_json_to_depth(b"".join(self._pieces).lstrip(BLANK))
        except ValueError:
            return StreamError("The gateway returned invalid or truncated JSON.")
        is_error = isinstance(value, dict) and any(value.get(name) is not None for name in _ERROR_FIELDS)
        return parse_error(value) if is_error else None


class _StateDecoder:
    """The common part of all decoders."""

    def __init__(self, state: StreamState | None = None) -> None:
        self._state = state or StreamState()

    @property
    def is_finished(self) -> bool:
        """Whether the response has ended. The connection can stay open, but no more events follow."""
        return self._state.is_finished

    @property
    def billing(self) -> Billing | None:
        """What the gateway has said about the bill so far."""
        return self._state.billing

    @property
    def unknown(self) -> UnknownNames:
        """The number of chunks of unknown types, by type."""
        return self._state.unknown

    def feed_parsed(self, event: object) -> list[Event]:
        """Return the events for a chunk that is already parsed."""
        self._apply(event)
        return self._state.drain()

    def _apply(self, chunk: object) -> None:
        if isinstance(chunk, (dict, Mapping)):  # the check for dict is faster
            self._apply_chunk(chunk)
        else:
            self._state.fail(StreamError("The stream contains a chunk that is not an object."))

    def _apply_chunk(self, chunk: wire.Chunk) -> None:
        """Apply a chunk. A chunk that cannot be decoded is skipped."""
        try:
            apply_chunk(self._state, chunk)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            self._state.guard.skip(chunk.get("type"), error)


class _ChunkDecoder(_StateDecoder):
    """The common part of the three protocols whose chunks are JSON objects."""

    def _decode_chunks(self, texts: list[bytes]) -> None:
        """Decode the JSON texts of chunks. Deltas are decoded to typed structs, which is much faster."""
        state, decode = self._state, _DELTA.decode
        deltas, calls = state.deltas, state.calls
        for text in texts:
            try:
                delta = decode(text)
            except DELTA_ERRORS:
                self._decode_chunk(text)
                if state.is_finished:
                    return
                continue
            state.recognized = True
            if delta.__class__ is wire.TextDelta:
                piece = delta.delta or delta.text or delta.textDelta
                if piece:
                    deltas.add_text(piece)
            elif isinstance(delta, wire.ReasoningDelta):
                if delta.providerMetadata and not exceeds_depth(delta.providerMetadata):
                    state.add_metadata(delta.id, delta.providerMetadata)
                piece = delta.delta or delta.text
                if piece:
                    deltas.add_reasoning(piece, delta.id)
            elif isinstance(delta, wire.ToolInputDelta):
                calls.add_input(delta.toolCallId or delta.id, delta.inputTextDelta or delta.delta)

    def _decode_chunk(self, text: bytes) -> None:
        if not text.strip():
            return
        if text.strip() == b"[DONE]":
            self._state.finish()
            return
        try:
            value = read_json_to_depth(text)
        except ValueError:
            self._state.fail(StreamError("The stream contains data that is not JSON."))
            return
        for chunk in value if isinstance(value, list) else [value]:  # the whole stream can be one array
            self._apply(chunk)

    def _end(self, rest: list[bytes], error: StreamError | None, *, has_other_data: bool) -> list[Event]:
        """Decode the last texts and end the stream.

        Args:
            rest: The last texts. A truncated text is ignored: the missing end of the stream is the error.
            error: The framing error, if there was one.
            has_other_data: Whether the stream contained something that does not belong to this protocol.
        """
        if self._state.is_finished:
            return []
        if error is not None:
            self._state.fail(error)
        elif has_other_data and not self._state.recognized:
            self._fail_unrecognized()
        self._decode_chunks([text for text in rest if _is_json(text)])
        self._state.end()
        return self._state.drain()

    def _fail_unrecognized(self) -> None:
        self._state.fail_unrecognized()


class UiDecoder(_ChunkDecoder):
    """Decodes the UI message stream."""

    def __init__(self, state: StreamState | None = None) -> None:
        super().__init__(state)
        self._sse = SseDecoder()
        # The first bytes, until it is clear whether this is a stream.
        self._start: list[bytes] | None = []
        self._body: JsonBody | None = None
        self._head = b""  # the first bytes, for the error if this is neither a stream nor JSON

    def feed(self, chunk: bytes) -> list[Event]:
        state = self._state
        if state.is_finished:
            return []
        if not state.recognized and len(self._head) < HEAD_LIMIT:
            self._head += chunk[: HEAD_LIMIT - len(self._head)]
        if self._start is not None:
            chunk = self._detect_json(chunk)
        if self._body is not None:
            self._body.add(chunk)
            return self._end_body(self._body) if self._body.error is not None else []
        block = self._sse.buffer(chunk)
        if not block:
            return []
        payloads = self._sse.extract_payloads(block)
        self._decode_chunks([data for _, data in self._sse.split(block)] if payloads is None else payloads)
        return state.drain()

    def close(self) -> list[Event]:
        if self._body is not None:
            return self._end_body(self._body)
        rest = [data for _, data in self._sse.close()]
        return self._end(rest, self._sse.error, has_other_data=self._sse.has_unknown_fields)

    def _fail_unrecognized(self) -> None:
        self._state.fail(StreamError(describe_body(self._head)))

    def _detect_json(self, chunk: bytes) -> bytes:
        """Detect whether this is an event stream or one JSON body, and return the bytes to decode.

        The first character decides, because the status and the content type are not reliable.
        """
        content = chunk.lstrip(BLANK)
        blank, self._start = self._start or [], None
        blank.append(chunk)
        if not content:
            self._start = blank
            return b""
        if content.startswith(b"{"):
            self._body = JsonBody()
        return b"".join(blank)

    def _end_body(self, body: JsonBody) -> list[Event]:
        if not self._state.is_finished:
            error = body.read_error()
            if error is None:
                self._state.fail_unrecognized()
            else:
                self._state.fail(error)
            self._state.end()
        return self._state.drain()


class ModelDecoder(UiDecoder):
    """Decodes the gateway's language-model protocol."""

    def __init__(self) -> None:
        super().__init__(StreamState(model_parts=True))


class FullDecoder(_ChunkDecoder):
    """Decodes `fullStream` as JSON lines."""

    def __init__(self, state: StreamState | None = None) -> None:
        super().__init__(state)
        self._lines = LineDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        if self._state.is_finished:
            return []
        self._decode_chunks(self._lines.feed(chunk))
        return self._state.drain()

    def close(self) -> list[Event]:
        rest = self._lines.close()
        has_other_data = any(line.strip() and line.lstrip()[:1] not in b"{[" for line in rest)
        return self._end(rest, self._lines.error, has_other_data=has_other_data)


class DataDecoder(_StateDecoder):
    """Decodes the data stream of version 4."""

    def __init__(self, state: StreamState | None = None) -> None:
        super().__init__(state)
        self._lines = LineDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        add_text, decode = self._state.deltas.add_text, _STRING.decode
        for line in self._lines.feed(chunk):
            if line.startswith(b"0:"):
                try:
                    text = decode(line[2:])
                except DELTA_ERRORS:
                    self._decode_line(line)
                else:
                    if text:
                        add_text(text)
            else:
                self._decode_line(line)
        return self._state.drain()

    def close(self) -> list[Event]:
        if self._lines.error is not None:
            self._state.fail(self._lines.error)
        for line in self._lines.close():
            if line[1:2] == b":" and _is_json(line[2:]):
                self._decode_line(line)
        self._state.end()
        return self._state.drain()

    def _decode_line(self, line: bytes) -> None:
        if not line.strip():
            return
        code, colon, text = line[:1], line[1:2], line[2:]
        try:
            if colon != b":":
                raise ValueError
            value = read_json_to_depth(text)
        except ValueError:
            self._state.fail(StreamError("The stream contains a line that is not a code and JSON."))
            return
        self._state.recognized = True  # the format of the line is sufficient
        kind = wire.CODES.get(code)
        if kind is None:
            self._apply_chunk({"type": f"code {code.decode('latin-1')}", "value": value})
        elif code in wire.CODE_FIELDS and isinstance(value, wire.CODE_FIELDS[code][1]):
            self._apply_chunk({"type": kind, wire.CODE_FIELDS[code][0]: value})
        elif code not in wire.CODE_FIELDS and isinstance(value, dict):
            self._apply_chunk({**value, "type": kind})
        else:
            name = code.decode("latin-1")
            self._state.fail(
                StreamError(f'The stream contains a line with code "{name}" and an invalid value.')
            )


def _is_json(text: bytes) -> bool:
    try:
        read_json_to_depth(text)
    except ValueError:
        return text.strip() == b"[DONE]"
    return True
