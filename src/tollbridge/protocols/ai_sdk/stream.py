"""The AI SDK's four protocols, from bytes to events.

    UiDecoder      the UI message stream: server-sent events, ended by `[DONE]`  (ai 5 to 7)
    ModelDecoder   the gateway's language-model protocol: server-sent events of a model's own parts
    FullDecoder    `fullStream`, one JSON object on a line                       (ai 4 to 7)
    DataDecoder    the data stream, `code:JSON` on a line                        (ai 4)

A decoder belongs to one turn, takes the bytes as the network cuts them, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.ai_sdk.chunks import apply_chunk, failure_from
from tollbridge.protocols.ai_sdk.state import StreamState
from tollbridge.protocols.sse import FRAME_LIMIT, SseDecoder, UnknownNames, too_large
from tollbridge.types.errors import BridgeError, StreamError
from tollbridge.types.events import Event
from tollbridge.types.text import read_json

# SECTION Lines of JSON: bytes in, whole lines out. They end at LF alone: models write every other line end.

_BOM = b"\xef\xbb\xbf"


class LineDecoder:
    """Belongs to one stream. A line over the limit ends it: `error` says so, and nothing more comes out."""

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
            lines[0] = self._whole(lines[0])
        if rest:
            self._partial.append(rest)
            self._size += len(rest)
        if self._size > self._limit or (len(chunk) > self._limit and len(max(lines, key=len)) > self._limit):
            self.error = too_large(self._limit)
            return []
        return lines

    def close(self) -> list[bytes]:
        """The last line, where nothing ended it."""
        return [] if self.error is not None else [self._whole(b"")]

    def _whole(self, end: bytes) -> bytes:
        line = b"".join([*self._partial, end])
        self._partial.clear()
        self._size = 0
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        return line


# SECTION An answer that is no stream: one JSON body, which says why there is none.

# What may stand before the first byte that means anything: white space, and a byte order mark.
BLANK = b" \t\r\n\xef\xbb\xbf"
# The fields by which a body is the report of a failure.
_TELLING = ("error", "errorText", "message")


class JsonBody:
    """Belongs to one answer. Over the limit, `error` says so, and nothing more is kept."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.error: StreamError | None = None
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._limit:
            self.error = too_large(self._limit)
            self._pieces.clear()
        else:
            self._pieces.append(chunk)

    def failure(self) -> BridgeError | None:
        """What went wrong, or `None` where the body says nothing of it."""
        if self.error is not None:
            return self.error
        try:
            value = read_json(b"".join(self._pieces).lstrip(BLANK))
        except ValueError:
            return StreamError("The gateway's answer is JSON that breaks off or makes no sense.")
        told = isinstance(value, dict) and any(value.get(name) is not None for name in _TELLING)
        return failure_from(value) if told else None


# SECTION The AI SDK's four protocols, from bytes to events.
#
#     UiDecoder      the UI message stream: server-sent events, ended by `[DONE]`  (ai 5 to 7)
#     ModelDecoder   the gateway's language-model protocol: server-sent events of a model's own parts
#     FullDecoder    `fullStream`, one JSON object on a line                       (ai 4 to 7)
#     DataDecoder    the data stream, `code:JSON` on a line                        (ai 4)
#
# A decoder belongs to one turn, takes the bytes as the network cuts them, and never raises.

_DELTA = msgspec.json.Decoder(wire.Delta)
_STRING = msgspec.json.Decoder(str)
_NOT_DELTA = (msgspec.MsgspecError, ValueError, RecursionError)
_NOT_JSON = "The stream holds something that is not JSON."


class _TurnDecoder:
    def __init__(self, turn: StreamState | None = None) -> None:
        self._turn = turn or StreamState()

    @property
    def over(self) -> bool:
        """Whether the stream said that it has ended. It may stay open; nothing more will come."""
        return self._turn.over

    @property
    def unknown(self) -> UnknownNames:
        """Chunks that were not understood, by name."""
        return self._turn.unknown

    def take(self, chunk: object) -> list[Event]:
        """A chunk that somebody else has already parsed."""
        if isinstance(chunk, Mapping):
            apply_chunk(self._turn, chunk)
        else:
            self._turn.fail(StreamError("The stream holds a chunk that is not an object."))
        return self._turn.drain()


