"""AI SDK streams to editor parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tollbridge.adapters.stream import StreamAdapter
from tollbridge.core.events import Event
from tollbridge.gateways.aisdk.decode import DataDecoder, FullDecoder, UiDecoder
from tollbridge.gateways.aisdk.recognise import by_framing
from tollbridge.gateways.aisdk.turn import Turn

Chunk = Mapping[str, Any]

# A model's own parts need no line here: a turn sees by itself that a model speaks.
_DECODERS: dict[str, type[DataDecoder | FullDecoder | UiDecoder]] = {
    "ai-sdk-data": DataDecoder,
    "ai-sdk-full": FullDecoder,
}


class VSCodeStreamAdapter(StreamAdapter):
    """Turns the chunks of an AI SDK stream, of any version from 4 to 7, into parts.

    The stream may be the chunks as parsed JSON (`fullStream`, UI message chunks, a model's own parts), the
    bytes of a body in any of the SDK's protocols, or events. Chunks of an unknown type emit nothing:
    `on_unknown_chunk` gets them, and `logger` a line at debug level.
    """

    def __init__(
        self,
        enable_reasoning: bool = True,
        on_unknown_chunk: Callable[[Chunk], object] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(self._new_decoder, reasoning=enable_reasoning)
        self._on_unknown_chunk = on_unknown_chunk
        self._logger = logger or logging.getLogger(__name__)

    def _new_decoder(self) -> _AnyDecoder:
        return _AnyDecoder(Turn(on_unknown=self._unknown))

    def _unknown(self, chunk: Chunk) -> None:
        # Its type alone: the rest of it may be anybody's words.
        self._logger.debug("ignored a chunk of the unknown type %r", chunk.get("type"))
        if self._on_unknown_chunk is not None:
            self._on_unknown_chunk(chunk)


class _AnyDecoder:
    """Chunks are taken as they are; bytes show by their first line which protocol they are in."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._start = b""
        self._decoder: DataDecoder | FullDecoder | UiDecoder | None = None

    @property
    def over(self) -> bool:
        return self._decoder is not None and self._decoder.over

    def take(self, chunk: object) -> list[Event]:
        start, self._start = self._start, b""  # nothing that made sense, or it would be chosen by now
        decoder = self._chosen("ai-sdk-full")
        return (decoder.feed(start + b"\n") if start else []) + decoder.take(chunk)

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        protocol = by_framing(self._start, complete=False)
        return [] if protocol is None else self._chosen(protocol).feed(self._start)

    def close(self) -> list[Event]:
        if self._decoder is None:
            protocol = by_framing(self._start, complete=True) or "ai-sdk-full"
            return self._chosen(protocol).feed(self._start) + self._chosen(protocol).close()
        return self._decoder.close()

    def _chosen(self, protocol: str) -> DataDecoder | FullDecoder | UiDecoder:
        if self._decoder is None:
            self._decoder = _DECODERS.get(protocol, UiDecoder)(self._turn)
        return self._decoder
