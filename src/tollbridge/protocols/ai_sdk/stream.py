"""Decode the four stream protocols of the AI SDK: bytes to events.

    UiDecoder      the UI message stream: server-sent events, ended by `[DONE]`  (ai 5 to 7)
    ModelDecoder   the gateway's language-model protocol: server-sent events with the chunks of a model
    FullDecoder    `fullStream`, one JSON object per line                        (ai 4 to 7)
    DataDecoder    the data stream, one `code:JSON` per line                     (ai 4)

A decoder decodes one response. The events do not depend on where the bytes are split, and no method raises: a
failure is the last event.
"""

from __future__ import annotations

import msgspec

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.ai_sdk.chunks import ChunkState
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, frame_too_large
from tollbridge.protocols.stream import BOM, DELTA_ERRORS, BaseDecoder, StateDecoder
from tollbridge.types.errors import StreamError
from tollbridge.types.events import Event
from tollbridge.types.text import exceeds_depth, read_json_to_depth

_DELTA = msgspec.json.Decoder(wire.Delta)
_STRING = msgspec.json.Decoder(str)


class LineDecoder:
    """Splits one stream into lines. A line ends only at LF: models write all other line ends.

    When a line is larger than the limit, `error` is set, and no more lines are returned.
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
            line = line.removeprefix(BOM)
        return line


def _decode_chunks(state: ChunkState, texts: list[bytes]) -> None:
    """Decode the JSON texts of chunks. Deltas are decoded to typed structs, which is much faster."""
    decode, deltas, calls = _DELTA.decode, state.deltas, state.calls
    for text in texts:
        try:
            delta = decode(text)
        except DELTA_ERRORS:
            _decode_chunk(state, text)
            if state.is_finished:
                return
            continue
        state.has_known_events = True
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


def _decode_chunk(state: ChunkState, text: bytes) -> None:
    if not text.strip():
        return
    if text.strip() == b"[DONE]":
        state.finish()
        return
    try:
        value = read_json_to_depth(text)
    except ValueError:
        state.fail(StreamError("The stream contains data that is not JSON."))
        return
    for chunk in value if isinstance(value, list) else [value]:  # the whole stream can be one array
        state.add(chunk)


def _is_json(text: bytes) -> bool:
    """Return whether the last text of a stream is complete. If not, the error is the missing end."""
    try:
        read_json_to_depth(text)
    except ValueError:
        return text.strip() == b"[DONE]"
    return True


class UiDecoder(BaseDecoder[ChunkState]):
    """Decodes the UI message stream."""

    def __init__(self, state: ChunkState | None = None, limit: int = FRAME_LIMIT) -> None:
        super().__init__(state or ChunkState(), limit)

    def _decode_run(self, payloads: list[bytes]) -> list[Event]:
        _decode_chunks(self._state, payloads)
        self._has_frames = self._state.has_known_events
        return self._state.drain()

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        return self._decode_run([data for _, data in frames])

    def _decode_rest(self, frames: list[Frame]) -> list[Event]:
        return self._decode_run([data for _, data in frames if _is_json(data)])


class ModelDecoder(UiDecoder):
    """Decodes the gateway's language-model protocol."""

    def __init__(self) -> None:
        super().__init__(ChunkState(model_parts=True))


class _LineStreamDecoder(StateDecoder[ChunkState]):
    def __init__(self, state: ChunkState | None = None) -> None:
        super().__init__(state or ChunkState())
        self._lines = LineDecoder()


class FullDecoder(_LineStreamDecoder):
    """Decodes `fullStream` as JSON lines."""

    def feed(self, chunk: bytes) -> list[Event]:
        if self._state.is_finished:
            return []
        _decode_chunks(self._state, self._lines.feed(chunk))
        return self._state.drain()

    def close(self) -> list[Event]:
        if self._state.is_finished:
            return []
        rest = self._lines.close()
        has_other_data = any(line.strip() and line.lstrip()[:1] not in b"{[" for line in rest)
        if self._lines.error is not None:
            self._state.fail(self._lines.error)
        elif has_other_data and not self._state.has_known_events:
            self._state.fail_unrecognized()
        _decode_chunks(self._state, [text for text in rest if _is_json(text)])
        return self._state.close()


class DataDecoder(_LineStreamDecoder):
    """Decodes the data stream of version 4."""

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
        return self._state.close()

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
        self._state.has_known_events = True  # the format of the line is sufficient
        kind = wire.CODES.get(code)
        if kind is None:
            self._state.add({"type": f"code {code.decode('latin-1')}", "value": value})
        elif code in wire.CODE_FIELDS and isinstance(value, wire.CODE_FIELDS[code][1]):
            self._state.add({"type": kind, wire.CODE_FIELDS[code][0]: value})
        elif code not in wire.CODE_FIELDS and isinstance(value, dict):
            self._state.add({**value, "type": kind})
        else:
            name = code.decode("latin-1")
            self._state.fail(
                StreamError(f'The stream contains a line with code "{name}" and an invalid value.')
            )