class _ChunkDecoder(_TurnDecoder):
    """What the three protocols of JSON chunks have in common."""

    def _read(self, texts: list[bytes]) -> None:
        turn, decode = self._turn, _DELTA.decode
        deltas, calls = turn.deltas, turn.calls
        for text in texts:
            try:
                delta = decode(text)
            except _NOT_DELTA:
                self._read_chunk(text)
                if turn.over:
                    return
                continue
            turn.known = True
            if delta.__class__ is wire.TextDelta:
                said = delta.delta or delta.text or delta.textDelta
                if said:
                    deltas.add_text(said)
            elif isinstance(delta, wire.ReasoningDelta):
                if delta.providerMetadata:
                    turn.remember(delta.id, delta.providerMetadata)
                said = delta.delta or delta.text
                if said:
                    deltas.add_reasoning(said, delta.id)
            elif isinstance(delta, wire.ToolInputDelta):
                calls.add_input(delta.toolCallId or delta.id, delta.inputTextDelta or delta.delta)

    def _read_chunk(self, text: bytes) -> None:
        if not text.strip():
            return
        if text.strip() == b"[DONE]":
            self._turn.finish()
            return
        try:
            chunk = read_json(text)
        except ValueError:
            self._turn.fail(StreamError(_NOT_JSON))
            return
        for one in chunk if isinstance(chunk, list) else [chunk]:  # some write the whole stream as one array
            if isinstance(one, dict):
                apply_chunk(self._turn, one)
            else:
                self._turn.fail(StreamError("The stream holds a chunk that is not an object."))

    def _end(self, rest: list[bytes], error: StreamError | None, *, strange: bool) -> list[Event]:
        """The last text may be cut in its middle: then that it is cut is all there is to say.

        `strange`: there was something that no stream of this kind has."""
        if error is not None:
            self._turn.fail(error)
        elif strange and not self._turn.known:
            self._turn.not_ours()
        self._read([text for text in rest if _is_json(text)])
        self._turn.end()
        return self._turn.drain()


class UiDecoder(_ChunkDecoder):
    def __init__(self, turn: StreamState | None = None) -> None:
        super().__init__(turn)
        self._sse = SseDecoder()
        self._start: bytes | None = b""  # until the first byte that means anything tells what this is
        self._body: JsonBody | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        if self._turn.over:
            return []
        if self._start is not None:
            chunk = self._sniff(chunk)
        if self._body is not None:
            self._body.add(chunk)
            return self._refused(self._body) if self._body.error is not None else []
        block = self._sse.complete(chunk)
        if not block:
            return []
        payloads = self._sse.payloads(block)
        self._read([data for _, data in self._sse.cut(block)] if payloads is None else payloads)
        return self._turn.drain()

    def close(self) -> list[Event]:
        if self._body is not None:
            return self._refused(self._body)
        rest = [data for _, data in self._sse.close()]
        return self._end(rest, self._sse.error, strange=self._sse.strange)

    def _sniff(self, chunk: bytes) -> bytes:
        """Statuses and content types lie: a body that opens with a brace is JSON, and no stream."""
        start = (self._start or b"") + chunk
        seen = start.lstrip(BLANK)
        self._start = None if seen else start
        if seen.startswith(b"{"):
            self._body = JsonBody()
        return start if seen else b""

    def _refused(self, body: JsonBody) -> list[Event]:
        if not self._turn.over:
            error = body.failure()
            if error is None:
                self._turn.not_ours()
            else:
                self._turn.fail(error)
            self._turn.end()
        return self._turn.drain()


class ModelDecoder(UiDecoder):
    def __init__(self) -> None:
        super().__init__(StreamState(model_parts=True))


class FullDecoder(_ChunkDecoder):
    def __init__(self, turn: StreamState | None = None) -> None:
        super().__init__(turn)
        self._lines = LineDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        if self._turn.over:
            return []
        self._read(self._lines.feed(chunk))
        return self._turn.drain()

    def close(self) -> list[Event]:
        rest = self._lines.close()
        strange = any(line.strip() and line.lstrip()[:1] not in b"{[" for line in rest)
        return self._end(rest, self._lines.error, strange=strange)


class DataDecoder(_TurnDecoder):
    def __init__(self, turn: StreamState | None = None) -> None:
        super().__init__(turn)
        self._lines = LineDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        add_text, decode = self._turn.deltas.add_text, _STRING.decode
        for line in self._lines.feed(chunk):
            if line.startswith(b"0:"):
                try:
                    said = decode(line[2:])
                except _NOT_DELTA:
                    self._read_line(line)
                else:
                    if said:
                        add_text(said)
            else:
                self._read_line(line)
        return self._turn.drain()

    def close(self) -> list[Event]:
        if self._lines.error is not None:
            self._turn.fail(self._lines.error)
        for line in self._lines.close():
            if line[1:2] == b":" and _is_json(line[2:]):
                self._read_line(line)
        self._turn.end()
        return self._turn.drain()

    def _read_line(self, line: bytes) -> None:
        if not line.strip():
            return
        code, colon, text = line[:1], line[1:2], line[2:]
        try:
            if colon != b":":
                raise ValueError
            value = read_json(text)
        except ValueError:
            self._turn.fail(StreamError("The stream holds a line that is not a code and JSON."))
            return
        self._turn.known = True  # by its form alone
        kind = wire.CODES.get(code)
        if kind is None:
            apply_chunk(self._turn, {"type": f"code {code.decode('latin-1')}", "value": value})
        elif code in wire.CODE_FIELDS and isinstance(value, wire.CODE_FIELDS[code][1]):
            apply_chunk(self._turn, {"type": kind, wire.CODE_FIELDS[code][0]: value})
        elif code not in wire.CODE_FIELDS and isinstance(value, dict):
            apply_chunk(self._turn, {**value, "type": kind})
        else:
            self._turn.fail(
                StreamError(f"The stream holds a line “{code.decode('latin-1')}” of the wrong shape.")
            )


def _is_json(text: bytes) -> bool:
    try:
        read_json(text)
    except ValueError:
        return text.strip() == b"[DONE]"
    return True
