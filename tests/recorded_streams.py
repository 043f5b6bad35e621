"""Recorded responses of real servers, byte for byte, and helpers that decode them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tollbridge.protocols.detect import Decoder
from tollbridge.types.events import Event, ReasoningDelta, TextDelta

RECORDINGS = Path(__file__).parent / "recordings"


class Recording(msgspec.Struct, frozen=True):
    name: str
    body: bytes
    status: int | None
    headers: dict[str, str]


def openresponses() -> dict[str, Recording]:
    """Every recording of a server that speaks OpenResponses, by name."""
    folder = RECORDINGS / "openresponses"
    bodies = sorted(path for path in folder.iterdir() if path.suffix in (".sse", ".json"))
    return {path.stem: _recording(path) for path in bodies}


def _recording(path: Path) -> Recording:
    status, *lines = path.with_suffix(".headers").read_text().splitlines()
    pairs = [line.partition(":") for line in lines if ":" in line]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return Recording(path.stem, path.read_bytes(), int(status.split()[1]), headers)


def events_of(decoder: Decoder, chunks: list[bytes]) -> list[Event]:
    """What a decoder makes of these bytes, text in a row joined: how it is cut is no part of the meaning."""
    told = [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()
    joined: list[Event] = []
    for event in told:
        last = joined[-1] if joined else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            joined[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta) and last.id == event.id:
            joined[-1] = ReasoningDelta(last.text + event.text, event.id)
        else:
            joined.append(event)
    return joined
