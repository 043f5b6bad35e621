"""Which decoder reads an answer: chosen by name, or by its headers and first bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from tollbridge.core.errors import RequestError
from tollbridge.core.events import Event
from tollbridge.gateways.aisdk.decode import DataDecoder, FullDecoder, ModelDecoder, UiDecoder
from tollbridge.gateways.aisdk.recognise import by_headers, by_start
from tollbridge.gateways.openresponses.decode import StreamDecoder
from tollbridge.gateways.refusal import RefusalDecoder

# A stream that has not shown by then what it is, is taken for the first of the dialects.
START_LIMIT = 64 * 1024


class Decoder(Protocol):
    """Belongs to one answer: bytes in, events out, however the bytes are cut. Never raises."""

    @property
    def over(self) -> bool: ...

    @property
    def unknown(self) -> Mapping[str, int]:
        """How often there came what we do not know, by its name."""

    def feed(self, chunk: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


DIALECTS: dict[str, Callable[[], Decoder]] = {
    "openresponses": StreamDecoder,
    "ai-sdk-full": FullDecoder,
    "ai-sdk-ui": UiDecoder,
    "ai-sdk-data": DataDecoder,
    "ai-sdk-model": ModelDecoder,
}

# A recording may be of another question than a chat's.
_RECORDED: dict[str, Callable[[], Decoder]] = {
    **DIALECTS,
    "openresponses": partial(StreamDecoder, siblings=True),
}


def decoder_for(
    protocol: str = "auto", status: int | None = None, headers: Mapping[str, str] | None = None
) -> Decoder:
    """A decoder for an answer with this status and these headers, as far as they are known."""
    if protocol != "auto" and protocol not in DIALECTS:
        raise RequestError(f"There is no protocol “{protocol}”. Known are: auto, {', '.join(DIALECTS)}.")
    if status is not None and status >= 400:
        return RefusalDecoder(status, headers or {})
    if protocol == "auto":
        named = by_headers(headers or {})
        return _RECORDED[named]() if named else AnyDecoder()
    return DIALECTS[protocol]()


class AnyDecoder:
    """Holds the first bytes until they show what they are, and then hands all to the decoder for it."""

    def __init__(self) -> None:
        self._start = b""
        self._decoder: Decoder | None = None

    @property
    def over(self) -> bool:
        return self._decoder is not None and self._decoder.over

    @property
    def unknown(self) -> Mapping[str, int]:
        return {} if self._decoder is None else self._decoder.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        return self._recognised(complete=len(self._start) > START_LIMIT)

    def close(self) -> list[Event]:
        found = self._recognised(complete=True) if self._decoder is None else []
        return found + self._decoder.close() if self._decoder is not None else found

    def _recognised(self, *, complete: bool) -> list[Event]:
        protocol = by_start(self._start, complete=complete)
        if protocol is None:
            return []
        self._decoder = _RECORDED[protocol or "openresponses"]()
        start, self._start = self._start, b""
        return self._decoder.feed(start)
