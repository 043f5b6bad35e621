"""Detect which form an AI SDK stream has: by the first line, or by the type of a chunk."""

from __future__ import annotations

from collections.abc import Callable

from tollbridge.protocols.ai_sdk import CODE_LINE, FULL, MODEL, UI
from tollbridge.protocols.ai_sdk.chunks import ChunkState, is_known
from tollbridge.protocols.ai_sdk.stream import DataDecoder, FullDecoder, UiDecoder
from tollbridge.protocols.ai_sdk.wire import Chunk
from tollbridge.protocols.detect import first_line
from tollbridge.protocols.protocol import Json
from tollbridge.protocols.stream import StateDecoder
from tollbridge.types.events import Event

# Only a language model sends these chunks; the SDK does not forward them.
_MODEL_CHUNKS = frozenset({"response-metadata", "stream-start"})


def recognize(chunk: Json, is_event: bool, _name: bytes) -> str | None:
    """Return the form of the stream that a chunk belongs to; `None` if its type does not decide."""
    kind = chunk["type"]
    if kind == "ping" or not is_known(kind):  # other protocols have pings, too
        return None
    if not is_event:
        return FULL
    return MODEL if kind in _MODEL_CHUNKS else UI


_Decoder = DataDecoder | FullDecoder | UiDecoder


class AiSdkDecoder(StateDecoder[ChunkState]):
    """Decodes parsed chunks, or bytes, whose form is detected by their first line."""

    def __init__(self, on_unknown: Callable[[Chunk], None]) -> None:
        super().__init__(ChunkState(on_unknown=on_unknown))
        self._start = b""
        self._decoder: _Decoder | None = None

    def feed_parsed(self, event: object) -> list[Event]:
        start, self._start = self._start, b""  # bytes whose form was not detected
        decoder = self._choose(FullDecoder)
        return (decoder.feed(start + b"\n") if start else []) + decoder.feed_parsed(event)

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        line, end = first_line(self._start)
        return self._choose_by_line(line).feed(self._start) if end else []

    def close(self) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.close()
        decoder = self._choose_by_line(first_line(self._start)[0], otherwise=FullDecoder)
        return decoder.feed(self._start) + decoder.close()

    def _choose_by_line(self, line: bytes, otherwise: type[_Decoder] = UiDecoder) -> _Decoder:
        if CODE_LINE.match(line):
            return self._choose(DataDecoder)
        if line.startswith(b"data:"):
            return self._choose(UiDecoder)  # which also detects the chunks of a language model
        return self._choose(FullDecoder if line.startswith((b"{", b"[{")) else otherwise)

    def _choose(self, decoder: type[_Decoder]) -> _Decoder:
        if self._decoder is None:
            self._decoder = decoder(self._state)
        return self._decoder
