"""Which decoder reads an answer: chosen by name, or by its headers and first bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from tollbridge.core.errors import RequestError
from tollbridge.core.events import Event
from tollbridge.gateways.openresponses.decode import StreamDecoder
from tollbridge.gateways.refusal import RefusalDecoder


class Decoder(Protocol):
    """Belongs to one answer: bytes in, events out, however the bytes are cut. Never raises."""

    @property
    def over(self) -> bool: ...

    def feed(self, chunk: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


DIALECTS: dict[str, Callable[[], Decoder]] = {
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
    return DIALECTS["openresponses" if protocol == "auto" else protocol]()
