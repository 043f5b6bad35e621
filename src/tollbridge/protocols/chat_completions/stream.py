"""Decode Chat Completions responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. Consecutive
deltas of one network read become one event.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from tollbridge.protocols.chat_completions import wire
from tollbridge.protocols.chat_completions.state import CompletionState
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, SseDecoder, UnknownNames, frame_too_large
from tollbridge.types.errors import BridgeError, StreamError
from tollbridge.types.events import Event, ReasoningDelta, TextDelta
from tollbridge.types.text import read_json

_get_content = attrgetter("content")
_get_calls = attrgetter("tool_calls")
_REASONING = tuple((field, attrgetter(field)) for field in ("reasoning_content", "reasoning"))
_BOM = b"\xef\xbb\xbf"


def _has_reasoning(delta: wire.TextDelta) -> bool:
    return bool(delta.reasoning_content or delta.reasoning)


class StreamDecoder:
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises.

    Args:
        limit: The maximum size of a frame or of a JSON body, in bytes.
    """

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._limit = limit
        self._state = CompletionState()
        self._sse = SseDecoder(limit)
        self._start: bytes | None = b""  # the first bytes, until it is clear whether this is a stream
        self._body: list[bytes] = []  # of a response that is not a stream
        self._streamed = True
        self._size = 0
        self._invalid_frames = 0  # frames that are not JSON

    @property
    def over(self) -> bool:
        """Whether the response has ended. The connection can stay open, but no more events follow."""
        return self._state.over

    @property
    def unknown(self) -> UnknownNames:
        """The number of chunks and parts of unknown types, by type."""
        return self._state.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._state.over:
            return []
        if self._start is not None:
            chunk = self._detect_json(chunk)
        if not self._streamed:
            return self._collect(chunk)
        block = self._sse.buffer(chunk)
        events = self._decode_run(block)
        if events is None:
            events = self._decode_frames(self._sse.split(block))
        return self._add_framing_error(events)

    def feed_parsed(self, chunk: object) -> list[Event]:
        """Return the events for a chunk that is already parsed."""
        return self._state.apply(Fields(chunk))

    def close(self) -> list[Event]:
        """Return the last events. Call it once, after the last byte."""
        if self._state.over:
            return []
        if not self._streamed:
            return self._decode_body(b"".join(self._body))
        invalid_frames = self._invalid_frames
        events = self._add_framing_error(self._decode_frames(self._sse.close()))
        if self._state.over:
            return events
        if not self._state.started and (self._sse.has_unknown_fields or invalid_frames):
            error: BridgeError = StreamError("The gateway's answer is not an event stream.")
        elif invalid_frames:  # an incomplete last frame was truncated and does not count
            error = StreamError("The stream contained invalid data.")
        else:
            return events + self._state.close()
        return events + self._state.interrupt(error)

    def _detect_json(self, chunk: bytes) -> bytes:
        """Detect whether this is an event stream or one JSON body, and return the bytes to decode.

        The first character decides, because content types are not reliable.
        """
        start = (self._start or b"") + chunk
        content = start.lstrip(b" \t\r\n")
        if _BOM.startswith(content):
            # White space has no meaning in either format and can be unlimited, so only its last byte is kept.
            self._start = content or start[-1:]
            return b""
        self._start = None
        self._streamed = not content.removeprefix(_BOM).startswith((b"{", b"["))
        return start

    def _collect(self, chunk: bytes) -> list[Event]:
        self._body.append(chunk)
        self._size += len(chunk)
        return self._state.interrupt(frame_too_large(self._limit)) if self._size > self._limit else []

    def _decode_body(self, body: bytes) -> list[Event]:
        try:
            value = read_json(body.strip().removeprefix(_BOM))
        except ValueError:
            return self._state.interrupt(StreamError("The gateway returned invalid or truncated JSON."))
        return self._state.apply_body(Fields(value))

    def _decode_run(self, block: bytes) -> list[Event] | None:
        """Decode a block of only text, only reasoning or only arguments, as nearly all blocks are.

        Returns:
            The events, or `None` if the block contains something else.
        """
        payloads = self._sse.extract_payloads(block) if block and self._state.started else None
        return self._decode_payloads(payloads) if payloads else None

    def _decode_payloads(self, payloads: list[bytes]) -> list[Event] | None:
        try:
            deltas = [chunk.choices[0].delta for chunk in map(wire.read_text_chunk, payloads)]
        except (msgspec.MsgspecError, ValueError):
            return None
        text = "".join(filter(None, map(_get_content, deltas)))
        if any(map(_get_calls, deltas)):
            return None if text or any(map(_has_reasoning, deltas)) else self._apply_arguments(deltas)
        for field, get_reasoning in _REASONING:
            if reasoning := "".join(filter(None, map(get_reasoning, deltas))):
                has_others = bool(text) or (field != "reasoning" and any(d.reasoning for d in deltas))
                return None if has_others else self._state.apply_reasoning(reasoning, field)
        return self._state.apply_text(text)

    def _apply_arguments(self, deltas: list[wire.TextDelta]) -> list[Event]:
        for delta in deltas:
            for call in delta.tool_calls or ():
                self._state.apply_arguments(call.index, call.function.arguments)
        return []

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        events: list[Event] = []
        for _, data in frames:
            events += self._decode_frame(data.strip())
            if self._state.over:
                break
        return _join_deltas(events)

    def _decode_frame(self, data: bytes) -> list[Event]:
        if not data:
            return []
        if data == b"[DONE]":
            return self._state.end()
        if self._state.started and (events := self._decode_payloads([data])) is not None:
            return events
        try:
            value = read_json(data)
        except ValueError:
            self._invalid_frames += 1
            return []
        return self._state.apply(Fields(value))

    def _add_framing_error(self, events: list[Event]) -> list[Event]:
        if self._sse.error is not None and not self._state.over:
            events += self._state.interrupt(self._sse.error)
        return events


def _join_deltas(events: list[Event]) -> list[Event]:
    """Join consecutive deltas of text, and of reasoning."""
    joined: list[Event] = []
    run: list[Any] = []
    for event in events:
        is_delta = isinstance(event, TextDelta | ReasoningDelta)
        if run and not (is_delta and type(event) is type(run[0])):
            joined.append(_join_run(run))
            run = []
        if is_delta:
            run.append(event)
        else:
            joined.append(event)
    return [*joined, _join_run(run)] if run else joined


def _join_run(run: list[Any]) -> Event:
    event: Event = run[0]
    if len(run) == 1:
        return event
    text = "".join(delta.text for delta in run)
    return ReasoningDelta(text, event.id) if isinstance(event, ReasoningDelta) else TextDelta(text)
