"""Events as bytes of a server-sent event stream, in the ways that are written in the wild."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tollbridge.gateway.events import Event, HangUp, Pause, Step

Chunk = bytes | Pause | HangUp


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """The default is what every client reads: LF, `event:` lines, a space after the colon, `[DONE]`."""

    newline: bytes = b"\n"
    event_lines: bool = True
    space: bytes = b" "
    # Whether the JSON is spread over several `data:` lines.
    multi_line: bool = False
    done: bool = True


def make_frame(event: Event, framing: Framing = Framing()) -> bytes:  # noqa: B008 (frozen)
    data = msgspec.json.encode(event)
    if framing.multi_line:
        data = msgspec.json.format(data, indent=1)
    lines = [b"data:" + framing.space + line for line in data.split(b"\n")]
    if framing.event_lines:
        lines.insert(0, b"event:" + framing.space + str(event["type"]).encode())
    return framing.newline.join([*lines, b"", b""])


def make_chunks(steps: Iterable[Step], framing: Framing) -> Iterator[Chunk]:
    """One frame, one chunk: readers exist that lose their place when a frame comes in two."""
    for step in steps:
        yield make_frame(step, framing) if isinstance(step, dict) else step
        if isinstance(step, HangUp):
            return
    if framing.done:
        yield framing.newline.join([b"data:" + framing.space + b"[DONE]", b"", b""])


_ODD_SIZES = (1, 2, 3, 5, 7, 11, 13, 17)


def cut_oddly(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes in pieces of a few bytes, so that cuts fall into frames and characters."""
    turn = 0
    for chunk in chunks:
        if not isinstance(chunk, bytes):
            yield chunk
            continue
        at = 0
        while at < len(chunk):
            size = _ODD_SIZES[turn % len(_ODD_SIZES)]
            yield chunk[at : at + size]
            at, turn = at + size, turn + 1


def join_all(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes in as few pieces as can be."""
    held = b""
    for chunk in chunks:
        if isinstance(chunk, bytes):
            held += chunk
        else:
            yield held
            yield chunk
            held = b""
    if held:
        yield held


def without_last_newlines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes, but the last frame is never ended."""
    held: list[Chunk] = []
    for chunk in chunks:
        yield from held
        held = [chunk]
    yield from (last.rstrip(b"\r\n") if isinstance(last, bytes) else last for last in held)


def as_they_are(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    yield from chunks
