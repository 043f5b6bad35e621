"""The recordings: responses of real servers, byte for byte."""

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
    """Return every recording of an OpenResponses server, by name."""
    return recordings_in("openresponses")


def chat_completions() -> dict[str, Recording]:
    """Return every recording of a Chat Completions server, by name."""
    return recordings_in("chat_completions")


def anthropic_messages() -> dict[str, Recording]:
    """Return every recording of a server of the Messages API, by name."""
    return recordings_in("anthropic_messages")


def recordings_in(folder: str) -> dict[str, Recording]:
    """Return every recording in a folder, by name."""
    bodies = sorted(path for path in (RECORDINGS / folder).iterdir() if path.suffix in (".sse", ".json"))
    return {path.stem: _recording(path) for path in bodies}


def _recording(path: Path) -> Recording:
    status, *lines = path.with_suffix(".headers").read_text().splitlines()
    pairs = [line.partition(":") for line in lines if ":" in line]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return Recording(path.stem, path.read_bytes(), int(status.split()[1]), headers)


def events_of(decoder: Decoder, chunks: list[bytes]) -> list[Event]:
    """Decode these bytes. Adjacent deltas are joined, because their division does not matter."""
    events = [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            joined[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta) and last.id == event.id:
            joined[-1] = ReasoningDelta(last.text + event.text, event.id)
        else:
            joined.append(event)
    return joined
