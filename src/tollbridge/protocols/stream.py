"""The common part of the decoders whose responses are an event stream or one JSON body, and their guards.

`BaseDecoder` detects which of the two a response is, splits it into frames and reads their JSON. A subclass
per protocol decodes runs of deltas quickly; a state per protocol converts everything else to events.

Decoders handle all input without raising. The guards limit the effect of a defect in them: an unexpected
exception becomes the failure of one event, or of one response, and must not cost the user the rest of an
answer. Each guard logs its first exception, without the message, which can contain a part of the
conversation.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from tollbridge.protocols.billing import read_billing
from tollbridge.protocols.errors import HEAD_LIMIT, describe_body
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, SseDecoder, UnknownNames, frame_too_large
from tollbridge.types.errors import BridgeError, Disconnected, StreamError
from tollbridge.types.events import Billing, Event
from tollbridge.types.text import Fields, read_json_to_depth

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# --- Guards ---

UNDECODABLE = "The gateway's answer could not be decoded."


def log_defect(part: str, error: Exception) -> None:
    """Log an exception that only a defect can cause: its class and its place in the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "unknown"
    if trace is not None:
        code = trace.tb_frame.f_code
        place = f"{'/'.join(PurePath(code.co_filename).parts[-2:])}:{trace.tb_lineno}, {code.co_name}"
    log.warning("%s could not be processed: %s at %s. Please report this.", part, type(error).__name__, place)


class EventGuard:
    """Skips the events of one stream that cannot be decoded, counts them, and logs the first."""

    def __init__(self, counts: UnknownNames) -> None:
        self._counts = counts
        self._logged = False

    def skip(self, name: object, error: Exception) -> None:
        """Count an event with this type."""
        self._counts.record(f"{name} (not decoded)" if isinstance(name, str) else "not decoded")
        if not self._logged:
            self._logged = True
            log_defect("An event of the gateway's answer", error)


def decode_body(decode: Callable[[bytes], _Result], data: bytes) -> _Result:
    """Decode a complete response body.

    Raises:
        BridgeError: The error that `decode` raised, or a `StreamError` in place of any other exception.
    """
    try:
        return decode(data)
    except BridgeError:
        raise
    except Exception as error:  # noqa: BLE001 - the purpose of this function
        log_defect("A response of the gateway", error)
        raise StreamError(UNDECODABLE) from None


# --- The common part of the decoders ---

BOM = b"\xef\xbb\xbf"
_WHITE_SPACE = b" \t\r\n"
# The exceptions of a typed delta decoder for JSON that is not such a delta, and must be read as plain JSON.
# `RecursionError` is raised for a delta with a deeply nested unknown field.
DELTA_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class DecoderState(ABC):
    """The state of one response: applies wire events and returns events.

    Attributes:
        title: The name of the protocol with its article, for the error if this is no stream of it.
        is_finished: Whether the response has ended. After that, no more events are returned.
        has_known_events: Whether an event of a known type was received.
        unknown: The number of wire events of unknown types, by type.
        guard: Skips events that cannot be decoded.
        billing: What the gateway has said about the bill so far.
    """

    title: ClassVar[str]

    def __init__(self) -> None:
        self.is_finished = False
        self.has_known_events = False
        self.unknown = UnknownNames()
        self.guard = EventGuard(self.unknown)
        self.billing: Billing | None = None

    def apply(self, event: object, name: bytes = b"") -> list[Event]:
        """Apply a wire event of any type; `name` is that of its frame. What cannot be decoded is skipped."""
        if self.is_finished:
            return []
        try:
            return self._apply(event, name)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            return self._skip(Fields(event), error)

    def _skip(self, event: Fields, error: Exception) -> list[Event]:
        """Skip a wire event that could not be decoded."""
        self.guard.skip(event.text("type") or event.text("object"), error)
        return []

    @abstractmethod
    def _apply(self, event: object, name: bytes, /) -> list[Event]: ...

    @abstractmethod
    def apply_body(self, body: Fields) -> list[Event]:
        """Apply a complete response that was received as one JSON body."""

    @abstractmethod
    def interrupt(self, error: BridgeError) -> list[Event]:
        """End the response with an error, because the stream ended or is invalid."""

    def close(self) -> list[Event]:
        """Return the last events. A response that did not end is an error."""
        if self.is_finished:
            return []
        if self.unknown and not self.has_known_events:
            return self.interrupt(self._not_recognized())
        return self.interrupt(Disconnected("The gateway closed the stream before the answer was complete."))

    def _not_recognized(self) -> StreamError:
        return StreamError(f"The gateway's answer is not {self.title} stream.")

    def _read_billing(self, metadata: object, usage: object, provider: object, response_id: object) -> None:
        """Read what a part of the response says about the bill."""
        billing = read_billing(metadata, usage, provider=provider, response_id=response_id)
        if billing is not None:
            self.billing = billing if self.billing is None else self.billing | billing


State = TypeVar("State", bound=DecoderState)


class StateDecoder(ABC, Generic[State]):
    """Decodes one response to events, with the state of the response."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def is_finished(self) -> bool:
        """Whether the response has ended. The connection can stay open, but no more events follow."""
        return self._state.is_finished

    @property
    def unknown(self) -> UnknownNames:
        """The number of wire events of unknown types, by type."""
        return self._state.unknown

    @property
    def billing(self) -> Billing | None:
        """What the gateway has said about the bill so far."""
        return self._state.billing

    def feed_parsed(self, event: object) -> list[Event]:
        """Return the events for a wire event that is already parsed."""
        return self._state.apply(event)


class BaseDecoder(StateDecoder[State]):
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises.

    Args:
        state: The state of the response.
        limit: The maximum size of a frame or of a JSON body, in bytes.
    """

    def __init__(self, state: State, limit: int = FRAME_LIMIT) -> None:
        super().__init__(state)
        self._limit = limit
        self._sse = SseDecoder(limit)
        # The bytes that are not decoded yet, until it is clear whether this is a stream; then `None`.
        self._start: bytes | None = b""
        self._body: list[bytes] | None = None  # of a response that is not a stream
        self._size = 0
        self._has_frames = False  # whether a valid frame was received
        self._invalid_frames = 0  # frames that are not JSON
        # A copy of the first `HEAD_LIMIT` bytes, for the error if this is neither a stream nor JSON.
        self._head = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that the bytes complete. After the end of the response there are none.

        Args:
            chunk: The next bytes of the response, split anywhere.
        """
        if self._state.is_finished:
            return []
        if not self._has_frames and len(self._head) < HEAD_LIMIT:
            self._head += chunk[: HEAD_LIMIT - len(self._head)]
        if self._start is not None:
            chunk = self._detect_json(chunk)
        if self._body is not None:
            return self._collect(self._body, chunk)
        block = self._sse.buffer(chunk)
        payloads = self._sse.extract_payloads(block) if block else None
        events = self._decode_run(payloads) if payloads else None
        if events is None:
            events = self._decode_frames(self._sse.split(block))
        return events if self._sse.error is None else self._add_framing_error(events)

    def close(self) -> list[Event]:
        """Return the last events. Call it once, after the last byte."""
        if self._state.is_finished:
            return []
        if self._body is not None:
            return self._decode_body(b"".join(self._body))
        invalid_frames = self._invalid_frames
        events = self._add_framing_error(self._decode_rest(self._sse.close()))
        if self._state.is_finished:
            return events
        # An incomplete last frame was truncated; it is not invalid data.
        if not self._has_frames and (self._sse.has_unknown_fields or invalid_frames):
            return events + self._state.interrupt(StreamError(describe_body(self._head)))
        if invalid_frames:
            return events + self._state.interrupt(StreamError("The stream contained invalid data."))
        return events + self._state.close()

    @abstractmethod
    def _decode_run(self, payloads: list[bytes]) -> list[Event] | None:
        """Decode the frames of a block that are all deltas of one kind, as nearly all blocks are.

        Args:
            payloads: The data of the frames, which all have the same event name, or none.

        Returns:
            The events, or `None` if the block contains something else.
        """

    @abstractmethod
    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        """Decode any frames, up to the end of the response. Consecutive deltas become one event."""

    def _decode_rest(self, frames: list[Frame]) -> list[Event]:
        """Decode the last frame, which can be truncated."""
        return self._decode_frames(frames)

    def _decode_frame(self, name: bytes, data: bytes) -> list[Event]:
        """Decode a frame that is not one of the typed deltas."""
        text = data.strip()
        if not text:
            return []
        if text == b"[DONE]":
            self._has_frames = True
            return self._apply_done()
        try:
            value = read_json_to_depth(text)
        except ValueError:
            self._invalid_frames += 1
            return []
        self._has_frames = True
        return self._state.apply(value, name)

    def _apply_done(self) -> list[Event]:
        """Apply `[DONE]`, which some servers and proxies add to every stream."""
        return self._state.close()

    def _detect_json(self, chunk: bytes) -> bytes:
        """Detect whether this is an event stream or one JSON body, and return the bytes to decode.

        The first character decides, because content types are not reliable.
        """
        start = (self._start or b"") + chunk
        content = start.lstrip(_WHITE_SPACE)
        text = content.removeprefix(BOM).lstrip(_WHITE_SPACE)
        if not text or BOM.startswith(content):
            # White space has no meaning in either format and can be unlimited, so only its last byte is kept.
            self._start = content[:3] + content[3:][-1:] or start[-1:]
            return b""
        self._start = None
        if text.startswith((b"{", b"[")):
            self._body = []
        return start

    def _collect(self, body: list[bytes], chunk: bytes) -> list[Event]:
        body.append(chunk)
        self._size += len(chunk)
        return self._state.interrupt(frame_too_large(self._limit)) if self._size > self._limit else []

    def _decode_body(self, body: bytes) -> list[Event]:
        try:
            value = read_json_to_depth(body.strip().removeprefix(BOM))
        except ValueError:
            return self._state.interrupt(StreamError("The gateway returned invalid or truncated JSON."))
        return self._apply_body(Fields(value))

    def _apply_body(self, body: Fields) -> list[Event]:
        return self._state.apply_body(body)

    def _add_framing_error(self, events: list[Event]) -> list[Event]:
        if self._sse.error is not None and not self._state.is_finished:
            events += self._state.interrupt(self._sse.error)
        return events


class DeltaReader(NamedTuple):
    """How the typed deltas of a protocol are read.

    Attributes:
        read: Returns the delta in the data of a frame; raises one of `DELTA_ERRORS` for anything else.
        text: Returns the text of a delta.
        place: Return what consecutive deltas of one part have in common. Comparing one value at a time is
            faster than comparing tuples.
    """

    read: Callable[[bytes], Any]
    text: Callable[[Any], str]
    place: tuple[Callable[[Any], object], ...]


class DeltaDecoder(BaseDecoder[State]):
    """A decoder whose deltas are pieces of one text each. Consecutive deltas of one part become one event."""

    deltas: ClassVar[DeltaReader]

    @abstractmethod
    def _apply_delta(self, delta: Any, text: str) -> list[Event]:
        """Apply the joined text of deltas; `delta` is the first of them."""

    def _decode_run(self, payloads: list[bytes]) -> list[Event] | None:
        try:
            run = list(map(self.deltas.read, payloads))
        except DELTA_ERRORS:
            return None
        if len(run) > 1 and any(len(set(map(get, run))) != 1 for get in self.deltas.place):
            return None
        return self._emit_run(run)

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        read, _, place = self.deltas
        events: list[Event] = []
        run: list[Any] = []
        for name, data in frames:
            try:
                delta = read(data)
            except DELTA_ERRORS:
                events += self._emit_run(run)
                events += self._decode_frame(name, data)
                if self._state.is_finished:
                    break
                continue
            if run and any(get(delta) != get(run[0]) for get in place):
                events += self._emit_run(run)
            run.append(delta)
        return events + self._emit_run(run)

    def _emit_run(self, run: list[Any]) -> list[Event]:
        """Join the deltas of a run, and clear the list."""
        if not run:
            return []
        self._has_frames = True
        first, text = run[0], "".join(map(self.deltas.text, run))
        run.clear()
        try:
            return self._apply_delta(first, text)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            self._state.guard.skip("delta", error)
            return []
